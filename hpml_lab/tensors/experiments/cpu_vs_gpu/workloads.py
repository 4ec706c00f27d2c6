"""The pieces of work of `cpu-vs-gpu`: each with the FLOPs it computes and the bytes it has to move, counted by hand.

Bytes are the least that the algorithm must read and write once; float32 is 4 bytes. A multiply-add counts as 2 FLOPs.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass(frozen=True)
class Workload:
    """A piece of work on one device, its FLOPs and its bytes."""

    name: str
    work: Callable[[], object]
    flops: float
    bytes: float


def copy(elements: int, device: torch.device) -> Workload:
    """y = x: no FLOPs, reads and writes every element once."""
    x = torch.ones(elements, device=device)
    y = torch.empty_like(x)
    return Workload("copy", lambda: y.copy_(x), 0.0, 2.0 * x.nbytes)


def add(elements: int, device: torch.device) -> Workload:
    """z = x + y: one FLOP an element, 12 bytes an element."""
    x, y = torch.ones(2, elements, device=device)
    z = torch.empty_like(x)
    return Workload("add", lambda: torch.add(x, y, out=z), float(elements), 3.0 * x.nbytes)


def matvec(n: int, device: torch.device) -> Workload:
    """y = A x with A (n, n): 2n² FLOPs; the matrix is read once, so the intensity is 1/2 FLOP/byte whatever n is."""
    a, x = torch.ones(n, n, device=device), torch.ones(n, device=device)
    y = torch.empty_like(x)
    return Workload(f"matrix-vector, n={n}", lambda: torch.mv(a, x, out=y), 2.0 * n**2, float(a.nbytes + 2 * x.nbytes))


def matmul(n: int, device: torch.device) -> Workload:
    """C = A B with (n, n) matrices: 2n³ FLOPs, 3n² elements, so the intensity is n/6 FLOP/byte."""
    a, b = torch.randn(2, n, n, device=device)
    c = torch.empty_like(a)
    return Workload(f"matmul, n={n}", lambda: torch.mm(a, b, out=c), 2.0 * n**3, 3.0 * a.nbytes)


def conv(batch: int, channels: int, side: int, device: torch.device) -> Workload:
    """3 × 3 convolution, as many channels out as in: 2·9·C² FLOPs a pixel."""
    x = torch.randn(batch, channels, side, side, device=device)
    w = torch.randn(channels, channels, 3, 3, device=device)
    flops = 2.0 * 9 * channels**2 * batch * side**2
    return Workload(f"conv 3×3, {channels} channels", lambda: F.conv2d(x, w, padding=1), flops, 2.0 * x.nbytes + w.nbytes)


class SmallCNN(nn.Module):
    """Two 3 × 3 convolutions with pooling and a linear classifier, for images (N, 1, 28, 28)."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.classifier = nn.Linear(64 * 7 * 7, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return self.classifier(x.flatten(1))

    @staticmethod
    def flops(batch: int) -> int:
        """FLOPs of one forward pass by the formula 2·(weights a filter uses)·(outputs), biases and pooling left out."""
        return 2 * batch * (9 * 32 * 28 * 28 + 9 * 32 * 64 * 14 * 14 + 64 * 7 * 7 * 10)

    @classmethod
    def training_flops(cls, batch: int) -> int:
        """FLOPs of one training step: forward, and as many again for the gradients of the weights and of the layers' inputs;
        the first layer's input is the images, whose gradient nobody needs."""
        return 3 * cls.flops(batch) - 2 * batch * 9 * 32 * 28 * 28


def cnn_inference(batch: int, device: torch.device) -> Callable[[], object]:
    """A forward pass of SmallCNN over `batch` random images."""
    net, x = SmallCNN().to(device).eval(), torch.randn(batch, 1, 28, 28, device=device)

    def work() -> torch.Tensor:
        with torch.inference_mode():
            return net(x)

    return work


def cnn_training(batch: int, device: torch.device) -> Callable[[], object]:
    """One SGD step of SmallCNN on `batch` random images: forward, backward, update."""
    net = SmallCNN().to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    x, y = torch.randn(batch, 1, 28, 28, device=device), torch.randint(10, (batch,), device=device)

    def work() -> None:
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()

    return work
