"""GELU written out, which several topics compile, fuse and time."""

import torch


def gelu(x: torch.Tensor, root_of_two: float = 1.41421) -> torch.Tensor:
    """The lecture's GELU, x · 0.5 · (1 + erf(x / 1.41421)), in five operators: mul, div, erf, add, mul.

    Each operator reads and writes the whole tensor.
    """
    return x * 0.5 * (1.0 + torch.erf(x / root_of_two))
