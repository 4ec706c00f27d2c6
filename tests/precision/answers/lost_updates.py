"""Answers to `lost-updates`: half the spacing at the weight, ties to the even neighbour."""

import math

import torch


def solution(weight, update, dtype):
    import math

    info = torch.finfo(dtype)
    power = math.floor(math.log2(max(weight, info.smallest_normal)))
    spacing = info.eps * 2.0**power
    odd = (weight / spacing) % 2 == 1
    return update < spacing / 2 if odd else update <= spacing / 2


def spacing(weight, dtype):
    info = torch.finfo(dtype)
    return info.eps * 2.0 ** math.floor(math.log2(max(weight, info.smallest_normal)))


WRONG = [
    ("eps-not-spacing", lambda weight, update, dtype: update < torch.finfo(dtype).eps / 2),
    ("eps-and-half-forgotten", lambda weight, update, dtype: update < torch.finfo(dtype).eps),
    ("half-forgotten", lambda weight, update, dtype: update < spacing(weight, dtype)),
    ("tie-always-kept", lambda weight, update, dtype: update < spacing(weight, dtype) / 2),
    ("tie-always-lost", lambda weight, update, dtype: update <= spacing(weight, dtype) / 2),
    ("tiny-not-spacing", lambda weight, update, dtype: update < torch.finfo(dtype).tiny),
    ("relative-to-the-weight", lambda weight, update, dtype: update < weight * torch.finfo(dtype).eps / 2),
    ("upside-down", lambda weight, update, dtype: torch.tensor(weight, dtype=dtype) + update != weight),
    ("wrong-value", lambda weight, update, dtype: False),
    ("not-a-truth-value", lambda weight, update, dtype: (torch.tensor(weight, dtype=dtype) + update).item()),
    ("returns-nothing", lambda weight, update, dtype: None),
]
