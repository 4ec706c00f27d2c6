"""A deliberately slow trainer and its fast form, habit by habit: each `…_slow` stands beside the `…_fast` that replaces it.

`Switches` says which fast forms are in use. All off is the slow trainer, all on the best one; both train the same net on the
same batches, and what they leave behind is the same: a log with one line an iteration, and the losses on test images.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from hpml_lab.core.counting import synchronize
from hpml_lab.data.dataset import DataSet

PARTS = ("input", "transform", "copy", "forward", "backward", "optimizer", "logging", "evaluation")
MEAN, STD = 0.1307, 0.3081  # of MNIST's pixels
LR, BETAS, EPS = 1e-3, (0.9, 0.999), 1e-8
TOGETHER = 256  # test images at a time


@dataclass(frozen=True)
class Switches:
    """Which habits are mended; the field's name is the step's name, and its comment says what is then done."""

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
    wrong: str = ""  # a planted mistake: one of WRONG


WRONG = {
    "forget to zero": "gradients are never cleared, so they add up",
    "another order": "the images are shuffled with another seed",
    "evaluate in training mode": "batch norm uses the test batch's own mean, and learns from it",
    "half a batch": "half of each batch is left out of the loss",
}


# ---- input: from files to pixels -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Folder:
    """PNG files on disk with their labels (N,), for training and for testing, and where the log is written."""

    train: list[Path]
    train_y: torch.Tensor
    test: list[Path]
    test_y: torch.Tensor
    log: Path


def write_folder(folder: Path, data: DataSet, train: int, test: int) -> Folder:
    """Write the first `train` and `test` images of a data set as PNG files into `folder`."""

    def write(kind: str, images: torch.Tensor) -> list[Path]:
        paths = [folder / f"{kind}-{number:05}.png" for number in range(len(images))]
        for path, pixels in zip(paths, (images[:, 0] * 255).round().to(torch.uint8).numpy(), strict=True):
            Image.fromarray(pixels).save(path, compress_level=1)
        return paths

    files = write("train", data.train_x[:train]), write("test", data.test_x[:test])
    return Folder(files[0], data.train_y[:train], files[1], data.test_y[:test], folder / "log.txt")


def input_slow(files: list[Path], chosen: torch.Tensor) -> list[np.ndarray]:
    """Open and decode the chosen files, one after the other: B arrays (H, W) in uint8."""
    images = []
    for number in chosen.tolist():
        with Image.open(files[number]) as image:
            images.append(np.array(image))
    return images


def input_fast(pixels: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Take the chosen images from memory, where they lie decoded: one index operation."""
    return pixels[chosen]


# ---- transform: from pixels to a batch (B, 1, H, W) in float32 -----------------------------------------------------------


def transform_slow(images) -> torch.Tensor:
    """Normalise sample by sample, through Python lists, with new tensors all along; then stack."""
    samples = []
    for image in images:
        sample = torch.tensor(image.tolist(), dtype=torch.float32)
        sample = sample / 255
        sample = (sample - MEAN) / STD
        samples.append(sample.unsqueeze(0))
    return torch.stack(samples)


def transform_fast(images) -> torch.Tensor:
    """Normalise the whole batch, in place: the same three operations on each element."""
    batch = torch.from_numpy(np.asarray(images)).to(torch.float32)
    return batch.div_(255).sub_(MEAN).div_(STD).unsqueeze(1)


# ---- copy: to the device -------------------------------------------------------------------------------------------------


def copy_slow(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy from ordinary memory: the processor waits."""
    return tensor.to(device)


def copy_fast(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Copy from page-locked memory: the processor goes on, and the device waits by itself."""
    return tensor.pin_memory().to(device, non_blocking=True)


# ---- forward -------------------------------------------------------------------------------------------------------------


class Net(nn.Module):
    """Two convolutions with batch norm and ReLU, and a linear layer: (B, 1, H, W) -> (B, 10)."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.Conv2d(8, 16, 3, 2, padding=1, bias=False)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(16)])
        self.linear = nn.Linear(16 * ((height + 1) // 2) * ((width + 1) // 2), 10)


def forward_slow(net: Net, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and outputs with everything written out: each line reads and writes whole tensors, and autograd keeps many."""
    for conv, norm in zip(net.convs, net.norms, strict=True):
        x = conv(x)
        mean, variance = norm.running_mean, norm.running_var
        if norm.training:
            mean = x.mean((0, 2, 3))
            variance = ((x - mean[:, None, None]) ** 2).mean((0, 2, 3))
            with torch.no_grad():
                count = x.numel() / x.shape[1]
                norm.running_mean.copy_(0.9 * norm.running_mean + 0.1 * mean)
                norm.running_var.copy_(0.9 * norm.running_var + 0.1 * variance * count / (count - 1))
        x = (x - mean[:, None, None]) / (variance[:, None, None] + norm.eps).sqrt()
        x = x * norm.weight[:, None, None] + norm.bias[:, None, None]
        x = x * (x > 0)
    outputs = net.linear(x.flatten(1))
    exponentials = (outputs - outputs.max(1, keepdim=True).values).exp()
    probabilities = exponentials / exponentials.sum(1, keepdim=True)
    return -(F.one_hot(y, 10) * probabilities.log()).sum(1).mean(), outputs


def forward_fast(net: Net, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and outputs with torch's layers: batch norm is one kernel, cross-entropy two."""
    for conv, norm in zip(net.convs, net.norms, strict=True):
        x = F.relu(norm(conv(x)))
    outputs = net.linear(x.flatten(1))
    return F.cross_entropy(outputs, y), outputs


# ---- optimizer: Adam, and clearing the gradients -------------------------------------------------------------------------


class AdamSlow:
    """Adam parameter by parameter in Python: m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², θ ← θ − η m̂ / (√v̂ + ε)."""

    def __init__(self, net: Net) -> None:
        self.parameters = list(net.parameters())
        self.m = [torch.zeros_like(one) for one in self.parameters]
        self.v = [torch.zeros_like(one) for one in self.parameters]
        self.t = 0

    @torch.no_grad()
    def step(self) -> None:
        self.t += 1
        for number, parameter in enumerate(self.parameters):
            gradient = parameter.grad
            self.m[number] = BETAS[0] * self.m[number] + (1 - BETAS[0]) * gradient
            self.v[number] = BETAS[1] * self.v[number] + (1 - BETAS[1]) * gradient**2
            mean = self.m[number] / (1 - BETAS[0] ** self.t)
            square = self.v[number] / (1 - BETAS[1] ** self.t)
            parameter.copy_(parameter - LR * mean / (square.sqrt() + EPS))


def adam_fast(net: Net) -> torch.optim.Adam:
    """torch's Adam with all parameters in one call, in place."""
    return torch.optim.Adam(net.parameters(), lr=LR, betas=BETAS, eps=EPS, fused=True)


def clear_slow(net: Net) -> None:
    """Write zeros over every gradient; the backward pass then reads them and adds to them."""
    for parameter in net.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()


def clear_fast(net: Net) -> None:
    """Let the gradients go; the backward pass hands over new ones."""
    for parameter in net.parameters():
        parameter.grad = None


# ---- logging: one line an iteration, with the loss and how many were right -----------------------------------------------


class LogSlow:
    """Ask the device for each sample's answer and for the loss, and write a line at once."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "w")

    def add(self, loss: torch.Tensor, outputs: torch.Tensor, y: torch.Tensor) -> None:
        right = 0
        for number in range(len(y)):
            right += int(outputs[number].argmax().item() == y[number].item())
        print(loss.item(), right, file=self.file, flush=True)

    def close(self) -> None:
        self.file.close()


class LogFast:
    """Count on the device and keep the figures there; ask for all of them once, at the end."""

    def __init__(self, path: Path) -> None:
        self.path, self.losses, self.rights = path, [], []

    def add(self, loss: torch.Tensor, outputs: torch.Tensor, y: torch.Tensor) -> None:
        self.losses.append(loss.detach())  # without detach each loss would keep its graph, and the memory would grow
        self.rights.append((outputs.argmax(1) == y).sum())

    def close(self) -> None:
        pairs = zip(torch.stack(self.losses).tolist(), torch.stack(self.rights).tolist(), strict=True)
        self.path.write_text("".join(f"{loss} {right}\n" for loss, right in pairs))


# ---- evaluation: the mean loss on the test images ------------------------------------------------------------------------


def evaluate_slow(loss_of: Callable[[torch.Tensor], torch.Tensor], count: int) -> float:
    """One image at a time, each with a graph that nobody uses."""
    return sum(loss_of(torch.tensor([number])).item() for number in range(count)) / count


@torch.inference_mode()
def evaluate_fast(loss_of: Callable[[torch.Tensor], torch.Tensor], count: int) -> float:
    """Many images at a time, without a graph, and one question to the device."""
    return float(sum(loss_of(chosen) * len(chosen) for chosen in torch.arange(count).split(TOGETHER)) / count)


# ---- the trainer ---------------------------------------------------------------------------------------------------------


class Clock:
    """Seconds by part. Time within a part inside another counts for the inner one only.

    The device is waited for at each border, so that each part pays for its own kernels. In a trace of torch.profiler the
    parts appear under their names.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.seconds = dict.fromkeys(PARTS, 0.0)
        self._open: list[str] = []
        self._since = 0.0

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._turn()
        self._open.append(name)
        try:
            with torch.profiler.record_function(name):
                yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        synchronize(self.device)
        now = time.perf_counter()
        if self._open:
            self.seconds[self._open[-1]] += now - self._since
        self._since = now


class NoClock:
    """Measures nothing and costs nothing."""

    def part(self, name: str) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()


@dataclass(frozen=True)
class History:
    """What a run left behind: the loss and the number of right answers of each iteration, and each test loss."""

    losses: list[float]
    rights: list[int]
    tests: list[float] = field(default_factory=list)


class Trainer:
    """The trainer with the given habits; `run` starts from the same weights and the same order every time."""

    def __init__(self, folder: Folder, switches: Switches, device: torch.device, *, batch: int, look: int) -> None:
        """
        batch  images an iteration
        look   iterations between two evaluations
        """
        self.folder, self.switches, self.device, self.batch, self.look = folder, switches, device, batch, look
        start = time.perf_counter()
        self.sources = {"train": (folder.train, folder.train_y), "test": (folder.test, folder.test_y)}
        if switches.decode_once:
            self._replace(lambda files: torch.from_numpy(np.stack(input_slow(files, torch.arange(len(files))))))
        if switches.prepare_once:
            self._replace(transform_fast)
        if switches.stay_on_device:
            self._replace(lambda images: images.to(device))
            self.sources = {kind: (images, labels.to(device)) for kind, (images, labels) in self.sources.items()}
        synchronize(device)
        self.once = time.perf_counter() - start  # seconds spent before the first iteration
        with Image.open(folder.train[0]) as image:
            width, height = image.size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.net = Net(height, width)
        self.net.to(device, memory_format=torch.channels_last if switches.channels_last else torch.contiguous_format)
        self.weights = {name: value.clone() for name, value in self.net.state_dict().items()}
        self.forward = forward_fast if switches.library_layers else forward_slow
        self.compiled = torch.compile(self.forward) if switches.compiled else self.forward

    def _replace(self, change: Callable) -> None:
        self.sources = {kind: (change(images), labels) for kind, (images, labels) in self.sources.items()}

    def load(self, kind: str, chosen: torch.Tensor, clock) -> tuple[torch.Tensor, torch.Tensor]:
        """The chosen images (B, 1, H, W) and labels (B,) on the device."""
        on, (images, labels) = self.switches, self.sources[kind]
        if on.stay_on_device:
            with clock.part("copy"):
                chosen = copy_fast(chosen, self.device) if on.pinned_copy else copy_slow(chosen, self.device)
        with clock.part("input"):
            x, y = (input_fast if on.decode_once else input_slow)(images, chosen), labels[chosen]
        if not on.prepare_once:
            with clock.part("transform"):
                x = (transform_fast if on.batch_transform else transform_slow)(x)
        if not on.stay_on_device:
            with clock.part("copy"):
                copy = copy_fast if on.pinned_copy else copy_slow
                x, y = copy(x, self.device), copy(y, self.device)
        return (x.contiguous(memory_format=torch.channels_last) if on.channels_last else x), y

    def run(self, iterations: int, clock: Clock | None = None) -> History:
        """Train for `iterations` from the start; with a clock each part is timed."""
        on, clock = self.switches, clock or NoClock()
        self.net.load_state_dict(self.weights)
        self.net.train()
        clear_fast(self.net)
        adam = adam_fast(self.net) if on.fused_adam else AdamSlow(self.net)
        log = (LogFast if on.late_log else LogSlow)(self.folder.log)
        tests = []
        with contextlib.closing(log), torch.autograd.set_detect_anomaly(not on.debug_off):
            for iteration, chosen in enumerate(self._order(iterations), 1):
                x, y = self.load("train", chosen, clock)
                if on.wrong == "half a batch":
                    x, y = x[: self.batch // 2], y[: self.batch // 2]
                with clock.part("optimizer"):
                    if on.wrong != "forget to zero":
                        (clear_fast if on.drop_gradients else clear_slow)(self.net)
                with clock.part("forward"), torch.autocast(self.device.type, torch.bfloat16, enabled=on.bfloat16):
                    loss, outputs = self.compiled(self.net, x, y)
                with clock.part("backward"):
                    loss.backward()
                with clock.part("optimizer"):
                    adam.step()
                with clock.part("logging"):
                    log.add(loss, outputs, y)
                if iteration % self.look == 0:
                    with clock.part("evaluation"):
                        tests.append(self.evaluate(clock))
        synchronize(self.device)
        lines = [line.split() for line in self.folder.log.read_text().splitlines()]
        return History([float(loss) for loss, _ in lines], [int(right) for _, right in lines], tests)

    def evaluate(self, clock) -> float:
        """The mean loss on the test images."""

        def loss_of(chosen: torch.Tensor) -> torch.Tensor:
            return self.forward(self.net, *self.load("test", chosen, clock))[0]

        self.net.train(self.switches.wrong == "evaluate in training mode")
        mean = (evaluate_fast if self.switches.batch_evaluation else evaluate_slow)(loss_of, len(self.folder.test))
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
