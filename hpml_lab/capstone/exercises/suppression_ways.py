"""Candidates for the exercise non-maximum-suppression, and ways to go through them: the right one and others."""

from collections.abc import Callable, Sequence

import numpy as np

Array = np.ndarray


def greedy(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    kept: list[int] = []
    for i in order:
        if not any(near(i, j) for j in kept):
            kept.append(i)
    return kept


def all_better(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    return [i for k, i in enumerate(order) if not any(near(i, j) for j in order[:k])]


def last_kept(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    kept: list[int] = []
    for i in order:
        if not kept or not near(i, kept[-1]):
            kept.append(i)
    return kept


def one_before(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    return [i for k, i in enumerate(order) if k == 0 or not near(i, order[k - 1])]


def only_the_best(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    return list(order[:1]) + [i for i in order[1:] if not near(i, order[0])]


def lonely(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    return [i for i in order if not any(near(i, j) for j in order if j != i)]


def best_of_each_chain(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    """Of all that are connected by near neighbors the first."""
    left, kept = list(order), []
    while left:
        kept.append(left[0])
        group = [left.pop(0)]
        for i in group:
            new = [j for j in left if near(i, j)]
            group += new
            left = [j for j in left if j not in new]
    return kept


def removed_while_going_through(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    left, kept = list(order), []
    for i in left:
        kept.append(i)
        for j in left:
            if j != i and near(i, j):
                left.remove(j)
    return kept


def _case(rows: list[tuple], apart: float) -> tuple[Array, Array, float]:
    given = np.array(rows, float).reshape(-1, 4)
    return given[:, :3].copy(), given[:, 3].copy(), apart


def _random(seed: int, count: int, apart: float) -> tuple[Array, Array, float]:
    draw = np.random.default_rng(seed)
    return draw.uniform(-40, 40, (count, 3)), draw.permutation(count) / count, apart


CASES = {
    "two near and one far": _case([(0, 0, 0, 0.5), (0, 3, 4, 0.9), (50, 0, 0, 0.7)], 6.0),
    "a chain: each near the next": _case([(0, 0, 0, 0.9), (0, 0, 8, 0.8), (0, 0, 16, 0.7), (0, 0, 24, 0.6)], 10.0),
    "exactly `apart` from each other": _case([(3, 0, 4, 0.6), (0, 0, 0, 0.8), (0, 0, -5, 0.3)], 5.0),
    "equal scores": _case([(0, 0, 0, 0.4), (1, 0, 0, 0.7), (0, 1, 0, 0.7), (30, 0, 0, 0.7)], 4.0),
    "one above the other": _case([(0, 5, 5, 0.8), (20, 5, 5, 0.9), (40, 5, 5, 0.7)], 10.0),
    "side by side": _case([(5, 5, 0, 0.8), (5, 5, 20, 0.9), (5, 5, 40, 0.7)], 10.0),
    "at the corner of a cube": _case([(0, 0, 0, 0.2), (4, 4, 4, 0.3), (20, 20, 20, 0.1), (26, 26, 20, 0.4)], 6.5),
    "apart less than 1 mm": _case([(0, 0, 0, 0.9), (0, 0, 0.7, 0.8), (0, 0.3, 0, 0.1)], 0.5),
    "the same center twice": _case([(1, 2, 3, 0.3), (1, 2, 3, 0.6), (-1, -2, -3, 0.5)], 2.0),
    "scores that are negative, too": _case([(0, 0, 0, -3.0), (0, 0, 2, -1.0), (30, 0, 0, 2.0), (30, 0, 3, -2.5)], 5.0),
    "scores and distances that differ by little": _case(
        [(200.1, 0, 0, 0.90001), (200.1, 0, 1, 0.90002), (200.1, 0, 6.0004, 0.3)], 5.0
    ),
    "one candidate": _case([(1, 2, 3, 0.3)], 5.0),
    "40 candidates": _random(0, 40, 20.0),
    "60 candidates": _random(1, 60, 15.0),
}
NO_CANDIDATES = _case([], 5.0)
