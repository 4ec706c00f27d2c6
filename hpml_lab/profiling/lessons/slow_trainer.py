"""A deliberately slow trainer and its fast form: `TrainerSwitches` says which pairs of `slow_and_fast.py` are fast.

All off is the slow trainer, all on the best one; both train the same net on the same batches, and what they leave behind is
the same: a log with one line an iteration, and the losses on test images.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image

from hpml_lab.core.timing.counting import synchronize
from hpml_lab.profiling.lessons import slow_and_fast
from hpml_lab.profiling.lessons.slow_and_fast import TrainingFiles
from hpml_lab.profiling.tools.part_clock import NoPartClock, PartClock

PARTS = ("input", "transform", "copy", "forward", "backward", "optimizer", "logging", "evaluation")


@dataclass(frozen=True)
class TrainerSwitches:
    """Which changes are made; the field's name is the change's name, and its comment says what is then done."""

    decode_once: bool = False  # files are read and decoded before training, not in each iteration
    batch_transform: bool = False  # one tensor operation a batch, not one a sample
    prepare_once: bool = False  # all images are transformed before training
    late_log: bool = False  # losses stay on the device until the end
    batch_evaluation: bool = False  # test images in batches, without a graph
    debug_off: bool = False  # anomaly detection is switched off
    library_layers: bool = False  # torch's batch norm, ReLU and cross-entropy
    drop_gradients: bool = False  # gradients are set to None, not to zeros
    fused_adam: bool = False  # one call for all parameters
    pinned_copy: bool = False  # batches go through page-locked memory, without waiting
    stay_on_device: bool = False  # the prepared images lie on the device
    channels_last: bool = False  # weights and images in the order N H W C
    compiled: bool = False  # the forward pass and its backward by torch.compile
    bfloat16: bool = False  # convolutions and products in 16 bits
    wrong: str = ""  # a tempting mistake: one of WRONG


WRONG = {
    "forget to zero": "gradients are never cleared, so they add up",
    "another order": "the images are shuffled with another seed",
    "evaluate in training mode": "batch norm uses the test batch's own mean, and learns from it",
    "half a batch": "half of each batch is left out of the loss",
}


@dataclass(frozen=True)
class TrainingHistory:
    """What a run left behind: the loss and the number of right answers of each iteration, and each test loss."""

    losses: list[float]
    rights: list[int]
    tests: list[float] = field(default_factory=list)


def largest_difference(a: TrainingHistory, b: TrainingHistory) -> float:
    """The largest difference of two runs' losses and test losses; inf where they did not do the same number of iterations.

    0 only where everything is equal, the counts of right answers too.
    """
    if (len(a.losses), len(a.tests)) != (len(b.losses), len(b.tests)):
        return float("inf")
    if a == b:
        return 0.0
    pairs = [*zip(a.losses, b.losses, strict=True), *zip(a.tests, b.tests, strict=True)]
    differences = [abs(loss - other) for loss, other in pairs]
    if any(map(math.isnan, differences)) or max(differences) == 0:
        return float("inf")  # a NaN equals nothing; and other answers under equal losses are a fault of the log
    return max(differences)


class SlowTrainer:
    """The trainer with the given switches; `run` starts from the same weights and the same order every time."""

    def __init__(
        self, folder: TrainingFiles, switches: TrainerSwitches, device: torch.device | str, *, batch: int, look: int
    ) -> None:
        """
        batch  images an iteration
        look   iterations between two evaluations
        """
        self.folder, self.switches, self.batch, self.look = folder, switches, batch, look
        self.device = device = torch.device(device)
        start = time.perf_counter()
        self.sources = {"train": (folder.train, folder.train_y), "test": (folder.test, folder.test_y)}
        if switches.decode_once:
            self._replace(lambda files: torch.from_numpy(np.stack(slow_and_fast.input_slow(files, torch.arange(len(files))))))
        if switches.prepare_once:
            self._replace(slow_and_fast.transform_fast)
        if switches.stay_on_device:
            self._replace(lambda images: images.to(device))
            self.sources = {kind: (images, labels.to(device)) for kind, (images, labels) in self.sources.items()}
        synchronize(device)
        self.once = time.perf_counter() - start  # seconds spent before the first iteration
        with Image.open(folder.train[0]) as image:
            width, height = image.size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.net = slow_and_fast.TrainerNet(height, width)
        self.net.to(device, memory_format=torch.channels_last if switches.channels_last else torch.contiguous_format)
        self.weights = {name: value.clone() for name, value in self.net.state_dict().items()}
        self.forward = slow_and_fast.forward_fast if switches.library_layers else slow_and_fast.forward_slow
        self.compiled = torch.compile(self.forward) if switches.compiled else self.forward

    def _replace(self, change: Callable) -> None:
        self.sources = {kind: (change(images), labels) for kind, (images, labels) in self.sources.items()}

    def load(self, kind: str, chosen: torch.Tensor, clock) -> tuple[torch.Tensor, torch.Tensor]:
        """The chosen images (B, 1, H, W) and labels (B,) on the device."""
        on, (images, labels) = self.switches, self.sources[kind]
        copy = slow_and_fast.copy_fast if on.pinned_copy else slow_and_fast.copy_slow
        if on.stay_on_device:
            with clock.timed("copy"):
                chosen = copy(chosen, self.device)
        with clock.timed("input"):
            x, y = (slow_and_fast.input_fast if on.decode_once else slow_and_fast.input_slow)(images, chosen), labels[chosen]
        if not on.prepare_once:
            with clock.timed("transform"):
                x = (slow_and_fast.transform_fast if on.batch_transform else slow_and_fast.transform_slow)(x)
        if not on.stay_on_device:
            with clock.timed("copy"):
                x, y = copy(x, self.device), copy(y, self.device)
        return (x.contiguous(memory_format=torch.channels_last) if on.channels_last else x), y

    def run(self, iterations: int, clock: PartClock | None = None) -> TrainingHistory:
        """Train for `iterations` from the start; with a clock each part is timed."""
        on, clock = self.switches, clock or NoPartClock()
        self.net.load_state_dict(self.weights)
        self.net.train()
        slow_and_fast.clear_fast(self.net)
        adam = slow_and_fast.adam_fast(self.net) if on.fused_adam else slow_and_fast.AdamSlow(self.net)
        log = (slow_and_fast.LogFast if on.late_log else slow_and_fast.LogSlow)(self.folder.log)
        tests = []
        with contextlib.closing(log), torch.autograd.set_detect_anomaly(not on.debug_off):
            for iteration, chosen in enumerate(self._order(iterations), 1):
                x, y = self.load("train", chosen, clock)
                if on.wrong == "half a batch":
                    x, y = x[: self.batch // 2], y[: self.batch // 2]
                with clock.timed("optimizer"):
                    if on.wrong != "forget to zero":
                        (slow_and_fast.clear_fast if on.drop_gradients else slow_and_fast.clear_slow)(self.net)
                with clock.timed("forward"), torch.autocast(self.device.type, torch.bfloat16, enabled=on.bfloat16):
                    loss, outputs = self.compiled(self.net, x, y)
                with clock.timed("backward"):
                    loss.backward()
                with clock.timed("optimizer"):
                    adam.step()
                with clock.timed("logging"):
                    log.add(loss, outputs, y)
                if iteration % self.look == 0:
                    with clock.timed("evaluation"):
                        tests.append(self.evaluate(clock))
        synchronize(self.device)
        lines = [line.split() for line in self.folder.log.read_text(encoding="utf-8").splitlines()]
        return TrainingHistory([float(loss) for loss, _ in lines], [int(right) for _, right in lines], tests)

    def evaluate(self, clock) -> float:
        """The mean loss on the test images."""

        def loss_of(chosen: torch.Tensor) -> torch.Tensor:
            return self.forward(self.net, *self.load("test", chosen, clock))[0]

        self.net.train(self.switches.wrong == "evaluate in training mode")
        evaluate = slow_and_fast.evaluate_fast if self.switches.batch_evaluation else slow_and_fast.evaluate_slow
        mean = evaluate(loss_of, len(self.folder.test))
        self.net.train()
        return mean

    def _order(self, iterations: int) -> Iterator[torch.Tensor]:
        """The same shuffled batches in every run; the rest of an epoch that fills no batch is left out."""
        generator = torch.Generator().manual_seed(1 if self.switches.wrong == "another order" else 0)
        while True:
            order = torch.randperm(len(self.folder.train), generator=generator)
            for chosen in order[: len(order) // self.batch * self.batch].split(self.batch):
                if iterations == 0:
                    return
                iterations -= 1
                yield chosen
