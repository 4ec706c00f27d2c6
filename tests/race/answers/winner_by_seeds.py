"""Answers to `winner-by-seeds`: pair by pair, a diverged run loses, and every seed counts."""

import math


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
    return "a" if min(a) < min(b) else "b"


def by_majority(a, b):
    wins = sum(x < y for x, y in zip(a, b))
    return "a" if wins > len(a) / 2 else "b" if wins < len(a) / 2 else "undecided"


def by_height(a, b):
    if all(x > y for x, y in zip(a, b)):
        return "a"
    return "b" if all(y > x for x, y in zip(a, b)) else "undecided"


def one_sided(a, b):
    return "a" if all(x < y for x, y in zip(a, b)) else "undecided"


def not_higher(a, b):
    if not any(y < x for x, y in zip(a, b)):
        return "a"
    return "b" if not any(x < y for x, y in zip(a, b)) else "undecided"


def nan_forgotten(a, b):
    if all(x < y for x, y in zip(a, b)):
        return "a"
    return "b" if all(y < x for x, y in zip(a, b)) else "undecided"


def drops_nan(a, b):
    pairs = [(x, y) for x, y in zip(a, b) if not math.isnan(x)]
    pairs = [(x, math.inf if math.isnan(y) else y) for x, y in pairs]
    if all(x < y for x, y in pairs):
        return "a"
    return "b" if all(y < x for x, y in pairs) else "undecided"


def or_equal(a, b):
    pairs = [tuple(math.inf if math.isnan(loss) else loss for loss in pair) for pair in zip(a, b)]
    if all(x <= y and x < math.inf for x, y in pairs):
        return "a"
    return "b" if all(y <= x and y < math.inf for x, y in pairs) else "undecided"


def skips_the_hopeless(a, b):
    pairs = [tuple(math.inf if math.isnan(loss) else loss for loss in pair) for pair in zip(a, b)]
    pairs = [pair for pair in pairs if min(pair) < math.inf]
    if all(x < y for x, y in pairs):
        return "a"
    return "b" if all(y < x for x, y in pairs) else "undecided"


WRONG = [
    ("bands-must-not-touch", by_bands),
    ("majority-or-mean", by_mean),
    ("best-seed", by_best_seed),
    ("majority-or-mean", by_majority),
    ("higher-wins", by_height),
    ("only-a-can-win", one_sided),
    ("nan-wins", not_higher),
    ("nan-is-no-loss", nan_forgotten),
    ("nan-wins", drops_nan),
    ("equal-counts-as-lower", or_equal),
    ("both-diverged", skips_the_hopeless),
]
