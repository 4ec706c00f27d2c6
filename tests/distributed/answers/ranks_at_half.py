"""Answers to `ranks-at-half`: the first number of ranks whose efficiency in strong scaling with a ring is below one half."""

import itertools
import math
from fractions import Fraction

import numpy as np
import torch


def solution(compute, nbytes, latency, bandwidth):
    ranks = 2
    while True:
        ring = 2 * (ranks - 1) * (latency + nbytes / (ranks * bandwidth))
        if compute / (ranks * (compute / ranks + ring)) < 0.5:
            return ranks
        ranks += 1


# ---- other right answers ---------------------------------------------------------------------------------------------------


def communication_exceeds_compute(compute, nbytes, latency, bandwidth):
    def ring(n):
        return 2 * (n - 1) * (latency + nbytes / n / bandwidth)

    return next(n for n in itertools.count(1) if ring(n) > compute / n)


def quadratic(compute, nbytes, latency, bandwidth):
    a, b, c = 2 * latency, 2 * (nbytes / bandwidth - latency), -2 * nbytes / bandwidth - compute
    return math.floor((-b + math.sqrt(b * b - 4 * a * c)) / (2 * a)) + 1


def doubling_and_bisection(compute, nbytes, latency, bandwidth):
    def good(n):
        return 2 * (n - 1) * (n * latency + nbytes / bandwidth) <= compute

    low, high = 1, 2
    while good(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if good(middle) else (low, middle)
    return high


def in_numpy(compute, nbytes, latency, bandwidth):
    n = np.arange(1, 5000)
    step = compute / n + 2 * (n - 1) * (latency + nbytes / (n * bandwidth))
    return n[np.argmax(compute / step / n < 0.5)]


def in_torch(compute, nbytes, latency, bandwidth):
    n = torch.arange(1, 5000, dtype=torch.float64)
    step = compute / n + 2 * (n - 1) * (latency + nbytes / (n * bandwidth))
    return n[(compute / step / n < 0.5).nonzero()[0, 0]]


def exactly(compute, nbytes, latency, bandwidth):
    compute, nbytes, latency, bandwidth = map(Fraction, (compute, nbytes, latency, bandwidth))
    n = 1
    while 2 * (n - 1) * (latency + nbytes / (n * bandwidth)) <= compute / n:
        n += 1
    return n


def recursive(compute, nbytes, latency, bandwidth, low=1, high=2**20):
    if high - low == 1:
        return high
    middle = (low + high) // 2
    speed_up = compute / (compute / middle + 2 * (middle - 1) * (latency + nbytes / (middle * bandwidth)))
    halves = (middle, high) if speed_up / middle >= 0.5 else (low, middle)
    return recursive(compute, nbytes, latency, bandwidth, *halves)


ALSO_RIGHT = [communication_exceeds_compute, quadratic, doubling_and_bisection, in_numpy, in_torch, exactly, recursive]


# ---- wrong answers ---------------------------------------------------------------------------------------------------------


def _ring(n, nbytes, latency, bandwidth):
    return 2 * (n - 1) * (latency + nbytes / (n * bandwidth))


def _search(efficiency, limit=0.5):
    return next(n for n in itertools.count(2) if efficiency(n) < limit)


def at_most_one_half(compute, *link):
    n = 2
    while compute / (n * (compute / n + _ring(n, *link))) > 0.5:
        n += 1
    return n


def last_good(compute, *link):
    n = 1
    while compute / ((n + 1) * (compute / (n + 1) + _ring(n + 1, *link))) >= 0.5:
        n += 1
    return n


def compute_not_divided(compute, *link):
    return _search(lambda n: compute / (compute + _ring(n, *link)))


def speed_up_below_half(compute, *link):
    return _search(lambda n: compute / (compute / n + _ring(n, *link)))


def no_speed_up_left(compute, *link):
    return _search(lambda n: compute / (compute / n + _ring(n, *link)), 1)


def reduce_scatter_only(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * (n - 1) * (latency + nbytes / (n * bandwidth))))


def all_bytes_in_each_step(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * 2 * (n - 1) * (latency + nbytes / bandwidth)))


def n_steps(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * 2 * n * (latency + nbytes / (n * bandwidth))))


def no_latency(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * _ring(n, nbytes, 0, bandwidth)))


def no_bytes(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * 2 * (n - 1) * latency))


def bytes_once(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * (2 * (n - 1) * latency + nbytes / bandwidth)))


def latency_once(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * (latency + 2 * (n - 1) / n * nbytes / bandwidth)))


def bandwidth_in_bits(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * _ring(n, nbytes * 8, latency, bandwidth)))


def with_a_tree(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * 2 * (math.ceil(math.log2(n)) * latency + nbytes / bandwidth)))


def many_ranks(compute, nbytes, latency, bandwidth):
    return _search(lambda n: compute / (compute + n * (2 * (n - 1) * latency + 2 * nbytes / bandwidth)))


def only_powers_of_two(compute, *link):
    n = 2
    while compute / (compute + n * _ring(n, *link)) >= 0.5:
        n *= 2
    return n


def real_root(compute, nbytes, latency, bandwidth):
    a, b, c = 2 * latency, 2 * (nbytes / bandwidth - latency), -2 * nbytes / bandwidth - compute
    return (-b + math.sqrt(b * b - 4 * a * c)) / (2 * a)


def rounded_root(*given):
    return round(real_root(*given))


def rounded_up(*given):
    return math.ceil(real_root(*given))


def rounded_down(*given):
    return int(real_root(*given))


def least_time(compute, *link):
    return min(range(1, 3000), key=lambda n: compute / n + _ring(n, *link))


def the_ratio(compute, *link):
    n = solution(compute, *link)
    return compute / (compute + n * _ring(n, *link))


def always_eight(compute, nbytes, latency, bandwidth):
    return 8


def forgets_to_return(compute, nbytes, latency, bandwidth):
    n = 2
    while compute / (compute + n * _ring(n, nbytes, latency, bandwidth)) >= 0.5:
        n += 1


def as_text(*given):
    return f"{solution(*given)} ranks"


def three_arguments(compute, nbytes, bandwidth):
    return 2


def efficiency(n, compute, nbytes, latency, bandwidth):
    return compute / (compute + n * 2 * (n - 1) * (latency + nbytes / (n * bandwidth)))


def overlaps(compute, nbytes, latency, bandwidth):
    return next(n for n in itertools.count(1) if n * 2 * (n - 1) * (latency + nbytes / (n * bandwidth)) > 2 * compute)


def half_is_enough_and_one_before(*given):
    return next(n for n in itertools.count(1) if efficiency(n, *given) <= 0.5) - 1


def gives_up(*given):
    return next((n for n in range(1, 1000) if efficiency(n, *given) < 0.5), None)


def in_whole_bytes(compute, nbytes, latency, bandwidth):
    """A part of the bytes is rounded down."""
    return next(n for n in range(2, 10**5) if compute < 2 * (n - 1) * n * (latency + nbytes // n / bandwidth))


WRONG = [
    ("too-many-ranks", lambda compute, nbytes, latency, bandwidth: in_whole_bytes(compute, nbytes, latency, bandwidth)),
    ("one-half-is-not-below", at_most_one_half),
    ("one-half-is-not-below", rounded_up),
    ("the-last-above", last_good),
    ("the-last-above", rounded_down),
    ("weak-scaling", compute_not_divided),
    ("speed-up-instead", speed_up_below_half),
    ("slower-than-one", no_speed_up_left),
    ("half-a-ring", reduce_scatter_only),
    ("whole-payload-in-each-step", all_bytes_in_each_step),
    ("as-many-steps-as-ranks", n_steps),
    ("latency-ignored", no_latency),
    ("bytes-ignored", no_bytes),
    ("one-latency", latency_once),
    ("bits", bandwidth_in_bits),
    ("a-tree", with_a_tree),
    ("large-n-formula", many_ranks),
    ("powers-of-two", only_powers_of_two),
    ("not-a-whole-number", real_root),
    ("rounded", rounded_root),
    ("the-fastest", least_time),
    ("the-efficiency", the_ratio),
    ("too-few-ranks", always_eight),
    ("too-many-ranks", lambda *given: next(n for n in itertools.count(1) if efficiency(n, *given) < 0.25)),
    ("one-too-many", lambda *given: solution(*given) + 1),
    ("starts-too-late", lambda *given: max(3, solution(*given))),
    ("powers-of-two", lambda *given: solution(*given) // 10 * 10 + 1 + 10 * (solution(*given) % 10 > 1)),
    ("the-example", lambda *given: 101),
    ("half-a-ring", overlaps),
    ("one-half-is-not-below", half_is_enough_and_one_before),
    ("gives-up", gives_up),
    ("returns-nothing", forgets_to_return),
    ("wrong-type", as_text),
    ("wrong-arguments", three_arguments),
    ("payload-once", bytes_once),
    (
        "latency-in-another-unit",
        lambda compute, nbytes, latency, bandwidth: solution(compute, nbytes, latency / 1000, bandwidth),
    ),
]
