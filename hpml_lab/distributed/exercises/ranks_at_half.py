"""ranks-at-half: the smallest number of ranks at which the efficiency of strong scaling with a ring is below one half."""

import bisect
import itertools
import math
from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric

TRIES = 1 << 30  # a search that has found nothing below one half after so many ends without an answer

# {in words: (seconds of compute on one rank, bytes of gradients, latency in s, bandwidth in bytes/s)}
# Each has a latency and bytes, so that wrong formulas end too.
CASES = {
    "10 s of compute, 1 GB, 100 µs, 10 GB/s": (10.0, 1e9, 1e-4, 1e10),
    "9 s, 0.5 GB, 250 ms, 1 GB/s": (9.0, 5e8, 0.25, 1e9),  # four ranks: exactly one half
    "0.1 s, 100 MB, 1 ms, 1 GB/s": (0.1, 1e8, 1e-3, 1e9),  # already two ranks
    "100 s, 1 MB, 5 ms, 1 GB/s": (100.0, 1e6, 5e-3, 1e9),
    "400 s, 16 GB, 1 ms, 47 GB/s": (400.0, 16e9, 1e-3, 47e9),
    "2 s, 0.5 GB, 2 ms, 12.5 GB/s": (2.0, 5e8, 2e-3, 12.5e9),
    "100 s, 1 MB, 35 µs, 10 GB/s": (100.0, 1e6, 35e-6, 1e10),  # more than a thousand ranks
    "100 s, 10 bytes, 100 ms, 1 byte/s": (100.0, 10.0, 0.1, 1.0),  # a part of the bytes is no whole number
}


def _ring(n: int, nbytes: float, latency: float, bandwidth: float) -> float:
    return 2 * (n - 1) * (latency + nbytes / (n * bandwidth))


def _efficiency(n: int, compute: float, sum_: float) -> float:
    return compute / (n * (compute / n + sum_))


def _first(found: Callable[[int], bool], tried: Callable[[int], int], tries: int = TRIES) -> int | None:
    """The first of the numbers of ranks that are `tried` at which it is `found`."""
    # What is below one half stays below with more ranks, so that doubling and bisection find the first.
    high = next((2**power - 1 for power in range(31) if found(tried(2**power - 1))), TRIES)
    first = bisect.bisect_left(range(high), True, key=lambda i: found(tried(i)))
    return tried(first) if first < tries else None


def ranks_at_half(compute: float, nbytes: float, latency: float, bandwidth: float) -> int | None:
    def found(n: int) -> bool:
        ring = 2 * (n - 1) * (latency + nbytes / (n * bandwidth))
        efficiency = compute / (n * (compute / n + ring))
        return efficiency < 0.5

    n = _first(found, lambda i: i + 2)
    return n


def _root(compute: float, nbytes: float, latency: float, bandwidth: float) -> float:
    """The real number at which the efficiency is one half: 2 (N − 1)(N α + n / β) = compute."""
    a, b = 2 * latency, 2 * (nbytes / bandwidth - latency)
    c = -2 * nbytes / bandwidth - compute
    return -c / b if a == 0 else (-b + math.sqrt(b * b - 4 * a * c)) / (2 * a)


def _fastest(compute: float, *link: float) -> int:
    def seconds(n: int) -> float:
        return compute / n + _ring(n, *link)

    return next(n for n in itertools.count(1) if seconds(n + 1) >= seconds(n))


RUBRIC = Rubric(
    ranks_at_half,
    """
efficiency < 0.5
    one-half-is-not-below :: efficiency <= 0.5 :: An efficiency of exactly one half is not below one half.
return n
    the-last-above :: return n - 1 :: The exercise asks for the first number of ranks that is below one half, not for the last
        that is still good enough.
2 * (n - 1) * (latency + nbytes / (n * bandwidth))
    half-a-ring :: (n - 1) * (latency + nbytes / (n * bandwidth)) :: N − 1 steps are the reduce-scatter, half of the sum: what
        makes the sums known to all ranks? (Nothing overlaps with the compute either.)
    whole-payload-in-each-step :: 2 * (n - 1) * (latency + nbytes / bandwidth) :: In each step of the ring a rank sends one of
        N parts, not all bytes.
    payload-sent-once :: 2 * (n - 1) * latency + nbytes / bandwidth :: Each of the 2 (N − 1) steps sends an N-th of the bytes:
        together nearly twice all of them.
lambda i: i + 2
    powers-of-two :: lambda i: 2 ** min(i, 60) :: $TRIED
    powers-of-two :: lambda i: 1 + 10 * i :: $TRIED
    powers-of-two :: lambda i: 2 + 2 * i :: $TRIED
whole answer
    rounded :: lambda *given: round(_root(*given)) :: You rounded to the nearest. Which whole number is the first at which the
        efficiency is below one half?
    the-fastest :: _fastest :: That is where a step takes the least time. Efficiency is below one half long before.
""",
    TRIED="You skip numbers of ranks; any number is allowed.",
)


@exercise("ranks-at-half", notebook="13_distributed", takes="compute, nbytes, latency, bandwidth", returns=int)
def judge_ranks_at_half(answer: Callable) -> None:
    """The first N with compute / (N · (compute / N + ring(N))) < 1/2."""
    RUBRIC.expect(answer, CASES, explain=_explain)


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says what the efficiency is at the number of ranks that was found."""
    for case, (compute, *link), n, right in judged:
        if n == right or n < 1:
            continue
        at, before = (_efficiency(k, compute, _ring(k, *link)) for k in (n, max(n - 1, 1)))
        if n > right:
            hint = f"With {n - 1:g} ranks the efficiency is {before:.4g} already, below one half: {n:g} is not the smallest."
            raise Mistake("too-many-ranks", f"For {case}: {hint}")
        raise Mistake("too-few-ranks", f"For {case}: with {n:g} ranks the efficiency is {at:.4g}, which is not below one half.")
