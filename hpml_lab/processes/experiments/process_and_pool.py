"""The lecture's Process and Pool: with every start method, from a notebook cell, and with two functions of one name."""

import ast
import multiprocessing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

import psutil

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.timing.timeline import rows
from hpml_lab.processes.experiments.pool import (
    SQUARES,
    STARTS,
    Printed,
    Squared,
    pool_squares,
    process_prints,
    run_cell_function,
    run_slides,
)
from hpml_lab.processes.experiments.start_cost import safe_methods
from hpml_lab.processes.lessons.work import greet
from hpml_lab.processes.views.timelines import draw_timelines, legend_entries

QUICK = dict(workers=5, numbers=(1, 2, 3), seconds=0.05, rounds=8)  # a round starts twenty workers
FULL = dict(workers=5, numbers=(1, 2, 3), seconds=0.5, rounds=15)
AGAIN = "again"  # the first method once more in every round: the placebo


@dataclass
class MethodRun(Row):
    """The lecture's Process and Pool with one start method."""

    method: str = column("start method")
    prints: str = column("Process prints")
    exitcode: int | None = column("exit code")
    squares: str = column("Pool returns")
    busy_workers: int = column("workers that got work")
    first_ready: float = column("first worker ready", "ms")
    ready: float = column("all workers ready", "ms")
    gain: float = column("speed-up over the first row")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")


@dataclass
class CellRun(Row):
    """A Process whose function was typed into a cell."""

    method: str = column("start method")
    prints: str = column("Process prints")
    exitcode: int = column("exit code")
    error: str = column("last line of the error output")


@dataclass
class SlidesRun(Row):
    """The two slides in one file, each with a function f."""

    method: str = column("start method")
    exitcode: int = column("exit code of the Process")
    parent_exitcode: int | None = column("exit code of the parent")
    squares: str = column("Pool returns")
    error: str = column("last line of the error output")


def draw(result: Result):
    """Pool(5).map over three numbers with each start method: when each worker was ready, and which worker did which square.

    The first of several rounds is drawn, in which each square waits a little, to be seen; the key figures are the medians of
    all rounds. Five workers are started for three numbers, so at least two have nothing to do. Look at the gray bars: do the
    workers get ready one after the other, or together?
    """
    timelines = result.arrays["timelines"]
    colors = {STARTS: style.GREY, SQUARES: style.BLUE}
    figure = style.new_figure(8, 1 + 1.7 * len(timelines))
    panels = figure.subplots(len(timelines), 1, sharex=True, squeeze=False)[:, 0]
    draw_timelines(panels, timelines, colors)
    panels[-1].set_xlabel(f"{panels[-1].get_xlabel()} since Pool(5) was called")
    figure.legend(handles=legend_entries(colors), loc="outside upper center", ncols=2)
    return figure


@experiment("process-and-pool", lecture="L0", notebook="07_processes", draw=draw, quick=QUICK, full=FULL)
def process_and_pool(params: Params) -> Result:
    """The lecture's Process and Pool with every start method, and the two functions called f."""
    numbers = list(params.numbers)
    methods = safe_methods()
    printed = {method: process_prints(method, greet, "bob") for method in methods}
    ways = {**{method: method for method in methods}, AGAIN: methods[0]}
    for method in methods:
        pool_squares(method, 1, [])  # the fork server's own start, and the first imports
    taken: dict[str, list[Squared]] = {way: [] for way in ways}
    for _ in range(params.rounds):
        for way, method in ways.items():
            seconds = params.seconds if not taken[way] else 0.0  # the first is drawn
            taken[way].append(pool_squares(method, params.workers, numbers, seconds=seconds))
    ready = {way: [_ready(found, max) for found in runs] for way, runs in taken.items()}
    again = ready.pop(AGAIN)
    gains = {method: speed_up_of(ready[methods[0]], times, again) for method, times in ready.items()}
    squared = {method: taken[method][0] for method in methods}
    runs = [_method_run(method, printed[method], taken[method], gains[method]) for method in methods]
    cells = [_cell_run(method) for method in sorted(multiprocessing.get_all_start_methods())]
    slides = _slides_run()
    first = runs[0]

    result = Result(
        [
            Table("The lecture's Process and Pool", runs),
            Table("A function typed into a cell", cells),
            Table("The slides in one file: two functions f", [slides]),
        ]
    )
    result.key_figure("Process(f, 'bob') prints", first.prints, lecture="hello bob")
    result.key_figure("Pool(5).map(f, [1, 2, 3]) returns", first.squares, lecture="[1, 4, 9]")
    for run in runs:
        result.key_figure(f"Pool(5) ready with {run.method}", run.ready, "ms")
    result.claim(
        "Process prints hello bob with every start method",
        all((run.prints, run.exitcode) == ("hello bob", 0) for run in runs),
        ", ".join(run.method for run in runs),
    )
    result.claim(
        "`Pool.map` returns the squares in order with every start method",
        all(found.values == [number * number for number in numbers] for runs in taken.values() for found in runs),
        ", ".join(squared),
    )
    result.claim(
        "Three numbers give work to at most three of the five workers",
        all(
            len(_workers(found, STARTS)) == params.workers and 1 <= len(_workers(found, SQUARES)) <= len(numbers)
            for found in squared.values()
        ),
    )
    result.claim(
        "A function typed into a cell works with fork only",
        {cell.method for cell in cells if (cell.prints, cell.exitcode) == ("9", 0)} == {"fork"}
        and all("AttributeError" in cell.error for cell in cells if cell.method != "fork"),
    )
    result.claim(
        "With two functions called f the child ends with a TypeError and exit code 1, and the parent continues",
        "TypeError" in slides.error
        and (slides.exitcode, slides.parent_exitcode) == (1, 0)
        and ast.literal_eval(slides.squares) == [1, 4, 9],
    )
    if "fork" in squared:
        _explain_fork(result, runs)
    if "fork" not in squared:
        result.notes.append("This system's own libraries do not survive a fork of a process that uses them: run fork on Linux.")
    result.arrays["timelines"] = {method: rows(found.spans) for method, found in squared.items()}
    return result


def _explain_fork(result: Result, runs: list[MethodRun]) -> None:
    """A forked pool starts one worker after the other, each as a copy of this whole process."""
    fork = next(run for run in runs if run.method == "fork")
    megabytes = psutil.Process().memory_info().rss / 1e6
    result.key_figure("memory of the process that is forked", megabytes, "MB")
    result.measured(
        "With fork most of the pool's start is spent on the workers after the first, one after the other",
        fork.ready > 2 * fork.first_ready,
        f"first ready after {fork.first_ready:.0f} ms, last after {fork.ready:.0f} ms, of a process of {megabytes:.0f} MB",
    )


def _ready(squared: Squared, which: Callable[[Iterable[float]], float]) -> float:
    """Seconds until the first worker (min) or the last one (max) was ready."""
    return which(span.seconds for span in squared.spans if span.what == STARTS)


def _method_run(method: str, printed: Printed, taken: list[Squared], gain: SpeedUp) -> MethodRun:
    first, last = (1e3 * median(_ready(found, which) for found in taken) for which in (min, max))
    busy = len(_workers(taken[0], SQUARES))
    text, values = printed.text.strip(), str(taken[0].values)
    return MethodRun(method, text, printed.exitcode, values, busy, first, last, gain.ratio, gain.interval, gain.verdict)


def _workers(squared: Squared, what: str) -> set[str]:
    return {span.lane for span in squared.spans if span.what == what}


def _cell_run(method: str) -> CellRun:
    finished = run_cell_function(method)
    *printed, code = finished.stdout.strip().splitlines()
    return CellRun(method, " ".join(printed), int(code.removeprefix("exit code ")), _last_line(finished.stderr))


def _slides_run() -> SlidesRun:
    finished = run_slides()
    code, squares = finished.stdout.strip().splitlines()
    code = int(code.removeprefix("exit code of the process: "))
    return SlidesRun(multiprocessing.get_start_method(), code, finished.exitcode, squares, _last_line(finished.stderr))


def _last_line(text: str) -> str:
    return text.strip().splitlines()[-1] if text.strip() else ""
