"""Answers to `winner-by-seeds`: pair by pair, a diverged run loses, and every seed counts."""

import math


def solution(a, b):
    pairs = [tuple(math.inf if math.isnan(loss) else loss for loss in pair) for pair in zip(a, b)]
    if all(x < y for x, y in pairs):
        return "a"
    if all(y < x for x, y in pairs):
        return "b"
    return "undecided"


def pairs_of(a, b):
    """The losses pair by pair; a training that diverged has an infinite loss."""
    return [tuple(math.inf if math.isnan(loss) else loss for loss in pair) for pair in zip(a, b)]


def lower_in_every(pairs):
    if all(x < y for x, y in pairs):
        return "a"
    return "b" if all(y < x for x, y in pairs) else "undecided"


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
    return lower_in_every(list(zip(a, b)))


def drops_nan(a, b):
    return lower_in_every([(x, math.inf if math.isnan(y) else y) for x, y in zip(a, b) if not math.isnan(x)])


def or_equal(a, b):
    pairs = pairs_of(a, b)
    if all(x <= y and x < math.inf for x, y in pairs):
        return "a"
    return "b" if all(y <= x and y < math.inf for x, y in pairs) else "undecided"


def skips_both_diverged(a, b):
    return lower_in_every([pair for pair in pairs_of(a, b) if min(pair) < math.inf])


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
    ("both-diverged", skips_both_diverged),
]
