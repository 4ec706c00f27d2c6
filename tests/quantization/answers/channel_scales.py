"""Answers to `channel-scales`: symmetric scales, one for each output channel."""

import numpy as np
import torch
from edited_source import wrong_answers


def solution(weight, bits, axis):
    peaks = weight.abs().movedim(axis, 0).flatten(1).amax(1)
    scale = peaks / ((2**bits - 1) / 2)
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def _of_rows(rows, bits):
    scale = rows.abs().amax(1) / ((2**bits - 1) / 2)
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def guarded(scale):
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def affine_range(weight, bits, axis):
    rows = weight.movedim(axis, 0).flatten(1)
    return guarded((rows.amax(1) - rows.amin(1)) / (2**bits - 1))


def moved_to_the_end(weight, bits, axis):
    weight = weight.movedim(axis, -1)
    return _of_rows(weight.reshape(-1, weight.shape[0]), bits)


def nothing(weight, bits, axis):
    solution(weight, bits, axis)


def a_row_at_a_time(weight, bits, axis):
    return guarded(torch.stack([row.max() for row in weight]) / ((2**bits - 1) / 2))


PEAKS = "weight.abs().movedim(axis, 0).flatten(1).amax(1)"
STEPS = "((2**bits - 1) / 2)"
GUARD = "torch.where(scale == 0, torch.ones_like(scale), scale)"
WRONG = [
    *wrong_answers(
        solution,
        [
            ("axis-ignored", ("movedim(axis, 0)", "movedim(0, 0)"), (STEPS, "(2 ** (bits - 1) - 1)")),
            ("mixes-channels", (PEAKS, "weight.abs().reshape(-1, weight.shape[axis]).amax(0)")),
            ("wrong-number-of-steps", (STEPS, "bits")),
            ("guard-too-wide", ("scale == 0", "scale < 1e-8")),
            ("guard-too-wide", (GUARD, f"{GUARD}.clamp(min=1e-4)")),
            ("too-small", (".flatten(1)", ".flatten(1)[:, :1]")),
            ("other-order", (GUARD, f"{GUARD}.flip(0)")),
            ("inputs-changed", ("weight.abs()", "weight.abs_()")),
            ("remembers-calls", (GUARD, f"MEMORY.setdefault((tuple(weight.shape), bits, axis), {GUARD})")),
            ("nearly-right", ("weight.abs()", "(weight + 1e-5 * weight.sign()).abs()")),
            ("wrong-dtype", ("weight.abs()", "weight.half().float().abs()")),
            ("wrong-dtype", (GUARD, f"{GUARD}.bfloat16()")),
        ],
    ),
    ("whole-range", affine_range),
    ("mixes-channels", moved_to_the_end),
    ("returns-nothing", nothing),
    ("axis-ignored", a_row_at_a_time),
]


def by_numpy(weight, bits, axis):
    w = np.moveaxis(np.abs(weight.numpy()), axis, 0)
    scale = w.reshape(len(w), -1).max(1) * 2 / (2**bits - 1)
    scale[scale == 0] = 1
    return scale


def by_unbind(weight, bits, axis):
    q_min, q_max = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return [float(channel.abs().max()) * 2 / (q_max - q_min) or 1.0 for channel in weight.unbind(axis)]


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


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", by_numpy),
    ("wrong-type", by_unbind),
]
