"""Epochs of samples that compute instead of waiting: more workers gain until the cores are in use."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system import machine
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.loading.tools.epochs import stamped_loader
from hpml_lab.loading.tools.known_datasets import Computed

BATCHES, BATCH_SIZE = 16, 4
AGAIN = "again"  # no workers once more in every round: the placebo


@dataclass
class ComputedEpoch(Row):
    """Epochs of samples that compute, with N workers that already run: the median."""

    workers: int = column("workers")
    seconds: float = column("epoch", "s")
    gain: float = column("speed-up over no workers")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")
    waiting_gain: float | None = column("the same for samples that wait", default=None)


@dataclass(frozen=True)
class ComputedRun:
    """All epochs: the rows and the gains."""

    rows: list[ComputedEpoch]
    gains: dict[int, SpeedUp]


def _epoch(loader: Any) -> float:
    """Seconds of an epoch."""
    start = CLOCK()
    for _ in loader:
        pass
    return CLOCK() - start


def measure_computed(workers: Sequence[int], rounds: int, seconds: float) -> ComputedRun:
    """Epochs by the number of workers, all in turns after one that starts the workers; `seconds` of processor time a sample."""
    samples = Computed(BATCHES * BATCH_SIZE, seconds)
    loaders: dict[Any, Any] = {
        count: stamped_loader(samples, BATCH_SIZE, count, persistent_workers=count > 0) for count in workers
    }
    loaders[AGAIN] = loaders[0]
    for count in filter(None, workers):
        _epoch(loaders[count])
    turns = [{name: _epoch(loader) for name, loader in loaders.items()} for _ in range(rounds)]
    times = {name: [turn[name] for turn in turns] for name in loaders}
    gains = {count: speed_up_of(times[0], times[count], times[AGAIN]) for count in workers}
    rows = [
        ComputedEpoch(count, median(times[count]), gain.ratio, gain.interval, gain.verdict) for count, gain in gains.items()
    ]
    return ComputedRun(rows, gains)


@picture
def core_bound_workers(result: Result):
    """How much faster an epoch becomes with N workers: samples that wait, and samples that compute.

    The dashed line is the number of cores: samples that compute cannot rise above it, samples that wait can.
    """
    figure = style.new_figure(7, 3.4)
    axes = figure.subplots()
    rows, cores = result.rows(ComputedEpoch), result.arrays["cores"]
    where = range(len(rows))
    axes.plot(where, [row.waiting_gain for row in rows], "o-", color=style.BLUE, label="samples that wait")
    axes.plot(where, [row.gain for row in rows], "s-", color=style.ORANGE, label="samples that compute")
    axes.axhline(cores, color=style.GREY, linestyle="--", label=f"cores here: {cores}")
    axes.set_xticks(where, [str(row.workers) for row in rows])
    axes.set(xlabel="workers N", ylabel="speed-up over no workers")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=9)
    return figure


def compare_computed(result: Result, run: ComputedRun, waiting: dict[int, SpeedUp]) -> None:
    """Add the gains of samples that wait to the rows, the key figures and the claims."""
    result.arrays["cores"] = machine.cores()
    for row in run.rows:
        row.waiting_gain = waiting[row.workers].ratio
    most = max(run.gains)
    result.key_figure(f"{most} workers, samples that compute", run.gains[most].ratio, "speed-up")
    result.key_figure("cores here", machine.cores())
    result.measured(
        "With more workers than cores, samples that wait gain more than samples that compute",
        most > machine.cores() and waiting[most].low > run.gains[most].high,
        f"{most} workers on {machine.cores()} cores: {waiting[most].ratio:.2f} ({waiting[most].interval}) against"
        f" {run.gains[most].ratio:.2f} ({run.gains[most].interval})",
    )
