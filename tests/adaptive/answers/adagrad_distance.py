"""Answers to `adagrad-distance`: the steps α/√t add up to about 2α√T."""

solution = 2574

WRONG = [
    ("rate-does-not-shrink", 100),
    ("last-step-for-all", 10_000),
    ("sum-as-root", 5000),
    ("way-not-squared", 50),
    ("square-forgotten", 200),
    ("never-arrives", float("inf")),
    ("never-arrives", 2.7e43),
    ("wrong-value", 777),
    ("not-a-number", "2574 steps"),
]
