"""GELU and layer norm composed of simple operators: what eager PyTorch runs as a chain of kernels, and fusion as one."""

import torch
from torch import Tensor


def gelu(x: Tensor, root_of_two: float = 1.41421) -> Tensor:
    """The lecture's GELU, x · 0.5 · (1 + erf(x / 1.41421)), in five operators: mul, div, erf, add, mul."""
    return x * 0.5 * (1.0 + torch.erf(x / root_of_two))


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """y = (x − mean) / √(variance + ε) · γ + β over the last dimension, in nine operators."""
    centered = x - x.mean(-1, keepdim=True)
    variance = (centered * centered).mean(-1, keepdim=True)
    return centered * torch.rsqrt(variance + eps) * weight + bias
