"""Detections for the exercise froc-from-scores: scores, the nodule that each one hits, and how many scans and nodules."""

import numpy as np

_DRAW = np.random.default_rng(0)
CASES = {
    "three scores, one miss": (np.array([0.9, 0.8, 0.7]), np.array([0, -1, 1]), 2, 3),
    "a nodule hit twice": (np.array([0.9, 0.8, 0.6, 0.3]), np.array([0, 0, 1, -1]), 2, 2),
    "not sorted": (np.array([0.2, 0.9, 0.5, 0.7, 0.1]), np.array([-1, 1, 0, -1, -1]), 4, 4),
    "equal scores": (np.array([0.9, 0.5, 0.5, 0.5, 0.1]), np.array([2, -1, 0, -1, 1]), 5, 3),
    "equal scores, a hit first": (np.array([0.5, 0.5, 0.2]), np.array([1, -1, 0]), 1, 2),
    "all scores equal": (np.array([0.5, 0.5, 0.5, 0.5]), np.array([0, -1, 1, 0]), 2, 5),
    "nodule 0 only": (np.array([0.6, 0.4]), np.array([0, -1]), 3, 1),
    "nothing but misses": (np.array([0.6, 0.4, 0.3]), np.array([-1, -1, -1]), 2, 2),
    "nothing but hits": (np.array([0.3, 0.6, 0.4]), np.array([2, 1, 0]), 7, 4),
    "one detection": (np.array([0.6]), np.array([0]), 2, 3),
    "a nodule hit again among equal scores": (np.array([0.8, 0.4, 0.4, 0.4, 0.2]), np.array([3, 3, 1, -1, 3]), 3, 4),
    "scores that differ by little": (
        np.array([0.3002, 2e-5, 0.3001, 0.9, 0.9 - 1e-9, 1e-5, 1.0, 2.5]),
        np.array([-1, 1, 299, -1, 0, -1, 43, -1]),
        2,
        300,
    ),
    "80 detections": (_DRAW.integers(0, 30, 80) / 30, _DRAW.integers(-6, 12, 80).clip(-1), 9, 12),
}
