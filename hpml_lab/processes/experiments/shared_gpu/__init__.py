"""Processes that share a GPU: one after the other, at once, and under MPS; on a CPU, processes that share its cores."""

import os
from dataclasses import dataclass, replace
from statistics import median
from subprocess import SubprocessError
from tempfile import TemporaryDirectory

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.timing.timeline import Span, rows
from hpml_lab.core.show import style
from hpml_lab.core.system import machine
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.processes.experiments.shared_gpu.on_one_device import (
    AGAIN,
    AT_ONCE,
    IN_TURN,
    ONE_CORE,
    SharingRun,
    measure_sharing,
    mps_daemon,
)
from hpml_lab.processes.views.timelines import draw_timelines

QUICK = dict(processes=(1, 2, 4), steps=40, rounds=SAMPLES)
FULL = dict(processes=(1, 2, 4), steps=300, rounds=8)
MPS = ", MPS"  # behind the name of each way
TRAINS = "trains"


@dataclass
class SharedDevice(Row):
    """So many processes that each train once on the same device."""

    how: str = column("how")
    processes: int = column("processes")
    milliseconds: float = column("until all are done", "ms")
    rate: float = column("all together", "steps/s")
    step_ms: float = column("a step, as one process sees it", "ms")
    gain: float = column("speed-up over in turn")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")


def draw(result: Result):
    """Left: steps per second of all processes together, by their number; taking turns gains only what one process leaves idle.
    Right: when each of them trained, one after the other and at once."""
    shown, timelines = result.rows(SharedDevice), result.arrays["timelines"]
    figure = style.new_figure(9, 1.2 + 1.2 * len(timelines))
    names = list(timelines)
    panels = figure.subplot_mosaic([["rates", name] for name in names])
    for how, color, marker in zip(dict.fromkeys(row.how for row in shown), style.CYCLE, style.MARKERS, strict=False):
        line = [row for row in shown if row.how == how]
        panels["rates"].plot([row.processes for row in line], [row.rate for row in line], color=color, marker=marker, label=how)
    counts = sorted({row.processes for row in shown})
    panels["rates"].set(xlabel="processes", ylabel="steps per second, all together", xticks=counts, ylim=(0, None))
    panels["rates"].legend(fontsize=8)
    draw_timelines([panels[name] for name in names], timelines, {TRAINS: style.BLUE})
    return figure


@experiment("shared-gpu", lecture="L1", notebook="07_processes", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def shared_gpu(params: Params) -> Result:
    """Processes that share a GPU: one after the other, at once, and under MPS."""
    cuda, most = params.device.is_cuda, max(params.processes)
    one_core = () if cuda or not hasattr(os, "sched_setaffinity") else (ONE_CORE,)
    hows = (IN_TURN, AT_ONCE, *one_core, AGAIN)
    asked = dict(device=str(params.device), processes=params.processes, steps=params.steps, rounds=params.rounds)
    notes = []
    with TemporaryDirectory() as nobody_listens:  # so that no daemon that runs already takes part
        try:
            runs = measure_sharing({"CUDA_MPS_PIPE_DIRECTORY": nobody_listens}, hows=hows, **asked)
        except RuntimeError as error:
            fix = "If the GPU admits one process only: sudo nvidia-smi -c DEFAULT."
            raise LabError(f"The processes cannot share {params.device}: {str(error)[-300:]}", fix) from error
    if cuda:
        try:
            with mps_daemon() as variables:
                under_mps = measure_sharing(variables, hows=hows, **asked)
            runs += [replace(run, how=run.how + MPS) for run in under_mps]
        except (RuntimeError, OSError, SubprocessError) as error:
            notes.append(f"Not measured under MPS: {error}.")
    else:
        what = f"the processes share {machine.cores()} cores, which the system gives them, not a driver"
        notes.append(NO_CUDA.format(what=what, slug="shared-gpu"))
    shared, gains = compared(runs, params.steps)

    result = Result([Table("The same training run in several processes", shared)], notes=notes)
    drawn = {run.how: run for run in runs if run.processes == most and not run.how.startswith(AGAIN)}
    result.arrays["timelines"] = {how: timeline(run) for how, run in drawn.items() if how != IN_TURN + MPS}
    result.device = str(params.device)  # this process has used none
    for (how, count), gain in gains.items():
        if not how.startswith(IN_TURN) and count == most:
            result.key_figure(f"{count} processes {how}, speed-up over in turn", gain.ratio)
    result.claim(
        "Sharing changes no result: all processes end with bitwise identical weights, in turn and at once",
        len({name for run in runs for name in run.hashes}) == 1,
    )
    alone = {run.how: run.each for run in runs if run.processes == min(params.processes)}
    slower, at_once = speed_up_of(alone[IN_TURN], drawn[AT_ONCE].each, alone[AGAIN]), gains[AT_ONCE, most]
    result.key_figure(f"a step next to {most - 1} others, times as long as alone", slower.slowdown.ratio)
    result.measured(f"{most} processes at once finish sooner than in turn", at_once.faster, str(at_once))
    if not cuda and machine.cores() < most:
        result.measured(f"Each of {most} processes at once is slower than one alone", slower.slower, slower.slowdown_text)
    if (gain := gains.get((ONE_CORE, most))) is not None:
        text = f"{most} processes that take turns on one core finish no sooner than in turn"
        result.measured(text, not gain.faster, str(gain))
    if (gain := gains.get((AT_ONCE + MPS, most))) is not None:
        result.measured(f"Under MPS {most} processes at once finish sooner than in turn", gain.faster, str(gain))
    return result


def compared(runs: list[SharingRun], steps: int) -> tuple[list[SharedDevice], dict[tuple[str, int], SpeedUp]]:
    """Rows, and {(how, processes): speed-up over in turn}; what ran under MPS is compared with in turn under MPS."""
    found, gains, shown = {(run.how, run.processes): run for run in runs}, {}, []
    for (how, count), run in found.items():
        base, again = (way + MPS * how.endswith(MPS) for way in (IN_TURN, AGAIN))
        if how == again:
            continue
        gain = gains[how, count] = speed_up_of(*(found[way, count].samples for way in (base, how, again)))
        seconds, step_ms = median(run.samples), 1e3 * median(run.each) / steps
        shown.append(SharedDevice(how, count, 1e3 * seconds, count * steps / seconds, step_ms, **gain.columns))
    return shown, gains


def timeline(run: SharingRun) -> list[dict]:
    """When each process trained, in the fastest round."""
    spans = run.rounds[run.samples.index(min(run.samples))]
    return rows(Span(f"process {number}", TRAINS, *span) for number, span in enumerate(spans, 1))
