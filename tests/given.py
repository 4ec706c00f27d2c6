"""What the reader of the Python block of docs/engineers.md has already: declared for type checkers, and small enough to run."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch import device as Device
from torch.utils.data import Dataset


class Rows(Dataset[Tensor]):
    """256 samples of 8 numbers."""

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> Tensor:
        if not 0 <= index < 256:
            raise IndexError(index)
        return torch.full((8,), index / 256)


def train_one_rank(folder: Path) -> float:
    return torch.distributed.get_rank() / 2


def loss_at(rate: float) -> float:
    return (1.0 - 10 * rate) ** 2


net: nn.Module = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
x: Tensor = torch.rand(32, 8)
eager_step: Callable[[], Tensor] = lambda: net(x)  # noqa: E731
compiled_step: Callable[[], Tensor] = lambda: net(x)  # noqa: E731
dataset: Dataset[Tensor] = Rows()
device: Device = torch.device("cpu")
train_step: Callable[[Tensor], None] = lambda batch: net(batch).mean().backward()  # noqa: E731
train_one_epoch: Callable[[], None] = lambda: [train_step(x) for _ in range(100)] and None  # noqa: E731
folder: Path = Path("run")
step: int = 1
