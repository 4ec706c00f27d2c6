"""Answers to `parameter-count`: a layer from a to b values has (a + 1)·b parameters."""

import itertools
import operator

import numpy as np
import torch


def solution(sizes):
    return sum((a + 1) * b for a, b in zip(sizes, sizes[1:]))


def weights_only(sizes):
    return sum(a * b for a, b in zip(sizes, sizes[1:]))


def bias_on_the_input_side(sizes):
    return sum(a * b + a for a, b in zip(sizes, sizes[1:]))


def single_bias(sizes):
    return sum(a * b + 1 for a, b in zip(sizes, sizes[1:]))


def all_units_have_biases(sizes):
    return sum(a * b for a, b in zip(sizes, sizes[1:])) + sum(sizes)


def units(sizes):
    return sum(sizes)


def stops_early(sizes):
    total = 0
    for i in range(len(sizes) - 2):
        total += (sizes[i] + 1) * sizes[i + 1]
    return total


def product(sizes):
    total = 1
    for a, b in zip(sizes, sizes[1:]):
        total *= a * b
    return total


def the_lectures_net(sizes):
    return 30840 + 10164 + 850


WRONG = [
    ("bias-per-input", bias_on_the_input_side),
    ("one-bias-per-layer", single_bias),
    ("input-has-biases", all_units_have_biases),
    ("counts-units", units),
    ("last-layer-missing", stops_early),
    ("multiplies-layers", product),
    ("one-net-only", the_lectures_net),
]


def by_index(sizes):
    total = 0
    for i in range(len(sizes)):
        total += sizes[i] * sizes[i + 1] + sizes[i + 1]
    return total


def started_anew(sizes):
    for a, b in zip(sizes, sizes[1:]):
        total = 0
        total += (a + 1) * b
    return total


def returned_early(sizes):
    total = 0
    for a, b in zip(sizes, sizes[1:]):
        total += (a + 1) * b
        return total


def by_building_it(sizes):
    layers = [torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]
    return sum(p.numel() for p in torch.nn.Sequential(*layers).parameters())


WRONG += [
    ("past-the-end", by_index),
    ("past-the-end", lambda n: n[0] * n[1] + n[1] + n[1] * n[2] + n[2] + n[2] * n[3] + n[3]),
    ("last-layer-only", started_anew),
    ("first-layer-only", returned_early),
    ("output-has-no-biases", lambda sizes: weights_only(sizes) + sum(sizes[1:-1])),
    ("one-bias-in-all", lambda sizes: weights_only(sizes) + 1),
    ("every-pair", lambda sizes: sum((a + 1) * b for a, b in itertools.combinations(sizes, 2))),
    ("counts-layers", lambda sizes: len(sizes) - 1),
    ("wrong-value", lambda sizes: weights_only(sorted(sizes)) + sum(sizes[1:])),
    ("wrong-value", lambda sizes: solution(sizes) - 1),
    ("wrong-value", lambda sizes: 4 * solution(sizes)),
    ("returns-nothing", lambda sizes: print(end="")),
    ("wrong-type", lambda sizes: [(a + 1) * b for a, b in zip(sizes, sizes[1:])]),
]
ALSO_RIGHT = [
    by_building_it,
    lambda sizes: np.dot(np.array(sizes[:-1]) + 1, np.array(sizes[1:])),
    lambda sizes: torch.tensor(solution(sizes)),
    lambda sizes: sum(map(operator.mul, sizes, sizes[1:])) + sum(sizes[1:]),
]

WRONG += [
    ("wrong-value", lambda sizes: int(np.float32(solution(sizes)))),
    ("wrong-value", lambda sizes: solution(list(dict.fromkeys(sizes)))),
]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", lambda sizes: float(solution(sizes)))
]
