"""Threads and processes: the same work, shared by more workers, and what a thread still does when the program ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import psutil

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system import machine
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import CLAIMED, SpeedUp, speed_up_of
from hpml_lab.core.timing.timeline import Span, rows
from hpml_lab.processes.experiments.parallel import (
    AGAIN,
    KINDS,
    RUNS,
    SLEEPS,
    WAITS,
    WorkersRun,
    free_threaded_python,
    measure_workers,
)
from hpml_lab.processes.lessons.thread_exit import THREAD_KINDS, thread_at_exit
from hpml_lab.processes.views.timelines import draw_timelines, legend_entries

QUICK = dict(kinds=tuple(KINDS), workers=(1, 2, 4), pieces=4, seconds=0.005, rounds=SAMPLES)
FULL = dict(kinds=tuple(KINDS), workers=(1, 2, 4, 8), pieces=8, seconds=0.05, rounds=SAMPLES)
ON = ("threads", "processes")
FAST = "speed-up"
TIMELINES = (("loop", "threads"), ("loop", "processes"), ("sleep", "threads"), ("numpy", "threads"))


@dataclass
class SharedWork(Row):
    """A fixed amount of work, shared by a number of workers."""

    work: str = column("work")
    on: str = column("on")
    workers: int = column("workers")
    milliseconds: float = column("time", "ms")
    gain: float = column("speed-up over 1 thread")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")


@dataclass
class ThreadExit(Row):
    """A program that ends while its thread works, or that joins it."""

    kind: str = column("thread")
    printed: str = column("printed, in order")
    exitcode: int | None = column("exit code")


# ---- drawing -------------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """The speed-up of the same work over one thread, by the number of threads (left) and of processes (right).

    The dashed line is the ideal: a speed-up of N on N workers. Look for the Python loop: on threads it can rise only in an
    interpreter without the lock, which is drawn where one was found; on processes it can, up to the number of cores. Hollow
    markers are within the noise.
    """
    figure = style.new_figure(8.5, 4)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    shown = result.rows(SharedWork)
    workers = sorted({row.workers for row in shown})
    for axes, on in zip(panels, ON, strict=True):
        axes.plot(workers, workers, "--", color=style.GREY, label="ideal")
        works = dict.fromkeys(row.work for row in shown)
        for work, color, marker in zip(works, style.CYCLE, style.MARKERS, strict=False):
            line = [row for row in shown if (row.work, row.on) == (work, on)]
            axes.plot([row.workers for row in line], [row.gain for row in line], color=color)
            axes.plot([], [], color=color, marker=marker, label=work)
            for row in line:
                face = color if row.verdict in CLAIMED else "none"
                axes.plot(row.workers, row.gain, color=color, marker=marker, markerfacecolor=face)
        axes.set(title=f"on {on}", xlabel=on, ylabel="speed-up", xticks=workers)
    figure.supxlabel(f"({result.arrays['cores']} cores)", fontsize=9)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


@picture
def gil_timelines(result: Result):
    """When each of two workers ran, slept, or waited for the lock or for a core.

    In a Python loop two threads take turns of a few milliseconds. Two threads sleep at the same time. Two processes, and
    threads that multiply matrices, wait only if the machine has no core free for them.
    """
    colors = {RUNS: style.BLUE, SLEEPS: style.SKY, WAITS: style.ORANGE}
    timelines = result.arrays["timelines"]
    figure = style.new_figure(8, 6)
    draw_timelines(figure.subplots(len(timelines), 1, sharex=True), timelines, colors)
    figure.legend(handles=legend_entries(colors), loc="outside upper center", ncols=3)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------------


@experiment("gil", lecture="L0", notebook="07_processes", draw=draw, quick=QUICK, full=FULL)
def gil(params: Params) -> Result:
    """Threads and processes: which work the interpreter's lock holds up."""
    other_load = psutil.cpu_percent(0.1)
    exits = [_thread_exit(kind) for kind in THREAD_KINDS]
    parameters = dict(workers=params.workers, pieces=params.pieces, seconds=params.seconds, rounds=params.rounds)
    _, runs = measure_workers(kinds=params.kinds, hows=ON, **parameters)
    gains = {kind: _gains(runs, kind) for kind in params.kinds}
    shared = [row for kind in params.kinds for row in _rows(runs, kind, gains[kind], KINDS[kind])]

    def two(kind: str, on: str = "threads") -> SpeedUp:
        return gains[kind][on, 2]

    result = Result([Table("The same work, shared by more workers", shared), Table("A thread at the program's end", exits)])
    plain, daemon, joined = exits
    cut_off = "cut off" if "thread done" not in daemon.printed else "waited for"
    releasing = [kind for kind in params.kinds if kind not in ("loop", "sleep")]
    slides = {"numpy": "not useful for parallelism"}
    result.key_figure("Python loop on 2 threads", two("loop").ratio, FAST, lecture="concurrency, not parallelism")
    result.key_figure("Python loop on 2 processes", two("loop", "processes").ratio, FAST)
    result.key_figure("sleep on 2 threads", two("sleep").ratio, FAST)
    for kind in releasing:
        result.key_figure(f"{KINDS[kind]} on 2 threads", two(kind).ratio, FAST, lecture=slides.get(kind))
    result.key_figure("daemon thread that still works at exit", cut_off, lecture="waited for")

    result.claim(
        "At exit Python waits for an ordinary thread and cuts a daemon thread off in its work, unless the program joins it",
        plain.printed == "main done, thread done, thread cleaned up"
        and daemon.printed == "main done"
        and joined.printed == "thread done, thread cleaned up, main done"
        and plain.exitcode == daemon.exitcode == 0,
        "; ".join(row.printed for row in exits),
    )
    result.measured("Two threads do not speed up a Python loop", not two("loop").faster, str(two("loop")))
    result.measured("Two processes speed up a Python loop", two("loop", "processes").faster, str(two("loop", "processes")))
    result.measured("Two threads speed up sleeping", two("sleep").faster, str(two("sleep")))
    result.measured(
        f"Two threads speed up what releases the lock: {', '.join(KINDS[kind] for kind in releasing)}",
        all(two(kind).faster for kind in releasing),
        "; ".join(f"{KINDS[kind]} {two(kind)}" for kind in releasing),
    )
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
            "No free-threaded Python here (a build without the lock): `.venv/bin/uv python install 3.14t` installs one, and"
            " `hpml-lab run gil` finds it."
        )
        return
    try:
        version, runs = measure_workers(python=python, kinds=("loop",), hows=("threads",), **parameters)
    except RuntimeError as error:  # built without a part of the standard library, such as _ctypes
        result.notes.append(f"The free-threaded {python} cannot run the loop: {str(error)[-300:]}")
        return
    gains = _gains(runs, "loop")
    shared += _rows(runs, "loop", gains, f"{KINDS['loop']}, free-threaded Python {version}")
    gain = gains["threads", 2]
    result.key_figure("Python loop on 2 threads without the lock", gain.ratio, FAST)
    result.measured("Without the lock two threads speed up a Python loop", gain.faster, str(gain))


def _gains(runs: Sequence[WorkersRun], kind: str) -> dict[tuple[str, int], SpeedUp]:
    """{(on, workers): the speed-up over one thread}."""
    samples = {(run.on, run.workers): run.samples for run in runs if run.kind == kind}
    again = samples.pop((AGAIN, 1))
    return {turn: speed_up_of(samples["threads", 1], times, again) for turn, times in samples.items()}


def _rows(runs: Sequence[WorkersRun], kind: str, gains: dict[tuple[str, int], SpeedUp], work: str) -> list[SharedWork]:
    rows = []
    for run in runs:
        if run.kind == kind and run.on != AGAIN:
            gain = gains[run.on, run.workers]
            fields = (run.on, run.workers, 1e3 * median(run.samples), gain.ratio, gain.interval, gain.verdict)
            rows.append(SharedWork(work, *fields))
    return rows


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
