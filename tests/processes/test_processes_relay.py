"""A relay passes every byte in order, tells waiting from work, and names the side that fails."""

import contextlib

import numpy as np
import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import child_pids
from hpml_lab.core.timing.timeline import Span
from hpml_lab.processes.experiments import relay
from hpml_lab.processes.experiments.start_cost import safe_methods
from hpml_lab.processes.tools.segments import has_name, named_segments


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = child_pids(), named_segments()
    yield
    assert (child_pids(), named_segments()) == before


@pytest.mark.parametrize("method", safe_methods())
def test_a_relay_passes_every_byte_in_order_by_every_start_method(method):
    run = relay.run_relay([0.0] * 9, [0.0] * 9, slots=2, shape=(50, 3), method=method)
    assert run.put == run.taken == relay.stream_checksum(9, (50, 3))
    assert run.order == list(range(9)) and max(run.ahead) <= 2
    assert not has_name(run.segment)


def test_no_slot_is_filled_before_its_last_item_was_read():
    run = relay.run_relay([0.0] * 8, [0.003] * 8, slots=3, shape=(10,), method=safe_methods()[0])
    fills, reads = run.of(relay.FILLS), run.of(relay.READS)
    assert len(fills) == len(reads) == 8
    assert all(fill.start >= read.end for fill, read in zip(fills[3:], reads, strict=False))
    assert all(read.start >= fill.end for fill, read in zip(fills, reads, strict=True))


class Alone:
    """Stands for a ring whose partner takes 10 s to come and for a barrier; it moves a fake clock."""

    def __init__(self, monkeypatch, items):
        self.now, self.left, self.put_count, self.taken_count = 100.0, items, 0, 0
        self.slot = np.zeros(4, np.float32)
        monkeypatch.setattr(relay, "CLOCK", lambda: self.now)
        monkeypatch.setattr("hpml_lab.core.timing.timeline.CLOCK", lambda: self.now)
        monkeypatch.setattr(relay.time, "sleep", self.pass_by)

    def pass_by(self, seconds):
        self.now += seconds

    def wait(self, *_):
        self.now += 1000.0

    @contextlib.contextmanager
    def filling(self):
        self.now += 10.0
        yield self.slot
        self.put_count += 1

    @contextlib.contextmanager
    def reading(self):
        self.now += 10.0
        if not self.left:
            raise EOFError
        self.left -= 1
        yield self.slot

    def finish(self):
        pass


@pytest.mark.parametrize(
    "side, lane, kinds",
    [
        (relay._produce, relay.PRODUCER, (relay.WAITS_FREE, relay.FILLS)),
        (relay._consume, relay.CONSUMER, (relay.WAITS_ITEM, relay.READS)),
    ],
)
def test_waits_and_work_of_each_side_are_separate_on_a_fake_clock(monkeypatch, side, lane, kinds):
    alone = Alone(monkeypatch, items=2)
    report = side(alone, [3.0, 4.0], alone)
    spans = [(span.lane, span.what, span.start, span.end) for span in report["spans"]]
    waits, works = kinds
    assert spans == [
        (lane, waits, 1100, 1110),
        (lane, works, 1110, 1113),
        (lane, waits, 1113, 1123),
        (lane, works, 1123, 1127),
    ], "the wait for the other process to start is no wait for the ring"
    assert report.get("ahead", [1, 2]) == [1, 2] and report.get("order", [0, 0]) == [0, 0]


def test_a_relay_takes_from_the_first_filling_to_the_last_reading():
    spans = [
        Span(relay.PRODUCER, relay.WAITS_FREE, 0.0, 1.0),
        Span(relay.PRODUCER, relay.FILLS, 1.0, 2.0),
        Span(relay.PRODUCER, relay.FILLS, 2.0, 5.0),
        Span(relay.CONSUMER, relay.READS, 2.0, 4.0),
        Span(relay.CONSUMER, relay.READS, 5.0, 9.0),
    ]
    assert relay.Relay(spans, 0, 0, [0, 1], [1, 1], "").seconds == 8


@pytest.mark.parametrize("side, make, use", [("producer", [0.0, 0.0, -1.0], [0.0] * 3), ("consumer", [0.0] * 30, [0.0, -1.0])])
def test_a_side_that_fails_is_named_and_the_other_one_is_ended(side, make, use):
    with pytest.raises(LabError, match=f"The {side} did not finish: ValueError: sleep length"):
        relay.run_relay(make, use, slots=2, shape=(4,), method=safe_methods()[0])


def test_the_checksum_is_that_of_the_items_one_after_the_other():
    import zlib

    items = np.zeros((3, 5), np.float32)
    for number, item in enumerate(items):
        relay.write_item(item, number)
    assert relay.stream_checksum(3, (5,)) == zlib.crc32(items.tobytes())
    assert items[:, 0].tolist() == [0, 1, 2] and len(np.unique(items[:, 1:])) == 12
