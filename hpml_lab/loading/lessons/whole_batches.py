"""Images in memory, fetched one by one, or a whole batch in one call: `__getitems__`."""

from collections.abc import Sequence

import torch
from torch.utils.data import Dataset


class CheapImages(Dataset):
    """Images like MNIST's, in memory: item i is (float32 of shape (1, 28, 28), label), normalized one by one."""

    def __init__(self, images: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.randint(0, 256, (images, 1, 28, 28), dtype=torch.uint8, generator=generator)
        self.labels = torch.randint(0, 10, (images,), generator=generator)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return (self.images[index].float() / 255 - 0.1307) / 0.3081, self.labels[index]


class BatchedImages(CheapImages):
    """The same images, a whole batch in one call: DataLoader calls `__getitems__` if a data set has it.

    It returns the batch ready made, so the DataLoader needs `collate_fn=ready_made`.
    """

    def __getitems__(self, indices: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        return (self.images[indices].float() / 255 - 0.1307) / 0.3081, self.labels[indices]


def ready_made(batch: object) -> object:
    """A collate function for batches that need no collating."""
    return batch
