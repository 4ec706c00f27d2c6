"""Four causes of slow code, each found in a profile and removed, with equal results."""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import grouped_bars
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.clock import SAMPLES, interleaved
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.profilers.functions import by_line, line_rows
from hpml_lab.profilers.thread_states import Watch
from hpml_lab.profiling.lessons import slow_causes as lesson

QUICK = dict(cells=20_000, rows=1 << 14, columns=128, labels=100_000, chunks=8, values=1 << 18, threads=4, samples=SAMPLES)
FULL = dict(cells=200_000, rows=1 << 17, columns=128, labels=1_000_000, chunks=64, values=1 << 18, threads=8, samples=SAMPLES)
EXCEPTIONS, TRAVERSAL, DICTIONARY, LOCKING = "exceptions", "traversal", "dictionary", "HDF5 threads"
CLAIMS = {
    EXCEPTIONS: "Asking first is faster than an exception for every second value",
    TRAVERSAL: "Sums along the order in memory are faster than sums against it",
    DICTIONARY: "One lookup in an array is faster than one in a dictionary for each label",
    LOCKING: "Threads that decompress outside HDF5's lock are faster than threads that wait for it",
}
WATCHED_SECONDS = 0.4


@dataclass(frozen=True)
class Pair:
    """The two forms of one cause, ready to be run, and a profile of the slow one: what it shows, and if that is the cause."""

    cause: str
    slow: Callable[[], Any]
    fast: Callable[[], Any]
    profile: Callable[[], tuple[str, bool]]


@dataclass
class CausePair(Row):
    """One cause: its slow and its fast form, timed in turns, and what a profile of the slow form shows."""

    cause: str = column("cause")
    slow_ms: float = column("slow", "ms")
    fast_ms: float = column("fast", "ms")
    gain: float = column("speed-up")
    interval: str = column("interval")
    verdict: str = column("verdict")
    same: bool = column("equal results")
    shown: str | None = column("what a profile of the slow form shows", default=None)
    found: bool | None = column("is that the cause", default=None)


# ---- measuring -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def pairs(params: Params, notes: list[str]) -> Iterator[list[Pair]]:
    """The pairs that this machine can run; a note for the one that it cannot."""
    chance = np.random.default_rng(0)
    cells = [f"{number / 7:.4f}" if number % 2 else "" for number in range(params.cells)]
    matrix = chance.integers(0, 100, (params.rows, params.columns))  # int64: sums in any order are equal
    labels, weights = chance.integers(0, 100, params.labels), {label: 3 * label + 1 for label in range(100)}
    found = [
        _pair(EXCEPTIONS, lesson.parse_slow, lesson.parse_fast, "float(cell)", cells),
        _pair(TRAVERSAL, lesson.column_sums_slow, lesson.column_sums_fast, "matrix[:, column]", matrix),
        _pair(DICTIONARY, lesson.weigh_slow, lesson.weigh_fast, "weights[label]", labels, weights),
    ]
    with contextlib.ExitStack() as stack:
        path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hpml-causes-"))) / "x.h5"
        try:
            lesson.write_hdf5(path, params.chunks, params.values)
            given = stack.enter_context(lesson.open_hdf5(path))["x"], stack.enter_context(ThreadPoolExecutor(params.threads))
            profile = partial(threads_at_the_lock, given[0], params.threads)
            found.append(Pair(LOCKING, partial(lesson.read_slow, *given), partial(lesson.read_fast, *given), profile))
        except LabError as error:
            notes.append(f"{error} Until then there is no pair of {LOCKING}.")
        yield found


def _pair(cause: str, slow: Callable[..., Any], fast: Callable[..., Any], line: str, *given: Any) -> Pair:
    work = partial(slow, *given)
    return Pair(cause, work, partial(fast, *given), partial(largest_line, work, slow, line))


def largest_line(work: Callable[[], Any], function: Callable[..., Any], line: str) -> tuple[str, bool]:
    """The line of `function` with the largest share by line_profiler, and whether it has `line` in it; of each line the
    shortest time of three runs counts. Raises LabError where line_profiler is not installed."""
    runs = [line_rows(by_line(work, [function])[1], function) for _ in range(3)]
    quiet = [min(same, key=lambda row: row.ms) for same in zip(*runs, strict=True)]
    largest = max(quiet, key=lambda row: row.ms)
    return f"{largest.source}: {100 * largest.ms / sum(row.ms for row in quiet):.0f} %", line in largest.source


def threads_at_the_lock(dataset: Any, threads: int) -> tuple[str, bool]:
    """How many threads that read through HDF5 wait at a lock, on average, and whether it is more than one."""
    with Watch() as watch, ThreadPoolExecutor(threads) as pool:
        end = CLOCK() + WATCHED_SECONDS
        while CLOCK() < end:
            lesson.read_slow(dataset, pool)
    waiting = watch.evidence()["lock_wait"]
    return f"{waiting:.1f} of {threads} threads wait at a lock", waiting > 1


def measured_pair(pair: Pair, samples: int, notes: list[str]) -> CausePair:
    """Both forms in turns, compared, and the slow one profiled; a note where there is no profiler."""
    same = bool(np.array_equal(pair.slow(), pair.fast()))
    times = interleaved({"slow": pair.slow, "fast": pair.fast}, samples=samples, placebo="slow")
    milliseconds = {f"{name}_ms": 1e3 * times[name].seconds for name in ("slow", "fast")}
    row = CausePair(pair.cause, **milliseconds, **speed_up(times, "slow", "fast").columns, same=same)
    try:
        row.shown, row.found = pair.profile()
    except LabError as error:
        notes[:] = dict.fromkeys([*notes, f"{error} Until then a profile shows no lines."])  # once for all pairs
    return row


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """The time of the slow and the fast form of each cause, on a logarithmic axis, with equal results. Look for the pair with
    the largest distance: it is the one in which a loop in Python became one operation of NumPy."""
    rows = result.rows(CausePair)
    figure = style.new_figure(8, 3.4)
    axes = figure.subplots()
    series = {"slow": [row.slow_ms for row in rows], "fast": [row.fast_ms for row in rows]}
    grouped_bars(axes, [row.cause for row in rows], series, labels="%.3g")
    axes.set_yscale("log")
    axes.set(xlabel="cause", ylabel="time in ms")
    axes.margins(y=0.15)
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("slow-causes", lecture="L1", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL, uses=("h5py",))
def slow_causes(params: Params) -> Result:
    """Four causes of slow code: exceptions, traversal, dictionaries, a lock; each found in a profile and removed."""
    result = Result()
    with pairs(params, result.notes) as found:
        rows = [measured_pair(pair, params.samples, result.notes) for pair in found]
    result.tables.append(Table("Slow and fast forms, in turns", rows))
    result.claim("The slow and the fast form of each cause return the same, to the last bit", all(row.same for row in rows))
    for row in rows:
        result.key_figure(f"{row.cause}: slow / fast", row.gain, unit="times")
        result.measured(CLAIMS[row.cause], row.verdict == "faster", f"{row.gain:.3g}× ({row.interval}; {row.verdict})")
    shown = [row for row in rows if row.shown]
    if shown:
        missed = [f"{row.cause} ({row.shown})" for row in shown if not row.found]
        result.measured(
            "A profile points at the cause: at its line by line_profiler, at threads that wait for a lock",
            not missed,
            f"{len(shown) - len(missed)} of {len(shown)}; {'; '.join(missed) or 'none missed'}",
        )
    return result
