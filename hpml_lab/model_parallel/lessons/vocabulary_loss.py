"""Cross entropy of scores whose vocabulary is cut among the ranks: three numbers a token are sent, not all its scores.

    loss = log Σ exp(s − m) − (s_target − m),  m = max s

Rank r has the scores of V/n words, from word r · V/n on: the product in front of them is cut by columns. The maximum, the sum
and the target's score, which one rank has, each take an all-reduce of B · N numbers. Gathered scores would be B · N · V.
Source: Megatron-LM, core/tensor_parallel/cross_entropy.py.
"""

import torch
from torch import Tensor
from torch import distributed as dist

from hpml_lab.model_parallel.lessons.column_and_row import PAIRS, TENSOR_PARALLEL, Adjoint


def vocabulary_parallel_loss(scores: Tensor, target: Tensor) -> Tensor:
    """The loss of each token (B, N) on every rank, from this rank's scores (B, N, V/n).

    target  (B, N), numbers of the whole vocabulary
    """
    _, g = PAIRS[TENSOR_PARALLEL]
    maximum = scores.detach().amax(-1)
    dist.all_reduce(maximum, op=dist.ReduceOp.MAX)
    shifted = scores - maximum[..., None]
    total = Adjoint.apply(shifted.exp().sum(-1), *g)
    words = scores.shape[-1]
    word = target - dist.get_rank() * words
    is_here = (word >= 0) & (word < words)
    own = shifted.gather(-1, word.clamp(0, words - 1)[..., None])[..., 0]
    return total.log() - Adjoint.apply(torch.where(is_here, own, 0), *g)
