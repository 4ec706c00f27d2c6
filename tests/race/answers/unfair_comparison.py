"""Answers to `unfair-comparison`: what each of the five protocols did wrong, or that it did not."""

from collections import OrderedDict, defaultdict

import numpy as np

solution = {"A": "chosen on the test set", "B": "only one tuned", "C": "fair", "D": "different seeds", "E": "different budgets"}

WRONG = [
    ("overlooks-the-test-set", {**solution, "A": "fair", "C": "chosen on the test set"}),
    ("overlooks-the-tuning", {**solution, "B": "fair"}),
    ("accuses-the-fair-one", {**solution, "C": "only one tuned"}),
    ("overlooks-the-seeds", {**solution, "D": "fair"}),
    ("overlooks-the-budget", {**solution, "E": "fair"}),
    ("all-alike", dict.fromkeys("ABCDE", "fair")),
    ("no-such-fault", {**solution, "E": "too long"}),
    ("not-all-five", {"A": "chosen on the test set"}),
    ("wrong-type", "A"),
    ("overlooks-the-seeds", {**solution, "D": "only one tuned", "B": "different seeds"} | {"B": solution["B"]}),
    ("overlooks-the-tuning", {**solution, "D": "only one tuned", "B": "different seeds"}),
    ("overlooks-the-budget", {**solution, "E": "different seeds"}),
    (
        "overlooks-the-test-set",
        dict(zip("ABCDE", ["only one tuned", "chosen on the test set", "fair", *list(solution.values())[3:]])),
    ),
    ("wrong-type", {**solution, "A": None}),
    ("not-all-five", {letter.lower(): fault for letter, fault in solution.items()}),
    ("accuses-the-fair-one", {**solution, "C": "different budgets", "E": "fair"}),
]

ALSO_RIGHT = [
    {letter: np.str_(fault) for letter, fault in solution.items()},
    {np.str_(letter): fault for letter, fault in solution.items()},
    OrderedDict(reversed(solution.items())),
    {letter: f" {fault.capitalize()} " for letter, fault in solution.items()},
    defaultdict(str, solution),
]
