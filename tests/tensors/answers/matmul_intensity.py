"""Answers to `matmul-intensity`."""

from decimal import Decimal
from fractions import Fraction

import numpy as np


def solution(n, m, k, width):
    return 2 * n * m * k / ((n * k + k * m + n * m) * width)


WRONG = [
    ("argument-ignored", lambda n, m, k, width: 2 * n * m * k / (n * k * width)),
    ("argument-ignored", lambda n, m, k, width: 341.3),
    ("another-unit", lambda *sizes: solution(*sizes) / 1e9),
    ("wrong-arguments", lambda n, m, k: solution(n, m, k, 4)),
]
ALSO_RIGHT = [
    lambda n, m, k, width: 2 / width / (1 / n + 1 / m + 1 / k),
    lambda n, m, k, width: Fraction(2 * n * m * k, (n * k + k * m + n * m) * width),
    lambda *sizes: np.float32(solution(*sizes)),
    lambda *sizes: Decimal(solution(*sizes)),
]
