"""Profilers of functions and lines: cProfile's and line_profiler's measurements as rows, and a sampler in a few lines.

The first two trace: they stop at every call or line and read the clock. A sampler notes now and then where the program is.
"""

import cProfile
import linecache
import pstats
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import need
from hpml_lab.profilers.sampler import StackSampler

if TYPE_CHECKING:
    from line_profiler import LineProfiler  # not in every environment: `by_line` says so


@dataclass
class FunctionRow(Row):
    """One function in cProfile's measurement: its own code, and with what it called."""

    function: str = column("function")
    where: str = column("where")
    calls: int = column("calls")
    own_ms: float = column("own time", "ms")
    total_ms: float = column("total time", "ms")
    percent: float = column("share of all own time", "%")


@dataclass
class LineRow(Row):
    """One line of a function in line_profiler's measurement; the share is of the function's time."""

    line: int = column("line")
    source: str = column("source")
    hits: int = column("hits")
    ms: float = column("time", "ms")
    percent: float = column("share", "%")


def function_rows(stats: pstats.Stats) -> list[FunctionRow]:
    """cProfile's measurement as rows, the function with the most time of its own first."""
    rows = []
    for (file, line, name), (_, calls, own, total, _) in stats.stats.items():
        where = "built in" if file == "~" else f"{Path(file).name}:{line}"
        rows.append(FunctionRow(name, where, calls, 1e3 * own, 1e3 * total, 100 * own / stats.total_tt))
    return sorted(rows, key=lambda row: -row.own_ms)


def by_function(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[Any, pstats.Stats]:
    """Run `work()` under cProfile; return its value and the measurement.

    clock  what the profiler reads, in seconds: `time.process_time` leaves out the time in which other programs had the core.
           Not `time.thread_time`: Python 3.13's cProfile sees the calls of other threads, and would mix their clocks.
    """
    profile = cProfile.Profile(clock)
    value = profile.runcall(work)
    return value, pstats.Stats(profile)


def line_rows(profiler: "LineProfiler", function: Callable[..., Any]) -> list[LineRow]:
    """line_profiler's measurement of one function as rows in the order of its source.

    Lines that were never reached are left out, as they have no time. Raises LabError for a function that was not measured.
    """
    stats = profiler.get_stats()
    code = function.__code__
    # Newer versions name a function with its class, so it is found by its file and first line.
    definition = (code.co_filename, code.co_firstlineno)
    timings = next((rows for (file, first, _), rows in stats.timings.items() if (file, first) == definition), None)
    if timings is None:
        raise LabError(f"{function.__name__} was not measured.", "Name it with -f in %lprun, or among by_line's functions.")
    linecache.checkcache(code.co_filename)
    source = linecache.getlines(code.co_filename)  # knows a notebook's cells, which are not files
    whole = sum(ticks for _, _, ticks in timings)
    return [
        LineRow(
            line=line,
            source=source[line - 1].split("  #")[0].strip() if line <= len(source) else "",
            hits=hits,
            ms=1e3 * ticks * stats.unit,
            percent=100 * ticks / whole,
        )
        for line, hits, ticks in timings
    ]


def by_line(work: Callable[[], Any], functions: Iterable[Callable[..., Any]]) -> tuple[Any, "LineProfiler"]:
    """Run `work()` with every line of `functions` timed; return its value and the profiler, switched off again.

    Raises LabError where line_profiler is not installed.
    """
    profiler = need("line_profiler", "line-profiler").LineProfiler(*functions)
    return profiler.runcall(work), profiler


def by_sample(work: Callable[[], Any], rate: float = 100.0) -> tuple[Any, Counter[str]]:
    """Run `work()` while a thread notes `rate` times a second where it is; return its value and {folded stack: samples}."""
    with StackSampler(rate) as sampler:
        return work(), sampler.samples
