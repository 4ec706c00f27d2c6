"""The training loops of `utilization`: networks whose FLOPs the formulas of `model_flops` give, and one step of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from hpml_lab.tensors.lessons.model_flops import attention_flops, convolution_flops, linear_flops, training_flops

HEADS, SIDE, CLASSES = 4, 16, 10
MLP, CNN, BLOCK, RECOMPUTED = "MLP", "CNN", "transformer block", "transformer block, recomputed"


class LoopSize(NamedTuple):
    """`width` of an MLP's layers, channels of a CNN, width of a transformer; tokens of a sequence."""

    width: int
    channels: int
    tokens: int


@dataclass(frozen=True)
class TrainingLoop:
    """One step of a network, and its FLOPs by formula: of a forward pass, of its first layer, and what is computed again."""

    name: str
    batch: int
    step: Callable[[], None]
    forward: int
    first: int
    recomputed: int = 0

    @property
    def model_flops(self) -> int:
        return training_flops(self.forward, self.first)

    @property
    def hardware_flops(self) -> int:
        return training_flops(self.forward, self.first, self.recomputed)


class PlainBlock(nn.Module):
    """A transformer's block without norms: attention by two products, then two linear layers, each added to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)
        x = x + self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(x)))


def block_flops(batch: int, tokens: int, width: int) -> int:
    """12 · width² weights for each token, and the attention of HEADS heads."""
    products = [linear_flops(batch * tokens, a * width, b * width) for a, b in ((1, 3), (1, 1), (1, 4), (4, 1))]
    return sum(products) + attention_flops(batch, HEADS, tokens, tokens, width // HEADS)


def training_loop(name: str, batch: int, size: LoopSize, device: torch.device) -> TrainingLoop:
    """The loop of this name with batches of `batch` samples: rows, images or sequences."""
    width, channels, tokens = size
    torch.manual_seed(0)
    if name == MLP:
        net, x = (
            nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(3))),
            torch.randn(batch, width),
        )
        first = linear_flops(batch, width, width)
        forward = 3 * first
    elif name == CNN:
        first_layer, second_layer = (nn.Conv2d(n, channels, 3, padding=1) for n in (3, channels))
        last = nn.AvgPool2d(SIDE), nn.Flatten(), nn.Linear(channels, CLASSES)
        net, x = nn.Sequential(first_layer, nn.ReLU(), second_layer, nn.ReLU(), *last), torch.randn(batch, 3, SIDE, SIDE)
        first, second = (convolution_flops(batch, SIDE**2, n, channels, 3) for n in (3, channels))
        forward = first + second + linear_flops(batch, channels, CLASSES)
    else:
        net, x = PlainBlock(width), torch.randn(batch, tokens, width)
        first, forward = linear_flops(batch * tokens, width, 3 * width), block_flops(batch, tokens, width)
    net, x = net.to(device), x.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        with set_checkpoint_early_stop(False):  # else torch stops where nothing more is needed, before the last product
            y = checkpoint(net, x, use_reentrant=False) if name == RECOMPUTED else net(x)
        y.square().mean().backward()
        optimizer.step()

    return TrainingLoop(name, batch, step, forward, first, forward if name == RECOMPUTED else 0)
