"""Answers to `gradients-after`."""

import torch

from hpml_lab.autograd.exercises.gradients_after import KNOWN

solution = {"A": 6, "B": 12, "C": 3, "D": 12, "E": -6}

WRONG = [(name, solution | {point: value}) for (point, value), (name, _) in KNOWN.items()]
WRONG += [
    ("reset-ignored", solution | {"D": 15, "E": 18}),
    ("detach-ignored", solution | {"C": 6.0, "D": 6}),
    ("wrong-value", solution | {"E": 100}),
    ("wrong-type", solution | {"A": "2x"}),
    ("wrong-keys", {"A": 6}),
]
ALSO_RIGHT = [{key: torch.tensor(float(value)) for key, value in solution.items()}]
