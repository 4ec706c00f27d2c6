"""The type of every data set."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class DataSet:
    """Images (N, 1, H, W) in float32 from 0 to 1 and labels (N,) in int64, split into train and test, on one device."""

    name: str
    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor

    def to(self, device: torch.device | str) -> "DataSet":
        """The same data on `device`."""
        return DataSet(self.name, *(getattr(self, part).to(device) for part in ("train_x", "train_y", "test_x", "test_y")))
