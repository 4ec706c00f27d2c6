"""Answers to `adagrad-distance`: the steps α/√t add up to about 2α√T."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import torch

solution = 2574

WRONG = [
    ("rate-does-not-shrink", 100),
    ("last-step-for-all", 10_000),
    ("sum-as-root", 5000),
    ("way-not-squared", 50),
    ("square-forgotten", 200),
    ("never-arrives", float("inf")),
    ("never-arrives", 2.7e43),
    ("wrong-value", 777),
    ("root-not-inverted", 0.02),
    ("half", 1250),
    ("square-of-the-steps", 6_250_000),
    ("signed", -2500),
    ("rate-forgotten", 0.25),
    ("sum-as-root", 5000.0),
    ("not-a-number", True),
    ("not-a-number", float("nan")),
    ("rate-does-not-shrink", 101),
    ("wrong-type", "2574 steps"),
    ("root-not-squared", 50**0.5),
    ("another-rate", 250_000),
]

STEPS = (0.01 * torch.arange(1, 5000).rsqrt().cumsum(0) < 1).sum() + 1
ALSO_RIGHT = [STEPS, 2500, 2500.0, np.int64(2574), np.float32(2500), torch.tensor(2500.0), Fraction(2574), Decimal(2574)]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", np.array([2500]))
]
