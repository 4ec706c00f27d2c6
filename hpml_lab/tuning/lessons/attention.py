"""Attention with and without the n × n matrix: the softmax over the keys in one pass over blocks of keys.

    S = Q Kᵀ / √d          n × n scores
    P = softmax(S)         n × n weights
    O = P V                n × d

Q, K and V have the shape (…, n, d). A row of the softmax needs the maximum and the sum of the whole row, but both can be
updated as blocks of keys arrive (Milakov and Gimelshein 2018), and so can the row of O (Dao et al. 2022, FlashAttention).
"""

import math

import torch
from torch import Tensor


def composed_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(Q Kᵀ / √d) V as it is written: S and P exist as a whole, and autograd keeps P for the backward pass."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return torch.softmax(scores, -1) @ v


def one_pass(q: Tensor, k: Tensor, v: Tensor, block: int) -> tuple[Tensor, Tensor]:
    """O, and for each query L = log Σ exp(S), from one pass over blocks of keys.

    m' = max(m, max S)                          over the keys of this block
    l  = l · exp(m − m') + Σ exp(S − m')        the sum so far, as if m' had been its maximum from the start
    O  = O · exp(m − m') + exp(S − m') V
    O / l,  L = m + log l                       at the end
    """
    wide = torch.promote_types(q.dtype, torch.float32)  # 16 bits are too few for running sums
    maximum = torch.full((*q.shape[:-1], 1), -math.inf, dtype=wide, device=q.device)
    total, output = torch.zeros_like(maximum), torch.zeros_like(q, dtype=wide)
    for start in range(0, k.shape[-2], block):
        keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
        scores = (q @ keys.mT).to(wide) / math.sqrt(q.shape[-1])
        higher = torch.maximum(maximum, scores.amax(-1, keepdim=True))
        weights = torch.exp(scores - higher)
        correction = torch.exp(maximum - higher)  # 0 in the first block
        total = total * correction + weights.sum(-1, keepdim=True)
        output = output * correction + weights.to(v.dtype) @ values
        maximum = higher
    return (output / total).to(q.dtype), maximum + torch.log(total)


class OnlineAttention(torch.autograd.Function):
    """Keeps Q, K, V, O and L, and no P: the backward pass computes each block of P = exp(S − L) again.

    With D = Σ (∂O · O) of each row, ∂S = P (∂P − D) is the derivative of the softmax.
    """

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
        output, logarithm = one_pass(q, k, v, block)
        ctx.save_for_backward(q, k, v, output, logarithm)
        ctx.block = block
        return output

    @staticmethod
    def backward(ctx, grad: Tensor):
        q, k, v, output, logarithm = ctx.saved_tensors
        scale, wide = 1 / math.sqrt(q.shape[-1]), logarithm.dtype
        mean = (grad * output).sum(-1, keepdim=True, dtype=wide)
        dq, dk, dv = torch.zeros_like(q, dtype=wide), torch.empty_like(k), torch.empty_like(v)
        for start in range(0, k.shape[-2], ctx.block):
            here = (..., slice(start, start + ctx.block), slice(None))
            p = torch.exp((q @ k[here].mT).to(wide) * scale - logarithm)
            ds = (p * ((grad @ v[here].mT).to(wide) - mean) * scale).to(q.dtype)
            dq += ds @ k[here]
            dk[here] = ds.mT @ q
            dv[here] = p.to(q.dtype).mT @ grad
        return dq.to(q.dtype), dk, dv, None


def online_attention(q: Tensor, k: Tensor, v: Tensor, block: int = 128) -> Tensor:
    """softmax(Q Kᵀ / √d) V in blocks of keys: of S and P only n × block numbers exist at a time, forward and backward."""
    return OnlineAttention.apply(q, k, v, block)
