"""Whether a changed training is still the same one: its losses compared with those of copies that differ by rounding alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf, isfinite, sqrt
from statistics import fmean, pstdev

BITWISE, ROUNDING, PRECISION, REORDERED, DIFFERENT = "bitwise", "rounding", "precision", "reordered", "not the same"
ALLOWED = {"bitwise": {BITWISE}, "rounding": {BITWISE, ROUNDING}, "precision": {BITWISE, ROUNDING, PRECISION}}
# What `tuneup` keeps by each: workers that draw in another order are no other training, unless each bit counts.
KEPT = {allow: classes | ({REORDERED} if allow != "bitwise" else set()) for allow, classes in ALLOWED.items()}
IN_WORDS = {
    BITWISE: "bitwise identical",
    ROUNDING: "the same within rounding",
    PRECISION: "the same at a lower precision",
    REORDERED: "other samples or random numbers, the same distribution of losses",
    DIFFERENT: "not the same training",
}
# The yardstick's weights move one unit in the last place at each step; a kernel that adds in another order rounds each of its
# sums anew. Both drift apart at the same rate, so a constant factor separates them.
FACTOR = 32.0
FLOOR = 2.0**-21  # relative: four units in the last place of float32, for losses that no nudge has moved yet
FIRST_OF_PRECISION = 2.0**-5  # of the first loss: bfloat16 has 8 bits, and a network adds their errors up
EARLY, OF_EARLY = 5, 2.0**-7  # of the first five on average; half of a usual batch moves them by several percent
BEYOND = 4.0  # standard errors of a mean
SEEDED = 2.0**-9  # two copies as they are begin nearer to each other, unless their random numbers differ


@dataclass(frozen=True)
class Sameness:
    """The class of a change.

    kind     one of the five
    detail   the figures that decided
    """

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{IN_WORDS[self.kind]} ({self.detail})"


def apart(one: Sequence[float], other: Sequence[float]) -> list[float]:
    """|xₜ − yₜ| / |xₜ|, step by step; infinite where only one of them is finite."""
    found = []
    for x, y in zip(one, other, strict=False):
        if isfinite(x) and isfinite(y):
            found.append(abs(x - y) / max(abs(x), 1e-12) if x != y else 0.0)
        else:
            found.append(0.0 if str(x) == str(y) else inf)
    return found


def sameness(
    before: Sequence[float],
    after: Sequence[float],
    again: Sequence[float],
    nudged: Sequence[Sequence[float]],
    digests: tuple[str, str] = ("", ""),
    reorders: bool = False,
    lowers: bool = False,
) -> Sameness:
    """The class of a change by the losses of its steps: before, with it, before once more, and of copies that were nudged.

    digests   of the parameters at the end, before and with the change
    reorders  whether the change is one that may draw samples or random numbers in another order
    lowers    whether it is one that lowers the precision, and nothing else
    Where `before` and `again` differ already, nothing is bitwise, and their distance belongs to the yardstick. Where they begin
    far from each other, as without a seed, only distributions can be compared.
    """
    steps = min(map(len, (before, after, again)))
    if steps < 2:
        return Sameness(DIFFERENT, f"only {steps} losses to compare")
    change, own = apart(before, after)[:steps], apart(before, again)[:steps]
    if not any(change) and digests[0] == digests[1]:
        numbers = "" if all(map(isfinite, before[:steps])) else "; not all losses are finite numbers"
        return Sameness(BITWISE, f"{steps} losses and the parameters{numbers}")
    drifts = [_drift(before[:steps], one) for one in (again, *nudged) if len(one) > 1]
    band = [max(FLOOR, *values) for values in zip(*drifts, strict=True)]
    unseeded = max(own[:EARLY]) > SEEDED
    twice = f", two copies as they are {max(own):.1g}" if any(own) else ""
    detail = f"the first loss {change[0]:.1g} apart, {steps} steps {max(change):.1g}; by rounding {band[-1]:.1g}{twice}"
    if len(drifts) == 1:
        detail += "; no copy that differs by rounding came so far"
    if not unseeded and all(here <= FACTOR * limit for here, limit in zip(change, band, strict=True)):
        return Sameness(ROUNDING, detail)
    if not all(map(isfinite, change)):
        return Sameness(DIFFERENT, "a loss is infinite or no number")
    alike, how = _same_level(before[:steps], after[:steps], max(own), band[-1])
    # A lower precision shows in the first loss, another update does not; and it is of the same samples, unlike half a batch.
    tracks = fmean(change[:EARLY]) <= OF_EARLY
    shows = not unseeded and (lowers or (change[0] > FLOOR and not reorders))
    if shows and change[0] <= FIRST_OF_PRECISION and tracks and alike:
        return Sameness(PRECISION, f"{detail}; {how}")
    if reorders and alike:
        return Sameness(REORDERED, f"the first loss {change[0]:.1g} apart; {how}")
    if unseeded:
        how = "two copies as they are begin far from each other: only a script that sets its seeds can be compared"
    return Sameness(DIFFERENT, f"{detail}; {how}")


def _drift(before: Sequence[float], other: Sequence[float]) -> list[float]:
    """How far the other has been by each step; where it has ended earlier, as far as it came."""
    found = list(accumulate(apart(before, other), max))
    return found + found[-1:] * (len(before) - len(found))


def _same_level(before: Sequence[float], after: Sequence[float], own: float, band: float) -> tuple[bool, str]:
    """Whether the mean losses agree within their own scatter, and the two means in words."""
    means, spread = (fmean(before), fmean(after)), sqrt((_scatter(before) ** 2 + _scatter(after) ** 2) / len(before))
    allowed = BEYOND * spread + max(own, band, 0.01) * abs(means[0])
    return abs(means[0] - means[1]) <= allowed, f"mean losses {means[0]:.4g} and {means[1]:.4g}"


def _scatter(losses: Sequence[float]) -> float:
    """The standard deviation without the trend: that of differences of neighbors, over √2."""
    return pstdev(b - a for a, b in zip(losses, losses[1:], strict=False)) / sqrt(2) if len(losses) > 2 else 0.0
