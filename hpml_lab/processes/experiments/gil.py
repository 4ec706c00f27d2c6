"""Threads and processes: the same work, shared by more workers, and what a thread still does when the program ends."""

from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from hpml_lab.core import machine, style
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.picture import picture
from hpml_lab.core.result import Result
from hpml_lab.core.timeline import Span, rows
from hpml_lab.core.workers import child_pids
from hpml_lab.processes.parallel import KINDS, RUNS, WAITS, WorkersRun, free_threaded_python, measure_workers
from hpml_lab.processes.thread_exit import THREAD_KINDS, thread_at_exit
from hpml_lab.processes.timelines import draw_timelines, legend_entries

QUICK = dict(kinds=("loop", "sleep", "sha256", "numpy"), workers=(1, 2, 4), pieces=4, seconds=0.02, repeats=2)
FULL = dict(kinds=tuple(KINDS), workers=(1, 2, 4, 8), pieces=8, seconds=0.05, repeats=3)
ON = ("threads", "processes")
TIMELINES = (("loop", "threads"), ("loop", "processes"), ("sleep", "threads"), ("numpy", "threads"))


@dataclass
class SharedWork:
    """A fixed amount of work, shared by a number of workers."""

    work: str = column("work")
    on: str = column("on")
    workers: int = column("workers")
    milliseconds: float = column("time", "ms")
    speedup: float = column("times faster than 1 thread")


@dataclass
class ThreadExit:
    """A program that ends while its thread works, or that joins it."""

    kind: str = column("thread")
    printed: str = column("printed, in order")
    exitcode: int | None = column("exit code")


# ---- drawing -------------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """How many times faster than one thread the same work is done, by the number of threads (left) and of processes (right).

    The dashed line is the ideal: N workers, N times faster. The Python loop stays near 1 on threads; on processes it can rise
    up to the number of cores.
    """
    figure = style.new_figure(8.5, 4)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    shown = [row for row in result.rows(SharedWork) if "free-threaded" not in row.work]
    workers = sorted({row.workers for row in shown})
    for axes, on in zip(panels, ON, strict=True):
        axes.plot(workers, workers, "--", color=style.GREY, label="ideal")
        works = dict.fromkeys(row.work for row in shown)
        for work, color, marker in zip(works, style.CYCLE, style.MARKERS, strict=False):
            line = [row.speedup for row in shown if (row.work, row.on) == (work, on)]
            axes.plot(workers, line, color=color, marker=marker, label=work)
        axes.set(title=f"on {on}", xlabel=on, ylabel="times faster", xticks=workers)
    figure.supxlabel(f"(this machine has {result.arrays['cores']} cores)", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


@picture
def gil_timelines(result: Result):
    """When each of two workers ran and when it waited for the lock or for a core.

    In a Python loop two threads take turns of a few milliseconds. Two processes, and threads that sleep or multiply matrices,
    wait only if the machine has no core free for them.
    """
    colors = {RUNS: style.BLUE, WAITS: style.ORANGE}
    timelines = result.arrays["timelines"]
    figure = style.new_figure(8, 6)
    draw_timelines(figure.subplots(len(timelines), 1, sharex=True), timelines, colors)
    figure.legend(handles=legend_entries(colors), loc="outside upper center", ncols=2)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------------


@experiment("gil", lecture="L0", notebook="07_processes", draw=draw, quick=QUICK, full=FULL)
def gil(params: Params) -> Result:
    """Threads and processes: which work the interpreter's lock holds up."""
    before = child_pids()
    other_load = psutil.cpu_percent(0.1)
    exits = [_thread_exit(kind) for kind in THREAD_KINDS]
    parameters = dict(workers=params.workers, pieces=params.pieces, seconds=params.seconds, repeats=params.repeats)
    _, runs = measure_workers(kinds=params.kinds, hows=ON, **parameters)
    shared = [row for kind in params.kinds for on in ON for row in _rows(runs, kind, on, KINDS[kind])]
    speedup = {(row.work, row.on, row.workers): row.speedup for row in shared}

    def faster(kind: str, on: str = "threads") -> float:
        return speedup[KINDS[kind], on, 2]

    result = Result([Table("The same work, shared by more workers", shared), Table("A thread at the program's end", exits)])
    plain, daemon, joined = exits
    cut_off = "cut off" if "thread done" not in daemon.printed else "waited for"
    releasing = [kind for kind in params.kinds if kind not in ("loop", "sleep")]
    slides = {"numpy": "not useful for parallelism"}
    result.key_figure("Python loop on 2 threads", faster("loop"), "times faster", lecture="concurrency, not parallelism")
    result.key_figure("Python loop on 2 processes", faster("loop", "processes"), "times faster")
    result.key_figure("sleep on 2 threads", faster("sleep"), "times faster")
    for kind in releasing:
        result.key_figure(f"{KINDS[kind]} on 2 threads", faster(kind), "times faster", lecture=slides.get(kind))
    result.key_figure("daemon thread that still works at exit", cut_off, lecture="waited for")

    result.claim(
        "At exit Python waits for an ordinary thread",
        plain.printed == "main done, thread done, thread cleaned up" and plain.exitcode == 0,
        plain.printed,
    )
    result.claim(
        "At exit a daemon thread is cut off: neither its last line nor its finally block runs",
        daemon.printed == "main done" and daemon.exitcode == 0,
        daemon.printed,
    )
    result.claim(
        "A daemon thread that the program joins completes its work",
        joined.printed == "thread done, thread cleaned up, main done",
        joined.printed,
    )
    result.measured("Two threads do not speed up a Python loop", *_below(faster("loop"), 1.3))
    result.measured("Two processes speed up a Python loop", *_above(faster("loop", "processes"), 1.5))
    result.measured("Two threads speed up sleeping", *_above(faster("sleep"), 1.7))
    for kind in releasing:
        result.measured(f"Two threads speed up {KINDS[kind]}", *_above(faster(kind), 1.5))
    result.check(
        "Every piece of work is done, however many threads or processes share it",
        {run.pieces for run in runs} == {params.pieces} and len(runs) == len(params.kinds) * len(ON) * len(params.workers),
        f"{len(runs)} runs of {params.pieces} pieces",
    )
    result.check("No process is left behind", child_pids() <= before)
    if other_load > 25:
        result.notes.append(
            f"Other programs used {other_load:.0f} % of the processor just before: with free cores the speed-ups are higher."
        )
    _add_free_threaded(result, shared, parameters)
    result.arrays["cores"] = machine.cores()
    result.arrays["timelines"] = {f"{KINDS[kind]} on 2 {on}": _timeline(runs, kind, on) for kind, on in TIMELINES}
    return result


def _add_free_threaded(result: Result, shared: list[SharedWork], parameters: dict) -> None:
    """The Python loop on threads in an interpreter without the lock, if there is one here."""
    python = free_threaded_python()
    if python is None:
        result.notes.append(
            "No free-threaded Python here (a build without the lock): install one, for example with `uv python install 3.14t`,"
            " so that python3.14t is on PATH, then run `hpml-lab run gil` again."
        )
        return
    version, runs = measure_workers(python=python, kinds=("loop",), hows=("threads",), **parameters)
    added = _rows(runs, "loop", "threads", f"{KINDS['loop']}, free-threaded Python {version}")
    shared += added
    [two] = [row for row in added if row.workers == 2]
    result.key_figure("Python loop on 2 threads without the lock", two.speedup, "times faster")
    result.measured("Without the lock two threads speed up a Python loop", *_above(two.speedup, 1.5))


def _rows(runs: Sequence[WorkersRun], kind: str, on: str, work: str) -> list[SharedWork]:
    one_thread = next(run.seconds for run in runs if (run.kind, run.on, run.workers) == (kind, "threads", 1))
    return [
        SharedWork(work, on, run.workers, 1e3 * run.seconds, one_thread / run.seconds)
        for run in runs
        if (run.kind, run.on) == (kind, on)
    ]


def _thread_exit(kind: str) -> ThreadExit:
    finished = thread_at_exit(kind)
    return ThreadExit(kind, ", ".join(finished.stdout.splitlines()), finished.exitcode)


def _timeline(runs: Sequence[WorkersRun], kind: str, on: str) -> list[dict]:
    """The run on two workers as rows of a timeline."""
    run = next(run for run in runs if (run.kind, run.on, run.workers) == (kind, on, 2))
    noun = {"threads": "thread", "processes": "process"}[on]
    spans = [
        Span(f"{noun} {number}", what, start, end)
        for number, worker in enumerate(run.traces, 1)
        for piece in worker
        for what, start, end in piece
    ]
    return rows(spans)


def _above(value: float, limit: float) -> tuple[bool, str]:
    return value > limit, f"{value:.2f} times faster; more than {limit:g} counts"


def _below(value: float, limit: float) -> tuple[bool, str]:
    return value < limit, f"{value:.2f} times faster; less than {limit:g} counts"
