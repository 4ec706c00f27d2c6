"""Answers to `first-steps`: Adagrad's and Adam's α, Adadelta's √(ε/(1 − ρ)), RMSprop's α/√(1 − ρ)."""

from fractions import Fraction

import numpy as np
import torch

solution = (0.01, 0.00316, 0.1, 0.001)

WRONG = [
    ("scales-with-gradient", (10.0, 1000.0, 10.0, 1.0)),
    ("scales-with-gradient", (0.01, 1000.0, 0.1, 0.001)),
    ("average-taken-as-whole", (0.01, 0.00316, 0.01, 0.001)),
    ("average-taken-as-whole", (0.01, 0.001, 0.1, 0.001)),
    ("correction-forgotten", (0.01, 0.00316, 0.1, 0.00316)),
    ("rate-as-length", (0.01, 1.0, 0.1, 0.001)),
    ("root-forgotten", (1e-5, 0.00316, 0.1, 0.001)),
    ("wrong-value", (0.02, 0.00316, 0.1, 0.001)),
    ("wrong-type", (0.01, 0.1, 0.001)),
    ("average-multiplied", (0.01, 0.00316, 0.001, 0.001)),
    ("average-multiplied", (0.01, 0.000316, 0.1, 0.001)),
    ("root-of-average-forgotten", (0.01, 0.00316, 1.0, 0.001)),
    ("root-of-average-forgotten", (0.01, 0.01, 0.1, 0.001)),
    ("half-corrected", (0.01, 0.00316, 0.1, 0.0001)),
    ("half-corrected", (0.01, 0.00316, 0.1, 0.0316)),
    ("signed", (0.01, 0.00316, 0.1, -0.001)),
    ("wrong-value", (0.0, 0.00316, 0.1, 0.001)),
    ("numerator-without-root", (0.01, 1e-6 / 0.1**0.5, 0.1, 0.001)),
    ("decay-of-another-rule", (0.01, 0.00316, 0.0316, 0.001)),
]
ALSO_RIGHT = [
    torch.tensor(solution),
    [Fraction(1, 100), np.sqrt(1e-6 / 0.1), np.float32(0.1), torch.tensor(0.001)],
    (1e-2, 1e-3 * 10**0.5, 1e-2 / 0.01**0.5, 1e-3),
]
