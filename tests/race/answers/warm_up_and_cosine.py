"""Answers to `warm-up-and-cosine`: a straight climb, then half a cosine wave that starts where the climb ends."""

import math


def solution(t, T, peak):
    W = T // 10
    if t < W:
        return peak * (t + 1) / W
    return peak * (1 + math.cos(math.pi * (t - W) / (T - W))) / 2


def no_climb(t, T, peak):
    return peak * (1 + math.cos(math.pi * t / T)) / 2


def peak_at_once(t, T, peak):
    W = T // 10
    return peak if t < W else peak * (1 + math.cos(math.pi * (t - W) / (T - W))) / 2


def from_zero(t, T, peak):
    W = T // 10
    return peak * t / W if t < W else peak * (1 + math.cos(math.pi * (t - W) / (T - W))) / 2


def one_clock(t, T, peak):
    W = T // 10
    return peak * (t + 1) / W if t < W else peak * (1 + math.cos(math.pi * t / T)) / 2


def quarter(t, T, peak):
    W = T // 10
    return peak * (t + 1) / W if t < W else peak * math.cos(math.pi / 2 * (t - W) / (T - W))


def doubled(t, T, peak):
    W = T // 10
    return peak * (t + 1) / W if t < W else peak * (1 + math.cos(math.pi * (t - W) / (T - W)))


def negative(t, T, peak):
    W = T // 10
    return peak * (t + 1) / W if t < W else peak * math.cos(math.pi * (t - W) / (T - W))


def upward(t, T, peak):
    W = T // 10
    return peak * (t + 1) / W if t < W else peak * (1 - math.cos(math.pi * (t - W) / (T - W))) / 2


def line(t, T, peak):
    W = T // 10
    return peak * (t + 1) / W if t < W else peak * (1 - (t - W) / (T - W))


def no_peak(t, T, peak):
    return solution(t, T, 1.0)


def in_degrees(t, T, peak):
    W = T // 10
    return peak * (t + 1) / W if t < W else peak * (1 + math.cos(180 * (t - W) / (T - W))) / 2


def nothing(t, T, peak):
    solution(t, T, peak)


WRONG = [
    ("no-warm-up", no_climb),
    ("warm-up-left-out", peak_at_once),
    ("starts-at-zero", from_zero),
    ("clock-not-reset", one_clock),
    ("quarter-wave", quarter),
    ("not-halved", doubled),
    ("below-zero", negative),
    ("rises", upward),
    ("straight-down", line),
    ("peak-forgotten", no_peak),
    ("wrong-value", in_degrees),
    ("wrong-value", nothing),
]
