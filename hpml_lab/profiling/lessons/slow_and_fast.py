"""What a slow trainer does, each as a pair: a `…_slow` form, and next to it the `…_fast` one that replaces it.

Both forms of a pair leave the same behind, to the last bit or to rounding. `slow_trainer.py` puts them together.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import nn

from hpml_lab.data.dataset import DataSet

MEAN, STD = 0.1307, 0.3081  # of MNIST's pixels
LR, BETAS, EPS = 1e-3, (0.9, 0.999), 1e-8
TOGETHER = 256  # test images at a time

# ---- input: from files to pixels -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingFiles:
    """PNG files on disk with their labels (N,), for training and for testing, and where the log is written."""

    train: list[Path]
    train_y: torch.Tensor
    test: list[Path]
    test_y: torch.Tensor
    log: Path


def write_folder(folder: Path | str, data: DataSet, train: int, test: int) -> TrainingFiles:
    """Write the first `train` and `test` images of a data set as PNG files into `folder`."""
    folder = Path(folder)

    def write(kind: str, images: torch.Tensor) -> list[Path]:
        paths = [folder / f"{kind}-{number:05}.png" for number in range(len(images))]
        for path, pixels in zip(paths, (images[:, 0] * 255).round().to(torch.uint8).numpy(), strict=True):
            Image.fromarray(pixels).save(path, compress_level=1)
        return paths

    files = write("train", data.train_x[:train]), write("test", data.test_x[:test])
    return TrainingFiles(files[0], data.train_y[:train], files[1], data.test_y[:test], folder / "log.txt")


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
    """Normalize sample by sample, through Python lists, with new tensors all along; then stack."""
    samples = []
    for image in images:
        sample = torch.tensor(image.tolist(), dtype=torch.float32)
        sample = sample / 255
        sample = (sample - MEAN) / STD
        samples.append(sample.unsqueeze(0))
    return torch.stack(samples)


def transform_fast(images) -> torch.Tensor:
    """Normalize the whole batch, in place: the same three operations on each element."""
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


class TrainerNet(nn.Module):
    """Two convolutions with batch norm and ReLU, and a linear layer: (B, 1, H, W) -> (B, 10)."""

    def __init__(self, height: int, width: int) -> None:
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.Conv2d(8, 16, 3, 2, padding=1, bias=False)])
        self.norms = nn.ModuleList([nn.BatchNorm2d(8), nn.BatchNorm2d(16)])
        self.linear = nn.Linear(16 * ((height + 1) // 2) * ((width + 1) // 2), 10)


def forward_slow(net: TrainerNet, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
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


def forward_fast(net: TrainerNet, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Loss and outputs with torch's layers: batch norm is one kernel, cross-entropy two."""
    for conv, norm in zip(net.convs, net.norms, strict=True):
        x = F.relu(norm(conv(x)))
    outputs = net.linear(x.flatten(1))
    return F.cross_entropy(outputs, y), outputs


# ---- optimizer: Adam, and clearing the gradients -------------------------------------------------------------------------


class AdamSlow:
    """Adam parameter by parameter in Python: m ← β₁m + (1 − β₁)g, v ← β₂v + (1 − β₂)g², θ ← θ − η m̂ / (√v̂ + ε)."""

    def __init__(self, net: TrainerNet) -> None:
        self.parameters = list(net.parameters())
        self.m = [torch.zeros_like(parameter) for parameter in self.parameters]
        self.v = [torch.zeros_like(parameter) for parameter in self.parameters]
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


def adam_fast(net: TrainerNet) -> torch.optim.Adam:
    """torch's Adam with all parameters in one call, in place."""
    return torch.optim.Adam(net.parameters(), lr=LR, betas=BETAS, eps=EPS, fused=True)


def clear_slow(net: TrainerNet) -> None:
    """Write zeros over every gradient; the backward pass then reads them and adds to them."""
    for parameter in net.parameters():
        if parameter.grad is not None:
            parameter.grad.zero_()


def clear_fast(net: TrainerNet) -> None:
    """Let the gradients go; the backward pass hands over new ones."""
    for parameter in net.parameters():
        parameter.grad = None


# ---- logging: one line an iteration, with the loss and how many were right -----------------------------------------------


class LogSlow:
    """Ask the device for each sample's answer and for the loss, and write a line at once."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "w", encoding="utf-8")

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
        self.path.write_text("".join(f"{loss} {right}\n" for loss, right in pairs), encoding="utf-8")


# ---- evaluation: the mean loss on the test images ------------------------------------------------------------------------


def evaluate_slow(loss_of: Callable[[torch.Tensor], torch.Tensor], count: int) -> float:
    """One image at a time, each with a graph that nobody uses."""
    return sum(loss_of(torch.tensor([number])).item() for number in range(count)) / count


@torch.inference_mode()
def evaluate_fast(loss_of: Callable[[torch.Tensor], torch.Tensor], count: int) -> float:
    """Many images at a time, without a graph, and one question to the device."""
    return float(sum(loss_of(chosen) * len(chosen) for chosen in torch.arange(count).split(TOGETHER)) / count)
