"""Answers to `warm-up-and-cosine`: a straight climb, then half a cosine wave that starts where the climb ends."""

import math


def solution(t, T, peak):
    W = T // 10
    if t < W:
        return peak * (t + 1) / W
    return peak * (1 + math.cos(math.pi * (t - W) / (T - W))) / 2


def after_climb(fall):
    """A rate that climbs as it should, then follows `fall` of the fraction of the wave that has passed."""

    def rate(t, T, peak):
        W = T // 10
        return solution(t, T, peak) if t < W else peak * fall((t - W) / (T - W))

    return rate


def no_climb(t, T, peak):
    return peak * (1 + math.cos(math.pi * t / T)) / 2


def peak_at_once(t, T, peak):
    return peak if t < T // 10 else solution(t, T, peak)


def from_zero(t, T, peak):
    return peak * t / (T // 10) if t < T // 10 else solution(t, T, peak)


def clock_from_zero(t, T, peak):
    return solution(t, T, peak) if t < T // 10 else no_climb(t, T, peak)


def no_peak(t, T, peak):
    return solution(t, T, 1.0)


def nothing(t, T, peak):
    solution(t, T, peak)


WRONG = [
    ("no-warm-up", no_climb),
    ("warm-up-left-out", peak_at_once),
    ("starts-at-zero", from_zero),
    ("clock-not-reset", clock_from_zero),
    ("quarter-wave", after_climb(lambda passed: math.cos(math.pi / 2 * passed))),
    ("not-halved", after_climb(lambda passed: 1 + math.cos(math.pi * passed))),
    ("below-zero", after_climb(lambda passed: math.cos(math.pi * passed))),
    ("rises", after_climb(lambda passed: (1 - math.cos(math.pi * passed)) / 2)),
    ("straight-down", after_climb(lambda passed: 1 - passed)),
    ("peak-forgotten", no_peak),
    ("wrong-value", after_climb(lambda passed: (1 + math.cos(180 * passed)) / 2)),  # in degrees
    ("returns-nothing", nothing),
]
