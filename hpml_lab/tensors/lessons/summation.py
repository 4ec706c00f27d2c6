"""Four ways to add up numbers of one precision, whose rounding errors grow as n, as log n, and not at all.

u is half the distance from 1 to the next number: 2⁻²⁴ in float32. The bounds are Higham's (Accuracy and Stability of Numerical
Algorithms, 4.2 and 4.3), for Σ|x|; but Kahan's sum can be off by more than his 2u: the value, what is lost, and the last sum
are rounded, by up to u each.
"""

from collections.abc import Callable

import numpy as np

U = 2.0**-24


def running(x: np.ndarray) -> np.floating:
    """One number after the other, each sum rounded: error ≤ (n − 1) · u · Σ|x|."""
    return np.cumsum(x, dtype=x.dtype)[-1]


def pairwise(x: np.ndarray) -> np.floating:
    """Neighbors first, then their sums, and so on: error ≤ ⌈log₂ n⌉ · u · Σ|x|."""
    while len(x) > 1:
        even = len(x) // 2 * 2
        x = np.append(x[:even:2] + x[1:even:2], x[even:])
    return x[0]


def compensated(x: np.ndarray) -> np.floating:
    """Kahan's: what the last addition rounded away is added to the next number. Error ≤ (3u + 2n · u² …) · Σ|x|."""
    total = lost = x.dtype.type(0)
    for value in x:
        value = value - lost
        new = total + value
        lost = (new - total) - value
        total = new
    return total


def in_double(x: np.ndarray) -> np.floating:
    """A running sum of twice the precision, rounded once at the end: error ≤ (u + n · u² …) · Σ|x|."""
    return x.dtype.type(np.cumsum(x, dtype=np.float64)[-1])


def bounds(n: int) -> dict[Callable[[np.ndarray], np.floating], float]:
    """{sum: the most that its relative error can be for n numbers of one sign, in u}."""
    return {running: n - 1, pairwise: np.ceil(np.log2(n)), compensated: 3 + 2 * n * U, in_double: 1 + n * 2.0**-28}
