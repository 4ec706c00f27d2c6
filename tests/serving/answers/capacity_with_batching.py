"""Answers to `capacity-with-batching`: the capacity of a batch limit, and the limit that a rate needs."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import torch


def solution(rate, a, b, limit):
    import math  # a solution stands alone

    capacity = limit / (a + b * limit)
    if rate * b >= 1:
        return capacity, None
    return capacity, math.floor(rate * a / (1 - rate * b)) + 1


def one_at_a_time(rate, a, b, limit):
    return 1 / (a + b), solution(rate, a, b, limit)[1]


def batches_per_second(rate, a, b, limit):
    return 1 / (a + b * limit), solution(rate, a, b, limit)[1]


def no_fixed_cost(rate, a, b, limit):
    return 1 / b, solution(rate, a, b, limit)[1]


def each_pays_the_fixed_cost(rate, a, b, limit):
    return limit / (limit * (a + b)), solution(rate, a, b, limit)[1]


def no_cost_of_each(rate, a, b, limit):
    return limit / a, None if rate * b >= 1 else math.floor(rate * a) + 1


def seconds_of_a_batch(rate, a, b, limit):
    return a + b * limit, solution(rate, a, b, limit)[1]


def seconds_of_a_request(rate, a, b, limit):
    return (a + b * limit) / limit, solution(rate, a, b, limit)[1]


def equal_is_enough(rate, a, b, limit):
    needed = next((n for n in range(1, 10**4) if n / (a + b * n) >= rate), None)
    return limit / (a + b * limit), needed


def by_ceil(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, None if needed is None else math.ceil(rate * a / (1 - rate * b))


def rounded_down(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, None if needed is None else max(1, int(rate * a / (1 - rate * b)))


def to_the_nearest(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, None if needed is None else max(1, round(rate * a / (1 - rate * b)))


def a_fraction(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, None if needed is None else rate * a / (1 - rate * b)


def doubling(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    if needed is None:
        return capacity, None
    n = 1
    while n / (a + b * n) <= rate:
        n = 2 * n
    return capacity, n


def formula_only(rate, a, b, limit):
    needed = math.floor(rate * a / (1 - rate * b)) + 1 if rate * b != 1 else None
    return limit / (a + b * limit), needed


def divides_by_zero(rate, a, b, limit):
    return limit / (a + b * limit), math.floor(rate * a / (1 - rate * b)) + 1


def infinite(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, math.inf if needed is None else needed


def the_given_limit(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, limit if needed is None else needed


def gives_up_soon(rate, a, b, limit):
    return limit / (a + b * limit), next((n for n in range(1, 100) if n / (a + b * n) > rate), None)


def only_up_to_the_limit(rate, a, b, limit):
    return limit / (a + b * limit), next((n for n in range(1, limit + 1) if n / (a + b * n) > rate), None)


def while_it_arrives(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, None if needed is None else math.ceil(rate * (a + b))


def while_a_full_batch_is_served(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, None if needed is None else math.ceil(rate * (a + b * limit))


def one_more(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, None if needed is None else needed + 1


def the_other_way_round(rate, a, b, limit):
    return solution(rate, a, b, limit)[::-1]


def a_dictionary(rate, a, b, limit):
    return dict(zip(("capacity", "limit"), solution(rate, a, b, limit), strict=True))


def in_milliseconds(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return 1000 * capacity, needed


def without_the_own_service(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, None if needed is None else max(1, needed - 2)


def never_ends(rate, a, b, limit):
    n = 1
    while n / (a + b * n) <= rate:
        n += 1
    return limit / (a + b * limit), n


def divides_by_zero_at_equality(rate, a, b, limit):
    """Right but for a rate of 1 / b."""
    return limit / (a + b * limit), None if rate * b > 1 else math.floor(rate * a / (1 - rate * b)) + 1


def divides_by_numpys_zero(rate, a, b, limit):
    with np.errstate(divide="ignore"):
        needed = np.float64(rate * a) / (1 - rate * b)
    return limit / (a + b * limit), None if needed < 0 else int(needed) + 1


def of_its_own_limit(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return (needed / (a + b * needed) if needed else capacity), needed


def from_the_given_limit(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, needed and max(needed, limit)


def floor_alone(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, None if needed is None else math.floor(rate * a / (1 - rate * b))


def is_the_given_limit_enough(rate, a, b, limit):
    capacity = limit / (a + b * limit)
    return capacity, limit if capacity > rate else None


def batches_against_the_rate(rate, a, b, limit):
    needed = next((n for n in range(1, 1000) if 1 / (a + b * n) > rate), None)
    return limit / (a + b * limit), needed


WRONG = [
    ("begins-at-the-limit", is_the_given_limit_enough),
    ("batches-instead-of-requests", batches_against_the_rate),
    ("begins-at-the-limit", from_the_given_limit),
    ("rounded-down", floor_alone),
    ("one-at-a-time", one_at_a_time),
    ("one-at-a-time", each_pays_the_fixed_cost),
    ("batches-instead-of-requests", batches_per_second),
    ("without-the-fixed-cost", no_fixed_cost),
    ("without-the-cost-of-each", no_cost_of_each),
    ("time-instead-of-rate", seconds_of_a_batch),
    ("time-instead-of-rate", seconds_of_a_request),
    ("equal-is-not-enough", equal_is_enough),
    ("equal-is-not-enough", by_ceil),
    ("rounded-down", rounded_down),
    ("rounded", to_the_nearest),
    ("not-rounded", a_fraction),
    ("powers-of-two", doubling),
    ("no-limit-is-enough", formula_only),
    ("no-limit-is-enough", divides_by_zero),
    ("no-limit-is-enough", infinite),
    ("no-limit-is-enough", the_given_limit),
    ("search-ends-early", gives_up_soon),
    ("search-ends-early", only_up_to_the_limit),
    ("arrivals-in-one-service", while_it_arrives),
    ("limit-too-large", while_a_full_batch_is_served),
    ("limit-too-small", without_the_own_service),
    ("one-too-many", one_more),
    ("swapped", the_other_way_round),
    ("not-a-pair", a_dictionary),
    ("other-capacity", in_milliseconds),
    ("capacity-only", lambda rate, a, b, limit: solution(rate, a, b, limit)[0]),
    ("returns-nothing", lambda rate, a, b, limit: None),
    ("does-not-end", never_ends),
    ("no-limit-is-enough", divides_by_zero_at_equality),
    ("no-limit-is-enough", divides_by_numpys_zero),
    ("no-limit-is-enough", lambda *given: (solution(*given)[0], str(solution(*given)[1]))),
    ("one-at-a-time", lambda rate, a, b, limit: (limit / (a + b), solution(rate, a, b, limit)[1])),
    ("a-and-b-swapped", lambda rate, a, b, limit: (limit / (a * limit + b), solution(rate, a, b, limit)[1])),
    ("without-parentheses", lambda rate, a, b, limit: (limit / a + b * limit, solution(rate, a, b, limit)[1])),
    ("multiplied", lambda rate, a, b, limit: (limit * (a + b * limit), solution(rate, a, b, limit)[1])),
    ("capacity-rounded", lambda rate, a, b, limit: (limit // (a + b * limit), solution(rate, a, b, limit)[1])),
    ("capacity-rounded", lambda *given: (round(solution(*given)[0], 2), solution(*given)[1])),
    ("capacity-of-the-other-limit", of_its_own_limit),
    ("not-a-number", lambda *given: tuple(map(str, solution(*given)))),
    ("not-a-limit", lambda *given: (solution(*given)[0], solution(*given)[1] is not None)),
]


def by_search(rate, a, b, limit):
    def capacity(n):
        return n / (a + n * b)

    if rate >= 1 / b:
        return [capacity(limit), None]
    n = 1
    while not capacity(n) > rate:
        n += 1
    return [capacity(limit), n]


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


def by_numpy(rate, a, b, limit):
    sizes = np.arange(1, 10_000)
    enough = sizes / (a + b * sizes) > rate
    return np.float64(limit / (a + b * limit)), sizes[enough.argmax()] if enough.any() else None


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


def a_little_more(rate, a, b, limit):
    needed = None if rate * b >= 1 else max(1, math.ceil(rate * a / (1 - rate * b) + 1e-3))
    return limit / (a + b * limit), needed


def rounded_before(rate, a, b, limit):
    needed = None if rate * b >= 1 else math.floor(round(rate * a / (1 - rate * b), 2)) + 1
    return limit / (a + b * limit), needed


def none_near_the_end(rate, a, b, limit):
    capacity, needed = solution(rate, a, b, limit)
    return capacity, needed if rate * b < 0.99 else None


def limit_of_the_first_call(rate, a, b, limit, known={}):  # noqa: B006
    capacity, needed = solution(rate, a, b, limit)
    return capacity, known.setdefault((a, b), needed)


WRONG += [
    ("limit-too-large", a_little_more),
    ("limit-too-large", rounded_before),
    ("search-ends-early", none_near_the_end),
    ("remembers-calls", limit_of_the_first_call),
]
