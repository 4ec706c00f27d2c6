"""Mini-batches without a loader: if the data fits on the device, a batch is one index operation."""

from collections.abc import Iterator

import torch


def batches(
    x: torch.Tensor, y: torch.Tensor, size: int, generator: torch.Generator | None = None
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """One epoch of shuffled batches of `size` (the last may be smaller), gathered on the device of `x`.

    x (N, …), y (N,); `generator` fixes the order and must be on the CPU, so that the batches are the same on every device.
    """
    order = torch.randperm(len(x), generator=generator).to(x.device)
    for chosen in order.split(size):
        yield x[chosen], y[chosen]
