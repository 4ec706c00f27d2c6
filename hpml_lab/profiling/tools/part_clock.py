"""A stopwatch for the parts of a loop: `with clock.timed("forward"): ...`."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.timing.counting import synchronize


@dataclass
class PartRow(Row):
    """One part of a loop: its time, its share, and what making it vanish would give (Amdahl)."""

    part: str = column("part")
    ms: float = column("an iteration", "ms")
    percent: float = column("share of the time", "%")
    most: float = column("S at most", "times")


class PartClock:
    """Seconds by part. Time within a part inside another counts for the inner one only.

    The clock waits for the device at each border, so that each part pays for its own kernels. In a trace of torch.profiler the
    parts appear under their names.

    device   where the parts compute
    parts    names that `seconds` lists from the start on, with 0 for a part that is never entered; others are added when timed
    seconds  {part: seconds}
    """

    def __init__(self, device: torch.device | str = "cpu", parts: Iterable[str] = ()) -> None:
        self.device = torch.device(device)
        self.seconds = dict.fromkeys(parts, 0.0)
        self._open: list[str] = []
        self._since = 0.0

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Time a `with` block, or a function that this decorates, as `part`."""
        self._turn()
        self._open.append(part)
        try:
            with torch.profiler.record_function(part):
                yield
        finally:
            self._turn()
            self._open.pop()

    def rows(self, iterations: int = 1) -> list[PartRow]:
        """One row a part, the largest first; times of one of `iterations`."""
        whole = sum(self.seconds.values())
        return [
            PartRow(part, 1e3 * seconds / iterations, 100 * seconds / whole, whole / (whole - seconds or float("nan")))
            for part, seconds in sorted(self.seconds.items(), key=lambda item: -item[1])
        ]

    def _turn(self) -> None:
        synchronize(self.device)
        now = time.perf_counter()
        if self._open:
            part = self._open[-1]
            self.seconds[part] = self.seconds.get(part, 0.0) + now - self._since
        self._since = now


class NoPartClock:
    """Measures nothing and costs nothing."""

    def timed(self, part: str) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()
