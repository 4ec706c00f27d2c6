"""ranks-at-half: the smallest number of ranks at which the efficiency of strong scaling with a ring is below one half."""

import bisect
import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import plain

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


def _answer(
    ring: Callable[[int, float, float, float], float] = _ring,
    measure: Callable[[int, float, float], float] = _efficiency,
    below: Callable[[float], bool] = lambda value: value < 0.5,
    tried: Callable[[int], int] = lambda i: i + 2,
    tries: int = TRIES,
    what: Callable[[int], float] = lambda n: n,
) -> Callable[..., float | None]:
    """The first of the numbers of ranks that are `tried` at which the measure is below; each part can be replaced."""

    def ranks(compute: float, *link: float) -> float | None:
        def found(i: int) -> bool:
            return below(measure(n := tried(i), compute, ring(n, *link)))

        # What is below one half stays below with more ranks, so that doubling and bisection find the first.
        high = next((2**power - 1 for power in range(31) if found(2**power - 1)), TRIES)
        first = bisect.bisect_left(range(high), True, key=found)
        return what(tried(first)) if first < tries else None

    return ranks


ranks_at_half = _answer()


def _root(compute: float, nbytes: float, latency: float, bandwidth: float) -> float:
    """The real number at which the efficiency is one half: 2 (N − 1)(N α + n / β) = compute."""
    a, b = 2 * latency, 2 * (nbytes / bandwidth - latency)
    c = -2 * nbytes / bandwidth - compute
    return -c / b if a == 0 else (-b + math.sqrt(b * b - 4 * a * c)) / (2 * a)


def _fastest(compute: float, *link: float) -> int:
    def seconds(n: int) -> float:
        return compute / n + _ring(n, *link)

    return next(n for n in itertools.count(1) if seconds(n + 1) >= seconds(n))


_SHARED = "N ranks share the compute: each has compute / N of it. "
_LATENCIES = "Every message pays the latency, and a ring sends 2 (N − 1) of them one after the other."
_TREE = "That is the cost of a tree. The exercise asks for a ring."
_TRIED = "You skip numbers of ranks; any number is allowed."
PARTS: dict[str, dict[str, tuple[Any, str]]] = {
    "below": {
        "one-half-is-not-below": (lambda value: value <= 0.5, "An efficiency of exactly one half is not below one half."),
        "above-one-half": (lambda value: value > 0.5, "You stop where the efficiency is above one half: turn it around."),
    },
    "tried": {
        "starts-too-late": (lambda i: i + 3, "Two ranks may already be too many: begin with them."),
        "powers-of-two": (lambda i: 2 ** min(i, 60), _TRIED),
        "powers-of-two, tens": (lambda i: 1 + 10 * i, _TRIED),
        "powers-of-two, even": (lambda i: 2 + 2 * i, _TRIED),
    },
    "what": {
        "the-last-above": (
            lambda n: n - 1,
            "That is the last number of ranks that is still good enough; the exercise asks for the first that is not.",
        ),
        "one-too-many": (lambda n: n + 1, "Your number is one too large: is it increased once more after the test?"),
        "ranks-that-are-good": (
            lambda n: n - 2,
            "Almost: count from one rank on, and give the first number that is below one half, not how many are above it.",
        ),
    },
    "measure": {
        "weak-scaling": (
            lambda n, compute, sum_: compute / (compute + sum_),
            _SHARED + "With the whole compute on each rank you have weak scaling.",
        ),
        "speed-up-instead": (
            lambda n, compute, sum_: compute / (compute / n + sum_),
            "Your ratio is the speed-up. Efficiency is the speed-up divided by the number of ranks.",
        ),
        "slower-than-one": (
            lambda n, compute, sum_: compute / (compute / n + sum_) / 2,
            "That is where N ranks become slower than one. The efficiency is below one half much earlier.",
        ),
        "sum-counts-twice": (
            lambda n, compute, sum_: compute / (n * (compute / n + 2 * sum_)),
            "Your sum counts twice. At an efficiency of exactly one half, it takes as long as a rank's compute.",
        ),
        "shared-twice": (
            lambda n, compute, sum_: compute / n / (compute + sum_),
            "The speed-up is compute on one rank over the time on N ranks. In yours N divides the wrong one of the two.",
        ),
        "divided-twice": (
            lambda n, compute, sum_: compute / (n * n * (compute / n + sum_)),
            "You divide by N twice: efficiency is compute / (N · time on N ranks).",
        ),
    },
    "ring": {
        "half-a-ring": (
            lambda n, nbytes, latency, bandwidth: (n - 1) * (latency + nbytes / (n * bandwidth)),
            "Your sum counts half. N − 1 steps are the reduce-scatter, and what makes the sums known to all ranks? (Nothing "
            "overlaps with the compute either.)",
        ),
        "whole-payload-in-each-step": (
            lambda n, nbytes, latency, bandwidth: 2 * (n - 1) * (latency + nbytes / bandwidth),
            "In each step of the ring a rank sends one of N parts, not all bytes.",
        ),
        "as-many-steps-as-ranks": (
            lambda n, nbytes, latency, bandwidth: 2 * n * (latency + nbytes / (n * bandwidth)),
            "A part has N − 1 other ranks to visit.",
        ),
        "latency-ignored": (
            lambda n, nbytes, latency, bandwidth: _ring(n, nbytes, 0.0, bandwidth),
            "Right where the latency is 0. Each of the ring's messages pays it once.",
        ),
        "bytes-ignored": (
            lambda n, nbytes, latency, bandwidth: _ring(n, 0.0, latency, bandwidth),
            "Your numbers are those without any bytes. Are they left out, or in another unit than the bandwidth's?",
        ),
        "one-latency": (lambda n, nbytes, latency, bandwidth: latency + 2 * (n - 1) * nbytes / (n * bandwidth), _LATENCIES),
        "one-latency, for each phase": (
            lambda n, nbytes, latency, bandwidth: 2 * latency + 2 * (n - 1) * nbytes / (n * bandwidth),
            _LATENCIES,
        ),
        "latency-in-another-unit": (
            lambda n, nbytes, latency, bandwidth: _ring(n, nbytes, latency / 1000, bandwidth),
            "Your latency is a thousandth of what it should be: it is given in seconds, as the compute is.",
        ),
        "latency-in-another-unit, microseconds": (
            lambda n, nbytes, latency, bandwidth: _ring(n, nbytes, latency / 1e6, bandwidth),
            "Your latency is a millionth of what it should be: it is given in seconds, as the compute is.",
        ),
        "payload-once": (
            lambda n, nbytes, latency, bandwidth: 2 * (n - 1) * latency + nbytes / bandwidth,
            "Your ring sends the bytes once. In each of its 2 (N − 1) steps it sends an N-th of them: how many times is that?",
        ),
        "bits": (
            lambda n, nbytes, latency, bandwidth: _ring(n, 8 * nbytes, latency, bandwidth),
            "Both are bytes here: the gradients and the bandwidth. No factor of 8 is needed.",
        ),
        "a-tree": (lambda n, nbytes, latency, bandwidth: 2 * (n - 1).bit_length() * latency + 2 * nbytes / bandwidth, _TREE),
        "a-tree, all bytes in each step": (
            lambda n, nbytes, latency, bandwidth: 2 * math.log2(n) * (latency + nbytes / bandwidth),
            _TREE,
        ),
        "large-n-formula": (
            lambda n, nbytes, latency, bandwidth: 2 * (n - 1) * latency + 2 * nbytes / bandwidth,
            "2 n / β is the ring's limit for many ranks; with N ranks it sends 2 (N − 1) / N of the bytes.",
        ),
    },
}
# With a wrong formula it may matter whether the first number that is tried is 2 or 1.
_FROM_ONE = combined(partial(_answer, tried=lambda i: i + 1), {part: PARTS[part] for part in PARTS if part != "tried"})
_MISTAKES: dict[str, tuple[Callable[..., object], str]] = {
    **combined(_answer, PARTS),
    **{f"{name}, from one": mistake for name, mistake in _FROM_ONE.items()},
    "not-a-whole-number": (_root, "That is where the curve meets one half. Ranks are whole: which is the first below it?"),
    "rounded": (
        lambda *given: round(_root(*given)),
        "You rounded to the nearest. Which whole number is the first at which the efficiency is below one half?",
    ),
    "one-half-is-not-below, rounded up": (
        lambda *given: math.ceil(_root(*given)),
        "Where the root is a whole number the efficiency is exactly one half there, which is not below one half.",
    ),
    "the-fastest": (_fastest, "That is where a step takes the least time. Efficiency is below one half long before."),
    "the-efficiency": (
        lambda compute, *link: _efficiency(n := ranks_at_half(compute, *link), compute, _ring(n, *link)),
        "That is the efficiency; the exercise asks for the number of ranks.",
    ),
    "gives-up": (
        _answer(tries=999),
        "You try no more than some hundreds of ranks. With little to send, efficiency holds for longer than that.",
    ),
    "the-example": (lambda *_: 101, "101 is right for the example; other numbers give other ranks."),
}


@exercise("ranks-at-half", notebook="13_distributed")
def judge_ranks_at_half(answer: Callable) -> None:
    """The first N with compute / (N · (compute / N + ring(N))) < 1/2."""
    found = []

    def noted(*given: float) -> Any:
        found.append(None)  # stays where the answer raises
        found[-1] = plain(answer(*given))
        return found[-1]

    try:
        expect_function(noted, ranks_at_half, CASES)
        return
    except Mistake as mistake:
        wrong = mistake
    if len(set(map(str, found))) > 1 or found[0] == 101:  # one number for all would look like many mistakes
        try:
            expect_function(answer, ranks_at_half, CASES, mistakes=_MISTAKES)
        except Mistake as mistake:
            wrong = mistake
    if wrong.name == "wrong-value":
        _explain(found)
    raise wrong


def _explain(found: list[Any]) -> None:
    """Raise the Mistake that says what the efficiency is at the number of ranks that was found."""
    for (case, (compute, *link)), n in zip(CASES.items(), found, strict=True):
        right = ranks_at_half(compute, *link)
        if n == right or not isinstance(n, int | float) or n < 1:
            continue
        if n != int(n):
            raise Mistake("not-a-whole-number", f"For {case} yours is {n:g}: ranks are whole.")
        at, before = (_efficiency(k, compute, _ring(k, *link)) for k in (n, max(n - 1, 1)))
        if n > right:
            hint = f"With {n - 1:g} ranks the efficiency is {before:.4g} already, below one half: {n:g} is not the smallest."
            raise Mistake("too-many-ranks", f"For {case}: {hint}")
        raise Mistake("too-few-ranks", f"For {case}: with {n:g} ranks the efficiency is {at:.4g}, which is not below one half.")
