"""A training epoch with a named range around each part of a step, for profilers that show ranges on a time line.

nsys profile --trace=cuda,nvtx python -m hpml_lab.profiling.lessons.annotated_step '{"data": "digits", "batch": 128}'
"""

import contextlib
import json
import sys
from collections.abc import Iterator
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from hpml_lab.data import DataSet, load
from hpml_lab.data.shuffled import batches

STEP_RANGES = ("copy", "forward", "backward", "update")


def small_cnn(pixels: int, widths: tuple[int, ...], hidden: int) -> nn.Module:
    """The lecture's MNIST net without dropout: 3 × 3 convolutions with ReLU, a pooling, two linear layers."""
    channels = [1, *widths]
    layers = [layer for a, b in pairwise(channels) for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU())]
    flat = channels[-1] * (pixels // 2) ** 2
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, 10))


@contextlib.contextmanager
def named_range(name: str, device: torch.device) -> Iterator[None]:
    """A range that torch.profiler shows under this name and, on a GPU, Nsight Systems too: NVTX's."""
    nvtx = torch.cuda.nvtx.range(name) if device.type == "cuda" else contextlib.nullcontext()
    with nvtx, torch.profiler.record_function(name):
        yield


def annotated_epoch(net: nn.Module, data: DataSet, batch: int, device: torch.device) -> torch.Tensor:
    """One epoch of SGD with momentum, each batch copied to `device` as it comes; the losses, one a batch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for images, labels in batches(data.train_x, data.train_y, batch, torch.Generator().manual_seed(0)):
        with named_range("copy", device):
            images, labels = images.to(device), labels.to(device)
        with named_range("forward", device):
            loss = F.cross_entropy(net(images), labels)
        with named_range("backward", device):
            optimizer.zero_grad()
            loss.backward()
        with named_range("update", device):
            optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)  # no .item() in the loop: each would copy back and wait


def main(data: str, batch: int, widths: tuple[int, ...] = (8, 16), hidden: int = 32) -> None:
    """One epoch on the GPU, where there is one."""
    device, loaded = torch.device("cuda" if torch.cuda.is_available() else "cpu"), load(data)
    net = small_cnn(loaded.train_x.shape[-1], tuple(widths), hidden).to(device)
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
        annotated_epoch(net, loaded, batch, device).tolist()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
