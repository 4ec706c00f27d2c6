"""Answers to `unfair-comparison`: what each of the five protocols did wrong, or that it did not."""

from collections import OrderedDict, defaultdict

import numpy as np

solution = {"A": "chosen on the test set", "B": "only one tuned", "C": "fair", "D": "different seeds", "E": "different budgets"}

WRONG = [
    ("overlooks-the-test-set", {**solution, "A": "fair", "C": "chosen on the test set"}),
    ("overlooks-the-tuning", {**solution, "D": "only one tuned", "B": "different seeds"}),
    ("accuses-the-fair-one", {**solution, "C": "different budgets", "E": "fair"}),
    ("overlooks-the-seeds", {**solution, "D": "only one tuned"}),
    ("overlooks-the-budget", {**solution, "E": "different seeds"}),
    ("all-alike", dict.fromkeys("ABCDE", "fair")),
    ("no-such-fault", {**solution, "E": "too long"}),
    ("wrong-keys", {letter.lower(): fault for letter, fault in solution.items()}),
]

ALSO_RIGHT = [
    {np.str_(letter): np.str_(fault) for letter, fault in solution.items()},
    OrderedDict(reversed(solution.items())),
    {letter: f" {fault.capitalize()} " for letter, fault in solution.items()},
    defaultdict(str, solution),
]
