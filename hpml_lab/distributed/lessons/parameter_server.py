"""SGD with workers that need not wait for each other: synchronous, K-synchronous, K-batch, asynchronous. Source: S. Dutta and
others, Slow and Stale Gradients Can Win the Race, 2018.

The clock is virtual: it moves from one event to the next, by the seconds that a gradient is said to take, so that the order of
events is the same on every machine. The gradients are real, so that what stale ones do to training is seen.
"""

import heapq
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

from torch import Tensor

SYNCHRONOUS, K_SYNCHRONOUS, K_BATCH, ASYNCHRONOUS = "synchronous", "K-synchronous", "K-batch", "asynchronous"


class WorkerGradient(NamedTuple):
    """One gradient: who computed it, from when to when, and how many updates came in between."""

    worker: int
    begin: float
    end: float
    age: int


class Update(NamedTuple):
    """One update of the weights: when, the weights after it, the gradients in it, and those that were thrown away."""

    clock: float
    weights: Tensor
    used: list[WorkerGradient]
    cancelled: list[WorkerGradient]


def updates(
    policy: str,
    gradient: Callable[[Tensor, int, int], Tensor],
    weights: Tensor,
    seconds: Callable[[int, int], float],
    workers: int,
    wait: int,
    rate: float,
) -> Iterator[Update]:
    """The updates of one training, without end: w ← w − η · (mean of `wait` gradients).

    gradient  (weights, worker, number): the gradient on the batch that this worker draws as its number-th
    seconds   (worker, number): how long that takes
    wait      gradients of an update: all workers' (synchronous), K of them, or 1 (asynchronous)

    Whose gradient was used or thrown away reads the new weights; only asynchronous workers go on where they are.
    """
    clock, version, started, arrived = 0.0, 0, [0] * workers, []
    underway: list[tuple[float, int, int, float, int, Tensor]] = []

    def start(worker: int) -> None:
        number = started[worker]
        heapq.heappush(underway, (clock + seconds(worker, number), worker, number, clock, version, weights))
        started[worker] += 1

    for worker in range(workers):
        start(worker)
    while True:
        clock, worker, number, begin, read, then = heapq.heappop(underway)
        arrived.append((gradient(then, worker, number), WorkerGradient(worker, begin, clock, version - read)))
        if len(arrived) < wait:
            if policy in (K_BATCH, ASYNCHRONOUS):
                start(worker)  # another batch, at the same weights
            continue
        weights = weights - rate / wait * sum(found for found, _ in arrived)
        cancelled = (
            [] if policy == ASYNCHRONOUS else [WorkerGradient(w, b, clock, version - v) for _, w, _, b, v, _ in underway]
        )
        version += 1
        yield Update(clock, weights, [work for _, work in arrived], cancelled)
        arrived = []
        if policy == ASYNCHRONOUS:
            start(worker)
            continue
        underway.clear()
        for worker in range(workers):
            start(worker)


def harmonic(n: int) -> float:
    """H_n = 1 + 1/2 + … + 1/n."""
    total = 0.0
    for i in range(n):
        total = total + 1 / (i + 1)
    return total


def seconds_of_k(workers: int, wait: int, straggle: float) -> float:
    """Of a K-synchronous update, where a gradient takes 1 + Exp(straggle): 1 + straggle · (H_n − H_{n−K}). K = n: of all."""
    return 1 + straggle * (harmonic(workers) - harmonic(workers - wait))


def seconds_of_one(workers: int, straggle: float) -> float:
    """Of an asynchronous update: (1 + straggle) / n, for nobody waits."""
    return (1 + straggle) / workers


def largest_rate(age: int) -> float:
    """η · λ up to which SGD with gradients of this age converges on λw²/2: 2 · sin(π / (4 · age + 2)); 2 for fresh ones."""
    return 2 * math.sin(math.pi / (4 * age + 2))
