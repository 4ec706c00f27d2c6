"""A scripted device for exercise `fix-the-timing`: its clock moves only by what is asked of it, the same on every machine."""

import weakref
from typing import Any

from hpml_lab.core.judge.exercises import Mistake


class Handle:
    """What a call returns; a lazy device drops the work of a handle that nobody holds."""


class ScriptedDevice:
    """A device with a clock of its own, which only calls and waits move forward.

    cycle     seconds of the calls' work, again and again
    first     seconds of the very first call's work, where it differs
    queued    calls return after `launch` seconds, and the work is done one after the other
    backlog   seconds of work that the queue holds from before
    lazy      work is done at the next synchronize, and only where its result is still held
    """

    def __init__(
        self,
        cycle: tuple[float, ...],
        first: float | None = None,
        *,
        queued: bool = False,
        backlog: float = 0.0,
        lazy: bool = False,
    ) -> None:
        self._cycle, self._first, self._queued, self._lazy = cycle, first, queued, lazy
        self._now, self._free = 100.0, 100.0 + backlog
        self._held: list[tuple[Any, float]] = []
        self.calls, self.read, self.synchronized, self.dropped = 0, 0, 0, 0

    def clock(self) -> float:
        """Seconds, as the host sees them."""
        self.read += 1
        return self._now

    def synchronize(self) -> None:
        """Wait until all is done."""
        self.synchronized += 1
        for handle, seconds in self._held:
            if handle() is None:
                self.dropped += 1
            else:
                self._free = max(self._free, self._now) + seconds
        self._held.clear()
        self._now = max(self._now, self._free)

    def work(self) -> Handle:
        """Hand in one piece of work."""
        if self.calls >= 10_000:
            raise Mistake("never-ends", "Your function has called work() 10 000 times. Make a fixed number of calls, say 10.")
        first = self._first is not None and self.calls == 0
        seconds = self._first if first else self._cycle[(self.calls - (self._first is not None)) % len(self._cycle)]
        self.calls += 1
        handle = Handle()
        if self._lazy:
            self._held.append((weakref.ref(handle), seconds))
            self._now += 1e-5
        elif self._queued:
            self._free = max(self._free, self._now) + seconds
            self._now += 1e-5
        else:
            self._now += seconds
        return handle


JITTER = (0.010, 0.008, 0.010, 0.012)  # seconds; the median of any three or more calls in a row is 10 ms
OUTLIERS = (0.010, 0.010, 0.010, 0.300, 0.010, 0.010, 0.010, 0.010)
