"""Ring attention: each rank has the queries, keys and values of its part of a sequence, and keys and values go around a ring.

    In step s = 0 … n−1 rank r has the keys and values that came from rank r − s, and hands them on to rank r + 1.

Attention to one block of keys is a part: the maximum m of a query's scores, the sum l of exp(S − m), and o = Σ exp(S − m) v.
Two parts join exactly, in any order, and at the end the output is o / l:

    m = max(m₁, m₂)      l = l₁ exp(m₁ − m) + l₂ exp(m₂ − m)      o = o₁ exp(m₁ − m) + o₂ exp(m₂ − m)

Forward a rank sends 2 (n − 1)/n · B · H · N · d numbers. Backward keys and values go around again, with gradients to which each
rank adds; the gradients take one step more, back home: (4n − 2)/n · B · H · N · d numbers.

A causal mask hides what comes later. If rank r has chunks 2r and 2r + 1 of 2n, the first rank soon has nothing to do, and waits
for the last. In zig-zag order it has chunks r and 2n − 1 − r, an early one and a late one, and all have the same work.
Sources: Liu et al. 2023 (ring attention); Milakov and Gimelshein 2018 (the join); the Llama 3 report, section 3.3.2 (zig-zag).
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from hpml_lab.core.system.errors import LabError


class Part(NamedTuple):
    """Attention to some of the keys: maximum and total (…, N, 1), and output (…, N, d), which is not divided yet."""

    maximum: Tensor
    total: Tensor
    output: Tensor


def scores_of(q: Tensor, k: Tensor, is_own: bool) -> Tensor:
    """Q Kᵀ / √d, where a chunk that looks at itself does not see what comes later."""
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    if is_own:
        scores = scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -math.inf)
    return scores


def attend(q: Tensor, k: Tensor, v: Tensor, is_own: bool) -> Part:
    scores = scores_of(q, k, is_own)
    maximum = scores.amax(-1, keepdim=True)
    weights = torch.exp(scores - maximum)
    return Part(maximum, weights.sum(-1, keepdim=True), weights @ v)


def join(one: Part | None, other: Part) -> Part:
    """Attention to the keys of both; None is attention to none."""
    if one is None:
        return other
    maximum = torch.maximum(one.maximum, other.maximum)
    a, b = torch.exp(one.maximum - maximum), torch.exp(other.maximum - maximum)
    return Part(maximum, one.total * a + other.total * b, one.output * a + other.output * b)


def chunks_of(rank: int, ranks: int, zigzag: bool) -> tuple[int, int]:
    """Which two of 2n chunks of the sequence a rank has."""
    return (rank, 2 * ranks - 1 - rank) if zigzag else (2 * rank, 2 * rank + 1)


def part_of_sequence(x: Tensor, rank: int, ranks: int, zigzag: bool) -> Tensor:
    """What a rank has of x (…, N, d). Raises LabError where 2n chunks do not divide the sequence."""
    if x.shape[-2] % (2 * ranks):
        raise LabError(
            f"{x.shape[-2]} tokens do not divide into 2 · {ranks} chunks.", f"Use a multiple of {2 * ranks}, or pad."
        )
    chunks = x.chunk(2 * ranks, -2)
    return torch.cat([chunks[number] for number in chunks_of(rank, ranks, zigzag)], -2)


def visible_pairs(rank: int, source: int, ranks: int, zigzag: bool) -> list[tuple[int, int, bool]]:
    """(i, j, whether they are the same) where a rank's chunk i sees something of chunk j of the rank `source`."""
    own, theirs = (chunks_of(number, ranks, zigzag) for number in (rank, source))
    return [(i, j, a == b) for i, a in enumerate(own) for j, b in enumerate(theirs) if a >= b]


def pass_on(*tensors: Tensor) -> list[Tensor]:
    """Send tensors to the next rank; return what the rank before has sent."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if ranks == 1:
        return list(tensors)
    received = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for tensor in tensors]
    messages = [dist.P2POp(dist.isend, tensor.contiguous(), (rank + 1) % ranks) for tensor in tensors]
    messages += [dist.P2POp(dist.irecv, tensor, (rank - 1) % ranks) for tensor in received]
    for message in dist.batch_isend_irecv(messages):
        message.wait()
    return received


class RingAttention(torch.autograd.Function):
    """Causal attention of this rank's part of a sequence to the whole: q, k, v (B, H, N/n, d) as from `part_of_sequence`."""

    @staticmethod
    def forward(ctx, q: Tensor, k: Tensor, v: Tensor, zigzag: bool) -> Tensor:
        rank, ranks = dist.get_rank(), dist.get_world_size()
        ctx.zigzag, parts, keys, values = zigzag, [None, None], k, v
        for step in range(ranks):
            for i, j, is_own in visible_pairs(rank, (rank - step) % ranks, ranks, zigzag):
                block = (x.chunk(2, -2)[number] for x, number in ((q, i), (keys, j), (values, j)))
                parts[i] = join(parts[i], attend(*block, is_own))
            if step < ranks - 1:
                keys, values = pass_on(keys, values)
        output = torch.cat([part.output / part.total for part in parts], -2)
        logarithm = torch.cat([part.maximum + part.total.log() for part in parts], -2)
        ctx.save_for_backward(q, k, v, output, logarithm)
        return output

    @staticmethod
    def backward(ctx, gradient: Tensor):
        """P = exp(S − L) again, block by block; ∂S = P (∂P − D) with D = Σ ∂O · O of each row."""
        rank, ranks = dist.get_rank(), dist.get_world_size()
        q, keys, values, output, logarithm = ctx.saved_tensors
        mean = (gradient * output).sum(-1, keepdim=True)
        dq, dk, dv = (torch.zeros_like(x) for x in (q, keys, values))
        for step in range(ranks):
            for i, j, is_own in visible_pairs(rank, (rank - step) % ranks, ranks, ctx.zigzag):
                queries, out, log, average, to_q = (x.chunk(2, -2)[i] for x in (q, gradient, logarithm, mean, dq))
                k, v, to_k, to_v = (x.chunk(2, -2)[j] for x in (keys, values, dk, dv))
                p = torch.exp(scores_of(queries, k, is_own) - log)
                ds = p * (out @ v.mT - average) / math.sqrt(q.shape[-1])
                to_q += ds @ k
                to_k += ds.mT @ queries
                to_v += p.mT @ out
            if step < ranks - 1:
                keys, values = pass_on(keys, values)
            dk, dv = pass_on(dk, dv)
        return dq, dk, dv, None
