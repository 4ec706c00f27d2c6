"""Answers to `bytes-per-rank`: mixed precision with Adam, 2, 2 and 12 bytes per parameter, partitioned stage by stage."""


def solution(parameters, ranks, stage):
    weights, gradients, state = 2 * parameters, 2 * parameters, 12 * parameters
    if stage >= 1:
        state /= ranks
    if stage >= 2:
        gradients /= ranks
    if stage >= 3:
        weights /= ranks
    return weights, gradients, state


def of_sizes(weights, gradients, state):
    """Right but for the bytes per parameter."""

    def answer(parameters, ranks, stage):
        w, g, s = solution(parameters, ranks, stage)
        return w * weights / 2, g * gradients / 2, s * state / 12

    return answer


def in_order(first, second, third):
    """Right but for the stage from which on each kind is partitioned."""

    def answer(parameters, ranks, stage):
        w, g, s = 2 * parameters, 2 * parameters, 12 * parameters
        return (w / ranks if stage >= first else w, g / ranks if stage >= second else g, s / ranks if stage >= third else s)

    return answer


def copy_stays(parameters, ranks, stage):
    """The float32 copy is kept whole by every rank."""
    w, g, _ = solution(parameters, ranks, stage)
    return w, g, 4 * parameters + (8 * parameters / ranks if stage else 8 * parameters)


def changed(change):
    """What a change makes of the three right numbers."""
    return lambda parameters, ranks, stage: change(*solution(parameters, ranks, stage))


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


def with_a_named_tuple(parameters, ranks, stage):
    from collections import namedtuple

    return namedtuple("Kept", "weights gradients state")(*solution(parameters, ranks, stage))


def as_a_match(parameters, ranks, stage):
    n, own = parameters, parameters / ranks
    match stage:
        case 0:
            return [2 * n, 2 * n, 12 * n]
        case 1:
            return [2 * n, 2 * n, 12 * own]
        case 2:
            return [2 * n, 2 * own, 12 * own]
        case _:
            return [2 * own, 2 * own, 12 * own]


def generated(parameters, ranks, stage):
    yield from solution(parameters, ranks, stage)


ALSO_RIGHT = [
    with_fractions,
    with_numpy,
    with_torch,
    in_whole_numbers,
    with_a_named_tuple,
    as_a_match,
    lambda n, ranks, stage: (
        2 * n / (1, 1, 1, ranks)[stage],
        2 * n / (1, 1, ranks, ranks)[stage],
        12 * n / ranks ** (stage > 0),
    ),
]
WRONG = [
    ("copy-never-shared", copy_stays),
    ("never-shared", lambda n, ranks, stage: (2 * n, 2 * n, 12 * n)),
    ("everything-shared", lambda n, ranks, stage: (2 * n / ranks, 2 * n / ranks, 12 * n / ranks)),
    ("all-or-nothing", in_order(1, 1, 1)),
    ("wrong-order", in_order(1, 2, 3)),
    ("wrong-order", in_order(3, 1, 2)),
    ("parameters-never-shared", in_order(9, 2, 1)),
    ("gradients-never-shared", in_order(3, 9, 1)),
    ("state-never-shared", in_order(3, 2, 9)),
    ("stage-2-shares-all", in_order(2, 2, 1)),
    ("saved-not-kept", lambda n, r, stage: [a - b for a, b in zip(solution(n, r, 0), solution(n, r, stage))]),
    ("wrong-type", changed(lambda *kept: sum(kept))),
    ("wrong-type", changed(lambda *kept: kept[:2])),
    ("returns-nothing", lambda n, ranks, stage: None),
    ("wrong-parameters", divided_by_the_stage),
    ("wrong-optimizer-state", of_sizes(2, 2, 16)),
]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("runs-nothing", generated)
]
