"""A decoder behind a cache: one step, to be timed, and the scores of tokens that are read one by one."""

from collections.abc import Callable

import torch
from torch import Tensor

from hpml_lab.decoding.lessons.decoder import Decoder, KVCache


def cached_step(net: Decoder, new: int, before: int, batch: int = 1, last_only: bool = True) -> Callable[[], Tensor]:
    """`new` tokens of each sequence behind `before` cached ones. Each call takes the same place in the cache."""
    cache = KVCache(net.size, batch, before + new, like=net.scores.weight)
    tokens = torch.zeros(batch, new, dtype=torch.long, device=net.scores.weight.device)

    @torch.no_grad()
    def step() -> Tensor:
        cache.used = before
        return net(tokens, cache, last_only)

    return step


@torch.no_grad()
def scores_behind(net: Decoder, prompts: Tensor, at_once: int) -> Tensor:
    """The scores (B, n, V) behind each token of prompts (B, n): `at_once` are read in one pass, and the others one by one."""
    cache = KVCache(net.size, len(prompts), prompts.shape[1], like=net.scores.weight)
    parts = [prompts[:, :at_once], *prompts[:, at_once:].split(1, 1)]
    return torch.cat([net(part, cache) for part in parts if part.shape[1]], 1)
