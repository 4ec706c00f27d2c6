"""Profilers of Python functions and lines: what they find, what they count, and what they cost."""

import re
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hpml_lab.core import style
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.picture import picture
from hpml_lab.core.result import Result
from hpml_lab.core.workers import child_pids
from hpml_lab.profiling import functions, random_walk
from hpml_lab.profiling.functions import FunctionRow, LineRow, MarkerRow

QUICK = dict(steps=50, walkers=10_000, repeats=7, calls=200, power=1_000_000, count=100_000, samples=5)
FULL = dict(steps=50, walkers=10_000, repeats=50, calls=2000, power=5_000_000, count=1_000_000, samples=7)
LECTURE_PERCENT = {"step(": 49.5, "cumsum": 3.7, "vstack": 46.7}  # of simulate's time, by a word in the line


@dataclass
class WalkLine(LineRow):
    """One line of `simulate`, with the share that the lecture's machine gave it."""

    lecture_percent: float | None = column("lecture", "%", default=None)


@dataclass
class ProfilerCost:
    """How much processor time a tight loop takes under a profiler."""

    profiler: str = column("profiler")
    times: float = column("tight loop under it", "times as long")


# ---- measuring -------------------------------------------------------------------------------------------------------


def short_name(function: str) -> str:
    """cProfile's name of a function in C without the words around it: "<method 'sort' of 'list' objects>" is sort."""
    match = re.match(r"<built-in method (\S+)>|<method '(\S+)' of", function)
    return next(filter(None, match.groups())) if match else function


def quietest(tables: list[list[Any]], names: tuple[str, ...], time_field: str) -> list[Any]:
    """Of each function or line the shortest time of several runs: other programs that have the core only add to it."""
    best: dict[Any, Any] = {}
    for row in (row for table in tables for row in table):
        key = tuple(getattr(row, name) for name in names)
        best[key] = min(best.get(key, row), row, key=lambda row: getattr(row, time_field))
    whole = sum(getattr(row, time_field) for row in best.values())
    return [replace(row, percent=100 * getattr(row, time_field) / whole) for row in best.values()]


def processor_seconds(work: Callable[[], object]) -> float:
    """The processor time of all threads of this process for one `work()`, without what other programs do meanwhile."""
    start = time.process_time()
    work()
    return time.process_time() - start


def profiler_costs(count: int, samples: int) -> list[ProfilerCost]:
    """A tight loop alone and under three profilers, in turns; of each the least time."""

    def loop() -> int:
        return random_walk.tight_loop(count)

    works = {
        "none": loop,
        "sampler, 100 a second": lambda: functions.by_sample(loop),
        "cProfile, every call": lambda: functions.by_function(loop),
        "line_profiler, every line": lambda: functions.by_line(loop, [random_walk.tight_loop, random_walk.cheap]),
    }
    turns = [[processor_seconds(work) for work in works.values()] for _ in range(samples)]
    least = dict(zip(works, map(min, zip(*turns, strict=True)), strict=True))
    return [ProfilerCost(name, seconds / least["none"]) for name, seconds in least.items() if name != "none"]


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """How much processor time a tight loop takes under each profiler, as a multiple of its time without one (dashed). A sampler
    hardly slows the loop; tracing every call or every line does."""
    costs = result.rows(ProfilerCost)
    figure = style.new_figure(7.5, 2.4)
    axes = figure.subplots()
    bars = axes.barh([row.profiler for row in costs], [row.times for row in costs], color=style.ORANGE)
    axes.bar_label(bars, [f"{row.times:.1f}" for row in costs], padding=3)
    axes.axvline(1, color=style.GREY, linestyle="--", linewidth=1.2)
    axes.margins(x=0.1)
    axes.set(xlabel="processor time of a tight loop, times as long as without a profiler", ylabel="profiler")
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    return figure


@picture
def random_walk_profile(result: Result):
    """The random walk under both profilers. Left: the functions with the most time of their own, by cProfile, with the number
    of calls. Right: the lines of simulate by line_profiler; diamonds are the lecture's shares."""
    figure = style.new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    calls, lines = result.rows(FunctionRow), result.rows(WalkLine)
    bars = left.barh(range(len(calls)), [row.own_ms for row in calls], color=style.BLUE)
    left.bar_label(bars, [f"{row.calls}×" for row in calls], padding=3, fontsize=8)
    left.set_yticks(range(len(calls)), [row.function for row in calls])  # two functions may have one name
    left.set(xlabel="own time in ms, and calls", title="cProfile: functions")
    left.margins(x=0.15)
    names = [textwrap.fill(row.source, 28) for row in lines]
    right.barh(names, [row.percent for row in lines], color=style.GREEN, label="here")
    known = [(index, row.lecture_percent) for index, row in enumerate(lines) if row.lecture_percent is not None]
    right.plot([percent for _, percent in known], [index for index, _ in known], "D", color=style.RED, label="lecture")
    right.set(xlabel="share of simulate's time in %", xlim=(0, 100), title="line_profiler: lines", ylabel="line of simulate")
    right.legend(loc="lower right")
    for axes in (left, right):
        axes.invert_yaxis()
        axes.set_axisbelow(True)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", labelsize=8)
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("cprofile-line-profiler", lecture="L1 L3", notebook="09_profiling", draw=draw, quick=QUICK, full=FULL)
def cprofile_line_profiler(params: Params) -> Result:
    """Which function, which line: cProfile and line_profiler on the lecture's random walk.

    A second program, whose expensive line is known, shows that the first row of each table is the right one.
    """
    before = child_pids()

    def walk() -> Any:
        return random_walk.simulate(params.steps, params.walkers)

    plain = walk()  # imports and memory: the first run is not like the others
    called = [functions.by_function(walk) for _ in range(params.repeats)]
    traced = [functions.by_line(walk, [random_walk.simulate]) for _ in range(params.repeats)]
    calls = quietest([functions.function_rows(stats) for _, stats in called], ("function", "where"), "own_ms")
    calls = [replace(row, function=short_name(row.function)) for row in sorted(calls, key=lambda row: -row.own_ms)]
    lines = quietest([functions.line_rows(profiler, random_walk.simulate) for _, profiler in traced], ("line",), "ms")
    lines = [
        WalkLine(
            **vars(row),
            lecture_percent=next((percent for word, percent in LECTURE_PERCENT.items() if word in row.source), None),
        )
        for row in lines
    ]

    def program() -> int:
        return random_walk.known_program(params.calls, params.power)

    # The process's own clock for the check that may not fail: other programs on the core count for nothing.
    _, stats = functions.by_function(program, time.process_time)
    _, profiler = functions.by_line(program, [random_walk.known_program, random_walk.expensive])
    known_calls = functions.function_rows(stats)
    expensive = sorted(functions.line_rows(profiler, random_walk.expensive), key=lambda row: -row.percent)
    outer = functions.line_rows(profiler, random_walk.known_program)

    costs = profiler_costs(params.count, params.samples)
    markers: list[MarkerRow] = functions.profile_markers()
    times = {row.profiler: row.times for row in costs}
    every_line, sampled = times["line_profiler, every line"], times["sampler, 100 a second"]

    number = {name: [row.calls for row in calls if row.function == name] for name in ("simulate", "step", "histogram")}
    known_number = {row.function: row.calls for row in known_calls}
    hits = [row.hits for row in outer if "cheap(" in row.source]
    sums = [sum(row.percent for row in table) for table in (calls, known_calls, lines, expensive, outer)]

    result = Result([
        Table("Functions of the random walk, by cProfile", calls[:7]),
        Table("Lines of simulate, by line_profiler", lines),
        Table("What a profiler costs", costs),
        Table("Two ways to mark a function", markers),
    ])  # fmt: skip
    for word, percent in LECTURE_PERCENT.items():
        share = sum(row.percent for row in lines if word in row.source)
        result.key_figure(f"line of {word.strip('(')}, share of simulate", share, unit="%", lecture=percent)
    result.key_figure("sampled tight loop", sampled, unit="times as long")
    result.key_figure("tight loop under cProfile", times["cProfile, every call"], unit="times as long")
    result.key_figure("tight loop under line_profiler", every_line, unit="times as long")

    result.claim(
        "cProfile puts the expensive function first, although another one is called far more often",
        known_calls[0].function == "expensive" and known_number["cheap"] > known_number["expensive"],
        f"{known_calls[0].function} with {known_calls[0].percent:.1f} %",
    )
    result.claim(
        "line_profiler gives the expensive line the largest share",
        expensive[0].source.startswith("big = base**power"),
        f"{expensive[0].source} with {expensive[0].percent:.1f} %",
    )
    result.claim(
        "Calls and hits are counted, not estimated: every one of them is right",
        number == {"simulate": [1], "step": [1], "histogram": [params.steps]}
        and known_number["cheap"] == params.calls
        and known_number["expensive"] == 1
        and hits == [params.calls],
        f"histogram {number['histogram']}, cheap {known_number['cheap']} calls and {hits} hits",
    )
    result.claim(
        "Under both profilers the random walk gives the same array as without",
        all((counts == plain).all() for counts, _ in [*called, *traced]),
        f"{plain.sum()} walkers counted in {len(plain)} steps",
    )
    result.claim(
        "The imported @profile does nothing unless line_profiler is asked for; a bare @profile exists under kernprof only",
        [(row.imported, row.bare.split(":")[0]) for row in markers]
        == [("off", "NameError"), ("on", "on"), ("on", "NameError")],
        "; ".join(f"{row.started_as}: {row.imported}" for row in markers),
    )
    result.measured(
        "Tracing every line makes a tight loop at least three times as long, a sampler at most 1.2 times",
        every_line >= 3 and sampled <= 1.2,
        ", ".join(f"{row.profiler}: {row.times:.2f}" for row in costs),
    )
    result.check(
        "The shares of each table sum to 100 %",
        all(abs(percent - 100) < 1e-6 for percent in sums),
        f"{min(sums):.9g} to {max(sums):.9g} %",
    )
    left = child_pids() - before
    result.check("No process is left behind", not left, f"{len(left)} processes")
    return result
