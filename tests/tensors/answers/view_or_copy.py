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
    ("list-of-indices-as-view", solution | {"x[[0, 2]]": True}),
    ("slices-copy", solution | {"x[:, 1]": False}),
    ("transpose-copies", solution | {"x.T": False}),
    ("reshape-always-copies", solution | {"x.reshape(12)": False}),
    ("reshape-never-copies", solution | {"x.T.reshape(12)": True}),
    ("to-always-copies", solution | {"x.to(torch.float32)": False}),
    ("numpy-mixed-up", solution | {"torch.from_numpy(a)": False, "torch.tensor(a)": True}),
    ("list-of-indices-as-view", dict.fromkeys(solution, True)),
    ("wrong-type", dict.fromkeys(solution, "yes")),
    ("wrong-keys", {"x[:, 1]": True}),
]

WRONG += [
    ("all-reversed", {text: not shares for text, shares in solution.items()}),
    ("slices-copy", dict.fromkeys(solution, False)),
    ("transpose-copies", solution | {"x.T": False, "x.reshape(12)": False}),
    ("reshape-never-copies", solution | {"x.T.reshape(12)": True, "x.to(torch.float32)": False}),
    ("numpy-mixed-up", solution | {"torch.tensor(a)": True}),
    ("to-always-copies", solution | {"x.to(torch.float32)": False, "torch.from_numpy(a)": False}),
    ("wrong-type", {text: str(shares) for text, shares in solution.items()}),
]
ALSO_RIGHT = [
    {text: np.bool_(shares) for text, shares in solution.items()},
    {text: torch.tensor(shares) for text, shares in solution.items()},
    {text: int(shares) for text, shares in solution.items()},
    dict(sorted(solution.items())),
    {np.str_(text): shares for text, shares in solution.items()},
]
