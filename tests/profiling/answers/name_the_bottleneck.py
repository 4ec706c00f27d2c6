"""Answers to `name-the-bottleneck`."""

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
    ("waiting-is-not-work", {**solution, "E": "single thread"}),
    ("memory-is-full", {**solution, "F": "GPU compute"}),
    ("wrong-bound", {**solution, "B": "lock"}),
    ("unknown-name", {**solution, "D": "slow"}),
    ("not-all-named", {"A": "GPU compute"}),
    ("not-all-named", "GPU compute"),
]
