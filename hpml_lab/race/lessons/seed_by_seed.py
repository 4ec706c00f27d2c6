"""Comparing two entrants seed by seed: both share the start and the batches of each seed."""

import math
from collections.abc import Sequence
from math import comb
from statistics import median

from hpml_lab.core.show.numbers import number


def median_and_range(values: Sequence[float]) -> str:
    """Median (smallest–largest), short; ∞ for a seed that diverged or never arrived."""
    texts = ["∞" if math.isinf(value) else number(value, 3) for value in (median(values), min(values), max(values))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


def percent(values: Sequence[float]) -> list[float]:
    """Shares of 1 as percentages."""
    return [100 * value for value in values]


def wins_needed(seeds: int) -> int:
    """The number of seeds in which one of two must be ahead, such that chance alone gets there in at most 5 % of cases."""
    return next(k for k in range(seeds + 2) if sum(comb(seeds, i) for i in range(k, seeds + 1)) <= 0.05 * 2**seeds)


def ahead(a: Sequence[float], b: Sequence[float]) -> tuple[bool, str]:
    """Whether accuracy `a` is above `b` in so many seeds that it is not chance, and the count in words."""
    wins, ties = sum(x > y for x, y in zip(a, b, strict=True)), sum(x == y for x, y in zip(a, b, strict=True))
    enough = wins_needed(len(a))
    even = f", even in {ties}," if ties else ""
    medians = f"medians {100 * median(a):.2f} and {100 * median(b):.2f} %"
    return wins >= enough, f"ahead in {wins}{even} of {len(a)} seeds ({enough} needed), {medians}"


def sooner(a: Sequence[float], b: Sequence[float]) -> tuple[bool, str]:
    """Whether `a` arrives before `b` in so many seeds that it is not chance, and the count in words.

    Both are iterations by seed, inf for one that never arrives.
    """
    wins, enough = sum(x < y for x, y in zip(a, b, strict=True)), wins_needed(len(a))
    medians = f"medians after {median(a):g} and {median(b):g} iterations"
    return wins >= enough, f"in {wins} of {len(a)} seeds ({enough} needed), {medians}"
