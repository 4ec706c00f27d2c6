"""fill-the-disk: the fewest reads that have to be outstanding before a disk gives all it can, and the bytes it then gives."""

import math
from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same


def right(block: int, latency: float, iops: float, bandwidth: float) -> tuple[int, float]:
    requests = min(iops, bandwidth / block)
    return max(1, math.ceil(requests * latency)), requests * block


RUBRIC = Rubric(
    right,
    """
min(iops, bandwidth / block)
    requests-alone :: iops :: You never ask for the bandwidth: with large blocks the disk moves all the bytes it can before it
        has answered that many requests.
    bandwidth-alone :: bandwidth / block :: You never ask for the IOPS: with small blocks the disk answers all the requests it
        can before it has moved that many bytes.
    larger-limit :: max(iops, bandwidth / block) :: A disk does no more than the *smaller* of its two limits allows.
max(1, math.ceil(requests * latency))
    rounded-down :: max(1, math.floor(requests * latency)) :: $UP
    rounded :: max(1, round(requests * latency)) :: $UP
    one-too-many :: math.floor(requests * latency) + 1 :: Where IOPS × latency is a whole number, so many reads are enough.
    divided :: max(1, math.ceil(requests / latency)) :: $LITTLE
    one-reader :: 1 :: A single reader waits a whole latency for each block: 1 / latency requests a second.
    latency-in-bytes :: max(1, math.ceil(requests * block * latency)) :: You multiply bytes a second by the latency: that many
        *bytes* are outstanding. Reads are asked for.
requests * block
    readers-times-one :: max(1, math.ceil(requests * latency)) * block / latency :: You multiply what one reader gets by the
        number of readers; the last of them brings less, since the disk does no more.
    one-reader's-bytes :: block / latency :: So much one reader gets alone. With the others the disk gives more.
    requests-not-bytes :: requests :: Your second value counts requests; bytes a second are asked for.
    bandwidth-though-small :: bandwidth :: With small blocks the disk runs out of requests before it has moved so many bytes.
""",
    UP="With fewer reads than IOPS × latency the disk still has time to spare: a part of a read asks for a whole one.",
    LITTLE="Little's law: outstanding reads = IOPS × mean latency.",
)


@exercise("fill-the-disk", notebook="09_storage", takes="block, latency, iops, bandwidth", returns=(int, float))
def judge_fill_the_disk(answer: Callable) -> None:
    """(⌈requests · latency⌉, requests · block) with requests = min(iops, bandwidth / block)."""
    cases = {
        "a solid-state disk, blocks of 4 KiB": (4096, 0.0000912, 600_000.0, 3.5e9),
        "a solid-state disk, blocks of 1 MiB": (1 << 20, 0.0013371, 600_000.0, 3.5e9),
        "a rotating disk, blocks of 4 KiB": (4096, 0.0124157, 180.0, 2e8),
        "a rotating disk, blocks of 64 KiB": (1 << 16, 0.0134537, 180.0, 2e8),
        "a virtual disk, blocks of 16 KiB": (1 << 14, 0.00080337, 3000.0, 1.25e8),
        "a virtual disk, blocks of 1 MiB": (1 << 20, 0.0091973, 3000.0, 1.25e8),
        "a latency of 2⁻¹⁰ s, 4,096 requests a second": (4096, 2.0**-10, 4096.0, 1e9),
        "a little more than ten at a time": (4096, 0.0100005, 1000.0, 1e9),
        "one read is enough": (1 << 24, 0.110123, 3000.0, 1.25e8),
        "one reader is faster than the disk allows": (4096, 0.00010037, 500.0, 1e9),
    }
    RUBRIC.expect(answer, cases, explain=_explain)


def _explain(_answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which of the two numbers is wrong, and what one reader gets."""
    for case, (block, latency, iops, bandwidth), (depth, rate), (needed, most) in judged:
        if not same(depth, needed):
            hint = f"One reader gets {1 / latency:,.0f} requests a second, the disk answers {iops:,.0f}"
            raise Mistake(
                "too-few" if depth < needed else "too-many",
                f"For {case}: {hint} and moves {bandwidth / block:,.0f} blocks. With {depth} outstanding it does "
                + ("not yet give all it can." if depth < needed else "no more than with fewer."),
            )
        if not same(rate, most):
            hint = f"blocks of {block:,} bytes, at most {iops:,.0f} of them and at most {bandwidth:,.0f} bytes a second"
            raise Mistake("other-bytes", f"For {case}: {hint}. Yours are {rate:,.0f} bytes a second.")
