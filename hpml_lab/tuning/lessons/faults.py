"""Losses whose gradient, or whose value, is not a number or infinite: what anomaly mode finds and what it does not."""

from collections.abc import Callable

import torch


def hidden_root(x: torch.Tensor) -> torch.Tensor:
    """√x, whose derivative at 0 is infinite: the function that anomaly mode must name."""
    return torch.sqrt(x)


FAULTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {  # each at x = 0
    "NaN in a gradient": lambda x: hidden_root(x) * 0,  # 0 · ∞
    "infinity in a gradient": hidden_root,
    "NaN in the loss, gradient finite": lambda x: torch.log(x - 1),  # log(-1) is NaN, its derivative -1
    "nothing wrong": lambda x: hidden_root(x + 1),
}
