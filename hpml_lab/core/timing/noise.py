"""One rule for noise: a comparison of times has an interval, and a placebo in the same run says what is not worth a word.

The placebo is the same code timed twice, in turns with the rest. What it seems to gain or lose against itself is the noise
band; a gain inside the band is neither claimed, nor kept, nor colored, and nor is one so small that it matters to nobody.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb, log, sqrt
from statistics import median

from hpml_lab.core.show.numbers import number
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import PLACEBO, SAMPLES, Timing, interleaved
from hpml_lab.core.timing.laps import held_up

CONFIDENCE = 0.9
LEAST_EFFECT = 0.02  # a quiet machine tells 0.3 % from nothing; a difference is claimed from 2 % on
CLAIMED = ("faster", "slower")  # the verdicts that claim a difference


def times_faster(ratio: float) -> str:
    """A ratio of times without an interval in words: "1.7× faster", "0.95× (slower)", or "1×" within 2 %."""
    if max(ratio, 1 / ratio) < 1 + LEAST_EFFECT:
        return f"{number(ratio, 3)}×"
    return f"{number(ratio, 3)}× {'faster' if ratio > 1 else '(slower)'}"


@dataclass(frozen=True)
class SpeedUp:
    """How many times as fast the changed code is: seconds before / seconds after, pair by pair.

    ratio      the median over the pairs, against the half of the placebo that is nearer
    low, high  an interval that holds the true median with 90 % confidence, where there are at least five pairs
    noise      how far the placebo's interval reaches from 1: 0.03 means that 1 / 1.03 to 1.03 is noise
    """

    ratio: float
    low: float
    high: float
    noise: float

    @property
    def faster(self) -> bool:
        """Whether the change gains: 2 % or more, above the noise band, and the whole interval above 1."""
        return self.low > 1 and self.ratio > 1 + self.noise and self.ratio >= 1 + LEAST_EFFECT

    @property
    def slower(self) -> bool:
        """Whether the change loses: 2 % or more, below the noise band, and the whole interval below 1."""
        return self.slowdown.faster

    @property
    def verdict(self) -> str:
        """ "faster" or "slower", or why neither is claimed: "within noise", or "less than 2 %"."""
        if self.faster or self.slower:
            return CLAIMED[self.slower]
        beyond = max(self.ratio, 1 / self.ratio) > 1 + self.noise and not self.low <= 1 <= self.high
        return "less than 2 %" if beyond else "within noise"

    @property
    def interval(self) -> str:
        return f"{number(self.low, 3)} to {number(self.high, 3)}"

    @property
    def slowdown(self) -> "SpeedUp":
        """The same read the other way, for a change that costs time: 2, where the changed code takes twice the time."""
        return SpeedUp(1 / self.ratio, 1 / self.high, 1 / self.low, self.noise)

    @property
    def slowdown_text(self) -> str:
        """The slowdown in words: "1.3× slower (1.2 to 1.4; noise ±2 %)"."""
        return self.slowdown._text(CLAIMED[::-1])

    def __str__(self) -> str:
        """ "1.7× faster (1.6 to 1.8; noise ±2 %)", "0.95× (slower; …)" or "1.01× (within noise; …)"."""
        return self._text(CLAIMED)

    def _text(self, words: Sequence[str]) -> str:
        band = f"{self.interval}; noise ±{number(100 * self.noise, 2 if self.noise < 1 else 3)} %"
        if self.faster:
            return f"{number(self.ratio, 3)}× {words[0]} ({band})"
        return f"{number(self.ratio, 3)}× ({words[1] if self.slower else self.verdict}; {band})"

    @property
    def columns(self) -> dict[str, float | str]:
        """The columns of a row that compares times; the row of the base leaves them empty."""
        return {"gain": self.ratio, "interval": self.interval, "verdict": self.verdict}


def interval(ratios: Sequence[float]) -> tuple[float, float]:
    """The interval between two order statistics that holds the median with 90 % confidence, whatever the distribution.

    The k-th smallest to the k-th largest of n hold it with probability 1 − 2·Σ C(n, i) / 2ⁿ, i < k; with fewer than five
    values no k reaches 90 %, and the interval is the smallest to the largest. Source: H. A. David, Order Statistics, 7.1.
    """
    ordered = sorted(ratios)
    n = len(ordered)
    k = 1
    while 1 - 2 * sum(comb(n, i) for i in range(k + 1)) / 2**n >= CONFIDENCE:
        k += 1
    return ordered[k - 1], ordered[n - k]


def wilson(successes: int, of: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a share p, 95 % at z = 1.96: (p + z²/2n ± z·√(p(1 − p)/n + z²/4n²)) / (1 + z²/n).

    Source: E. B. Wilson, 1927. Unlike p ± z·√(p(1 − p)/n) it stays between 0 and 1, and has a width at p = 1.
    """
    if of < 1 or not 0 <= successes <= of:
        raise LabError(f"{successes} of {of} is not a share.", "Give a count from 0 to the number of trials, at least one.")
    p = successes / of
    middle, half = p + z * z / (2 * of), z * sqrt(p * (1 - p) / of + z * z / (4 * of * of))
    return (middle - half) / (1 + z * z / of), (middle + half) / (1 + z * z / of)


def speed_up_of(before: Sequence[float], after: Sequence[float], again: Sequence[float] | None = None) -> SpeedUp:
    """The speed-up of samples taken in turns: `before`, `after`, and `before` once more (`again`, the placebo).

    Without `again` the placebo is `before` in the next turn, so that what changes between two turns counts as noise, too.
    `after` is compared with both: the ratio is the one nearer to 1, and the interval covers both, so that what is claimed
    holds against either.
    """
    again = [*before[1:], before[0]] if again is None else again
    halves = [[a / b for a, b in zip(half, after, strict=True)] for half in (before, again)]
    lows, highs = zip(*map(interval, halves), strict=True)
    ratio = min(map(median, halves), key=lambda found: abs(log(found)))
    placebo = interval([a / b for a, b in zip(before, again, strict=True)])
    return SpeedUp(ratio, min(lows), max(highs), noise=max(placebo[1], 1 / placebo[0], 1.0) - 1)


def speed_up(times: Mapping[str, Timing], base: str, changed: str) -> SpeedUp:
    """How many times as fast `changed` is as `base`; `times` come from `interleaved(…, placebo=base)`."""
    return speed_up_of(times[base].samples, times[changed].samples, times[PLACEBO].samples)


@dataclass(frozen=True)
class Comparison:
    """Two pieces of work timed in turns, A B A, A B A, …, so that a drift of the machine's speed falls on both.

    a, b   seconds per call
    again  of A once more: the placebo
    """

    a: Timing
    b: Timing
    again: Timing

    @property
    def speed_up(self) -> SpeedUp:
        """How many times as fast B is as A, with its interval and the noise of this run."""
        return speed_up_of(self.a.samples, self.b.samples, self.again.samples)

    @property
    def ratio(self) -> float:
        """The median over the pairs of seconds(A) / seconds(B), for those samples of A that are nearer to B's."""
        return self.speed_up.ratio

    def __repr__(self) -> str:
        return "; ".join(filter(None, [str(self.speed_up), held_up(self.a.stretch)]))


def compare(a: Callable[[], object], b: Callable[[], object], *, samples: int = SAMPLES, threads: int = 1) -> Comparison:
    """Time `a()` and `b()` in turns in one run. Printed, the result says how many times as fast `b` is, and if that is noise.

    Raises LabError for an `a` or `b` that is not a function, and for less than one sample.
    """
    turns = interleaved({"a": a, "b": b}, samples=samples, threads=threads, placebo="a")
    return Comparison(turns["a"], turns["b"], turns[PLACEBO])
