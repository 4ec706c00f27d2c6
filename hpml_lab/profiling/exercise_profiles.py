"""The profiles of the exercises: six with one bound each (`name-the-bottleneck`), and loops made from a seed (`next-step`)."""

import random
from typing import Any

BOUNDS = ("input", "CPU", "transfer", "GPU compute", "GPU memory", "lock", "single thread")

# The main thread's seconds by line, the GPU's seconds by kind, and how busy the parts of the machine were, in %.
_COLUMNS = (
    "main: next(batches), s",
    "main: own Python, s",
    "main: .to(device), s",
    "main: launching kernels, s",
    "main: loss.item(), s",
    "main: waiting at a lock, s",
    "GPU: kernels, s",
    "GPU: copies from host, s",
    "GPU: arithmetic, % of peak",
    "GPU: memory, % of peak",
    "8 cores, % busy",
    "busiest core, % busy",
    "disk, % busy",
)
_FIGURES = {
    "A": (0.2, 0.1, 0.3, 0.9, 8.5, 0.0, 9.5, 0.3, 78, 31, 16, 32, 4),
    "B": (7.6, 0.2, 0.3, 1.5, 0.4, 0.0, 2.1, 0.3, 15, 9, 6, 14, 98),
    "C": (0.3, 0.1, 6.3, 1.2, 2.1, 0.0, 2.9, 6.1, 14, 11, 14, 28, 6),
    "D": (0.1, 8.2, 0.2, 1.2, 0.3, 0.0, 1.4, 0.2, 9, 6, 13, 99, 3),
    "E": (0.1, 0.8, 0.2, 1.1, 0.4, 7.4, 1.3, 0.2, 8, 6, 11, 19, 2),
    "F": (0.2, 0.1, 0.3, 0.8, 8.6, 0.0, 9.6, 0.3, 6, 94, 15, 30, 4),
}
_BOUND = dict(zip(_FIGURES, ("GPU compute", "input", "transfer", "single thread", "lock", "GPU memory"), strict=True))

PROFILES = {letter: (dict(zip(_COLUMNS, figures, strict=True)), _BOUND[letter]) for letter, figures in _FIGURES.items()}


def profile_table() -> list[dict[str, object]]:
    """One row for each figure, one column for each profile."""
    return [{"figure": name, **{letter: figures[name] for letter, (figures, _) in PROFILES.items()}} for name in _COLUMNS]


CALLERS = ("train", "epoch")


def loop_profile(seed: int) -> tuple[list[dict[str, Any]], frozenset[str]]:
    """The profile of a training loop in seconds, and the parts that are fixed already.

    Some rows only call others: nearly all their time is spent in the parts. What is fixed may still be the largest.
    """
    rng = random.Random(seed)
    parts = rng.sample(["load images", "augment", "copy to the device", "forward", "backward", "optimizer step", "log"], 5)
    times = sorted((round(rng.uniform(0.5, 9.0), 2) for _ in parts), reverse=True)
    calls = rng.sample(range(10, 5000), len(parts))
    rows = [{"part": p, "calls": c, "self": t, "total": t} for p, c, t in zip(parts, calls, times, strict=True)]
    rows[2]["total"] += rows[4]["self"]  # the third calls the last
    whole = sum(row["self"] for row in rows)
    most = max(rows, key=lambda row: row["calls"])
    most["calls"], rows[3]["calls"] = rows[3]["calls"], most["calls"]  # what is called most is nearly the cheapest
    own = times[4] + 0.05
    rows += [{"part": "epoch", "calls": 1, "self": own, "total": whole + own}]
    rows += [{"part": "train", "calls": 1, "self": own, "total": whole + 2 * own}]
    rng.shuffle(rows)
    return rows, frozenset(parts[: seed % 3])


def part_to_fix(rows: list[dict[str, Any]], fixed: frozenset[str]) -> str:
    """The part with the most self time of those that are not fixed yet."""
    return max((row for row in rows if row["part"] not in fixed), key=lambda row: row["self"])["part"]
