"""io-vs-compute: where a batch's time goes, and what overlap or a faster accelerator can gain."""

import functools
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
from torch.utils.data import DataLoader

from hpml_lab.core.experiment.findings import Row, Table, column
from hpml_lab.core.experiment.registry import Params, experiment
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.measure.counting import synchronize
from hpml_lab.core.measure.noise import SpeedUp, speed_up_of
from hpml_lab.core.measure.timeline import CLOCK
from hpml_lab.core.show import style
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.workers import allow_oversubscription, child_pids
from hpml_lab.loading.pipeline import checksum, run_epoch, stamped_loader
from hpml_lab.loading.storage import Photos, make_photos

NOTEBOOK = "08_loading"
LOAD_PARTS = ("read", "decode", "transform", "collate")
STEP_PARTS = ("copy", "forward", "backward", "step")
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
QUICK = dict(rounds=5, batches=6, batch_size=12, side=224, crop=112, width=12, gpu_width=64)
FULL = dict(rounds=5, batches=10, batch_size=64, side=384, crop=224, width=8, gpu_width=64)
MOST_PASSES = 500  # a GPU that is faster still leaves a step shorter than the loading


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

    The dotted line marks 2, which a step twice as fast cannot reach while loading takes its turn.
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


class PhotoTrainer:
    """A small convolutional net that trains on photos; a step is as many passes over a batch as it is asked for."""

    def __init__(self, device: torch.device, width: int) -> None:
        torch.manual_seed(0)
        conv = functools.partial(torch.nn.Conv2d, kernel_size=3, stride=2, padding=1)
        self.net = torch.nn.Sequential(
            conv(3, width),
            torch.nn.ReLU(),
            conv(width, 2 * width),
            torch.nn.ReLU(),
            conv(2 * width, 4 * width),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
            torch.nn.Linear(4 * width, 10),
        ).to(device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.device = device

    def finished(self) -> float:
        """The moment at which the device has finished all work that was queued on it."""
        synchronize(self.device)
        return CLOCK()

    def __call__(self, photos: torch.Tensor, labels: torch.Tensor, passes: int = 1) -> dict[str, float]:
        """Train on one batch `passes` times. Returns the seconds of each of STEP_PARTS, those of all passes together."""
        moments = [CLOCK()]
        photos, labels = photos.to(self.device), labels.to(self.device)
        moments.append(self.finished())
        for _ in range(passes):
            self.optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(self.net(photos), labels)
            moments.append(self.finished())
            loss.backward()
            moments.append(self.finished())
            self.optimizer.step()
            moments.append(self.finished())
        copy, *taken = (b - a for a, b in pairwise(moments))
        return dict(zip(STEP_PARTS, (copy, *(sum(taken[part::3]) for part in range(3))), strict=True))


@dataclass
class TimedEpoch:
    """One epoch: its seconds, and the parts of each batch in seconds."""

    seconds: float
    batches: list[dict[str, float]]

    def mean(self, parts: Iterable[str]) -> float:
        """Seconds of a batch that go to these parts."""
        return sum(batch[part] for batch in self.batches for part in parts) / len(self.batches)


def timed_epoch(loader: DataLoader, trainer: PhotoTrainer, passes: int = 1, checksums: list[int] | None = None) -> TimedEpoch:
    """Train for one epoch; `checksums` takes those of the batches, which cost time."""
    batches = []

    def step(batch: list[torch.Tensor]) -> None:
        images, labels, times = batch
        loading = dict(zip(LOAD_PARTS, times.diff(dim=1).sum(0).tolist(), strict=False))  # collate is known by its span
        batches.append(loading | trainer(images, labels, passes))
        if checksums is not None:
            checksums.append(checksum([images, labels]))

    epoch = run_epoch(loader, step)
    collated = [span for span in epoch.spans if span.what == "collate"]
    for parts, span in zip(batches, collated, strict=True):
        parts["collate"] = span.seconds
    return TimedEpoch(epoch.seconds, batches)


def enough_passes(epoch: TimedEpoch) -> int:
    """How many passes take about as long as loading, 1 to MOST_PASSES, by the batches of an epoch with one pass.

    By the medians: the first batch of all also chooses kernels.
    """
    load, step = (median(sum(batch[part] for part in parts) for batch in epoch.batches) for parts in (LOAD_PARTS, STEP_PARTS))
    return min(max(1, round(load / step)), MOST_PASSES)


@experiment(
    "io-vs-compute", lecture="L0 L1", notebook=NOTEBOOK, draw=draw_io_vs_compute, quick=QUICK, full=FULL, uses=("cuda",)
)
def io_vs_compute(params: Params) -> Result:
    """Where a batch's time goes, and what overlap or a faster accelerator can gain."""
    before = child_pids()
    sums: dict[str, list[int]] = {"in turn": [], "worker": []}
    with tempfile.TemporaryDirectory(prefix="hpml-photos-") as folder, allow_oversubscription():
        photos = Photos(make_photos(Path(folder), params.batches * params.batch_size, side=params.side), params.crop)
        trainer = PhotoTrainer(params.device.torch, params.gpu_width if params.device.is_cuda else params.width)
        in_turn, one_worker = (
            stamped_loader(photos, params.batch_size, workers, persistent_workers=workers > 0) for workers in (0, 1)
        )
        # The warm-up: the worker starts, files come into the page cache, kernels are chosen.
        passes = enough_passes(timed_epoch(in_turn, trainer, checksums=sums["in turn"]))
        timed_epoch(one_worker, trainer, checksums=sums["worker"])
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
    result.claim(
        "A worker gives the same batches as the loop alone, bitwise and in the same order",
        len(sums["in turn"]) == params.batches and sums["in turn"] == sums["worker"],
    )
    result.check("No worker process is left", child_pids() <= before)
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
    """Add the key figures, the claims and the check of the split."""
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
    gap = abs(sum(sum(batch.values()) for batch in split.batches) - split.seconds)
    result.check(
        "The parts of all batches add up to the loop's wall time, within 5 % and 50 ms",
        gap < 0.05 * split.seconds + 0.05,
        f"{gap / split.seconds:.1%} unaccounted",
    )
