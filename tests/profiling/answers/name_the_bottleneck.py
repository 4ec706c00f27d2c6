"""Answers to `name-the-bottleneck`."""

from collections import OrderedDict

import numpy as np

solution = {"A": "GPU compute", "B": "input", "C": "transfer", "D": "single thread", "E": "lock", "F": "GPU memory"}

WRONG = [
    ("blames-the-wait", {**solution, "A": "CPU"}),
    ("arithmetic-is-full", {**solution, "A": "GPU memory"}),
    ("waiting-is-not-work", {**solution, "B": "CPU"}),
    ("idle-gpu", {**solution, "B": "GPU compute"}),
    ("copies-are-not-kernels", {**solution, "C": "GPU compute"}),
    ("blames-the-input", {**solution, "C": "input"}),
    ("one-core-is-not-all", {**solution, "D": "CPU"}),
    ("waiting-is-not-work", {**solution, "E": "CPU"}),
    ("memory-is-full", {**solution, "F": "GPU compute"}),
    ("row-is-small", {**solution, "B": "lock"}),
    ("unknown-name", {**solution, "D": "slow"}),
    ("not-all-named", {"A": "GPU compute"}),
    ("wrong-type", "GPU compute"),
]


# ---- more wrong answers, and right ones that are written in another way ----------------------------------------------------

WRONG += [
    ("blames-the-input", {**solution, "A": "input"}),
    ("blames-the-wait", {**solution, "A": "transfer"}),
    ("row-is-small", {**solution, "B": "transfer"}),
    ("idle-gpu", {**solution, "E": "GPU memory"}),
    ("arithmetic-is-full", {**solution, "A": "GPU memory", "F": "GPU compute"}),
    ("unknown-name", {**solution, "A": "GPU"}),
    ("wrong-type", {**solution, "A": 1}),
    ("not-all-named", {**solution, "G": "lock"}),
    ("same-name-for-all", dict.fromkeys("ABCDEF", "CPU")),
    ("same-name-for-all", dict.fromkeys("ABCDEF", "GPU compute")),
]

ALSO_RIGHT = [
    {letter: np.str_(name) for letter, name in solution.items()},
    {letter: name.lower() for letter, name in solution.items()},
    {letter: f" {name} " for letter, name in solution.items()},
    dict(reversed(solution.items())),
    OrderedDict(solution),
]


WRONG += [  # right numbers in another kind than the exercise asks for
]
