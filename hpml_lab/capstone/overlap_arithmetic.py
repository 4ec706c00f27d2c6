"""How long a chain of stages takes when they overlap: the lecture's arithmetic, and the schedule that it abbreviates.

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


def bottleneck_stage(stages: Mapping[str, Number], workers: Mapping[str, int] | None = None) -> str:
    """The stage with the largest tₛ / kₛ; of equal ones the first."""
    shares = share_of_workers(stages, workers)
    return max(shares, key=shares.get)


def most_by_stage(stages: Mapping[str, Number], stage: str, workers: Mapping[str, int] | None = None) -> Number:
    """How many times as fast an overlapped chain becomes at most when one stage takes no time any more: the largest tₛ / kₛ
    over the largest of the other stages. 1 for every stage but the bottleneck."""
    shares = share_of_workers(stages, workers)
    if stage not in shares:
        raise LabError(f"{stage!r} is not a stage.", f"The stages are {', '.join(shares)}.")
    others = max((seconds for name, seconds in shares.items() if name != stage), default=0)
    if others == 0:
        return float("inf")
    return _divided(max(shares.values()), others)


def workers_that_balance(stages: Mapping[str, Number], stage: str) -> int:
    """The least number of workers with which `stage` is no longer slower than each of the others: ⌈t / max of the others⌉."""
    _checked(list(stages.values()))
    others = max(seconds for name, seconds in stages.items() if name != stage)
    return max(1, -int(-stages[stage] // others))


def schedule(times: Sequence[Sequence[Number]], workers: Sequence[int] | None = None) -> list[list[tuple[Number, Number]]]:
    """(start, end) of each item in each stage when a stage begins an item as soon as it has arrived and a worker is free.

    times    [item][stage]; items enter in order, and a worker takes the first that waits
    workers  of each stage (default: one); enough room between the stages for all items that wait
    """
    stages = len(times[0])
    workers = list(workers or [1] * stages)
    free: list[list[Number]] = [[0] * count for count in workers]
    spans: list[list[tuple[Number, Number]]] = [[] for _ in times]
    arrived: list[Number] = [0] * len(times)
    for stage in range(stages):
        for item in sorted(range(len(times)), key=lambda item: (arrived[item], item)):
            worker = min(range(workers[stage]), key=lambda worker: free[stage][worker])
            start = max(arrived[item], free[stage][worker])
            end = start + times[item][stage]
            free[stage][worker], arrived[item] = end, end
            spans[item].append((start, end))
    return spans


def finished(spans: Sequence[Sequence[tuple[Number, Number]]]) -> Number:
    """The end of the last item of a schedule."""
    return max(end for item in spans for _, end in item)


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
