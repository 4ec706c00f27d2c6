"""One dot product in seven ways: where each stands under the roofline, and why a running sum in float32 stops at 2²⁴."""

import contextlib
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.progress import progress
from hpml_lab.core.timing.clock import Ceiling, Timing, ceiling, interleaved, measure
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.core.timing.roofline import draw_roof
from hpml_lab.core.timing.threads import all_threads
from hpml_lab.tensors.lessons import summation
from hpml_lab.tensors.lessons.dot_loops import IN_C, in_c, in_python, library

NOTEBOOK = "01_tensors"
QUICK = dict(sizes=(1_000, 30_000, 1_000_000, 10_000_000), summed=100_000)
FULL = dict(sizes=(1_000, 30_000, 1_000_000, 30_000_000, 300_000_000), summed=1_000_000)
PYTHON, NUMPY, BLAS, TORCH = "Python", "NumPy", "BLAS", "torch"
STOP = 1 << 24  # from here on float32 cannot count by ones
INTENSITY = 2 / 8  # FLOP/byte: a multiplication and an addition for two numbers of four bytes
NO_COMPILER = "No C compiler here: the loops in C are in the recorded run only."


@dataclass
class Dot(Row):
    """One way at one size."""

    way: str = column("way")
    n: int = column("n")
    threads: int = column("threads")
    microseconds: float = column("median", "µs")
    rate: float = column("rate", "GFLOP/s")
    bandwidth: float = column("bandwidth", "GB/s")
    share: float = column("rate / roofline")


@dataclass
class Sum(Row):
    """Numbers of float32, added up in one way: n ones, and random numbers between 0 and 1."""

    way: str = column("way")
    ones: int = column(f"{STOP + 1000:,} ones")
    error: float = column("error for random numbers", "u · Σ|x|")
    bound: float = column("bound", "u · Σ|x|")


def vectors(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Two vectors of n numbers of float32, between 0 and 1."""
    generator = np.random.default_rng(0)
    return generator.random(n, dtype=np.float32), generator.random(n, dtype=np.float32)


def works(n: int) -> dict[str, Callable[[], float]]:
    """{way: the dot product of two vectors of n numbers}: each vector lies in memory before the clock starts."""
    from scipy.linalg.blas import sdot  # late: this import takes a while

    a, b = vectors(n)
    at, bt = torch.from_numpy(a), torch.from_numpy(b)
    found: dict[str, Callable[[], float]] = {}
    if n <= 1_000_000:  # beyond, lists of Python fill the memory
        found[PYTHON] = functools.partial(in_python, a.tolist(), b.tolist())
    return (
        found
        | in_c(a, b)
        | {
            NUMPY: functools.partial(np.dot, a, b),
            BLAS: functools.partial(sdot, a, b),
            TORCH: functools.partial(torch.dot, at, bt),
        }
    )


def blas_threads(threads: int) -> contextlib.AbstractContextManager:
    """NumPy's and SciPy's library on so many threads; torch's are its own."""
    from threadpoolctl import threadpool_limits

    return threadpool_limits(threads, user_api="blas")


def timed(work: Callable[[], float], n: int, threads: int) -> Timing:
    """Seconds of one dot product, on so many threads."""
    with blas_threads(threads):
        return measure(work, threads=threads, bytes=8.0 * n, flops=2.0 * n)


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: bandwidth of each way by the length of the vectors, on one thread, at eight bytes of float32 for a pair; the dotted
    line is a copy far larger than the caches. Right, with the same marks: each way at its largest size under the measured
    roofline. All have the intensity ¼, so that one stands above the other. A point far below the slope waits for something else
    than memory: for what?"""
    figure = style.new_figure(10, 4.4)
    left, right = figure.subplots(1, 2)
    limits = result.arrays["ceiling"]
    rows = [row for row in result.rows(Dot) if row.threads == 1]
    for n, way in enumerate(dict.fromkeys(row.way for row in rows)):
        look = {"marker": style.MARKERS[n % len(style.MARKERS)], "color": style.CYCLE[n % len(style.CYCLE)]}
        of_way = [row for row in rows if row.way == way]
        left.plot([row.n for row in of_way], [row.bandwidth for row in of_way], label=way, **look)
        right.plot([INTENSITY], [of_way[-1].rate], linestyle="none", markersize=8, label=way, **look)
    left.axhline(limits["GB/s"], color=style.GREY, linestyle=":")
    left.annotate("a large copy", (rows[0].n, limits["GB/s"]), (0, 3), textcoords="offset points", fontsize=8)
    left.set(xscale="log", yscale="log", xlabel="n", ylabel="GB/s (read)", title="Bandwidth on one thread")
    draw_roof(right, Ceiling(limits["GB/s"], limits["GFLOP/s"], threads=1), style.INK, "measured limits, one thread")
    right.set(xlim=(0.03, 300), title="At the largest size of each")
    right.legend(fontsize=8, loc="lower right")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


def add_up(n: int) -> list[Sum]:
    """Each sum of 2²⁴ + 1000 ones and of n random numbers, with its error."""
    ones = np.ones(STOP + 1000, dtype=np.float32)
    x, _ = vectors(n)
    exact = math.fsum(x.tolist())
    found = []
    for way, bound in summation.bounds(n).items():
        # Kahan's sum is a loop of Python; before it reaches 2²⁴ ones by one, a minute is gone, so it starts near the end.
        counted = way(np.append(np.float32(STOP - 1000), ones[:2000])) if way is summation.compensated else way(ones)
        error = abs(float(way(x)) - exact) / (summation.U * exact)
        found.append(Sum(way.__name__, int(counted), error, float(bound)))
    return found


@experiment("dot-product", lecture="own", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL)
def dot_product(params: Params) -> Result:
    """One dot product in seven ways, under the roofline, and four ways to add up."""
    limits = ceiling("cpu")
    rows: list[Dot] = []
    for n in progress(params.sizes, "sizes"):
        for way, work in works(n).items():
            for threads in sorted({1, all_threads()} if n == params.sizes[-1] and way in (NUMPY, BLAS, TORCH) else {1}):
                timing = timed(work, n, threads)
                share = timing.gflop_per_s / limits.attainable(INTENSITY)
                rows.append(Dot(way, n, threads, timing.seconds * 1e6, timing.gflop_per_s, timing.gb_per_s, share))
    added = add_up(params.summed)
    result = Result(
        [
            Table("Dot products of two vectors of float32", rows),
            Table(f"Sums of float32, {params.summed:,} random numbers", added),
        ],
        arrays={"ceiling": {"GB/s": limits.gb_per_s, "GFLOP/s": limits.gflop_per_s}},
    )
    with blas_threads(1):
        compare_ways(result)
    result.notes.append("Kahan's sum of ones, a loop of Python, begins near the end: at 2²⁴ − 1000.")
    by_way = {row.way: row for row in added}
    result.claim(
        "A running sum of ones in float32 stops at 16,777,216 = 2²⁴: one more is rounded away. The other sums go on",
        by_way["running"].ones == STOP and all(row.ones == STOP + 1000 for row in added if row.way != "running"),
        ", ".join(f"{row.way}: {row.ones:,}" for row in added),
    )
    result.claim(
        "Each sum's error is within its bound: n − 1, log₂ n, about 3 and about 1 times u · Σ|x|",
        all(row.error <= row.bound for row in added),
        ", ".join(f"{row.way}: {row.error:.3g} ≤ {row.bound:,.0f}" for row in added),
    )
    if library():
        claim_in_c(result)
    else:
        result.notes.append(NO_COMPILER)
    return result


def claim_in_c(result: Result) -> None:
    """The loops in C round as any other sum does."""
    ones = np.ones(STOP + 1000, dtype=np.float32)
    one, four, any_order = (dot() for dot in in_c(ones, ones).values())
    result.measured(
        "In C, too, one sum of products 1 · 1 stops at 2²⁴, and four sums go on",
        one == STOP and four == STOP + 1000,
        f"{one:,.0f} and {four:,.0f}; in any order, as the compiler likes: {any_order:,.0f}",
        depends_on="the compiler",
    )


def compare_ways(result: Result) -> None:
    """Ways in turns, in one run: at a length whose vectors stay in a cache."""
    n = 30_000
    pieces = works(n)
    gain = None
    if library():
        plain, unrolled = list(IN_C)[:2]
        gain = speed_up(interleaved({way: pieces[way] for way in (plain, unrolled)}, placebo=plain), plain, unrolled)
        result.measured("In C, four sums are faster than one, from a cache", gain.faster, str(gain))
    result.key_figure("four sums over one sum, in C", gain and gain.ratio, "times")
    gain = speed_up(interleaved({way: pieces[way] for way in (PYTHON, NUMPY)}, placebo=PYTHON), PYTHON, NUMPY)
    result.key_figure("NumPy over a loop of Python", gain.ratio, "times")
    result.measured("NumPy is faster than a loop of Python, by more than noise", gain.faster, str(gain))
