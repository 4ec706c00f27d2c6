"""Answers to `view-or-copy`."""

import numpy as np
import torch

solution = {
    "x[:, 1]": True,
    "x[[0, 2]]": False,
    "x.T": True,
    "x.reshape(12)": True,
    "x.T.reshape(12)": False,
    "x.to(torch.float32)": True,
    "torch.from_numpy(a)": True,
    "torch.tensor(a)": False,
}

WRONG = [
    ("list-of-indices-as-view", dict.fromkeys(solution, True)),
    ("slices-copy", dict.fromkeys(solution, False)),
    ("transpose-copies", solution | {"x.T": False, "x.reshape(12)": False}),
    ("reshape-always-copies", solution | {"x.reshape(12)": False}),
    ("reshape-never-copies", solution | {"x.T.reshape(12)": True, "x.to(torch.float32)": False}),
    ("to-always-copies", solution | {"x.to(torch.float32)": False, "torch.from_numpy(a)": False}),
    ("numpy-mixed-up", solution | {"torch.from_numpy(a)": False, "torch.tensor(a)": True}),
    ("numpy-mixed-up", solution | {"torch.tensor(a)": True}),
    ("all-reversed", {text: not shares for text, shares in solution.items()}),
    ("wrong-type", {text: str(shares) for text, shares in solution.items()}),
    ("wrong-keys", {"x[:, 1]": True}),
]
ALSO_RIGHT = [
    {text: np.bool_(shares) for text, shares in solution.items()},
    {text: torch.tensor(shares) for text, shares in solution.items()},
    {text: int(shares) for text, shares in solution.items()},
    {np.str_(text): shares for text, shares in sorted(solution.items())},
]
