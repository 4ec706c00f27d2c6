"""Answers to `warm-up-and-cosine`: a straight climb, then half a cosine wave that starts where the climb ends."""

import math
from fractions import Fraction

import numpy as np
import torch


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


def nothing(t, T, peak):
    solution(t, T, peak)


def with_warm_up(steps):
    """The schedule with another number of warm-up steps."""

    def rate(t, T, peak):
        W = steps(T)
        return peak * (t + 1) / W if t < W else peak * (1 + math.cos(math.pi * (t - W) / (T - W))) / 2

    return rate


def cosine_of(passed):
    """The schedule with another fraction of the wave at step t."""
    return lambda t, T, peak: (
        solution(t, T, peak) if t < T // 10 else peak * (1 + math.cos(math.pi * passed(t, T, T // 10))) / 2
    )


def climb_of(part):
    """The schedule with another climb."""
    return lambda t, T, peak: peak * part(t, T // 10) if t < T // 10 else solution(t, T, peak)


def stays_at_peak(t, T, peak):
    return solution(t, T, peak) if t < T // 10 else peak


def in_float32_to_the_end(t, T, peak):
    W = T // 10
    return solution(t, T, peak) if t < W else peak * (1 + torch.cos(torch.linspace(0, math.pi, T - W)))[t - W] / 2


WRONG = [
    ("warm-up-left-out", peak_at_once),
    ("starts-at-zero", from_zero),
    ("clock-not-reset", clock_from_zero),
    ("quarter-wave", after_climb(lambda passed: math.cos(math.pi / 2 * passed))),
    ("not-halved", after_climb(lambda passed: 1 + math.cos(math.pi * passed))),
    ("below-zero", after_climb(lambda passed: math.cos(math.pi * passed))),
    ("rises", after_climb(lambda passed: (1 - math.cos(math.pi * passed)) / 2)),
    ("straight-down", after_climb(lambda passed: 1 - passed)),
    ("degrees", after_climb(lambda passed: (1 + math.cos(180 * passed)) / 2)),
    ("pi-missing", after_climb(lambda passed: (1 + math.cos(passed)) / 2)),
    ("returns-nothing", nothing),
    ("reaches-zero", cosine_of(lambda t, T, W: (t - W) / (T - W - 1))),
    ("wave-too-long", cosine_of(lambda t, T, W: (t - W) / T)),
    ("wave-begins-late", cosine_of(lambda t, T, W: (t - W + 1) / (T - W))),
    ("whole-wave", cosine_of(lambda t, T, W: 2 * (t - W) / (T - W))),
    ("fixed-warm-up", with_warm_up(lambda T: 10)),
    ("warm-up-rounded", with_warm_up(lambda T: round(T / 10))),
    ("warm-up-rounded", with_warm_up(lambda T: math.ceil(T / 10))),
    ("warm-up-not-rounded", with_warm_up(lambda T: T / 10)),
    ("climb-does-not-grow", climb_of(lambda t, W: 1 / W)),
    ("misses-the-peak", climb_of(lambda t, W: (t + 1) / (W + 1))),
    ("stays-at-peak", stays_at_peak),
    ("fixed-warm-up", with_warm_up(lambda T: 2)),
    ("starts-at-zero", climb_of(lambda t, W: t / (W - 1))),
    ("parentheses-missing", after_climb(lambda passed: 1 + math.cos(math.pi * passed) / 2)),
    ("one-cycles-climb", climb_of(lambda t, W: 0.04 + 0.96 * t / (W - 1))),
    ("peak-forgotten", lambda t, T, peak: solution(t, T, peak if t < T // 10 else 1.0)),
    ("peak-forgotten", lambda t, T, peak: solution(t, T, 1.0 if t < T // 10 else peak)),
    ("climb-too-long", lambda t, T, peak: peak * (t + 1) / (T // 10) if t <= T // 10 else solution(t, T, peak)),
    ("wave-during-the-climb", lambda t, T, peak: min(1, (t + 1) / (T // 10)) * no_climb(t, T, peak)),
    # and the clock from zero
    ("reaches-zero", in_float32_to_the_end),
    ("wrong-value", climb_of(lambda t, W: ((t + 1) / W) ** 2)),
    ("wrong-value", after_climb(lambda passed: 0.1**passed)),
]


def with_numpy(t, T, peak):
    climb = np.linspace(peak / (T // 10), peak, T // 10)
    wave = peak * (1 + np.cos(np.linspace(0, np.pi, T - T // 10 + 1))) / 2
    return np.concatenate([climb, wave])[t]


def with_torch(t, T, peak):
    W = T // 10
    return torch.where(
        torch.tensor(t < W),
        torch.tensor(peak * (t + 1) / W),
        peak * torch.cos(torch.tensor(math.pi / 2 * (t - W) / (T - W))) ** 2,
    )


def with_fractions(t, T, peak):
    W = Fraction(T, 10).__floor__()
    part = Fraction(t + 1, W) if t < W else Fraction(math.cos(math.pi * Fraction(t - W, T - W) / 2)) ** 2
    return Fraction(peak) * part


def in_float32(t, T, peak):
    W = T // 10
    rates = [torch.linspace(peak / W, peak, W), peak * (1 + torch.cos(math.pi * torch.arange(T - W) / (T - W))) / 2]
    return torch.cat(rates)[t]


def by_sine(t, T, peak):
    W = int(T * 0.1)
    return min(peak, peak * (t + 1) / W) if t < W else peak * (1 - math.sin(math.pi / 2 * (t - W) / (T - W)) ** 2)


def with_schedulers(t, T, peak):
    W = T // 10
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=peak)
    schedule = lambda s: (s + 1) / W if s < W else (1 + math.cos(math.pi * (s - W) / (T - W))) / 2  # noqa: E731
    torch.optim.lr_scheduler.LambdaLR(optimizer, schedule, last_epoch=-1)
    return np.array([peak * schedule(t)])[0]


ALSO_RIGHT = [with_numpy, with_torch, with_fractions, in_float32, by_sine, with_schedulers]
