"""Percentiles for the exercise latency-from-due-time: the smallest latency that a share does not exceed, and others."""

import math
from collections.abc import Callable

import numpy as np

Percentile = Callable[[list, float], float]  # (latencies, share in %)


def nearest_rank(latencies: list, share: float) -> float:
    ordered = sorted(latencies)
    return ordered[max(math.ceil(share * len(ordered) / 100), 1) - 1]


def _interpolated(latencies: list, share: float) -> float:
    ordered = sorted(latencies)
    position = share / 100 * (len(ordered) - 1)
    low = math.floor(position)
    return ordered[low] + (ordered[min(low + 1, len(ordered) - 1)] - ordered[low]) * (position - low)


def _at(rank: Callable[[float], float]) -> Percentile:
    """The sorted latency at an index, from the share of their number; kept inside the list."""
    return lambda latencies, share: sorted(latencies)[min(max(int(rank(share * len(latencies) / 100)), 0), len(latencies) - 1)]


def _past_the_end(rank: Callable[[float], float]) -> Percentile:
    """The same, but an index below 0 counts from the end, and one past the end raises."""
    return lambda latencies, share: sorted(latencies)[int(rank(share * len(latencies) / 100))]


def _between(way: Callable[[float], int]) -> Percentile:
    """NumPy's methods lower, higher and nearest: the index is share % of n − 1."""
    return lambda latencies, share: sorted(latencies)[way(share / 100 * (len(latencies) - 1))]


def _exceed(latencies: list, share: float) -> float:
    """The smallest latency with at least `share` % strictly below it."""
    ordered = sorted(latencies)
    return next((x for x in ordered if 100 * sum(y < x for y in ordered) >= share * len(ordered)), ordered[-1])


def _unsorted(latencies: list, share: float) -> float:
    return latencies[max(math.ceil(share * len(latencies) / 100), 1) - 1]


RANK = "The percentile asked for is the smallest latency that at least `share` % of the requests do not exceed."
_PERCENT = "`share` is in percent, 0 to 100; you use it as a share from 0 to 1."
WRONG: dict[str, tuple[Percentile, str]] = {
    "interpolated": (_interpolated, f"You interpolate between two latencies. {RANK}"),
    "rank-too-high": (
        _at(math.floor),
        f"Where share % of the requests is a whole number k, the k-th smallest latency is meant. {RANK}",
    ),
    "rank-too-low": (
        _at(lambda k: math.floor(k) - 1),
        f"Your rank is rounded down, so that fewer than share % do not exceed it. {RANK}",
    ),
    "rank-rounded": (_at(lambda k: round(k) - 1), f"Your rank is rounded to the nearest number. {RANK}"),
    "rank-rounded, half up": (_at(lambda k: math.floor(k + 0.5) - 1), f"Your rank is rounded to the nearest number. {RANK}"),
    **{
        f"rank-of-n-minus-1, {name}": (
            _between(way),
            f"You take share % of n − 1, as for an interpolation, and round it. {RANK}",
        )
        for name, way in {"lower": math.floor, "higher": math.ceil, "nearest": round}.items()
    },
    "rank-too-high, equal ones not counted": (
        _exceed,
        f"You count the latencies below one; those that are equal do not exceed it either. {RANK}",
    ),
    "rank-too-high, past the end": (
        _past_the_end(math.floor),
        f"Python counts from 0: the k-th smallest of n has the index k − 1, and the largest n − 1. {RANK}",
    ),
    "rank-too-low, from the end": (
        _past_the_end(lambda k: math.floor(k) - 1),
        f"Your rank is rounded down, and below 1 it counts from the end. {RANK}",
    ),
    "rank-rounded, from the end": (
        _past_the_end(lambda k: round(k) - 1),
        f"Your rank is rounded to the nearest number, and below 1 it counts from the end. {RANK}",
    ),
    "rank-0": (
        _past_the_end(lambda k: math.ceil(k) - 1),
        "For a share of 0 your index is −1, which counts from the end. What is the smallest index that makes sense?",
    ),
    "share-in-percent": (_at(lambda k: math.ceil(100 * k) - 1), _PERCENT),
    "share-in-percent, past the end": (_past_the_end(lambda k: math.ceil(100 * k) - 1), _PERCENT),
    "share-in-percent, index": (_past_the_end(lambda k: math.floor(100 * k)), _PERCENT),
    "from-the-top, by index": (
        lambda latencies, share: sorted(latencies, reverse=True)[max(math.ceil(share * len(latencies) / 100), 1) - 1],
        "You sort with the largest first: p99 is near the largest one, the last of those that are sorted upward.",
    ),
    "not-sorted": (_unsorted, f"Your latencies are in the order in which they came: sort them first. {RANK}"),
    "from-the-top": (
        lambda latencies, share: nearest_rank(latencies, 100 - share),
        "Your percentile counts from the largest latency: p99 is near the largest one.",
    ),
    "mean": (lambda latencies, share: sum(latencies) / len(latencies), f"That is the mean. {RANK}"),
    "largest": (lambda latencies, share: max(latencies), f"That is the largest latency, whatever the share. {RANK}"),
    "median, by statistics": (
        lambda latencies, share: float(np.median(latencies)),
        f"That is the median, whatever the share. {RANK}",
    ),
    "all-latencies": (lambda latencies, share: list(latencies), f"You return all latencies. {RANK}"),
    "median": (lambda latencies, share: nearest_rank(latencies, 50), f"That is the median, whatever the share. {RANK}"),
}
