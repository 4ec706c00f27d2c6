"""Activations that wait for the backward pass in another memory: the host's for a GPU, a file for a CPU."""

import mmap
from collections.abc import Callable, Iterable
from tempfile import TemporaryFile

import torch
from torch.autograd.graph import saved_tensors_hooks

Far = Callable[[int, torch.dtype], torch.Tensor]  # (elements, dtype) -> an empty tensor in the other memory


class Offload(saved_tensors_hooks):
    """Within a block, send what autograd saves to another memory; the backward pass brings it back.

    far    makes room there: `pinned_memory` for a GPU, or `mapped_file`
    stays  tensors that exist anyway, such as parameters and the batch: sending them frees nothing
    least  bytes; a smaller tensor is not worth a copy
    sent   bytes that were sent so far
    """

    def __init__(self, far: Far, stays: Iterable[torch.Tensor] = (), least: int = 1) -> None:
        storages = {tensor.untyped_storage().data_ptr() for tensor in stays}
        self.sent = 0

        def pack(tensor):
            if tensor.nbytes < least or tensor.untyped_storage().data_ptr() in storages:
                return tensor, None
            self.sent += tensor.nbytes
            return send(tensor, far), tensor.device

        super().__init__(pack, lambda packed: packed[0] if packed[1] is None else bring_back(*packed))


def send(tensor: torch.Tensor, far: Far) -> torch.Tensor:
    """A copy in the other memory, with the same strides, so that the backward pass runs the same kernels on it."""
    strides = torch.empty_like(tensor, device="meta").stride()
    copy = far(tensor.numel(), tensor.dtype).as_strided(tensor.size(), strides)
    return copy.copy_(tensor, non_blocking=True)  # in the order of the stream: no kernel overwrites `tensor` before


def bring_back(copy: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A copy of the copy, on `device` again."""
    return torch.empty_like(copy, device=device).copy_(copy, non_blocking=True)


def pinned_memory(elements: int, dtype: torch.dtype) -> torch.Tensor:
    """Host memory whose pages stay where they are, so that a GPU copies without the processor."""
    return torch.empty(elements, dtype=dtype, pin_memory=True)


def mapped_file(elements: int, dtype: torch.dtype) -> torch.Tensor:
    """A file in memory's place, where there is no GPU: torch's allocator does not hold its pages, the page cache does."""
    with TemporaryFile() as file:  # without a name: it ends with the tensor
        file.truncate(elements * dtype.itemsize)
        return torch.frombuffer(mmap.mmap(file.fileno(), 0), dtype=dtype)
