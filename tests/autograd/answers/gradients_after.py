"""Answers to `gradients-after`."""

from fractions import Fraction

import numpy as np
import torch

solution = {"A": 6, "B": 12, "C": 3, "D": 12, "E": -6}

WRONG = [
    ("value-not-slope", solution | {"A": 9}),
    ("factor-lost", solution | {"A": 3}),
    ("overwrites", solution | {"B": 6}),
    ("detach-ignored", solution | {"C": 6}),
    ("all-detached", solution | {"C": 0}),
    ("reset-ignored", solution | {"C": 15}),
    ("vector-ignored", solution | {"D": 6}),
    ("vector-squared", solution | {"D": 36}),
    ("overwrites", solution | {"E": -18}),
    ("update-ignored", solution | {"E": 18}),
    ("second-pass-ignored", solution | {"E": 12}),
    ("wrong-value", solution | {"E": 100}),
    ("wrong-type", solution | {"A": "2x"}),
]

WRONG += [
    ("vector-remembered", solution | {"E": -24}),
    ("update-uphill", solution | {"E": 42}),
    ("sign-of-x-lost", solution | {"E": 30}),
    ("value-not-slope", solution | {"E": 81}),
    ("accumulates-after-reset", solution | {"D": 24}),
    ("reset-ignored", solution | {"D": 15, "E": 18}),
    ("vector-alone", solution | {"D": 2}),
    ("detach-ignored", solution | {"C": 6.0, "D": 6}),
    ("wrong-keys", {"A": 6}),
    ("wrong-type", solution | {"B": None}),
]
ALSO_RIGHT = [
    {key: float(value) for key, value in solution.items()},
    {key: torch.tensor(float(value)) for key, value in solution.items()},
    {key: np.int64(value) for key, value in solution.items()},
    {key: np.array(value) for key, value in solution.items()},
    {key: Fraction(value) for key, value in solution.items()},
]
