"""Sums in a fixed order: a row's result is bitwise identical alone and in any batch, in one pass and token by token.

Each addition rounds, so the order of a sum decides its last bits, and libraries choose the order by the shapes that they are
given. Here a sum always adds blocks of 16 numbers by halves, and the blocks one after another, whatever the other rows are.
This is split-K with blocks of a fixed size; libraries take a fixed number of blocks, or what suits the shape.

Each operation is elementwise + − × ÷ or √, which IEEE 754 rounds correctly: the same on every processor, in the main part of a
vector and in its tail. That leaves out multiply-add (addcmul, a compiled loop), which rounds once where this rounds twice, and
a library's exp and erf, which are polynomials of its own choice: they are written out below.
Source: He and Thinking Machines Lab 2025, "Defeating Nondeterminism in LLM Inference".
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

BLOCK = 16


def sum_by_halves(block: Tensor) -> Tensor:
    """The sum of up to 16 numbers (…, 16) in four additions: the first half plus the second, and so on; zeros fill it up."""
    if block.shape[-1] < BLOCK:
        block = F.pad(block, (0, BLOCK - block.shape[-1]))
    while block.shape[-1] > 1:
        first, second = block.chunk(2, -1)
        block = first + second
    return block[..., 0]


def fixed_sum(x: Tensor) -> Tensor:
    """The sum over the last dimension, (…, n) to (…): block by block. Zeros behind the end change nothing."""
    total = 0
    for block in x.split(BLOCK, -1):
        total = total + sum_by_halves(block)
    return total


def fixed_product(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ for x (…, m, K) and W (…, n, K): (…, m, n), each number a sum over K like `fixed_sum`."""
    total = 0
    for a, b in zip(x.split(BLOCK, -1), weight.split(BLOCK, -1), strict=True):
        total = total + sum_by_halves(a[..., :, None, :] * b[..., None, :, :])
    return total


def fixed_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x Wᵀ + b for x (…, m, K) and W (n, K)."""
    product = fixed_product(x, weight)
    return product if bias is None else product + bias


def fixed_exp(x: Tensor) -> Tensor:
    """exp x for x ≤ 0, in float32: with x = n·ln 2 + r it is 2ⁿ · (1 + r + r²/2! + … + r⁷/7!). Below -87 it is exp -87."""
    x = x.clamp(min=-87)
    n = (x / math.log(2)).round()
    r = x - n * 0.693359375 + n * 2.12194440e-4  # ln 2 as a difference: n times the first number is exact
    total = torch.ones_like(r)
    for i in range(7, 0, -1):
        total = total * r / i + 1
    power = ((n.to(torch.int32) + 127) << 23).view(torch.float32)  # 2ⁿ, written as the bits of its exponent
    return total * power


def fixed_layer_norm(x: Tensor, shape: tuple[int, ...], weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """(x − mean) / √(variance + ε) · weight + bias, over the last dimension."""
    centered = x - fixed_sum(x)[..., None] / x.shape[-1]
    variance = fixed_sum(centered * centered)[..., None] / x.shape[-1]
    return centered / (variance + eps).sqrt() * weight + bias


def fixed_gelu(x: Tensor) -> Tensor:
    """x/2 · (1 + erf(x/√2)), with erf z = 1 − (a₁t + … + a₅t⁵) · exp(−z²), t = 1/(1 + pz), to 1.5e-7.

    Source: Abramowitz and Stegun, 7.1.26.
    """
    z = x.abs() / math.sqrt(2)
    t = 1 / (1 + 0.3275911 * z)
    total = torch.zeros_like(t)
    for a in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        total = (total + a) * t
    erf = 1 - total * fixed_exp(-z * z)
    return x / 2 * (1 + torch.where(x < 0, -erf, erf))


def fixed_attention(q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor, enable_gqa: bool = False) -> Tensor:
    """softmax(Q Kᵀ / √d) V where the mask is true: q (B, H, new, d), k, v (B, H_kv, n, d). What is masked adds exact zeros."""
    k, v = (each.repeat_interleave(q.shape[1] // k.shape[1], 1) for each in (k, v))
    scores = (fixed_product(q, k) / math.sqrt(q.shape[-1])).masked_fill(~attn_mask, -math.inf)
    weights = fixed_exp(scores - scores.amax(-1, keepdim=True)) * attn_mask  # a maximum is the same in any order
    return fixed_product(weights, v.transpose(-1, -2)) / fixed_sum(weights)[..., None]


class FixedOrder(TorchFunctionMode):
    """Within `with FixedOrder():` what a decoder asks of torch.nn.functional is computed by the functions above, in float32."""

    INSTEAD = {
        F.linear: fixed_linear,
        F.layer_norm: fixed_layer_norm,
        F.gelu: fixed_gelu,
        F.scaled_dot_product_attention: fixed_attention,
    }

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.INSTEAD.get(func, func)(*args, **(kwargs or {}))
