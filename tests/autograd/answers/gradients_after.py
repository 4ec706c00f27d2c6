"""Answers to `gradients-after`."""

solution = {"A": 6, "B": 12, "C": 3, "D": 12, "E": 6}

WRONG = [
    ("value-not-slope", solution | {"A": 9}),
    ("factor-lost", solution | {"A": 3}),
    ("overwrites", solution | {"B": 6}),
    ("detach-ignored", solution | {"C": 6}),
    ("all-detached", solution | {"C": 0}),
    ("reset-ignored", solution | {"C": 15}),
    ("vector-ignored", solution | {"D": 6}),
    ("vector-squared", solution | {"D": 36}),
    ("overwrites", solution | {"E": -6}),
    ("update-ignored", solution | {"E": 18}),
    ("second-pass-ignored", solution | {"E": 12}),
    ("wrong-value", solution | {"E": 100}),
    ("wrong-type", solution | {"A": "2x"}),
]
