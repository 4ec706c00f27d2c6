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


def in_float32_to_the_end(t, T, peak):
    W = T // 10
    return solution(t, T, peak) if t < W else peak * (1 + torch.cos(torch.linspace(0, math.pi, T - W)))[t - W] / 2


def climbing_by_sums(t, T, peak):
    """In float32, where the rounding errors of a thousand sums add up."""
    return float(np.full(t + 1, peak / (T // 10), np.float32).cumsum()[-1]) if t < T // 10 else solution(t, T, peak)


def with_warm_up(steps):
    """The schedule with another number of warm-up steps."""

    def rate(t, T, peak):
        W = steps(T)
        return peak * (t + 1) / W if t < W else peak * (1 + math.cos(math.pi * (t - W) / (T - W))) / 2

    return rate


WRONG = [
    ("warm-up-rounded", with_warm_up(lambda T: math.ceil(T / 10))),
    ("reaches-zero", in_float32_to_the_end),
    ("wrong-value", climbing_by_sums),
    ("wrong-value", lambda t, T, peak: peak * ((t + 1) / (T // 10)) ** 2 if t < T // 10 else solution(t, T, peak)),
    ("wrong-value", lambda t, T, peak: solution(t, T, peak) if t < T // 10 else peak * 0.1 ** (t / T)),
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
