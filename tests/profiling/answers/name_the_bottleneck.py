"""Answers to `name-the-bottleneck`."""

import numpy as np

solution = {"A": "GPU compute", "B": "input", "C": "transfer", "D": "single thread", "E": "lock", "F": "GPU memory"}

WRONG = [
    ("blames-the-wait", {**solution, "A": "CPU"}),
    ("arithmetic-is-full", {**solution, "A": "GPU memory", "F": "GPU compute"}),
    ("waiting-is-not-work", {**solution, "B": "CPU"}),
    ("waiting-is-not-work", {**solution, "E": "CPU"}),
    ("idle-gpu", {**solution, "B": "GPU compute"}),
    ("idle-gpu", {**solution, "E": "GPU memory"}),
    ("copies-are-not-kernels", {**solution, "C": "GPU compute"}),
    ("blames-the-input", {**solution, "C": "input"}),
    ("one-core-is-not-all", {**solution, "D": "CPU"}),
    ("memory-is-full", {**solution, "F": "GPU compute"}),
    ("row-is-small", {**solution, "B": "lock"}),
    ("unknown-name", {**solution, "A": "GPU"}),
    ("wrong-keys", {**solution, "G": "lock"}),
    ("same-name-for-all", dict.fromkeys("ABCDEF", "GPU compute")),
]

ALSO_RIGHT = [
    {letter: np.str_(name) for letter, name in solution.items()},
    {letter: f" {name.lower()} " for letter, name in reversed(solution.items())},
]
