"""Answers to `capacity-with-batching`: the capacity of a batch limit, and the limit that a rate needs."""

from decimal import Decimal
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


def equal_is_enough(rate, a, b, limit):
    needed = next((n for n in range(1, 10**4) if n / (a + b * n) >= rate), None)
    return limit / (a + b * limit), needed


def never_ends(rate, a, b, limit):
    n = 1
    while n / (a + b * n) <= rate:
        n += 1
    return limit / (a + b * limit), n


def divides_by_numpys_zero(rate, a, b, limit):
    with np.errstate(divide="ignore"):
        needed = np.float64(rate * a) / (1 - rate * b)
    return limit / (a + b * limit), None if needed < 0 else int(needed) + 1


def is_the_given_limit_enough(rate, a, b, limit):
    capacity = limit / (a + b * limit)
    return capacity, limit if capacity > rate else None


def batches_against_the_rate(rate, a, b, limit):
    needed = next((n for n in range(1, 1000) if 1 / (a + b * n) > rate), None)
    return limit / (a + b * limit), needed


CAPACITY, NEEDED = "limit / (a + b * limit)", "math.floor(rate * a / (1 - rate * b)) + 1"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("other-capacity", (CAPACITY, "limit / a"), (NEEDED, "math.floor(rate * a) + 1")),
            ("other-capacity", (CAPACITY, f"1000 * {CAPACITY}")),
            ("capacity-of-the-other-limit", (f"capacity, {NEEDED}", f"(n := {NEEDED}) / (a + b * n), n")),
            ("limit-too-large", (NEEDED, "max(1, math.ceil(rate * a / (1 - rate * b) + 1e-3))")),
            ("limit-too-large", (NEEDED, "math.floor(round(rate * a / (1 - rate * b), 2)) + 1")),
            ("limit-too-small", (NEEDED, f"max(1, {NEEDED} - 2)")),
            ("no-limit-is-enough", ("rate * b >= 1", "rate * b == 1")),
            ("search-ends-early", ("rate * b >= 1", "rate * b >= 0.99")),
            ("remembers-calls", ("limit):", "limit, known={}):"), (NEEDED, f"known.setdefault((a, b), {NEEDED})")),
        ],
    ),
    *wrong_answers(by_numpy, [("search-ends-early", ("10_000", "100"))]),
    *wrong_answers(by_search, [("powers-of-two", ("n += 1", "n *= 2"))]),
    ("equal-is-not-enough", equal_is_enough),
    ("does-not-end", never_ends),
    ("no-limit-is-enough", divides_by_numpys_zero),
    ("begins-at-the-limit", is_the_given_limit_enough),
    ("batches-instead-of-requests", batches_against_the_rate),
    ("wrong-type", lambda *given: (solution(*given)[0], str(solution(*given)[1]))),
    ("wrong-type", lambda *given: dict(zip(("capacity", "limit"), solution(*given), strict=True))),
    ("not-a-limit", lambda *given: (solution(*given)[0], solution(*given)[1] is not None)),
    ("returns-nothing", lambda *given: None),
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


def by_decimals(rate, a, b, limit):
    rate, a, b = (Decimal(str(value)) for value in (rate, a, b))
    capacity = Decimal(limit) / (a + b * limit)
    return capacity, None if rate * b >= 1 else int(rate * a / (1 - rate * b)) + 1


def with_the_library(rate, a, b, limit):
    from hpml_lab.core.system.errors import LabError
    from hpml_lab.serving.lessons.virtual_queue import batch_capacity, limit_needed

    try:
        return float(batch_capacity(limit, a, b)), limit_needed(rate, a, b)
    except LabError:
        return float(batch_capacity(limit, a, b)), None


ALSO_RIGHT = [by_search, by_bisection, by_fractions, by_numpy, by_torch, by_decimals, with_the_library]
