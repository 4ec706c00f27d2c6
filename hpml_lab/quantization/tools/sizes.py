"""How large a model is: bytes of its file, bytes of its tensors, and the bits that its values need.

    sizes(net)               # of an nn.Module, or of a state_dict
    sizes(net).value_bits    # 4 for a 4-bit integer, also where it is stored in 8

The three differ. A file has headers, and tensors can store small values in larger types: a mask of 0 and 1 in float32, or 4-bit
integers in int8. Only `value_bits` tells a 4-bit format from an 8-bit one that is half empty.
"""

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


@dataclass(frozen=True)
class Sizes:
    """file_bytes of what torch.save writes, tensor_bytes of its tensors, and value_bits of the values in these."""

    file_bytes: int
    tensor_bytes: int
    value_bits: int


def sizes(model: nn.Module | Mapping[str, Any]) -> Sizes:
    """The sizes of a model's state, or of a state_dict. Tensors that share their memory count once, as in the file.

    Scales, zero points and the indices of sparse tensors count as well; what is no tensor is in the file's bytes only.
    """
    state = model.state_dict() if isinstance(model, nn.Module) else model
    with io.BytesIO() as file:
        torch.save(state, file)
        file_bytes = file.tell()
    # A list first: as long as all of them exist, no two have the same storage by chance.
    found = list(_tensors(state, None))
    once = {(x.untyped_storage()._cdata, x.storage_offset(), x.shape): (x, bits) for x, bits in found}
    return Sizes(
        file_bytes,
        sum(x.numel() * x.element_size() for x, _ in once.values()),
        sum(x.numel() * bits for x, bits in once.values()),
    )


def _tensors(value: Any, bits: int | None) -> Iterator[tuple[torch.Tensor, int]]:
    """Each dense tensor that a value of a state consists of, with the bits that one of its elements needs.

    bits  of the integers, where the tensor that they are part of says so
    """
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, torch.ScriptObject):  # the packed weights of a quantized LSTM, for example
        value = value.__getstate__()
    if isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item, bits)
    elif isinstance(value, torch.Tensor):
        parts = _parts(value)
        if parts is not None:
            target = getattr(value, "target_dtype", None)  # torchao's name for the type whose values it stores in int8
            for part in parts:
                yield from _tensors(part, _bits(target) if target is not None else bits)
        else:
            integer = not (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool)
            yield value, bits if bits and integer else _bits(value.dtype)


def _parts(x: torch.Tensor) -> list[torch.Tensor] | None:
    """The tensors that a sparse tensor or one of torchao's consists of; None for a tensor that is its own storage."""
    if is_traceable_wrapper_subclass(x):
        return [getattr(x, name) for name in x.__tensor_flatten__()[0]]
    if x.layout == torch.sparse_coo:
        return [x._indices(), x._values()]
    if x.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [x.crow_indices(), x.col_indices(), x.values()]
    if x.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [x.ccol_indices(), x.row_indices(), x.values()]
    if x.is_quantized:
        return [x.int_repr(), *_scales(x)]
    return None


def _scales(x: torch.Tensor) -> list[torch.Tensor]:
    """Scales and zero points of one of torch's own quantized tensors, with the 8 bytes that torch keeps for each."""
    if x.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric):
        return [torch.tensor(x.q_scale(), dtype=torch.float64), torch.tensor(x.q_zero_point(), dtype=torch.int64)]
    return [x.q_per_channel_scales(), x.q_per_channel_zero_points()]


def _bits(dtype: torch.dtype) -> int:
    """Bits of one value: 1 for a bool, 4 for torch.int4 (whose elements take a byte), otherwise those that are stored."""
    if dtype == torch.bool:
        return 1
    small = re.fullmatch(r"torch\.u?int([1-7])", str(dtype))
    return int(small[1]) if small else 8 * dtype.itemsize
