"""Answers to `mfu-and-hfu`: 6 FLOPs a weight and token, over what all devices could have computed in the time of the step."""

from fractions import Fraction

import numpy as np
from edited_source import wrong_answers


def solution(weights, tokens, dtype, peaks, returned, finished, devices, recomputed):
    available = devices * peaks[dtype] * finished
    mfu = 6 * weights * tokens / available
    hfu = (8 if recomputed else 6) * weights * tokens / available
    return mfu, hfu


# ---- unusual, and right -------------------------------------------------------------------------------------------------


def per_device(weights, tokens, dtype, peaks, returned, finished, devices, recomputed):
    own = tokens / devices
    rate = np.array([6, 8 if recomputed else 6]) * weights * own / finished
    return rate / peaks[dtype]


def exactly(weights, tokens, dtype, peaks, returned, finished, devices, recomputed):
    most = Fraction(finished) * Fraction(peaks[dtype]) * devices
    return [Fraction(6 * weights * tokens) / most, Fraction((6 + 2 * recomputed) * weights * tokens) / most]


ALSO_RIGHT = [per_device, exactly]
WRONG = [
    ("another-unit", lambda *given: tuple(100 * share for share in solution(*given))),
    ("same-factor-off", lambda *given: tuple(share / 2.5 for share in solution(*given))),
    *wrong_answers(
        solution,
        [
            ("backward-forgotten", ("6 * weights", "2 * weights"), ("(8 if recomputed else 6)", "(4 if recomputed else 2)")),
            ("peak-of-one-device", ("devices * peaks[dtype]", "peaks[dtype]")),
            ("not-synchronized", ("* finished", "* returned")),
        ],
    ),
]
