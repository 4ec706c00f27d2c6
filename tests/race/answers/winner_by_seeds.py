"""Answers to `winner-by-seeds`: pair by pair, a diverged run loses, and every seed counts."""

import math

import numpy as np
import torch
from edited_source import edited, wrong_answers


def solution(a, b):
    pairs = [tuple(math.inf if math.isnan(loss) else loss for loss in pair) for pair in zip(a, b)]
    if all(x < y for x, y in pairs):
        return "a"
    if all(y < x for x, y in pairs):
        return "b"
    return "undecided"


def by_bands(a, b):
    if max(a) < min(b):
        return "a"
    return "b" if max(b) < min(a) else "undecided"


def by_mean(a, b):
    return "a" if sum(a) / len(a) < sum(b) / len(b) else "b"


def by_best_seed(a, b):
    return "undecided" if min(a) == min(b) else "a" if min(a) < min(b) else "b"


def by_majority(a, b):
    wins = sum(x < y for x, y in zip(a, b))
    return "a" if wins > len(a) / 2 else "b" if wins < len(a) / 2 else "undecided"


def sorted_without_nan(a, b):
    return solution(*(sorted(math.inf if math.isnan(loss) else loss for loss in losses) for losses in (a, b)))


PAIRS = "[tuple(math.inf if math.isnan(loss) else loss for loss in pair) for pair in zip(a, b)]"
AS_GIVEN = (PAIRS, "list(zip(a, b))")
B_LOWER = "all(y < x for x, y in pairs)"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("higher-wins", AS_GIVEN, ("x < y", "x > y"), ("y < x", "y > x")),
            ("only-a-can-win", AS_GIVEN, ('"b"', '"undecided"')),
            ("nan-wins", AS_GIVEN, ("all(x < y", "not any(y < x"), ("all(y < x", "not any(x < y")),
            ("nan-wins", (PAIRS, "[(x, math.inf if math.isnan(y) else y) for x, y in zip(a, b) if not math.isnan(x)]")),
            ("nan-as-a-number", ("math.inf", "1e3")),
            ("nan-is-no-loss", AS_GIVEN),
            ("nan-is-no-loss", (PAIRS, "[(x, math.inf if math.isnan(y) else y) for x, y in zip(a, b)]")),
            ("large-taken-for-nan", ("math.isnan(loss)", "math.isnan(loss) or loss > 10")),
            ("large-taken-for-nan", ("math.isnan(loss)", "math.isnan(loss) or loss > 1e6")),
            ("equal-counts-as-lower", ("x < y", "x <= y and x < math.inf"), ("y < x", "y <= x and y < math.inf")),
            ("both-diverged", ("    if all(x", "    pairs = [pair for pair in pairs if min(pair) < math.inf]\n    if all(x")),
            ("pairing-lost", ("zip(a, b)", "zip(sorted(a), sorted(b))")),
            ("one-seed", ("zip(a, b)", "zip(a[-1:], b[-1:])")),
            ("one-seed", ("zip(a, b)", "zip(a[:1], b[:1])")),
            ("not-one-of-the-three", ('"a"', '"A"'), ('"b"', '"B"')),
            ("always-a-winner", ("all(x", "any(x"), (B_LOWER, "True")),
            ("always-a-winner", ('"undecided"', '"a"')),
        ],
    ),
    ("bands-must-not-touch", by_bands),
    ("majority-or-mean", by_mean),
    ("majority-or-mean", by_majority),
    ("best-seed", by_best_seed),
    ("pairing-lost", sorted_without_nan),
    ("never-decides", lambda a, b: "undecided"),
    ("rounded", lambda a, b: solution([round(x, 3) for x in a], [round(x, 3) for x in b])),
    ("rounded", lambda a, b: solution(*(torch.tensor(losses).bfloat16().tolist() for losses in (a, b)))),
]


def with_numpy(a, b):
    x, y = (np.nan_to_num(losses, nan=np.inf) for losses in (a, b))
    return np.array(["undecided", "a", "b"])[int((x < y).all()) + 2 * int((y < x).all())]


def with_torch(a, b):
    x, y = (torch.tensor(losses).nan_to_num(torch.inf) for losses in (a, b))
    return {(True, False): "a", (False, True): "b"}.get((bool((x < y).all()), bool((x > y).all())), "undecided")


def by_counting(a, b):
    wins = [0, 0]
    for x, y in zip(a, b):
        wins[0] += x < y or (y != y and x == x)
        wins[1] += y < x or (x != x and y == y)
    return "a" if wins[0] == len(a) else "b" if wins[1] == len(a) else "undecided"


ALSO_RIGHT = [with_numpy, with_torch, by_counting, edited(solution, ("    if all(x", "    pairs.sort()\n    if all(x"))]


def nan_by_identity(a, b):
    return solution(
        *([math.inf if loss is math.nan else loss if loss == loss else 0.0 for loss in losses] for losses in (a, b))
    )


WRONG += [("nan-wins", nan_by_identity)]
