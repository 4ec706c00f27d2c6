"""Rows of a weight matrix by one-hot vectors, and the memory that these take.

A row per id, by two ways that give the same numbers:

    F.embedding(ids, weight)            # reads the rows
    product(ids, weight)                # multiplies all rows by 0, but one
"""

import torch
from torch.nn import functional as F

INT64 = 8  # bytes: what F.one_hot makes, whatever is asked for afterwards


def product(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """weight[ids] as a product of one-hot vectors (…, V) with the weight (V, d)."""
    return F.one_hot(ids.long(), len(weight)).to(weight.dtype) @ weight


def one_hot_bytes(ids: int, vocabulary: int, itemsize: int = 4) -> int:
    """The most memory in bytes that `product` takes: integers first, and the floats made of them next to these."""
    return ids * vocabulary * (INT64 + itemsize)
