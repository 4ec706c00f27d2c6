"""Two clocks for one piece of work: the wall's, and the processor's, which stands still while other programs have the core.

A thread that computes is either on a core or waits for one; what is left of the wall's time it was blocked: it slept, read, or
waited for other threads or a device. Only where nothing is left does the processor's clock say how long the work takes.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import torch

COMPUTES = 0.95  # of the wall's time on a core or in the queue for one: the thread computes
HELD_UP = 1.2  # times as long on the wall clock: said, because then others had the cores
QUEUE = "/proc/self/task/{}/schedstat"  # Linux: nanoseconds on a core, nanoseconds in the queue for one, times it got one
HAS_QUEUE = os.path.exists(QUEUE.format(threading.get_native_id()))


class Lap(NamedTuple):
    """Seconds of some work.

    wall    by the wall clock
    cpu     that the calling thread was on a core
    queued  that it was ready to run while others had the cores
    """

    wall: float
    cpu: float = 0.0
    queued: float = 0.0

    def __truediv__(self, calls: int) -> "Lap":
        return Lap(self.wall / calls, self.cpu / calls, self.queued / calls)

    @property
    def computes(self) -> bool:
        """Whether the thread was never blocked, so that its time on a core is the time that the work takes."""
        return self.cpu + self.queued >= COMPUTES * self.wall > 0

    @property
    def seconds(self) -> float:
        """Seconds on a core where the work only computes; on the wall clock otherwise."""
        return self.cpu if self.computes else self.wall


def lap(work: Callable[[], float]) -> Lap:
    """Run `work()`, which returns its seconds by the wall clock, and read the other clocks around it.

    Where the system does not say how long a thread waits for a core, or where a GPU may be at work, only the wall clock counts.
    """
    if not HAS_QUEUE or torch.cuda.is_initialized():
        return Lap(work())
    thread = threading.get_native_id()
    queued, cpu = queued_seconds(thread), time.thread_time()
    wall = work()
    return Lap(wall, time.thread_time() - cpu, queued_seconds(thread) - queued)


def queued_seconds(thread: int) -> float:
    """How long a thread of this process, by its native id, was ready to run while others had the cores; 0 if nobody knows."""
    if not HAS_QUEUE:
        return 0.0
    with open(QUEUE.format(thread), encoding="ascii") as file:
        return int(file.read().split()[1]) / 1e9


def seconds_by_one_clock(laps: Mapping[str, Sequence[Lap]]) -> tuple[dict[str, tuple[float, ...]], float]:
    """Seconds of each lap, all by the processor's clock if all works only compute and else all by the wall's.

    With them, how many times as long it took on the wall clock: 1 where that is the clock.
    """
    if not all(_sum(of_one).computes for of_one in laps.values()):
        return {name: tuple(one.wall for one in of_one) for name, of_one in laps.items()}, 1.0
    stretch = median(one.wall / one.cpu for of_one in laps.values() for one in of_one)
    for tally in _tallies:
        tally.append(stretch)
    return {name: tuple(one.cpu for one in of_one) for name, of_one in laps.items()}, stretch


def _sum(laps: Sequence[Lap]) -> Lap:
    return Lap(*(sum(parts) for parts in zip(*laps, strict=True)))


def held_up(stretch: float) -> str:
    """What a result says if its work took `stretch` times as long on the wall clock; nothing where that is little."""
    if stretch < HELD_UP:
        return ""
    return f"other programs had the cores: {stretch:.1f} times as long on the wall clock"


_tallies: list[list[float]] = []


@contextlib.contextmanager
def stretches() -> Iterator[list[float]]:
    """How many times as long each comparison of the block took on the wall clock."""
    _tallies.append(tally := [])
    try:
        yield tally
    finally:
        _tallies[:] = [other for other in _tallies if other is not tally]
