"""Who did what when: spans from real time stamps, and their picture with one lane per worker (a Gantt chart).

The clock is the system's monotonic one, which all processes of a machine share: spans of several processes share one axis.
"""

import contextlib
import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hpml_lab.core.system.shared_clock import CLOCK

HATCHES = (None, "///", "...", "xxx", "++", "ooo")


@dataclass(frozen=True)
class Span:
    """One piece of work: `lane` did `what` from `start` to `end`, in seconds of CLOCK."""

    lane: str
    what: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@contextlib.contextmanager
def span(spans: list[Span], lane: str, what: str) -> Iterator[None]:
    """Time a `with` block and append it to `spans`, also where the block raises."""
    start = CLOCK()
    try:
        yield
    finally:
        spans.append(Span(lane, what, start, CLOCK()))


class NoClock:
    """Measures nothing."""

    def timed(self, part: str) -> contextlib.AbstractContextManager:
        return contextlib.nullcontext()


class SpanClock:
    """Keeps a span for each part: who did it, and from when to when. Any thread may use it."""

    def __init__(self, device: Any = "cpu", awaited: Sequence[str] = ()) -> None:
        """awaited  the parts after which the clock waits for a GPU"""
        self.spans: list[Span] = []
        self._awaited = awaited if str(device).startswith("cuda") else ()

    @property
    def seconds(self) -> dict[str, float]:
        """{part: seconds of all its spans}; parts that overlap add up to more than the time that passed."""
        return {part: sum(span.seconds for span in self.spans if span.what == part) for part in {s.what for s in self.spans}}

    @contextlib.contextmanager
    def timed(self, part: str) -> Iterator[None]:
        name = threading.current_thread().name
        lane = "main" if name == "MainThread" else name.replace("_", " ")
        with span(self.spans, lane, part):
            yield
            if part in self._awaited:
                import torch  # here, as matplotlib below

                torch.cuda.current_stream().synchronize()


def rows(spans: Iterable[Span]) -> list[dict[str, Any]]:
    """The spans as rows of a result, in order of their start, with times from the first start on."""
    ordered = sorted(spans, key=lambda span: span.start)
    first = ordered[0].start if ordered else 0.0
    return [{**asdict(span), "start": span.start - first, "end": span.end - first} for span in ordered]


def busy(spans: Iterable[Span]) -> float:
    """Seconds in which at least one of the spans was under way."""
    total, reached = 0.0, float("-inf")
    for each in sorted(spans, key=lambda span: span.start):
        total += max(0.0, each.end - max(each.start, reached))
        reached = max(reached, each.end)
    return total


def overlap(a: Iterable[Span], b: Iterable[Span]) -> float:
    """Seconds in which a span of `a` and a span of `b` were under way at once: busy(a) + busy(b) − busy(a and b)."""
    a, b = list(a), list(b)
    return busy(a) + busy(b) - busy([*a, *b])


def gantt(axes, rows: Iterable[dict[str, Any]], colors: dict[str, str], lanes: Iterable[str] = ()) -> None:
    """Draw rows of spans: one bar a span, one lane a worker, from the top in the order of `lanes` (else of appearance).

    colors  {what: color}; each has a hatch of its own too, for those who see no colors; the legend has what is drawn.
    """
    from hpml_lab.core.show import style  # here, because a child process that only records spans needs no matplotlib

    rows = list(rows)
    lanes = list(lanes) or list(dict.fromkeys(row["lane"] for row in rows))
    seconds = max((row["end"] for row in rows), default=0.0)
    scale, unit = style.time_unit(seconds)
    for (what, color), hatch in zip(colors.items(), itertools.cycle(HATCHES), strict=False):
        bars = [row for row in rows if row["what"] == what]
        if not bars:
            continue
        axes.barh(
            [lanes.index(row["lane"]) for row in bars],
            [(row["end"] - row["start"]) * scale for row in bars],
            left=[row["start"] * scale for row in bars],
            height=0.7,
            color=color,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.5,
            label=what,
        )
    axes.set_yticks(range(len(lanes)), lanes)
    axes.set_ylim(len(lanes) - 0.4, -0.6)
    axes.set_xlim(0, seconds * scale or 1)
    axes.set_xlabel(f"time in {unit}")
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)
