"""Mini-batches without a loader: when the data fits on the device, a batch is one index operation."""

from collections.abc import Iterator

import torch


def batches(
    x: torch.Tensor, y: torch.Tensor, size: int, generator: torch.Generator | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """One epoch of shuffled batches of `size` (the last may be smaller), drawn on the device that `x` lies on.

    x (N, …), y (N,); `generator` fixes the order and must be on the CPU, so that every device sees the same batches.
    """
    order = torch.randperm(len(x), generator=generator).to(x.device)
    for chosen in order.split(size):
        yield x[chosen], y[chosen]
