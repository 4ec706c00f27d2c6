"""How long a chain of stages takes when they overlap: the lecture's arithmetic.

All functions take numbers of any kind and return the same kind: with integers or fractions nothing is rounded.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from numbers import Rational

from hpml_lab.core.system.errors import LabError

Number = int | float | Fraction


def sequential_time(stages: Sequence[Number], items: int = 1) -> Number:
    """n · Σ tₛ: each item passes all stages before the next one begins."""
    return items * sum(_checked(stages))


def overlapped_time(stages: Sequence[Number], items: int) -> Number:
    """(n − 1) · max tₛ + Σ tₛ: one worker a stage, each on an item of its own. The first item passes all stages; from then on
    an item is ready each time the slowest stage is."""
    _checked(stages)
    return (items - 1) * max(stages) + sum(stages)


def time_per_item(stages: Mapping[str, Number], workers: Mapping[str, int] | None = None) -> Number:
    """max tₛ / kₛ: what each further item costs when stage s has kₛ workers (default: one)."""
    return max(share_of_workers(stages, workers).values())


def share_of_workers(stages: Mapping[str, Number], workers: Mapping[str, int] | None = None) -> dict[str, Number]:
    """{stage: tₛ / kₛ}, the time that each stage needs for a further item."""
    _checked(list(stages.values()))
    workers = dict(workers or {})
    for name, count in workers.items():
        if name not in stages:
            raise LabError(f"{name!r} is not a stage.", f"The stages are {', '.join(stages)}.")
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise LabError(f"{count!r} is not a number of workers for {name!r}.", "Use a whole number of at least 1.")
    return {name: _divided(seconds, workers.get(name, 1)) for name, seconds in stages.items()}


def _divided(seconds: Number, count: Number) -> Number:
    exact = isinstance(seconds, Rational) and isinstance(count, Rational)
    return Fraction(seconds, count) if exact else seconds / count


def _checked(stages: Sequence[Number]) -> Sequence[Number]:
    if not stages:
        raise LabError("A chain of no stages takes no time.", "Give the seconds of at least one stage.")
    for seconds in stages:
        if not seconds >= 0 or seconds == float("inf"):
            raise LabError(f"{seconds!r} is not the time of a stage.", "Use seconds of at least 0.")
    return stages
