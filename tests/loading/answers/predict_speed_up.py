"""Answers to `predict-speed-up`: 120 s of loading and 20 s of computing in 60 batches, with 2, 4, 8 and 16 workers."""

solution = (140 / 62, 140 / 32, 140 / 22, 140 / 22)

WRONG = [
    ("compute-divided-too", (2, 4, 8, 16)),
    ("compute-bound-ignored", (2.26, 4.38, 8.24, 14.7)),
    ("first-batch-ignored", (2.33, 4.67, 7, 7)),
    ("nothing-overlaps", (1.75, 2.8, 4, 5.09)),
    ("the-faster-decides", (6.36, 6.36, 8.24, 14.7)),
    ("seconds-instead", (62, 32, 22, 22)),
    ("upside-down", (0.443, 0.229, 0.157, 0.157)),
    ("compute-left-out-of-the-base", [1.94, 3.75, 5.45, 5.45]),
    ("wrong-count", (140 / 22,)),
    ("wrong-value", (1.0, 1.0, 1.0, 1.0)),
    ("wrong-type", "eight times"),
]
