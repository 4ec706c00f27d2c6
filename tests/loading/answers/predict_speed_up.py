"""Answers to `predict-speed-up`: 120 s of loading and 20 s of computing in 60 batches, with 2, 4, 8 and 16 workers."""

from fractions import Fraction

import numpy as np
import torch

solution = (140 / 62, 140 / 32, 140 / 22, 140 / 22)

WRONG = [
    ("first-batch-ignored", tuple(140 / (2 / n + max(20, 120 / n)) for n in (2, 4, 8, 16))),
    ("wrong-value", (1.0, 1.0, 1.0, 1.0)),
    ("wrong-value", (2.26, 4.38, 6.36, 7.0)),
    ("wrong-type", (140 / 22,)),
    ("wrong-type", "eight times"),
]
ALSO_RIGHT = [
    torch.tensor([2.258, 4.375, 6.364, 6.364]),
    [Fraction(140, 62), np.float32(4.38), np.float64(6.36), 6.4],
    (2.3, 4.4, 6.4, 6.4),
    (
        140 / (182 / 3),
        140 / (94 / 3),
        140 / 22,
        140 / 22,
    ),  # `simulate`: the first batch is within load / N, the last compute not
    (2.3, 4.5, 6.4, 6.4),
]
