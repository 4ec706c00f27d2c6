"""Answers to `matmul-intensity`."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import torch


def solution(n, m, k, width):
    return 2 * n * m * k / ((n * k + k * m + n * m) * width)


def flops(n, m, k):
    return 2 * n * m * k


def moved(n, m, k, width):
    return (n * k + k * m + n * m) * width


WRONG = [
    ("width-ignored", lambda n, m, k, width: flops(n, m, k) / moved(n, m, k, 4)),
    ("first-addition-left-out", lambda n, m, k, width: n * m * (2 * k - 1) / moved(n, m, k, width)),
    ("rounded-down", lambda n, m, k, width: flops(n, m, k) // moved(n, m, k, width)),
    ("rounded", lambda n, m, k, width: round(flops(n, m, k) / moved(n, m, k, width))),
    ("bits", lambda n, m, k, width: flops(n, m, k) / (8 * moved(n, m, k, width))),
    ("result-read-too", lambda n, m, k, width: flops(n, m, k) / ((n * k + k * m + 2 * n * m) * width)),
    ("flops-alone", lambda n, m, k, width: flops(n, m, k)),
    ("square-only", lambda n, m, k, width: 2 * n**3 / (3 * n * n * width)),
    ("wrong-value", lambda n, m, k, width: flops(n, m, k) / (n * k * width)),
    ("wrong-value", lambda n, m, k, width: 341.3),
    ("another-unit", lambda n, m, k, width: flops(n, m, k) / moved(n, m, k, width) / 1e9),
    ("wrong-type", lambda n, m, k, width: f"{flops(n, m, k) / moved(n, m, k, width):.0f} FLOP/byte"),
    ("wrong-arguments", lambda n, m, k: flops(n, m, k) / moved(n, m, k, 4)),
    ("nothing-reused", lambda n, m, k, width: 2 * n * m * k / ((n * m * k * 2 + n * m) * width)),
    ("k-missing", lambda n, m, k, width: 2 * n * m / moved(n, m, k, width)),
]
ALSO_RIGHT = [
    lambda n, m, k, width: 2 / width / (1 / n + 1 / m + 1 / k),
    lambda n, m, k, width: Fraction(flops(n, m, k), moved(n, m, k, width)),
    lambda n, m, k, width: np.float32(flops(n, m, k)) / np.float32(moved(n, m, k, width)),
    lambda n, m, k, width: torch.tensor(flops(n, m, k) / moved(n, m, k, width)),
    lambda n, m, k, width: Decimal(flops(n, m, k)) / Decimal(moved(n, m, k, width)),
]
