"""Where a tensor's elements lie: views share storage with their base, copies do not."""

import torch


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """True where `a` and `b` lie in the same storage, so that a write through one is seen through the other."""
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def visits(x: torch.Tensor) -> list[int]:
    """The places in its storage that `x` reads, in the order of its elements: offset + Σ index·stride."""
    places = torch.tensor([x.storage_offset()])
    for length, stride in zip(x.shape, x.stride(), strict=True):
        places = (places.unsqueeze(-1) + stride * torch.arange(length)).flatten()
    return places.tolist()
