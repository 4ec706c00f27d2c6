"""Answers to `largest-rate`: the steepest direction decides, and momentum allows more."""

from fractions import Fraction

import numpy as np
import torch


def solution(eigenvalues, momentum):
    return 2 * (1 + momentum) / max(eigenvalues)


WRONG = [
    ("momentum-divides", lambda eigenvalues, momentum: 2 / max(eigenvalues) / (1 - momentum)),
    ("mean-eigenvalue", lambda eigenvalues, momentum: 2 * (1 + momentum) * len(eigenvalues) / sum(eigenvalues)),
    ("polyaks-best", lambda eigenvalues, momentum: 4 / (max(eigenvalues) ** 0.5 + min(eigenvalues) ** 0.5) ** 2),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) / eigenvalues[-1] + 1),
    ("returns-nothing", lambda eigenvalues, momentum: None),
]

WRONG += [
    ("wrong-value", lambda eigenvalues, momentum: 0.152),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) * max(eigenvalues)),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum**2) / max(eigenvalues)),
    ("wrong-type", lambda eigenvalues, momentum: f"{2 * (1 + momentum) / max(eigenvalues):.3f}"),
    ("raises", lambda eigenvalues, momentum: 2 * (1 + momentum) / eigenvalues.max()),
]
ALSO_RIGHT = [
    lambda eigenvalues, momentum: (2 + 2 * momentum) / sorted(eigenvalues)[-1],
    lambda eigenvalues, momentum: 2 * (1 + momentum) / np.max(eigenvalues),
    lambda eigenvalues, momentum: 2 * (1 + momentum) / torch.tensor(eigenvalues).max(),
    lambda eigenvalues, momentum: min(2 * (1 + momentum) / value for value in eigenvalues),
    lambda eigenvalues, momentum: Fraction(2) * (1 + Fraction(momentum)) / Fraction(max(eigenvalues)),
]

WRONG += [
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) / sorted(eigenvalues, key=str)[-1]),
    ("wrong-value", lambda eigenvalues, momentum: min(1.0, solution(eigenvalues, momentum))),
    ("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) / max(np.float16(eigenvalues))),
    ("wrong-value", lambda eigenvalues, momentum: 2 + 2 * momentum / max(eigenvalues)),
]
WRONG += [("wrong-value", lambda eigenvalues, momentum: 2 * (1 + momentum) / (max(eigenvalues) + 1e-8))]
