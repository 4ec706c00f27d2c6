"""Profilers of Python functions and lines: what they find, what they count, and what they cost."""

import os
import re
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import Any

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import started
from hpml_lab.core.timing.clock import PLACEBO, SAMPLES
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.profilers import functions
from hpml_lab.profilers.functions import FunctionRow, LineRow
from hpml_lab.profiling.lessons import random_walk

QUICK = dict(steps=50, walkers=10_000, repeats=7, calls=200, power=1_000_000, count=100_000, samples=SAMPLES)
FULL = dict(steps=50, walkers=10_000, repeats=50, calls=2000, power=5_000_000, count=1_000_000, samples=SAMPLES)
SAMPLER, EVERY_CALL, EVERY_LINE = "sampler, 100 a second", "cProfile, every call", "line_profiler, every line"
COST_FIGURES = {
    SAMPLER: "sampled tight loop",
    EVERY_CALL: "tight loop under cProfile",
    EVERY_LINE: "tight loop under line_profiler",
}
Work = Callable[[], Any]
LECTURE_PERCENT = {"step(": 49.5, "cumsum": 3.7, "vstack": 46.7}  # of simulate's time, by a word in the line


MARKERS = """
from line_profiler import profile as imported
def work(): return 1
print("off" if imported(work) is work else "on")
try:
    @profile
    def work():
        total = 0
        for number in range(100):
            total += number
        return total
    work()
    print("on")
except NameError as error:
    print(f"NameError: {error}")
"""
LISTED = re.compile(r"^ *(\d+) +(\d+) +([\d.]+) +[\d.]+ +([\d.]+)  (.*)$", flags=re.MULTILINE)
LAUNCHES = {
    "python script.py": (["script.py"], {}),
    "kernprof -l script.py": (["-m", "kernprof", "-l", "script.py"], {}),
    "LINE_PROFILE=1 python script.py": (["script.py"], {"LINE_PROFILE": "1"}),
}


@dataclass
class WalkLine(LineRow):
    """One line of `simulate`, with the share that the lecture's machine gave it."""

    lecture_percent: float | None = column("lecture", "%", default=None)


@dataclass
class MarkerRow(Row):
    """What the two ways to mark a function for line_profiler do when a script is started so: "on", "off" or an error."""

    started_as: str = column("started as")
    imported: str = column("from line_profiler import profile")
    bare: str = column("bare @profile")


@dataclass
class ProfilerCost(Row):
    """How much processor time a tight loop takes under a profiler."""

    profiler: str = column("profiler")
    times: float = column("tight loop under it", "slowdown")
    interval: str = column("interval")
    noise: float = column("noise, ±", "%")


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


def profiler_overheads(count: int, samples: int) -> dict[str, SpeedUp]:
    """A tight loop alone, alone again and under each profiler, in turns."""

    def loop() -> int:
        return random_walk.tight_loop(count)

    works = {
        "none": loop,
        SAMPLER: lambda: functions.by_sample(loop),
        EVERY_CALL: lambda: functions.by_function(loop),
        EVERY_LINE: lambda: functions.by_line(loop, [random_walk.tight_loop, random_walk.cheap]),
        PLACEBO: loop,
    }
    if find_spec("line_profiler") is None:
        del works[EVERY_LINE]
    turns = [{name: processor_seconds(work) for name, work in works.items()} for _ in range(samples)]
    seconds = {name: [turn[name] for turn in turns] for name in works}
    profilers = [name for name in works if name not in ("none", PLACEBO)]
    return {name: speed_up_of(seconds["none"], seconds[name], seconds[PLACEBO]) for name in profilers}


def profile_markers() -> tuple[list[MarkerRow], list[LineRow]]:
    """The two ways to mark a function for line_profiler, under three ways to start the script; and what
    `python -m line_profiler script.py.lprof` lists of the file that kernprof left."""
    rows = []
    plain = {name: value for name, value in os.environ.items() if name != "LINE_PROFILE"}
    with tempfile.TemporaryDirectory(prefix="hpml-markers-") as folder:
        (Path(folder) / "script.py").write_text(MARKERS, encoding="utf-8")

        def printed(arguments: list[str], variables: dict[str, str]) -> str:
            options = dict(cwd=folder, env={**plain, **variables}, stdout=PIPE, stderr=DEVNULL)
            with started([sys.executable, *arguments], deadline_seconds=60, **options) as program:
                return program.communicate()[0].decode(errors="replace")

        for launch, (arguments, variables) in LAUNCHES.items():
            imported, bare = (printed(arguments, variables).splitlines() + ["", ""])[:2]
            rows.append(MarkerRow(launch, imported, bare))
        listing = printed(["-m", "line_profiler", "script.py.lprof"], {})
    unit = re.search(r"Timer unit: (\S+) s", listing)
    seconds = float(unit[1]) if unit else 0.0
    listed = [
        LineRow(int(line), source.strip(), int(hits), 1e3 * seconds * float(time), float(percent))
        for line, hits, time, percent, source in LISTED.findall(listing)
    ]
    return rows, listed


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """How much processor time a tight loop takes under each profiler, as a multiple of its time without one (dashed). A sampler
    hardly slows the loop; tracing every call or every line does."""
    costs = result.rows(ProfilerCost)
    figure = style.new_figure(7.5, 2.4)
    axes = figure.subplots()
    horizontal_bars(axes, [row.profiler for row in costs], [row.times for row in costs], color=style.ORANGE, labels="{:.1f}")
    axes.axvline(1, color=style.GREY, linestyle="--", linewidth=1.2)
    axes.set(xlabel="slowdown of a tight loop, in processor time", ylabel="profiler")
    return figure


@picture
def random_walk_profile(result: Result):
    """The random walk under both profilers. Left: the functions with the most time of their own, by cProfile, with the number
    of calls. Right: the lines of simulate by line_profiler; diamonds are the lecture's shares."""
    figure = style.new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    calls, lines = result.rows(FunctionRow), result.rows(WalkLine)
    horizontal_bars(
        left, [row.function for row in calls], [row.own_ms for row in calls], labels=[f"{row.calls}×" for row in calls]
    )
    left.set(xlabel="own time in ms, and calls", title="cProfile: functions")
    if not lines:
        right.text(0.5, 0.5, "line_profiler is not installed", ha="center", va="center", transform=right.transAxes)
        right.set_axis_off()
        return figure
    names = [textwrap.fill(row.source, 28) for row in lines]
    horizontal_bars(right, names, [row.percent for row in lines], color=style.GREEN)
    known = [(index, row.lecture_percent) for index, row in enumerate(lines) if row.lecture_percent is not None]
    right.plot([percent for _, percent in known], [index for index, _ in known], "D", color=style.RED, label="lecture")
    right.set(xlabel="share of simulate's time in %", xlim=(0, 100), title="line_profiler: lines", ylabel="line of simulate")
    right.legend(loc="lower right")
    for axes in (left, right):
        axes.tick_params(axis="y", labelsize=8)
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("cprofile-line-profiler", lecture="L1 L3", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL)
def cprofile_line_profiler(params: Params) -> Result:
    """Which function, which line: cProfile and line_profiler on the lecture's random walk.

    A second program, whose expensive line is known, shows that the first row of each table is the right one.
    """
    result = Result()

    def walk() -> Any:
        return random_walk.simulate(params.steps, params.walkers)

    def program() -> int:
        return random_walk.known_program(params.calls, params.power)

    walk()  # imports and memory: the first run is not like the others
    add_functions(result, params, walk, program)
    try:
        add_lines(result, params, walk, program)
    except LabError as error:
        result.notes.append(f"{error} Until then there are no lines.")
    add_costs(result, params)
    return result


def add_functions(result: Result, params: Params, walk: Work, program: Work) -> None:
    """What cProfile says of the random walk and of the program whose expensive function is known."""
    called = [functions.by_function(walk)[1] for _ in range(params.repeats)]
    calls = quietest([functions.function_rows(stats) for stats in called], ("function", "where"), "own_ms")
    calls = [replace(row, function=short_name(row.function)) for row in sorted(calls, key=lambda row: -row.own_ms)]
    # The process's own clock: other programs on the core count for nothing.
    known = functions.function_rows(functions.by_function(program, time.process_time)[1])

    result.tables.append(Table("Functions of the random walk, by cProfile", calls[:7]))
    number = {name: [row.calls for row in calls if row.function == name] for name in ("simulate", "step", "histogram")}
    known_number = {row.function: row.calls for row in known}
    result.measured(
        "cProfile puts the expensive function first, although another one is called far more often",
        known[0].function == "expensive" and known_number["cheap"] > known_number["expensive"],
        f"{known[0].function} with {known[0].percent:.1f} %",
    )
    result.claim(
        "Calls are counted, not estimated: every one of them is right",
        number == {"simulate": [1], "step": [1], "histogram": [params.steps]}
        and known_number["cheap"] == params.calls
        and known_number["expensive"] == 1,
        f"histogram {number['histogram']}, cheap {known_number['cheap']} calls",
    )


def add_lines(result: Result, params: Params, walk: Work, program: Work) -> None:
    """What line_profiler says of the same two programs. Raises LabError where it is not installed."""
    traced = [functions.by_line(walk, [random_walk.simulate])[1] for _ in range(params.repeats)]
    lines = quietest([functions.line_rows(profiler, random_walk.simulate) for profiler in traced], ("line",), "ms")
    lines = [WalkLine(**vars(row), lecture_percent=lecture_percent(row.source)) for row in lines]
    _, profiler = functions.by_line(program, [random_walk.expensive])
    expensive = sorted(functions.line_rows(profiler, random_walk.expensive), key=lambda row: -row.percent)
    markers, listed = profile_markers()

    result.tables += [Table("Lines of simulate, by line_profiler", lines), Table("Two ways to mark a function", markers)]
    result.tables.append(Table("python -m line_profiler script.py.lprof", listed))
    result.check(
        "The listing of an .lprof file counts a line as often as it ran",
        {row.source: row.hits for row in listed}.get("total += number") == 100,
        f"{len(listed)} lines",
    )
    for word, percent in LECTURE_PERCENT.items():
        share = sum(row.percent for row in lines if word in row.source)
        result.key_figure(f"line of {word.strip('(')}, share of simulate", share, unit="%", lecture=percent)
    result.measured(
        "line_profiler gives the expensive line the largest share",
        expensive[0].source.startswith("big = base**power"),
        f"{expensive[0].source} with {expensive[0].percent:.1f} %",
    )
    result.claim(
        "The imported @profile does nothing unless line_profiler is asked for; a bare @profile exists under kernprof only",
        [(row.imported, row.bare.split(":")[0]) for row in markers]
        == [("off", "NameError"), ("on", "on"), ("on", "NameError")],
        "; ".join(f"{row.started_as}: {row.imported}" for row in markers),
    )


def add_costs(result: Result, params: Params) -> None:
    """What the profilers cost a loop whose lines and calls are many and short."""
    costs = profiler_overheads(params.count, params.samples)
    rows = [ProfilerCost(name, cost.slowdown.ratio, cost.slowdown.interval, 100 * cost.noise) for name, cost in costs.items()]
    result.tables.append(Table("What a profiler costs", rows))
    for profiler, name in COST_FIGURES.items():
        result.key_figure(name, costs[profiler].slowdown.ratio if profiler in costs else None, unit="slowdown")
    for profiler in [name for name in costs if name != SAMPLER]:
        result.measured(
            f"{profiler.partition(',')[0]} makes a tight loop at least 1.5 times as long, and longer than the sampler does",
            costs[profiler].slowdown.low > max(1.5, costs[SAMPLER].slowdown.high),
            f"{costs[profiler].slowdown_text}; sampler {costs[SAMPLER].slowdown_text}",
        )


def lecture_percent(source: str) -> float | None:
    return next((percent for word, percent in LECTURE_PERCENT.items() if word in source), None)
