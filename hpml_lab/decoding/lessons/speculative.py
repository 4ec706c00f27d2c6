"""Speculative decoding: a small net, the draft, proposes k tokens, and one pass of the large net, the target, checks them all.

While memory limits the target, a pass over k + 1 tokens takes little longer than over one. A token x that was drawn from the
draft's probabilities q is accepted with the probability

    min(1, p(x) / q(x))                      p: the target's probabilities

In place of the first that is not, a token is drawn from the residual (p − q)₊ / Σ (p − q)₊; if all k are accepted, one more
from the target's p behind them. What comes out has the distribution p: both ways to x together have min(p, q) + (p − q)₊ = p.
Greedy decoding is the case in which p and q are 1 for the best token and 0 for all others.
Sources: Leviathan, Kalman and Matias 2023; Chen et al. 2023.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.decoding.lessons.decoder import Decoder, KVCache

Draw = Callable[[Tensor], int]  # of probabilities (V,) the number of one token


def best_token_only(scores: Tensor) -> Tensor:
    """Probabilities (…, V) for greedy decoding: 1 for the best score, 0 for all others."""
    return F.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)


def most_probable(probabilities: Tensor) -> int:
    return int(probabilities.argmax())


def acceptance(p: Tensor, q: Tensor) -> Tensor:
    """The probability to accept each token (V,) if it is proposed: min(1, p / q)."""
    return torch.where(p < q, p / q, 1.0)


def residual(p: Tensor, q: Tensor) -> Tensor:
    """The probabilities (V,) after a rejection: (p − q)₊ / Σ (p − q)₊. Where p = q there is none, and p is returned."""
    left = (p - q).clamp(min=0)
    return left / left.sum() if left.any() else p


def verify(p: Tensor, q: list[Tensor], proposed: list[int], draw: Draw) -> list[int]:
    """The proposed tokens that are accepted, and one of the target's own: p (k + 1, V), and k times q (V,)."""
    for i, token in enumerate(proposed):
        accept = acceptance(p[i], q[i])[token]
        if not draw(torch.stack([1 - accept, accept])):
            return [*proposed[:i], draw(residual(p[i], q[i]))]
    return [*proposed, draw(p[-1])]


class Speculation(NamedTuple):
    """The tokens (1, prompt + new), and how many were proposed and how many accepted for each pass of the target."""

    tokens: Tensor
    proposed: list[int]
    accepted: list[int]


@torch.no_grad()
def speculate(
    target: Decoder,
    draft: Decoder,
    prompt: Tensor,
    new: int,
    k: int,
    distribution: Callable[[Tensor], Tensor] = best_token_only,
    draw: Draw = most_probable,
) -> Speculation:
    """Decode `new` tokens behind a prompt (1, n) with k proposals a pass; k = 0 is decoding by the target alone.

    distribution  makes probabilities of scores, for sampling `lambda scores: scores.softmax(-1)`
    """
    if len(prompt) != 1:
        raise LabError(f"{len(prompt)} prompts cannot be speculated together.", "Give one: rows accept different numbers.")
    if target.size.vocabulary != draft.size.vocabulary:
        sizes = f"{target.size.vocabulary} tokens, the draft {draft.size.vocabulary}"
        raise LabError(f"The target knows {sizes}.", "Use two nets with the same vocabulary.")
    end = prompt.shape[1] + new
    cache, draft_cache = (KVCache(net.size, 1, end, like=net.scores.weight) for net in (target, draft))
    found = Speculation(prompt, [], [])
    while (left := end - found.tokens.shape[1]) > 0:
        seen, proposed, q = found.tokens, [], []
        for _ in range(min(k, left - 1)):
            scores = draft(seen[:, draft_cache.used :], draft_cache, last_only=True)
            q.append(distribution(scores[0, -1]))
            proposed.append(draw(q[-1]))
            seen = torch.cat([seen, seen.new_tensor([proposed[-1:]])], 1)
        scores = target(seen[:, cache.used :], cache)
        gained = verify(distribution(scores[0, -len(proposed) - 1 :]), q, proposed, draw)
        tokens = torch.cat([found.tokens, prompt.new_tensor([gained])], 1)
        found = Speculation(tokens, [*found.proposed, len(proposed)], [*found.accepted, len(gained) - 1])
        for each in (cache, draft_cache):  # what was rejected is forgotten; the last token is in no cache yet
            each.keep(min(each.used, tokens.shape[1] - 1))
    return found
