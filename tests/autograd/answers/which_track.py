"""Answers to `which-track`."""

import numpy as np
import torch

solution = {
    "x + y": False,
    "x + z": True,
    "(x + z)[0]": True,
    "z.detach()": False,
    "z.clone()": True,
    "torch.zeros_like(z)": False,
    "z > 0": False,
    "no_grad: z * 2": False,
}

WRONG = [
    ("constants-tracked", solution | {"x + y": True}),
    ("all-operands-needed", solution | {"x + z": False}),
    ("slices-cut", solution | {"(x + z)[0]": False}),
    ("detach-tracks", solution | {"z.detach()": True}),
    ("clone-cuts", solution | {"z.clone()": False}),
    ("like-inherits", solution | {"torch.zeros_like(z)": True}),
    ("comparison-tracks", solution | {"z > 0": True}),
    ("no-grad-ignored", solution | {"no_grad: z * 2": True}),
    ("clone-cuts", solution | {"z.clone()": False, "z > 0": True}),
    ("constants-tracked", dict.fromkeys(solution, True)),
    ("wrong-type", solution | {"x + y": "no"}),
    ("wrong-keys", {"x + y": False}),
]

WRONG += [
    ("all-reversed", {text: not is_tracked for text, is_tracked in solution.items()}),
    ("all-operands-needed", dict.fromkeys(solution, False)),
    ("slices-cut", solution | {"(x + z)[0]": False, "z.clone()": False}),
    ("detach-tracks", solution | {"z.detach()": True, "torch.zeros_like(z)": True}),
    ("like-inherits", solution | {"torch.zeros_like(z)": True, "no_grad: z * 2": True}),
    ("comparison-tracks", solution | {"z > 0": True, "no_grad: z * 2": True}),
    ("wrong-type", {text: str(is_tracked) for text, is_tracked in solution.items()}),
    ("wrong-keys", solution | {"z": True}),
]
ALSO_RIGHT = [
    {text: np.bool_(is_tracked) for text, is_tracked in solution.items()},
    {text: torch.tensor(is_tracked) for text, is_tracked in solution.items()},
    {text: int(is_tracked) for text, is_tracked in solution.items()},
    dict(reversed(solution.items())),
    {np.str_(text): is_tracked for text, is_tracked in solution.items()},
]
