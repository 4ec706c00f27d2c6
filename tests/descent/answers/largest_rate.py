"""Answers to `largest-rate`: the steepest direction decides, and momentum allows more."""

from fractions import Fraction

import numpy as np
import torch


def solution(eigenvalues, momentum):
    return 2 * (1 + momentum) / max(eigenvalues)


WRONG = [
    ("argument-ignored", lambda eigenvalues, momentum: 0.152),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) / eigenvalues[-1] + 1),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) * max(eigenvalues)),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum**2) / max(eigenvalues)),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) / sorted(eigenvalues, key=str)[-1]),
    ("wrong-value", lambda eigenvalues, momentum: min(1.0, solution(eigenvalues, momentum))),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) / max(np.float16(eigenvalues))),
    ("wrong-value", lambda eigenvalues, momentum: 2 + 2 * momentum / max(eigenvalues)),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) / (max(eigenvalues) + 1e-8)),
    ("raises", lambda eigenvalues, momentum: 2 * (1 + momentum) / eigenvalues.max()),
]
ALSO_RIGHT = [
    lambda eigenvalues, momentum: 2 * (1 + momentum) / torch.tensor(eigenvalues).max(),
    lambda eigenvalues, momentum: min(2 * (1 + momentum) / value for value in eigenvalues),
    lambda eigenvalues, momentum: Fraction(2) * (1 + Fraction(momentum)) / Fraction(max(eigenvalues)),
]
