"""Answers to `adagrad-distance`: the steps α/√t add up to about 2α√T."""

from decimal import Decimal

import torch

from hpml_lab.adaptive.exercises.adagrad_distance import MISTAKES

solution = 2574

WRONG = [(name, value) for name, (value, _) in MISTAKES.items()]
WRONG += [
    ("rate-does-not-shrink", 101),
    ("root-not-squared", 50**0.5),
    ("never-arrives", float("inf")),
    ("never-arrives", 2.7e43),
    ("signed", -2500),
    ("wrong-value", float("nan")),
    ("wrong-value", 777),
    ("wrong-type", "2574 steps"),
]

STEPS = (0.01 * torch.arange(1, 5000).rsqrt().cumsum(0) < 1).sum() + 1
ALSO_RIGHT = [STEPS, 2500, Decimal(2574)]
