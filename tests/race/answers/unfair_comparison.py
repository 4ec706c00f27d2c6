"""Answers to `unfair-comparison`: what each of the five protocols did wrong, or that it did not."""

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
    ("not-all-five", "A"),
]
