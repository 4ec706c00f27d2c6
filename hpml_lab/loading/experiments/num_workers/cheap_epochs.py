"""Epochs of cheap images, such as MNIST's: a worker costs more than it saves, and whole batches need none.

Where there is a GPU, each batch goes to it through pinned memory and trains a net there, as in the lecture's epochs of MNIST.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.experiment.render import plural
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import grouped_bars
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import shutdown_workers
from hpml_lab.core.timing.counting import synchronize
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.loading.lessons.whole_batches import BatchedImages, CheapImages, ready_made
from hpml_lab.loading.tools.epochs import DEADLINE

ONE, WHOLE, AGAIN = "one by one", "whole batches", "one by one, again"
TRAINED = ", training on a GPU"
IN_THE_LECTURE = {1: "6.7 (MNIST, pinned memory)", 4: "4.1", 8: "4.5"}  # seconds by the number of workers, with training


@dataclass
class CheapEpoch(Row):
    """Epochs of cheap images, fetched one by one and in whole batches: medians.

    samples  {way: seconds, round by round}; AGAIN is one by one once more in every round, the placebo
    """

    workers: int = column("workers")
    one_by_one: float = column("one by one", "s")
    whole_batches: float = column("whole batches", "s")
    samples: dict[str, list[float]]

    def gain(self, changed: "CheapEpoch", way: str) -> SpeedUp:
        """The speed-up of the `way` with the other number of workers over one by one with this number."""
        return speed_up_of(self.samples[ONE], changed.samples[way], self.samples[AGAIN])


class DigitTrainer:
    """Trains the net of PyTorch's MNIST example, which the lecture times, on a GPU: images (B, 1, 28, 28), labels (B,)."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        convolutions = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)
        layers = nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)
        self.net = nn.Sequential(*convolutions, *layers).to(device)
        self.optimizer = torch.optim.Adadelta(self.net.parameters())

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        images, labels = images.to(self.device, non_blocking=True), labels.to(self.device, non_blocking=True)
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.net(images), labels).backward()
        self.optimizer.step()


def cheap_epoch(images: CheapImages, batch_size: int, workers: int, train: DigitTrainer | None = None) -> float:
    """Seconds of one epoch of DataLoader over `images`, start of its workers included.

    train  what each batch trains, through pinned memory; by default a batch is only loaded
    """
    batched = isinstance(images, BatchedImages)
    options: dict[str, Any] = {"timeout": DEADLINE} if workers else {}
    if train is not None:
        options["pin_memory"] = True
    start = CLOCK()
    loader = DataLoader(images, batch_size, num_workers=workers, collate_fn=ready_made if batched else None, **options)
    iterator = iter(loader)
    try:
        for batch, labels in iterator:
            if train is not None:
                train(batch, labels)
        if train is not None:
            synchronize(train.device)
        return CLOCK() - start
    finally:
        shutdown_workers(iterator)


def measure_cheap(images: int, workers: Sequence[int], rounds: int, device: torch.device) -> list[CheapEpoch]:
    """Epochs by the number of workers, in turns, with training where the device is a GPU."""
    sets = {ONE: CheapImages(images), WHOLE: BatchedImages(images)}
    sets[AGAIN] = sets[ONE]
    train = DigitTrainer(device) if device.type == "cuda" else None
    if train is not None:
        cheap_epoch(CheapImages(64), 64, 0, train)  # the first step loads the GPU's libraries
    seconds: dict[int, dict[str, list[float]]] = {count: {way: [] for way in sets} for count in workers}
    for _ in range(rounds):
        for count in workers:
            for way, dataset in sets.items():
                if way != AGAIN or count == min(workers):  # all are compared with the fewest workers
                    seconds[count][way].append(cheap_epoch(dataset, 64, count, train))
    return [CheapEpoch(count, median(by_way[ONE]), median(by_way[WHOLE]), by_way) for count, by_way in seconds.items()]


@picture
def cheap_images(result: Result):
    """Seconds of an epoch of cheap images by the number of workers, fetched one by one and in whole batches. On a GPU each
    batch also trains a net, as in the lecture; without one it is only loaded.

    See whether workers cost more than they save one by one, and what whole batches in the main process need.
    """
    figure = style.new_figure(7, 3)
    axes = figure.subplots()
    rows = result.rows(CheapEpoch)
    ways = {"one by one": [row.one_by_one for row in rows], "whole batches": [row.whole_batches for row in rows]}
    grouped_bars(axes, [str(row.workers) for row in rows], ways, labels="{:.2g}")
    axes.set(xlabel="workers", ylabel="seconds of an epoch")
    axes.legend(fontsize=8, loc="upper left")
    return figure


def compare_cheap(result: Result, cheap: list[CheapEpoch], trained: bool) -> None:
    """Add the key figures and the claims on cheap images; the lecture's epochs are those that also trained on a GPU."""
    by_workers = {row.workers: row for row in cheap}
    none, single, most = cheap[0], by_workers[1], cheap[-1]
    for row in cheap:
        label, lecture = f"cheap images, {plural(row.workers, 'worker')}", IN_THE_LECTURE.get(row.workers)
        if trained:
            result.key_figure(label + TRAINED, row.one_by_one, "s", lecture=lecture)
        else:
            result.key_figure(label, row.one_by_one, "s")
            if lecture:
                result.key_figure(label + TRAINED, None, "s", lecture=lecture)
    whole_batches = f"cheap images, {most.workers} workers, whole batches"
    result.key_figure(whole_batches + TRAINED if trained else whole_batches, most.whole_batches, "s")
    slower = none.gain(single, ONE)
    result.measured("A worker makes cheap images slower", slower.slower, str(slower))
    whole = none.gain(none, WHOLE)
    others = [none.gain(row, ONE) for row in cheap]
    result.measured(
        "Whole batches in the main process beat every number of workers that fetch one by one",
        whole.faster and all(whole.low > other.high for other in others),
        str(whole),
    )
