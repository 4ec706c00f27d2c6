"""A producer and a consumer, each in a process of its own, with a ring between them; and both timelines.

Both write down when they worked and when they waited, and the checksum of all bytes in order. Needs no torch.
"""

import contextlib
import multiprocessing
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any

import numpy as np

from hpml_lab.core.children import shield_children_from_sigint
from hpml_lab.core.errors import LabError
from hpml_lab.core.timeline import CLOCK, Span, span
from hpml_lab.processes.ring import Ring

WAITS_FREE, WAITS_ITEM = "waits for a free slot", "waits for an item"
FILLS, READS = "fills a slot", "reads a slot"
PRODUCER, CONSUMER = "producer", "consumer"
DEADLINE = 20.0  # seconds


@dataclass(frozen=True)
class Relay:
    """One run: the spans of both sides, the checksum of what was put and of what was taken, and how full the ring was.

    order  the numbers of the items as the consumer found them; ahead[i]: items in the ring when item i had been put
    """

    spans: list[Span]
    put: int
    taken: int
    order: list[int]
    ahead: list[int]
    segment: str

    def of(self, what: str) -> list[Span]:
        """The spans of one kind, in order."""
        return [one for one in self.spans if one.what == what]

    @property
    def seconds(self) -> float:
        """From the first item's filling to the last one's reading."""
        return self.of(READS)[-1].end - self.of(FILLS)[0].start


def write_item(slot: np.ndarray, number: int) -> None:
    """Write item `number` of the stream into `slot`: seeded random values of its own, with its number in front."""
    np.random.default_rng(number).random(out=slot, dtype=slot.dtype)
    slot.flat[0] = number


def checksum(items: int, shape: Sequence[int]) -> int:
    """CRC-32 of the whole stream, worked out here without any other process."""
    item, value = np.empty(shape, np.float32), 0
    for number in range(items):
        write_item(item, number)
        value = zlib.crc32(item, value)
    return value


def run(make: Sequence[float], use: Sequence[float], *, slots: int, shape: Sequence[int], method: str) -> Relay:
    """Send `len(make)` items through a ring of `slots`; item i takes make[i] seconds to make and use[i] to use.

    method  how both processes are started
    Raises LabError where a side fails or has not finished after the work's own time and `DEADLINE` seconds more. Both
    processes have ended and the ring's memory is gone when it returns or raises.
    """
    context = multiprocessing.get_context(method)
    patience = DEADLINE + sum(make) + sum(use)
    with contextlib.ExitStack() as undo:
        ring = undo.enter_context(Ring(slots, shape, context=context, deadline=patience))
        segment, both_ready = ring.name, context.Barrier(2)
        answers = {}
        for side, work, pauses in ((PRODUCER, _produce, make), (CONSUMER, _consume, use)):
            answers[side], there = context.Pipe(duplex=False)
            undo.callback(answers[side].close)
            process = context.Process(target=_tell, args=(there, work, ring, list(pauses), both_ready), daemon=True)
            with shield_children_from_sigint():
                process.start()
                undo.callback(_end, process)
            there.close()
        told = _told(answers, patience)
    produced, consumed = told[PRODUCER], told[CONSUMER]
    spans = produced["spans"] + consumed["spans"]
    return Relay(spans, produced["crc"], consumed["crc"], consumed["order"], produced["ahead"], segment)


def _produce(ring: Ring, pauses: Sequence[float], both_ready: Any) -> dict[str, Any]:
    spans, ahead, crc = [], [], 0
    both_ready.wait(DEADLINE)
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
    both_ready.wait(DEADLINE)
    while True:
        begin = CLOCK()
        try:
            with ring.reading() as slot:
                spans.append(Span(CONSUMER, WAITS_ITEM, begin, CLOCK()))
                with span(spans, CONSUMER, READS):
                    time.sleep(pauses[len(order)])
                    order.append(int(slot.flat[0]))
                    crc = zlib.crc32(slot, crc)  # last: a slot that was filled again too early would be noticed
        except EOFError:
            return {"spans": spans, "order": order, "crc": crc}


def _tell(answer: Any, work: Callable[..., dict[str, Any]], ring: Ring, *arguments: Any) -> None:
    try:
        answer.send(work(ring, *arguments))
    except Exception as error:  # the other process shall read why
        answer.send(f"{type(error).__name__}: {error}")
    finally:
        ring.close()
        answer.close()


def _told(answers: dict[str, Any], patience: float) -> dict[str, dict[str, Any]]:
    """What both sides gave, or a LabError as soon as one of them has failed."""
    told, end = {}, time.monotonic() + patience
    while len(told) < len(answers):
        open_ones = {answer: side for side, answer in answers.items() if side not in told}
        ready = wait(list(open_ones), max(0.0, end - time.monotonic()))
        if not ready:
            raise LabError(
                f"No word from the {' and the '.join(open_ones.values())} after {patience:.0f} s.",
                "Run it again; a loaded machine may need longer.",
            )
        for answer in ready:
            side = open_ones[answer]
            try:
                told[side] = answer.recv()
            except EOFError:
                told[side] = "it died without a word"
            if isinstance(told[side], str):
                raise LabError(f"The {side} did not finish: {told[side]}.", "The other side was ended too. Run it again.")
    return told


def _end(process: Any) -> None:
    process.join(0.2)  # it has given its answer and has little left to do, or it is not needed any more
    process.kill()
    process.join()
    process.close()
