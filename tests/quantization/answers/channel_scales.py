"""Answers to `channel-scales`: symmetric scales, one for each output channel."""

import torch
from edited_source import wrong_answers


def solution(weight, bits, axis):
    peaks = weight.abs().movedim(axis, 0).flatten(1).amax(1)
    scale = peaks / ((2**bits - 1) / 2)
    return torch.where(scale == 0, torch.ones_like(scale), scale)


PEAKS = "weight.abs().movedim(axis, 0).flatten(1).amax(1)"
STEPS = "((2**bits - 1) / 2)"
GUARD = "torch.where(scale == 0, torch.ones_like(scale), scale)"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("mixes-channels", (PEAKS, "weight.abs().reshape(-1, weight.shape[axis]).amax(0)")),
            ("wrong-number-of-steps", (STEPS, "bits")),
            ("guard-too-wide", ("scale == 0", "scale < 1e-8")),
            ("guard-too-wide", (GUARD, f"{GUARD}.clamp(min=1e-4)")),
            ("guard-too-wide", ("scale == 0", "weight.movedim(axis, 0).flatten(1).square().sum(1) == 0")),
            ("zeros-unguarded", (GUARD, "scale")),
            ("nearly-right", ("weight.abs()", "(weight + 1e-5 * weight.sign()).abs()")),
        ],
    )
]


def by_infinity_norm(weight, bits, axis):
    dims = [d for d in range(weight.ndim) if d != axis % weight.ndim]
    scale = torch.linalg.vector_norm(weight, float("inf"), dim=dims) / (2 ** (bits - 1) - 0.5)
    return scale.masked_fill(scale == 0, 1)


def by_both_ends(weight, bits, axis):
    rows = weight.transpose(0, axis).flatten(1)
    scale = torch.maximum(-rows.amin(1), rows.amax(1)) / (2**bits - 1) * 2
    return scale + (scale == 0)


def by_repeated_maxima(weight, bits, axis):
    w = weight.abs()
    for d in reversed(range(w.ndim)):
        if d != axis % weight.ndim:
            w = w.max(d).values
    s = w / (2**bits - 1) * 2
    s[s == 0] = 1.0
    return s


ALSO_RIGHT = [by_infinity_norm, by_both_ends, by_repeated_maxima]
