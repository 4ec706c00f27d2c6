"""Answers to `bytes-per-rank`: mixed precision with Adam, 2, 2 and 12 bytes per parameter, partitioned stage by stage."""

from edited_source import wrong_answers


def solution(parameters, ranks, stage):
    weights, gradients, state = 2 * parameters, 2 * parameters, 12 * parameters
    if stage >= 1:
        state /= ranks
    if stage >= 2:
        gradients /= ranks
    if stage >= 3:
        weights /= ranks
    return weights, gradients, state


def divided_by_the_stage(parameters, ranks, stage):
    return tuple(size * parameters / (stage + 1) for size in (2, 2, 12))


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def with_fractions(parameters, ranks, stage):
    from fractions import Fraction

    return [Fraction(size * parameters, ranks if stage >= start else 1) for size, start in ((2, 3), (2, 2), (12, 1))]


def with_numpy(parameters, ranks, stage):
    import numpy as np

    return np.array([2.0, 2.0, 12.0]) * parameters / np.where(np.array([3, 2, 1]) <= stage, ranks, 1)


def with_torch(parameters, ranks, stage):
    import torch

    sizes = torch.tensor([2, 2, 12], dtype=torch.float64) * parameters
    sizes[3 - stage :] /= ranks
    return sizes


def in_whole_numbers(parameters, ranks, stage):
    own = parameters // ranks
    return [2 * (own if stage > 2 else parameters), 2 * (own if stage > 1 else parameters), 12 * (own if stage else parameters)]


ALSO_RIGHT = [
    with_fractions,
    with_numpy,
    with_torch,
    in_whole_numbers,
    lambda n, ranks, stage: (
        2 * n / (1, 1, 1, ranks)[stage],
        2 * n / (1, 1, ranks, ranks)[stage],
        12 * n / ranks ** (stage > 0),
    ),
]
WRONG = [
    ("wrong-parameters", divided_by_the_stage),
    *wrong_answers(solution, [("wrong-optimizer-state", ("12 * parameters", "16 * parameters"))]),
]
