"""The lecture's LeNet: the net that notebook 16 quantizes and notebook 17 prunes.

    net, data = trained(train_images=20_000, steps=300)
    accuracy(net, data)  # of the test images, in percent

Two convolutions of 3 × 3 and three Linear layers: 54 + 864 + 48,000 + 10,080 + 840 = 59,838 weights, and 236 biases. It needs
images of 28 × 28; those of digits are enlarged to that size.
"""

import copy
import functools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.data import mnist_or_digits

SEEDS = "the data and the seeds"  # what an accuracy depends on
SIDE = 28  # pixels; two poolings leave the 5 × 5 that fc1 expects


class LeNet(nn.Module):
    """(N, 1, 28, 28) -> (N, 10) logits. The layers have the lecture's names."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3)
        self.conv2 = nn.Conv2d(6, 16, 3)
        self.fc1 = nn.Linear(16 * 5 * 5, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(x.flatten(1)))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


@dataclass(frozen=True, eq=False)
class LabeledImages:
    """Images (N, 1, 28, 28) with mean 0 and standard deviation 1 over all pixels, and labels (N,) in int64."""

    name: str
    x: torch.Tensor
    y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor
    notes: tuple[str, ...] = ()  # of a result, if these are not the images that were asked for


@functools.lru_cache(maxsize=4)
def images(count: int, device: torch.device | str = "cpu") -> LabeledImages:
    """The first `count` training images and all test images of MNIST, or of digits, enlarged, where MNIST cannot be read."""
    data, notes = mnist_or_digits(device)
    train_x, test_x = data.train_x[:count], data.test_x
    if train_x.shape[-1] != SIDE:
        train_x, test_x = (F.interpolate(x, size=(SIDE, SIDE), mode="bilinear") for x in (train_x, test_x))
    mean, spread = train_x.mean(), train_x.std()
    return LabeledImages(
        data.name, (train_x - mean) / spread, data.train_y[:count], (test_x - mean) / spread, data.test_y, tuple(notes)
    )


def train(
    net: nn.Module,
    data: LabeledImages,
    steps: int,
    lr: float = 1e-3,
    batch: int = 128,
    seed: int = 0,
    after_step: Callable[[], None] | None = None,
) -> nn.Module:
    """Train `net` in place with Adam on `steps` batches, shuffled anew in each epoch; returns it in evaluation mode.

    after_step  called after each step, for example to set pruned weights to 0 again
    """
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    batch = min(batch, len(data.x))
    order = torch.empty(0, dtype=torch.int64)
    net.train()
    for _ in range(steps):
        if len(order) < batch:
            order = torch.randperm(len(data.x), generator=generator)
        chosen, order = order[:batch].to(data.x.device), order[batch:]
        optimizer.zero_grad()
        F.cross_entropy(net(data.x[chosen]), data.y[chosen]).backward()
        optimizer.step()
        if after_step is not None:
            after_step()
    return net.eval()


@torch.no_grad()
def accuracy(net: nn.Module | Callable[[torch.Tensor], torch.Tensor], data: LabeledImages, batch: int = 1000) -> float:
    """The percentage of test images that `net` classifies correctly."""
    right = sum((net(x).argmax(1) == y).sum() for x, y in zip(data.test_x.split(batch), data.test_y.split(batch), strict=True))
    return 100 * int(right) / len(data.test_y)


def trained(
    train_images: int, steps: int, seed: int = 0, lr: float = 1e-3, device: torch.device | str = "cpu"
) -> tuple[LeNet, LabeledImages]:
    """A LeNet trained from `seed`, and its images. The same arguments train only once in a process; each call gives a copy."""
    data = images(train_images, device)
    return copy.deepcopy(_trained(data, steps, seed, lr)), data


@functools.lru_cache(maxsize=16)
def _trained(data: LabeledImages, steps: int, seed: int, lr: float) -> LeNet:
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        net = LeNet()
    return train(net.to(data.x.device), data, steps, lr, seed=seed)
