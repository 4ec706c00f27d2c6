"""Where a tensor's elements lie: views share storage with their base, copies do not."""

import torch


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True if `a` and `b` lie in the same storage, so that a write through one is seen through the other."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def positions(x: torch.Tensor) -> list[int]:
    """The positions in its storage that `x` reads, in the order of its elements.

    position(i, j, …) = offset + i · stride₀ + j · stride₁ + …
    """
    found = torch.tensor([x.storage_offset()])
    for length, stride in zip(x.shape, x.stride(), strict=True):
        found = (found.unsqueeze(-1) + stride * torch.arange(length)).flatten()
    return found.tolist()
