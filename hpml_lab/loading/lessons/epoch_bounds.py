"""How long an epoch should take with N workers: the lecture's formula, the bound, and a simulation batch by batch.

The symbols: L seconds load an epoch's samples one after the other, C seconds compute on its batches, N workers load.
"""

from collections.abc import Sequence

LECTURE_LOAD, LECTURE_COMPUTE = 114.07, 15.10  # seconds an epoch of UCF101 without workers
LECTURE_COMPUTE_8, LECTURE_WAIT_8 = 15.33, 4.84  # with 8 workers: compute, and what the loop still waits


def lecture_time(load: float, compute: float, workers: int) -> float:
    """The lecture's ideal: (L + C) / N. It divides the compute too, which the main process does alone."""
    return (load + compute) / max(1, workers)


def lower_bound(load: float, compute: float, workers: int) -> float:
    """No epoch is faster: max(C, L / N); without workers L + C."""
    return max(compute, load / workers) if workers else load + compute


def expected_time(load: float, compute: float, workers: int, batches: int) -> float:
    """The bound, plus the first batch, for which nothing can be computed meanwhile: max(C, L / N) + L / batches."""
    return lower_bound(load, compute, workers) + (load / batches if workers else 0.0)


def simulate(loads: Sequence[float], compute: float, workers: int, prefetch: int = 2) -> float:
    """Seconds of an epoch whose batch i takes loads[i] to load and `compute` to compute, with nothing else in the way.

    Batch i goes to worker i mod N, as DataLoader deals them out. It is asked for when batch i − N·prefetch has been taken,
    loaded when its worker is free, and taken in order. One thread that works `prefetch` batches ahead is workers = 1.
    """
    if workers == 0:
        return sum(loads) + compute * len(loads)
    loaded: list[float] = []
    taken: list[float] = []
    done = 0.0
    for i, load in enumerate(loads):
        asked = taken[i - workers * prefetch] if i >= workers * prefetch else 0.0
        free = loaded[i - workers] if i >= workers else 0.0
        loaded.append(max(asked, free) + load)
        taken.append(max(loaded[i], done))
        done = taken[i] + compute
    return done
