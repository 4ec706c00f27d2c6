"""num-workers: how much faster an epoch becomes with N workers, and where the rest of its time goes."""

import multiprocessing
from dataclasses import dataclass

from torch.utils.data import DataLoader

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.show import style
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.loading.experiments.num_workers.cheap_epochs import CheapEpoch, compare_cheap, measure_cheap
from hpml_lab.loading.experiments.num_workers.computed_epochs import ComputedEpoch, compare_computed, measure_computed
from hpml_lab.loading.lessons.epoch_bounds import (
    LECTURE_COMPUTE,
    LECTURE_COMPUTE_8,
    LECTURE_LOAD,
    LECTURE_WAIT_8,
    expected_time,
    lecture_time,
    lower_bound,
    simulate,
)
from hpml_lab.loading.tools.epochs import Accelerator, Epoch, run_epoch, stamped_loader
from hpml_lab.loading.experiments.slow_clips import StorageModel, batch_loads, clips_on_disk

NOTEBOOK = "08_loading"
PART_STYLE = {
    "compute": (style.ORANGE, None),
    "waiting": (style.BLUE, "///"),
    "collate": (style.PURPLE, "..."),
    "queue": (style.GREEN, "xxx"),
    "start-up": (style.RED, "++"),
    "end": (style.GREY, "ooo"),
}
LECTURE_BATCHES = 21  # the lecture does not give its number of batches; at its latencies 21 of 32 clips take its 114 s
# A round of all epochs takes two seconds (at full over a minute): fewer rounds than a shorter sample has.
QUICK = dict(
    workers=(0, 1, 2, 4, 8), batches=12, batch_size=7, scale=0.02, rounds=5, cheap=1000, cheap_workers=(0, 1, 4), work=0.0015
)
FULL = dict(
    workers=(0, 1, 2, 4, 8, 16),
    batches=21,
    batch_size=32,
    scale=0.15,
    rounds=5,
    cheap=60_000,
    cheap_workers=(0, 1, 2, 4, 8),
    work=0.02,
)
AGAIN = "again"  # the loop without workers once more in every round: the placebo


@dataclass
class WorkerCount(Row):
    """Epochs with N workers: a cold one, which starts them, and the median of the warm ones, in turns with all other N."""

    workers: int = column("workers")
    cold: float = column("cold", "s")
    warm: float = column("warm", "s")
    gain: float = column("speed-up over no workers (warm)")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")
    simulated: float = column("simulated", "s")
    bound: float = column("bound", "s")
    expected: float = column("bound + first batch", "s")
    lecture: float = column("lecture's formula", "s")


@dataclass
class EpochParts(Row):
    """Where the main loop's seconds of one epoch went."""

    workers: int = column("workers")
    which: str = column("epoch")
    compute: float = column("compute", "s")
    waiting: float = column("waiting", "s")
    collate: float = column("collate", "s")
    queue: float = column("queue", "s")
    start_up: float = column("start-up", "s")
    end: float = column("end", "s")

    def part(self, name: str) -> float:
        return getattr(self, name.replace("-", "_"))


def draw_num_workers(result: Result):
    """Left: seconds of an epoch by the number of workers, measured cold and warm, with the lecture's formula, the bound and
    the simulation. Right: the same epochs split into parts; of each pair of bars the left one is cold, the right one warm.

    The lecture's formula goes on falling where the bound is flat: the compute is not shared.
    """
    figure = style.new_figure(9, 4.6)
    axes, bars = figure.subplots(1, 2)
    rows, theory = result.rows(WorkerCount), result.arrays["theory"]
    measured, predicted = range(len(rows)), range(len(theory))
    labels = [str(entry["workers"]) for entry in theory]
    axes.plot(predicted, [entry["lecture"] for entry in theory], "--", color=style.RED, label="lecture: (L + C) / N")
    axes.plot(predicted, [entry["bound"] for entry in theory], color=style.GREY, label="bound: max(C, L / N)")
    axes.plot(predicted, [entry["simulated"] for entry in theory], ":", color=style.INK, label="simulated")
    axes.plot(measured, [row.cold for row in rows], "s", color=style.ORANGE, label="measured, cold", markersize=8)
    axes.plot(measured, [row.warm for row in rows], "o", color=style.BLUE, label="measured, warm")
    axes.set_xticks(predicted, labels)
    axes.set_yscale("log")
    style.label_log_axis(axes.yaxis)
    axes.set(xlabel="workers N", ylabel="seconds of an epoch")
    axes.legend(fontsize=8)
    for which, shift in (("cold", -0.2), ("warm", 0.2)):
        epochs = [parts for parts in result.rows(EpochParts) if parts.which == which]
        base = [0.0] * len(epochs)
        for part, (color, hatch) in PART_STYLE.items():
            heights = [parts.part(part) for parts in epochs]
            look = dict(color=color, hatch=hatch, edgecolor="white", linewidth=0.5, label=part if which == "cold" else None)
            bars.bar([index + shift for index in measured], heights, 0.36, bottom=base, **look)
            base = [low + height for low, height in zip(base, heights, strict=True)]
    bars.set_xticks(measured, labels[: len(rows)])
    bars.set_axisbelow(True)
    bars.set(xlabel="workers N (left cold, right warm)", ylabel="seconds of the main loop")
    bars.grid(axis="x", visible=False)
    bars.legend(fontsize=8)
    return figure


def measured_epochs(loaders: dict[int | str, DataLoader], step: float, rounds: int) -> dict[int | str, list[Epoch]]:
    """Epochs of each loader: first a cold one each, then `rounds` warm ones in turns. The placebo has no cold one."""
    epochs: dict[int | str, list[Epoch]] = {name: [] for name in loaders}
    for turn in range(1 + rounds):
        for name, loader in loaders.items():
            if turn or name != AGAIN:
                epochs[name].append(run_epoch(loader, Accelerator(step)))
    return epochs


@experiment("num-workers", lecture="L0 L3 L4", notebook=NOTEBOOK, draw=draw_num_workers, quick=QUICK, full=FULL, uses=("cuda",))
def num_workers(params: Params) -> Result:
    """How many workers: measured, the lecture's formula, the bound, and where the rest goes."""
    storage = StorageModel(params.scale)
    loads = batch_loads(storage, params.batches, params.batch_size)
    load = sum(loads)
    compute = load * LECTURE_COMPUTE / LECTURE_LOAD  # the lecture's proportion
    step = compute / params.batches
    rows: list[WorkerCount] = []
    parts: list[EpochParts] = []

    def predictions(workers: int) -> dict[str, float]:
        bound, lecture = lower_bound(load, compute, workers), lecture_time(load, compute, workers)
        return {"simulated": simulate(loads, step, workers), "bound": bound, "lecture": lecture}

    with clips_on_disk(params.batches * params.batch_size, storage) as clips, allow_oversubscription():
        loaders: dict[int | str, DataLoader] = {
            workers: stamped_loader(clips, params.batch_size, workers, persistent_workers=workers > 0)
            for workers in params.workers
        }
        loaders[AGAIN] = loaders[0]
        epochs = measured_epochs(loaders, step, params.rounds)
        loaders.clear()  # and with them their workers
        gains = {workers: _gain(epochs, workers) for workers in params.workers}
        for workers, gain in gains.items():
            cold, *warm = epochs[workers]
            median_epoch = sorted(warm, key=lambda epoch: epoch.seconds)[len(warm) // 2]
            for which, epoch in (("cold", cold), ("warm", median_epoch)):
                split = {name.replace("-", "_"): seconds for name, seconds in epoch.parts.items()}
                parts.append(EpochParts(workers, which, **split))
            fields = (cold.seconds, median_epoch.seconds, gain.ratio, gain.interval, gain.verdict)
            expected = expected_time(load, compute, workers, params.batches)
            rows.append(WorkerCount(workers, *fields, expected=expected, **predictions(workers)))
        runs = [(workers, epoch) for workers in params.workers for epoch in epochs[workers]]
        computed = measure_computed(params.workers, params.rounds, params.work)
        cheap: list[CheapEpoch]
        cheap = measure_cheap(params.cheap, params.cheap_workers, params.rounds, params.device.torch)

    computed_rows: list[ComputedEpoch] = computed.rows
    tables = [
        Table("An epoch by the number of workers", rows),
        Table("Where the main loop's time goes", parts),
        Table("Samples that compute instead of waiting", computed_rows),
        Table("An epoch of cheap images", cheap),
    ]
    # 16 workers lie past the point from which more of them gain nothing.
    theory = [{"workers": workers, **predictions(workers)} for workers in dict.fromkeys((*params.workers, 16))]
    result = Result(tables, arrays={"theory": theory})
    _redo_the_lecture(result)
    _compare(result, rows, parts, gains, load, compute)
    compare_computed(result, computed, gains)
    compare_cheap(result, cheap, trained=params.device.is_cuda)
    result.key_figure(
        "16 workers, simulated over the lecture's formula", theory[-1]["simulated"] / theory[-1]["lecture"], "ratio"
    )
    result.claim(
        "No epoch is faster than the bound max(compute, load / workers)",
        all(epoch.seconds >= lower_bound(load, compute, workers) for workers, epoch in runs),
        f"smallest distance {min(epoch.seconds / lower_bound(load, compute, n) - 1 for n, epoch in runs):.1%}",
    )
    if not params.device.is_cuda:
        what = "epochs of cheap images are only loaded, while the lecture's also train on a GPU"
        result.notes.append(NO_CUDA.format(what=what, slug="num-workers"))
    if params.scale < 1:
        result.notes.append(
            f"Waits are {1 / params.scale:g} times shorter than in the lecture, but a worker takes as long to start: its "
            "share is larger here. `--size full` has longer waits (about ten minutes)."
        )
    if multiprocessing.get_start_method() != "fork":
        result.notes.append("Workers start with spawn or forkserver here: each imports torch first, which takes seconds.")
    return result


def _redo_the_lecture(result: Result) -> None:
    """The lecture's own figures: what its formula promises, and what the bound says."""
    formula = lecture_time(LECTURE_LOAD, LECTURE_COMPUTE, 8)
    enough = next(workers for workers in range(1, 65) if LECTURE_LOAD / workers <= LECTURE_COMPUTE)
    loads = batch_loads(StorageModel(), LECTURE_BATCHES, 32)
    simulated = simulate(loads, LECTURE_COMPUTE / LECTURE_BATCHES, 8)
    result.key_figure("lecture's formula for 8 workers", round(formula, 2), "s", lecture="16.15")
    result.key_figure("lecture's ideal overhead for 8 workers", round(formula - LECTURE_COMPUTE_8, 2), "s", lecture="0.82")
    result.key_figure("bound for 8 workers with the lecture's figures", lower_bound(LECTURE_LOAD, LECTURE_COMPUTE, 8), "s")
    result.key_figure("8 workers simulated at the lecture's latencies", simulated, "s", lecture="20.17 (15.33 + 4.84)")
    result.key_figure("workers that suffice", enough, lecture="8 workers were tried")
    result.key_figure("the lecture's 8 workers, effective number", LECTURE_LOAD / (LECTURE_COMPUTE_8 + LECTURE_WAIT_8))


def _gain(epochs: dict[int | str, list[Epoch]], workers: int) -> SpeedUp:
    """The speed-up over no workers, over the warm epochs."""
    warm = epochs[0][1:], epochs[workers][1:], epochs[AGAIN]
    return speed_up_of(*([epoch.seconds for epoch in found] for found in warm))


def _compare(
    result: Result, rows: list[WorkerCount], parts: list[EpochParts], gains: dict[int, SpeedUp], load: float, compute: float
) -> None:
    by_workers = {row.workers: row for row in rows}
    eight = by_workers[8]
    [warm] = [epoch for epoch in parts if (epoch.workers, epoch.which) == (8, "warm")]
    waiting = (warm.waiting + warm.collate + warm.queue) / warm.compute
    result.key_figure("loading here", load, "s")
    result.key_figure("compute here", compute, "s")
    result.key_figure("8 workers", eight.gain, "speed-up", lecture="6.40 (129.17 / 20.17 s)")
    result.key_figure("8 workers, waiting over computing", waiting, "ratio", lecture="0.32 (4.84 / 15.33 s)")
    result.key_figure("8 workers, share of the epoch beyond the bound", 1 - eight.bound / eight.warm)
    result.measured(
        "Each warm epoch takes what the simulation predicts, within 15 %",
        all(abs(row.warm / row.simulated - 1) < 0.15 for row in rows),
        ", ".join(f"{row.workers}: {row.warm / row.simulated:.2f}" for row in rows),
    )
    result.measured(
        "4 workers are faster than none, and 8 gain more than 4",
        gains[4].faster and gains[8].low > gains[4].high,
        f"{gains[4]}; 8 workers: {gains[8].ratio:.2f} ({gains[8].interval})",
    )
