"""io-vs-compute: where a batch's time goes, and what overlap or a faster accelerator can gain."""

import tempfile
from dataclasses import dataclass
from pathlib import Path


from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.show import style
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab import loading
from hpml_lab.storage.experiments.io_vs_compute.timed_epochs import (
    LOAD_PARTS,
    STEP_PARTS,
    Photos,
    PhotoTrainer,
    TimedEpoch,
    enough_passes,
    make_photos,
    timed_epoch,
)

NOTEBOOK = "09_storage"
COLORS = {
    "read": style.BLUE,
    "decode": style.SKY,
    "transform": style.GREEN,
    "collate": style.PURPLE,
    "copy": style.GREY,
    "forward": style.YELLOW,
    "backward": style.ORANGE,
    "step": style.RED,
}
# The net is narrow enough that one pass takes no longer than loading does; as many passes make a step as take as long.
QUICK = dict(rounds=SAMPLES, batches=6, batch_size=12, side=224, crop=112, width=12, gpu_width=64)
FULL = dict(rounds=9, batches=10, batch_size=64, side=384, crop=224, width=8, gpu_width=64)


@dataclass
class BatchPart(Row):
    """One part of a batch's time, the mean over all batches."""

    part: str = column("part")
    milliseconds: float = column("time", "ms")
    share: float = column("share")
    begins: float = column("begins at", "ms")


@dataclass
class PredictedGain(Row):
    """What a change of the loop gains, predicted from the split and measured."""

    change: str = column("change")
    predicted: float = column("predicted, speed-up")
    measured: float = column("measured, speed-up")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")
    low: float
    high: float


def draw_io_vs_compute(result: Result):
    """Left: a batch's time, in the order of its parts, from reading the files to the optimizer's step; passes that take less
    time than loading are repeated. Right: how much faster the loop becomes if loading runs during compute, and if a step takes
    half the time, predicted and measured with its 90 % interval.

    The dotted line marks 2: while loading takes its turn, only the noise of a step twice as fast reaches beyond it.
    """
    figure = style.new_figure(9, 4.4)
    left, right = figure.subplots(1, 2)
    parts, changes = result.rows(BatchPart), result.rows(PredictedGain)
    for index, row in enumerate(parts):
        hatch = "///" if row.part in LOAD_PARTS else None
        left.barh(index, row.milliseconds, left=row.begins, color=COLORS[row.part], hatch=hatch, edgecolor="white")
    left.set_yticks(range(len(parts)), [row.part for row in parts])
    left.invert_yaxis()
    left.grid(axis="y", visible=False)
    left.set(xlabel="time of a batch in ms (hatched: loading)")
    heights = {"predicted": [row.predicted for row in changes], "measured": [row.measured for row in changes]}
    for (label, values), shift, color, hatch in zip(
        heights.items(), (-0.2, 0.2), (style.GREY, style.BLUE), ("///", None), strict=True
    ):
        where = [index + shift for index in range(len(changes))]
        bars = right.bar(where, values, 0.36, color=color, hatch=hatch, edgecolor="white", label=label)
        right.bar_label(bars, fmt="%.2f", fontsize=9, label_type="center", color=style.DARK, bbox=style.WHITE_GROUND)
    reach = [[row.measured - row.low for row in changes], [row.high - row.measured for row in changes]]
    right.errorbar(
        [index + 0.2 for index in range(len(changes))], heights["measured"], reach, fmt="none", color=style.INK, capsize=4
    )
    right.axhline(2, color=style.INK, linestyle=":", linewidth=1)
    right.set_xticks(range(len(changes)), [row.change.replace(", ", ",\n") for row in changes])
    right.set_ylim(0, max(2.4, 1.25 * max([*heights["predicted"], *(row.high for row in changes)])))
    right.set(ylabel="speed-up")
    right.grid(axis="x", visible=False)
    right.legend(loc="upper left", ncols=2)
    for axes in (left, right):
        axes.set_axisbelow(True)
    return figure


@experiment(
    "io-vs-compute", lecture="L0 L1", notebook=NOTEBOOK, draw=draw_io_vs_compute, quick=QUICK, full=FULL, uses=("cuda",)
)
def io_vs_compute(params: Params) -> Result:
    """Where a batch's time goes, and what overlap or a faster accelerator can gain."""
    with tempfile.TemporaryDirectory(prefix="hpml-photos-") as folder, allow_oversubscription():
        photos = Photos(make_photos(Path(folder), params.batches * params.batch_size, side=params.side), params.crop)
        trainer = PhotoTrainer(params.device.torch, params.gpu_width if params.device.is_cuda else params.width)
        in_turn, one_worker = (
            loading.stamped_loader(photos, params.batch_size, workers, persistent_workers=workers > 0) for workers in (0, 1)
        )
        # The warm-up: the worker starts, files come into the page cache, kernels are chosen.
        passes = enough_passes(timed_epoch(in_turn, trainer))
        timed_epoch(one_worker, trainer)
        timed_epoch(in_turn, trainer, 2 * passes)
        ways = {
            "plain": (in_turn, passes),
            "overlapped": (one_worker, passes),
            "slow": (in_turn, 2 * passes),
            "plain, again": (in_turn, passes),
            "slow, again": (in_turn, 2 * passes),  # both are placebos
        }
        # In turns, so that a busy moment of the machine falls on all.
        turns = [
            {name: timed_epoch(loader, trainer, count) for name, (loader, count) in ways.items()} for _ in range(params.rounds)
        ]
        epochs = {name: [turn[name] for turn in turns] for name in ways}
        del one_worker, in_turn, ways  # ends the worker

    split = _whole(epochs["plain"])
    parts = _parts(split)
    changes = _changes(epochs)
    result = Result([Table("A batch's time", parts), Table("What a change gains", changes)])
    _compare(result, split, changes)
    result.key_figure("passes of a step", passes)
    if not params.device.is_cuda:
        result.notes.append(
            NO_CUDA.format(what="the step runs on a processor core, and the worker needs another core", slug="io-vs-compute")
        )
    return result


def _parts(split: TimedEpoch) -> list[BatchPart]:
    rows, begins, total = [], 0.0, split.mean((*LOAD_PARTS, *STEP_PARTS))
    for part in (*LOAD_PARTS, *STEP_PARTS):
        seconds = split.mean([part])
        rows.append(BatchPart(part, seconds * 1e3, seconds / total, begins * 1e3))
        begins += seconds
    return rows


def _whole(epochs: list[TimedEpoch]) -> TimedEpoch:
    """Several epochs as one."""
    return TimedEpoch(sum(epoch.seconds for epoch in epochs), [batch for epoch in epochs for batch in epoch.batches])


def _gain(epochs: dict[str, list[TimedEpoch]], before: str, after: str) -> SpeedUp:
    return speed_up_of(*([epoch.seconds for epoch in epochs[name]] for name in (before, after, f"{before}, again")))


def _changes(epochs: dict[str, list[TimedEpoch]]) -> list[PredictedGain]:
    plain, slow = _whole(epochs["plain"]), _whole(epochs["slow"])
    load, compute = plain.mean(LOAD_PARTS), plain.mean(STEP_PARTS)
    # Twice the passes over a batch are the machine with the slow accelerator; the plain step is the accelerator twice as fast.
    seconds, slow_load = slow.seconds / len(slow.batches), slow.mean(LOAD_PARTS)
    predicted = {
        "load during compute": ((load + compute) / max(load, compute), _gain(epochs, "plain", "overlapped")),
        "step twice as fast, loading in turn": (
            seconds / (slow_load + (seconds - slow_load) / 2),
            _gain(epochs, "slow", "plain"),
        ),
    }
    return [
        PredictedGain(change, expected, gain.ratio, gain.interval, gain.verdict, gain.low, gain.high)
        for change, (expected, gain) in predicted.items()
    ]


def _compare(result: Result, split: TimedEpoch, changes: list[PredictedGain]) -> None:
    """Add the key figures and the claims."""
    overlapped, doubled = changes
    ratio = split.mean(LOAD_PARTS) / split.mean(STEP_PARTS)
    result.key_figure("loading over computing", ratio, "ratio", lecture="about 1 (“as expensive”)")
    result.key_figure("overlap, at most", overlapped.predicted, "speed-up")
    result.key_figure("overlap, measured", overlapped.measured, "speed-up")
    result.key_figure("step twice as fast", doubled.measured, "speed-up", lecture="less than 2")
    result.measured(
        "A step twice as fast gains less than a factor of 2", doubled.high < 2, f"{doubled.measured:.2f} ({doubled.interval})"
    )
    result.measured(
        "A step twice as fast gains what Amdahl's law says, within 15 %",
        doubled.low <= 1.15 * doubled.predicted and doubled.high >= 0.85 * doubled.predicted,
        f"predicted {doubled.predicted:.2f}, measured {doubled.measured:.2f} ({doubled.interval})",
    )
    result.measured(
        "Overlap gains at least half of what the split allows",
        overlapped.verdict == "faster" and overlapped.low - 1 > 0.5 * (overlapped.predicted - 1),
        f"at most {overlapped.predicted:.2f}, measured {overlapped.measured:.2f} ({overlapped.interval}): {overlapped.verdict}",
    )
