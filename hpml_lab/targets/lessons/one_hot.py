"""Rows of a weight matrix by one-hot vectors, the memory that these take, and whether it is there.

A row per id, by two ways that give the same numbers:

    F.embedding(ids, weight)            # reads the rows
    one_hot_rows(ids, weight)           # multiplies all rows by 0, but one
"""

import contextlib
from pathlib import Path

import psutil
import torch
from torch.nn import functional as F

from hpml_lab.core.experiment.fits import free_bytes as free_gpu_bytes
from hpml_lab.core.system.errors import LabError

INT64 = 8  # bytes: what F.one_hot makes, whatever is asked for afterwards
RESERVE = 0.2  # of the free memory stays for others
_CONTAINER = Path("/sys/fs/cgroup/memory.max")


def one_hot_bytes(ids: int, vocabulary: int, itemsize: int = 4) -> int:
    """The most memory in bytes that one-hot vectors take: integers first, and the floats made of them next to these."""
    return ids * vocabulary * (INT64 + itemsize)


def free_bytes(device: torch.device) -> int:
    """Memory that is free on the device now; on the CPU not more than its container may have."""
    if device.type == "cuda":
        return int(free_gpu_bytes(device))
    free = psutil.virtual_memory().available
    with contextlib.suppress(OSError, ValueError):  # "max" where there is no limit
        free = min(free, int(_CONTAINER.read_text(encoding="utf-8")) - psutil.Process().memory_info().rss)
    return max(free, 0)


def fits(needed: int, device: torch.device) -> bool:
    """Whether `needed` bytes can be had on the device with something left for others."""
    return needed <= (1 - RESERVE) * free_bytes(device)


def check_ids(ids: torch.Tensor, vocabulary: int) -> torch.Tensor:
    """The ids; LabError unless they are integers from 0 to vocabulary − 1."""
    if ids.dtype == torch.bool or ids.is_floating_point() or ids.is_complex():
        raise LabError(f"ids of {ids.dtype} are not row numbers.", "Encode each category as an integer: ids.long().")
    wrong = ((ids < 0) | (ids >= vocabulary)).nonzero()
    if len(wrong):
        where = wrong[0].tolist()
        raise LabError(
            f"id {ids[tuple(where)].item()} at {where} is not in 0 … {vocabulary - 1}; {len(wrong)} of {ids.numel()} are not.",
            "Give the layer one row more than the largest id, and a row of their own to categories that it does not know.",
        )
    return ids


def one_hot_rows(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """weight[ids] as a product of one-hot vectors (…, V) with the weight (V, d).

    Raises LabError for ids that are no rows of `weight`, and where the one-hot vectors do not fit into the free memory.
    """
    vocabulary = len(weight)
    check_ids(ids, vocabulary)
    needed = one_hot_bytes(ids.numel(), vocabulary, weight.itemsize)
    if not fits(needed, weight.device):
        raise LabError(
            f"{ids.numel():,} one-hot vectors of length {vocabulary:,} take {needed / 1e9:.3g} GB; "
            f"{free_bytes(weight.device) / 1e9:.3g} GB are free.",
            "Read the rows instead: torch.nn.functional.embedding(ids, weight).",
        )
    return product(ids, weight)


def product(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """one_hot_rows without its checks, for what is timed."""
    return F.one_hot(ids.long(), len(weight)).to(weight.dtype) @ weight
