"""Answers to `predict-speed-up`: 120 s of loading and 20 s of computing in 60 batches, with 2, 4, 8 and 16 workers."""

from fractions import Fraction

import numpy as np
import torch

solution = (140 / 62, 140 / 32, 140 / 22, 140 / 22)

WRONG = [
    ("compute-bound-ignored", (2.26, 4.38, 8.24, 14.7)),
    ("first-batch-ignored", (2.33, 4.67, 7, 7)),
    ("nothing-overlaps", (1.75, 2.8, 4, 5.09)),
    ("the-faster-decides", (6.36, 6.36, 8.24, 14.7)),
    ("upside-down", (0.443, 0.229, 0.157, 0.157)),
    ("compute-left-out-of-the-base", [1.94, 3.75, 5.45, 5.45]),
    ("wrong-type", (140 / 22,)),
    ("wrong-value", (1.0, 1.0, 1.0, 1.0)),
    ("wrong-type", "eight times"),
]

WRONG += [
    ("first-batch-ignored", tuple(140 / (2 / n + max(20, 120 / n)) for n in (2, 4, 8, 16))),
    ("in-percent", (226, 438, 636, 636)),
    ("gain-instead", (1.26, 3.38, 5.36, 5.36)),
    ("largest-first", (6.36, 6.36, 4.38, 2.26)),
    ("wrong-value", (2.26, 4.38, 6.36, 7.0)),
    ("wrong-value", (2.26, 4.38, 6.36, 12)),
]
WRONG += [("share-saved", (0.557, 0.771, 0.843, 0.843)), ("seconds-instead", (60, 30, 20, 20))]
ALSO_RIGHT = [
    np.array([140 / 62, 140 / 32, 140 / 22, 140 / 22]),
    torch.tensor([2.258, 4.375, 6.364, 6.364]),
    [Fraction(140, 62), Fraction(140, 32), Fraction(140, 22), Fraction(140, 22)],
    [np.float32(2.26), 4.4, np.float64(6.36), 6.4],
    (2.3, 4.4, 6.4, 6.4),
    [2.26, 4.38, 6.36, 6.36],
]
