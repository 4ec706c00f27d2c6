"""Answers to `ranks-at-half`: the first number of ranks whose efficiency in strong scaling with a ring is below one half."""

import itertools
import math
from fractions import Fraction

import numpy as np
import torch
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


def least_time(compute, nbytes, latency, bandwidth):
    return min(range(1, 3000), key=lambda n: compute / n + 2 * (n - 1) * (latency + nbytes / (n * bandwidth)))


def always_eight(compute, nbytes, latency, bandwidth):
    return 8


def three_arguments(compute, nbytes, bandwidth):
    return 2


RING, PART = "2 * (ranks - 1) * (latency + nbytes / (ranks * bandwidth))", "nbytes / (ranks * bandwidth)"
TIME, FOUND = "ranks * (compute / ranks + ring)", "return ranks"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("one-half-is-not-below", ("< 0.5", "<= 0.5")),
            ("one-half-is-not-below", ("< 0.5", "<= 0.5"), (FOUND, "return ranks - 1")),
            ("the-last-above", (FOUND, "return ranks - 1")),
            ("one-too-many", (FOUND, "return ranks + 1")),
            ("the-efficiency", (FOUND, f"return compute / ({TIME})")),
            ("wrong-type", (FOUND, 'return f"{ranks} ranks"')),
            ("returns-nothing", (FOUND, "break")),
            ("too-many-ranks", ("< 0.5", "< 0.25")),
            ("too-many-ranks", (PART, "nbytes // ranks / bandwidth")),  # a part of the bytes is rounded down
            ("weak-scaling", (TIME, "compute + ring")),
            ("speed-up-instead", (TIME, "compute / ranks + ring")),
            ("slower-than-one", (TIME, "compute / ranks + ring"), ("< 0.5", "< 1")),
            ("half-a-ring", (RING, f"(ranks - 1) * (latency + {PART})")),
            ("half-a-ring", (f"compute / ({TIME}) < 0.5", "ranks * ring > 2 * compute")),
            ("whole-payload-in-each-step", (PART, "nbytes / bandwidth")),
            ("as-many-steps-as-ranks", ("(ranks - 1)", "ranks")),
            ("latency-ignored", ("latency + ", "")),
            ("bytes-ignored", (f" + {PART}", "")),
            ("payload-once", (RING, "2 * (ranks - 1) * latency + nbytes / bandwidth")),
            ("one-latency", (RING, "latency + 2 * (ranks - 1) / ranks * nbytes / bandwidth")),
            ("large-n-formula", (RING, "2 * (ranks - 1) * latency + 2 * nbytes / bandwidth")),
            ("a-tree", (RING, "2 * (math.ceil(math.log2(ranks)) * latency + nbytes / bandwidth)")),
            ("bits", (PART, f"8 * {PART}")),
            ("latency-in-another-unit", ("latency +", "latency / 1000 +")),
            ("powers-of-two", ("ranks += 1", "ranks *= 2")),
            ("starts-too-late", ("ranks = 2", "ranks = 3")),
            ("gives-up", ("while True", "while ranks < 1000")),
        ],
    ),
    *wrong_answers(
        quadratic,
        [
            ("not-a-whole-number", ("math.floor", ""), (" + 1", "")),
            ("rounded", ("math.floor", "round"), (" + 1", "")),
            ("one-half-is-not-below", ("math.floor", "math.ceil"), (" + 1", "")),
            ("the-last-above", (" + 1", "")),
        ],
    ),
    ("the-fastest", least_time),
    ("too-few-ranks", always_eight),
    ("wrong-arguments", three_arguments),
    ("powers-of-two", lambda *given: solution(*given) // 10 * 10 + 1 + 10 * (solution(*given) % 10 > 1)),
    ("the-example", lambda *given: 101),
]
