"""One network on all ranks: what wraps it checks that it is the same, and starts every rank from the numbers of rank 0."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import distributed as dist
from torch.nn.parameter import is_lazy

from hpml_lab.core.system.errors import LabError


def check_same_on_all_ranks(tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Raise LabError on every rank if these (name, tensor) differ in kind, because messages of different sizes do not match.

    The same for tensors that have no numbers yet, and where this process is no rank.
    """
    if not dist.is_initialized():
        raise LabError("There is no process group.", "Call this on ranks: launch(function) or torchrun starts them.")
    tensors = list(tensors)
    own = [(name, *_described(tensor)) for name, tensor in tensors]
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, own)
    for rank, other in enumerate(found):
        if other != found[0]:
            first = next((a[0] for a, b in zip(found[0], other, strict=False) if a != b), "its end")
            raise LabError(
                f"Rank {rank} has other parameters or buffers than rank 0, from {first} on.",
                "Build the same network on every rank.",
            )
    for name, tensor in tensors:
        if is_lazy(tensor):
            raise LabError(
                f"{name} has no shape yet.", "Give the network an input first: a lazy layer takes its shape from it."
            )
        if tensor.is_meta:
            raise LabError(f"{name} has no numbers: it is on the device meta.", 'Call module.to_empty(device="cpu") first.')
        if tensor.layout is torch.strided and 0 in [
            stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1
        ]:
            raise LabError(f"{name} is expanded: some of its elements share memory.", "Use .clone() where it is made.")


def _described(tensor: torch.Tensor) -> tuple:
    if is_lazy(tensor):
        return None, str(tensor.dtype), tensor.device.type, tensor.requires_grad
    order = tensor.stride() if tensor.layout is torch.strided else None  # gradients are sent as they lie in memory
    return tuple(tensor.shape), order, str(tensor.dtype), tensor.device.type, tensor.requires_grad


def take_from_rank_0(tensors: Iterable[torch.Tensor]) -> None:
    """Overwrite tensors of any layout and type by those of rank 0."""
    for tensor in tensors:
        dense = tensor.detach().contiguous()
        # gloo knows neither bool nor 16-bit integers: their bytes
        dist.broadcast(dense.reshape(-1).view(torch.uint8), src=0)
        if dense.data_ptr() != tensor.data_ptr():
            tensor.detach().copy_(dense)
