"""Derivatives by differences: slow and rounded, but they need to know nothing about the function."""

from collections.abc import Callable

import numpy as np


def numeric_gradient(f: Callable[[np.ndarray], float], x: np.ndarray, h: float = 1e-6) -> np.ndarray:
    """∂f/∂x by central differences, (f(x + h eᵢ) - f(x - h eᵢ)) / 2h for each element i of x, with two calls of f per element.

    The error falls with h² until rounding, which grows as 1/h, dominates: h = 1e-6 suits float64, and no h suits float32 well.
    """
    x = np.array(x, dtype=np.float64)
    gradient = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        kept = x[i]
        x[i] = kept + h
        above = f(x)
        x[i] = kept - h
        below = f(x)
        x[i] = kept
        gradient[i] = (above - below) / (2 * h)
    return gradient
