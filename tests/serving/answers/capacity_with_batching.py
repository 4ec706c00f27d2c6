"""Answers to `capacity-with-batching`: the capacity of a batch limit, and the limit that a rate needs."""

from fractions import Fraction

import numpy as np
import torch
from edited_source import wrong_answers


def solution(rate, a, b, limit):
    import math  # a solution stands alone

    capacity = limit / (a + b * limit)
    if rate * b >= 1:
        return capacity, None
    return capacity, math.floor(rate * a / (1 - rate * b)) + 1


def by_search(rate, a, b, limit):
    def capacity(n):
        return n / (a + n * b)

    if rate >= 1 / b:
        return [capacity(limit), None]
    n = 1
    while not capacity(n) > rate:
        n += 1
    return [capacity(limit), n]


def by_numpy(rate, a, b, limit):
    sizes = np.arange(1, 10_000)
    enough = sizes / (a + b * sizes) > rate
    return np.float64(limit / (a + b * limit)), sizes[enough.argmax()] if enough.any() else None


def never_ends(rate, a, b, limit):
    n = 1
    while n / (a + b * n) <= rate:
        n += 1
    return limit / (a + b * limit), n


CAPACITY, NEEDED = "limit / (a + b * limit)", "math.floor(rate * a / (1 - rate * b)) + 1"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("other-capacity", (CAPACITY, f"1000 * {CAPACITY}")),
            ("capacity-of-the-other-limit", (f"capacity, {NEEDED}", f"(n := {NEEDED}) / (a + b * n), n")),
            ("limit-too-large", (NEEDED, "math.floor(round(rate * a / (1 - rate * b), 2)) + 1")),
            ("limit-too-small", (NEEDED, f"max(1, {NEEDED} - 2)")),
            ("no-limit-is-enough", ("rate * b >= 1", "rate * b == 1")),
            ("no-limit-is-enough", ("rate * b >= 1", "False")),
            ("none-though-one-is-enough", ("rate * b >= 1", "rate > 0.2")),
            ("search-ends-early", (NEEDED, f"needed if (needed := {NEEDED}) <= limit else None")),
            ("search-ends-early", ("rate * b >= 1", "rate * b >= 0.99")),
        ],
    ),
    ("does-not-end", never_ends),
    ("not-a-limit", lambda *given: (solution(*given)[0], solution(*given)[1] is not None)),
]


def by_bisection(rate, a, b, limit):
    needed = None
    if rate * b < 1:
        low, high = 0, 1
        while high <= rate * (a + b * high):
            high *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if middle > rate * (a + b * middle) else (middle, high)
        needed = high
    return 1 / (a / limit + b), needed


def by_fractions(rate, a, b, limit):
    rate, a, b = map(Fraction, (rate, a, b))
    needed = None if 1 - rate * b <= 0 else (rate * a) // (1 - rate * b) + 1
    return limit / (a + b * limit), needed


def by_torch(rate, a, b, limit):
    capacity = torch.tensor(limit, dtype=torch.float64) / (a + b * limit)
    left = 1 - rate * b
    return capacity, torch.tensor(rate * a / left).floor().int() + 1 if left > 0 else None


def with_the_library(rate, a, b, limit):
    from hpml_lab.core.system.errors import LabError
    from hpml_lab.serving.lessons.virtual_queue import batch_capacity, limit_needed

    try:
        return float(batch_capacity(limit, a, b)), limit_needed(rate, a, b)
    except LabError:
        return float(batch_capacity(limit, a, b)), None


ALSO_RIGHT = [by_search, by_bisection, by_fractions, by_numpy, by_torch, with_the_library]
