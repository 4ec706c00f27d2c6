"""Answers to `ranks-at-half`: the first number of ranks whose efficiency in strong scaling with a ring is below one half."""

import itertools
import math
from fractions import Fraction

import numpy as np
from edited_source import wrong_answers


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


ALSO_RIGHT = [communication_exceeds_compute, quadratic, doubling_and_bisection, in_numpy, exactly, recursive]


# ---- wrong answers ---------------------------------------------------------------------------------------------------------


def always_eight(compute, nbytes, latency, bandwidth):
    return 8


PART = "nbytes / (ranks * bandwidth)"
FOUND = "return ranks"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("one-half-is-not-below", ("< 0.5", "<= 0.5"), (FOUND, "return ranks - 1")),
            ("too-many-ranks", ("< 0.5", "< 0.25")),
            ("too-many-ranks", (PART, "nbytes // ranks / bandwidth")),  # a part of the bytes is rounded down
        ],
    ),
    ("too-few-ranks", always_eight),
    ("powers-of-two", lambda *given: solution(*given) // 10 * 10 + 1 + 10 * (solution(*given) % 10 > 1)),
]
