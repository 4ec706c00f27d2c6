"""One step of a decoder behind a cache that is filled: what is timed of it."""

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
