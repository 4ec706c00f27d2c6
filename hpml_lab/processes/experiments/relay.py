"""A producer and a consumer, each in a process of its own, with a ring between them; and both timelines.

Both record when they worked and when they waited, and the checksum of all bytes in order. The module needs no torch.
"""

import multiprocessing
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hpml_lab.core.system.children import START_SECONDS, run_in_children
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.timeline import Span, span
from hpml_lab.processes.lessons.shared_memory_ring import Ring

WAITS_FREE, WAITS_ITEM = "waits for a free slot", "waits for an item"
FILLS, READS = "fills a slot", "reads a slot"
PRODUCER, CONSUMER = "producer", "consumer"
EXTRA_SECONDS = 20.0  # seconds
PROBLEMS = {
    "raised": "did not finish: {error}",
    "died": "died without an answer",
    "hung": "did not finish within {seconds:.0f} s; a loaded machine may need longer",
}


@dataclass(frozen=True)
class Relay:
    """One run: the spans of both sides, what was put and taken, and how full the ring was.

    put, taken  the checksum of what was put and of what was taken
    order       the numbers of the items as the consumer found them
    ahead       for each item: how many were in the ring when it had been put
    segment     the name of the ring's memory
    """

    spans: list[Span]
    put: int
    taken: int
    order: list[int]
    ahead: list[int]
    segment: str

    def of(self, what: str) -> list[Span]:
        """The spans of one kind, in order."""
        return [span for span in self.spans if span.what == what]

    @property
    def seconds(self) -> float:
        """From the first item's filling to the last one's reading."""
        return self.of(READS)[-1].end - self.of(FILLS)[0].start


def write_item(slot: np.ndarray, number: int) -> None:
    """Write item `number` of the stream into `slot`: seeded random values of its own, with its number in front."""
    np.random.default_rng(number).random(out=slot, dtype=slot.dtype)
    slot.flat[0] = number


def stream_checksum(items: int, shape: Sequence[int]) -> int:
    """CRC-32 of the whole stream, computed here without any other process."""
    item, value = np.empty(shape, np.float32), 0
    for number in range(items):
        write_item(item, number)
        value = zlib.crc32(item, value)
    return value


def run_relay(make: Sequence[float], use: Sequence[float], *, slots: int, shape: Sequence[int], method: str) -> Relay:
    """Send `len(make)` items through a ring of `slots`; item i takes make[i] seconds to make and use[i] to use.

    method  how both processes are started
    Raises LabError if a side fails or has not finished after the work's own time and `EXTRA_SECONDS` more. Both
    processes have ended and the ring's memory is released when it returns or raises.
    """
    context = multiprocessing.get_context(method)
    deadline = EXTRA_SECONDS + sum(make) + sum(use)
    with Ring(slots, shape, context=context, deadline_seconds=deadline) as ring:
        segment, both_ready = ring.name, context.Barrier(2)
        calls = {
            PRODUCER: (_side, _produce, ring, list(make), both_ready),
            CONSUMER: (_side, _consume, ring, list(use), both_ready),
        }
        outcomes = run_in_children(calls, context=context, deadline_seconds=deadline)
    for how, problem in PROBLEMS.items():
        sides = [side for side, outcome in outcomes.items() if outcome.how == how]
        if sides:
            error = outcomes[sides[0]].error
            raise LabError(f"The {' and the '.join(sides)} {problem.format(error=error, seconds=deadline)}.", "Run it again.")
    produced, consumed = outcomes[PRODUCER].value, outcomes[CONSUMER].value
    spans = produced["spans"] + consumed["spans"]
    return Relay(spans, produced["crc"], consumed["crc"], consumed["order"], produced["ahead"], segment)


def _side(work: Callable[..., dict[str, Any]], ring: Ring, *arguments: Any) -> dict[str, Any]:
    try:
        return work(ring, *arguments)
    finally:
        ring.close()


def _produce(ring: Ring, pauses: Sequence[float], both_ready: Any) -> dict[str, Any]:
    spans, ahead, crc = [], [], 0
    both_ready.wait(START_SECONDS)
    for number, pause in enumerate(pauses):
        begin = CLOCK()
        with ring.filling() as slot:
            spans.append(Span(PRODUCER, WAITS_FREE, begin, CLOCK()))
            with span(spans, PRODUCER, FILLS):
                write_item(slot, number)
                crc = zlib.crc32(slot, crc)
                time.sleep(pause)
        ahead.append(ring.put_count - ring.taken_count)
    ring.finish()
    return {"spans": spans, "ahead": ahead, "crc": crc}


def _consume(ring: Ring, pauses: Sequence[float], both_ready: Any) -> dict[str, Any]:
    spans, order, crc = [], [], 0
    both_ready.wait(START_SECONDS)
    while True:
        begin = CLOCK()
        try:
            with ring.reading() as slot:
                spans.append(Span(CONSUMER, WAITS_ITEM, begin, CLOCK()))
                with span(spans, CONSUMER, READS):
                    time.sleep(pauses[len(order)])
                    order.append(int(slot.flat[0]))
                    crc = zlib.crc32(slot, crc)  # last: a slot that was filled again too early would show
        except EOFError:
            return {"spans": spans, "order": order, "crc": crc}
