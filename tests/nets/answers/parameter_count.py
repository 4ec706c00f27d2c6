"""Answers to `parameter-count`: a layer from a to b values has (a + 1)·b parameters."""

import operator

import numpy as np
import torch


def solution(sizes):
    return sum((a + 1) * b for a, b in zip(sizes, sizes[1:]))


def by_index(sizes):
    total = 0
    for i in range(len(sizes)):
        total += sizes[i] * sizes[i + 1] + sizes[i + 1]
    return total


def by_building_it(sizes):
    layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    return sum(p.numel() for p in torch.nn.Sequential(*layers).parameters())


WRONG = [
    ("past-the-end", by_index),
    ("past-the-end", lambda n: n[0] * n[1] + n[1] + n[1] * n[2] + n[2] + n[2] * n[3] + n[3]),
    ("wrong-value", lambda sizes: solution(sorted(sizes))),
    ("wrong-value", lambda sizes: solution(sizes) - 1),
    ("same-factor-off", lambda sizes: 4 * solution(sizes)),
    ("wrong-value", lambda sizes: int(np.float32(solution(sizes)))),
    ("wrong-value", lambda sizes: solution(list(dict.fromkeys(sizes)))),
    ("wrong-type", lambda sizes: [(a + 1) * b for a, b in zip(sizes, sizes[1:])]),
]
ALSO_RIGHT = [
    by_building_it,
    lambda sizes: np.dot(np.array(sizes[:-1]) + 1, np.array(sizes[1:])),
    lambda sizes: sum(map(operator.mul, sizes, sizes[1:])) + sum(sizes[1:]),
]
