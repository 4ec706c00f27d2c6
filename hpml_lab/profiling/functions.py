"""Profilers of functions and lines: cProfile's and line_profiler's measurements as rows, and a sampler in a few lines.

The first two trace: they stop at every call or line and look at the clock. A sampler looks now and then where the program is.
"""

import cProfile
import linecache
import os
import pstats
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from line_profiler import LineProfiler

from hpml_lab.core.errors import LabError

IDIOMS = """
from line_profiler import profile as imported
def work(): return 1
print("off" if imported(work) is work else "on")
try:
    @profile
    def work(): return 1
    print("on")
except NameError as error:
    print(f"NameError: {error}")
"""
LAUNCHES = {
    "python script.py": (["script.py"], {}),
    "kernprof -l script.py": (["-m", "kernprof", "-l", "script.py"], {}),
    "LINE_PROFILE=1 python script.py": (["script.py"], {"LINE_PROFILE": "1"}),
}


def function_rows(stats: pstats.Stats) -> list[dict[str, Any]]:
    """cProfile's measurement as rows, the function with the most time of its own first.

    own ms    time in the function's own code, without what it called
    total ms  with what it called
    share %   of all own time
    """
    rows = []
    for (file, line, name), (_, calls, own, total, _) in stats.stats.items():
        where = "built in" if file == "~" else f"{Path(file).name}:{line}"
        row = {"function": name, "where": where, "calls": calls, "own ms": 1e3 * own, "total ms": 1e3 * total}
        rows.append({**row, "share %": 100 * own / stats.total_tt})
    return sorted(rows, key=lambda row: -row["own ms"])


def by_function(work: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[Any, pstats.Stats]:
    """Run `work()` under cProfile; return its value and the measurement.

    clock  what the profiler reads, in seconds: `time.process_time` leaves out the time in which other programs had the core.
           Not `time.thread_time`: Python 3.13's cProfile sees the calls of other threads, and would mix their clocks.
    """
    profile = cProfile.Profile(clock)
    value = profile.runcall(work)
    return value, pstats.Stats(profile)


def line_rows(profiler: LineProfiler, function: Callable[..., Any]) -> list[dict[str, Any]]:
    """line_profiler's measurement of one function as rows in the order of its source; share % is of the whole function.

    Lines that were never reached are left out, as they have no time. Raises LabError for a function that was not measured.
    """
    stats = profiler.get_stats()
    code = function.__code__
    # Newer versions name a function with its class, so it is found by its file and first line.
    place = (code.co_filename, code.co_firstlineno)
    timings = next((found for (file, first, _), found in stats.timings.items() if (file, first) == place), None)
    if timings is None:
        raise LabError(f"{function.__name__} was not measured.", "Name it with -f in %lprun, or among by_line's functions.")
    linecache.checkcache(code.co_filename)
    source = linecache.getlines(code.co_filename)  # knows a notebook's cells, which are no files
    whole = sum(ticks for _, _, ticks in timings)
    return [
        {
            "line": line,
            "source": source[line - 1].split("  #")[0].strip() if line <= len(source) else "",
            "hits": hits,
            "ms": 1e3 * ticks * stats.unit,
            "share %": 100 * ticks / whole,
        }
        for line, hits, ticks in timings
    ]


def by_line(work: Callable[[], Any], functions: Iterable[Callable[..., Any]]) -> tuple[Any, LineProfiler]:
    """Run `work()` with every line of `functions` timed; return its value and the profiler, switched off again."""
    profiler = LineProfiler(*functions)
    return profiler.runcall(work), profiler


def by_sample(work: Callable[[], Any], hz: float = 100.0) -> tuple[Any, Counter[str]]:
    """Run `work()` while a thread looks `hz` times a second where it is; return its value and {folded stack: samples}.

    A folded stack names the functions from the outermost to the one that runs, with a semicolon between them.
    """
    me, over = threading.get_ident(), threading.Event()
    seen: Counter[str] = Counter()

    def look() -> None:
        while not over.wait(1 / hz):
            frame, names = sys._current_frames().get(me), []
            while frame is not None:
                names.append(frame.f_code.co_name)
                frame = frame.f_back
            seen[";".join(reversed(names))] += 1

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        return work(), seen
    finally:
        over.set()
        thread.join()


def idioms() -> list[dict[str, str]]:
    """The two ways to mark a function for line_profiler, under three ways to start the script."""
    rows = []
    plain = {name: value for name, value in os.environ.items() if name != "LINE_PROFILE"}
    with tempfile.TemporaryDirectory(prefix="hpml-idioms-") as folder:
        (Path(folder) / "script.py").write_text(IDIOMS)
        for launch, (arguments, variables) in LAUNCHES.items():
            command, environment = [sys.executable, *arguments], {**plain, **variables}
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
            said = done.stdout.splitlines() + ["", ""]
            rows.append({"started as": launch, "from line_profiler import profile": said[0], "bare @profile": said[1]})
    return rows
