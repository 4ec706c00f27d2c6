"""Accuracies by seed: in words, and compared seed by seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from hpml_lab.core.timing.noise import interval

SEEDS = "the data and the seeds"  # what a comparison of accuracies depends on


def median_range(accuracy: Sequence[float]) -> str:
    """Median and range of shares, in percent."""
    return f"{100 * median(accuracy):.1f} ({100 * min(accuracy):.1f}–{100 * max(accuracy):.1f})"


def points(changed: Sequence[float], base: Sequence[float]) -> list[float]:
    """What each seed gains, in points of accuracy: the two trainings of a seed share their start and their samples."""
    return [100 * (a - b) for a, b in zip(changed, base, strict=True)]


def span(values: Sequence[float]) -> str:
    """The range of values in points of accuracy."""
    return f"{min(values):.1f} to {max(values):.1f} points"


@dataclass(frozen=True)
class Gain:
    """What a change gains, in points of accuracy over the seeds.

    low, high  an interval that holds the true median with 90 % confidence, where there are at least five seeds
    wins       the number of seeds that gain
    """

    median: float
    low: float
    high: float
    wins: int
    seeds: int

    @property
    def certain(self) -> bool:
        """Whether the whole interval is above 0."""
        return self.low > 0

    def __str__(self) -> str:
        return f"{self.median:+.2f} ({self.low:+.2f} to {self.high:+.2f}), {self.wins} of {self.seeds} seeds gain"


def gain(changed: Sequence[float], base: Sequence[float]) -> Gain:
    """The gain of `changed` over `base`, both accuracies by seed."""
    gained = points(changed, base)
    return Gain(median(gained), *interval(gained), sum(g > 0 for g in gained), len(gained))
