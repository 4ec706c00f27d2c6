"""A ring passes every item once and in order, waits with a deadline, and leaves nothing behind."""

import contextlib
import multiprocessing
import os
import signal
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

from hpml_lab.core.children import suppress_fork_warning
from hpml_lab.core.errors import LabError
from hpml_lab.core.timeline import Span
from hpml_lab.processes import leftovers, relay, ring
from hpml_lab.processes.ring import Ring
from hpml_lab.processes.sharing import named_segments
from hpml_lab.processes.start import methods


def exists(name):
    """True where a block of that name can still be opened, on any system."""
    try:
        block = SharedMemory(name)
    except FileNotFoundError:
        return False
    block.close()
    return True


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = leftovers.processes(), named_segments()
    yield
    assert (leftovers.processes(), named_segments()) == before


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_items_come_out_once_and_in_order_round_after_round(slots):
    got = []
    with Ring(slots, (3,), np.int64, deadline=1) as one:
        for number in range(4 * slots):
            one.put(number)
            if number % slots == slots - 1:
                got += [one.take().tolist() for _ in range(slots)]
        assert (one.put_count, one.taken_count) == (4 * slots, 4 * slots)
    assert got == [[number] * 3 for number in range(4 * slots)]


def test_a_slot_is_given_itself_and_a_taken_item_is_a_copy():
    import torch

    with Ring(1, (4,), deadline=1) as one:
        with one.filling() as slot:
            torch.from_numpy(slot).fill_(5)  # a tensor on the same bytes
        with one.reading() as slot:
            assert slot.tolist() == [5.0] * 4
        one.put(6)
        kept = one.take()
        one.put(7)
        assert kept.tolist() == [6.0] * 4


def test_slots_do_not_overlap_whatever_the_size_of_an_item():
    for shape, dtype in (((3,), np.uint8), ((7, 5), np.float64), ((1,), np.int16), ((100,), np.float32)):
        with Ring(3, shape, dtype, deadline=1) as one:
            for number in (1, 2, 3):
                one.put(np.full(shape, number, dtype))
            for number in (1, 2, 3):
                assert (one.take() == number).all()


def test_a_full_and_an_empty_ring_end_the_wait_and_name_the_side_that_is_missing():
    with Ring(2, (1,), deadline=0.05) as one:
        with pytest.raises(TimeoutError, match=r"empty: the producer .*0 put, 0 taken"):
            one.take()
        one.put(1)
        one.put(2)
        with pytest.raises(TimeoutError, match=r"filled: the consumer .*2 put, 0 taken"):
            one.put(3)
        assert [float(one.take()[0]) for _ in range(2)] == [1, 2], "the timeouts have changed nothing"


def test_an_error_while_filling_puts_nothing_and_one_while_reading_keeps_the_item():
    with Ring(1, (1,), deadline=0.05) as one:
        with pytest.raises(ZeroDivisionError), one.filling():
            raise ZeroDivisionError
        assert one.put_count == 0
        one.put(4)
        with pytest.raises(ZeroDivisionError), one.reading():
            raise ZeroDivisionError
        assert float(one.take()[0]) == 4


def test_after_the_last_item_the_consumer_is_told_so_each_time_it_asks():
    with Ring(2, (1,), deadline=0.05) as one:
        one.put(1)
        one.finish()
        assert float(one.take()[0]) == 1
        for _ in range(3):
            with pytest.raises(EOFError, match="finished"):
                one.take()


def test_the_block_is_found_by_its_name_until_the_ring_is_closed_even_by_an_error():
    with pytest.raises(ZeroDivisionError), Ring(2, (8,)) as one:
        name = one.name
        assert exists(name) and str(os.getpid()) in name
        raise ZeroDivisionError
    assert not exists(name)
    one.close()  # a second time does nothing


def test_a_slot_that_is_held_too_long_keeps_its_memory_but_not_its_name():
    with Ring(1, (2,), deadline=1) as one:
        one.put(9)
        with one.reading() as held:
            pass
        name = one.name
    del one
    assert held.tolist() == [9.0, 9.0] and not exists(name)


def test_a_ring_that_cannot_be_is_refused(monkeypatch, tmp_path):
    with pytest.raises(LabError, match="0 slots"):
        Ring(0, (1,))
    with pytest.raises(LabError, match="no elements"):
        Ring(1, (3, 0))
    monkeypatch.setattr(ring, "SHM", tmp_path)
    monkeypatch.setattr(ring.shutil, "disk_usage", lambda _: type("Room", (), {"free": 1000}))
    with pytest.raises(LabError, match="does not fit into /dev/shm.*shm-size"):
        Ring(2, (1000,))


def test_a_child_that_dies_with_a_slot_in_its_hands_does_not_take_the_parent_with_it():
    if "fork" not in methods():
        pytest.skip("needs fork")

    def dies(one):
        one.put(1)
        with one.filling():
            os.kill(os.getpid(), signal.SIGKILL)

    context = multiprocessing.get_context("fork")
    with Ring(3, (1,), context=context, deadline=0.3) as one, suppress_fork_warning():
        child = context.Process(target=dies, args=(one,))
        child.start()
        child.join(10)
        assert child.exitcode == -signal.SIGKILL
        assert float(one.take()[0]) == 1
        with pytest.raises(TimeoutError, match="the producer is stuck or gone"):
            one.take()
        assert exists(one.name), "a child does not end the memory that the parent made"


@pytest.mark.parametrize("method", methods())
def test_a_relay_passes_every_byte_in_order_by_every_start_method(method):
    with suppress_fork_warning():
        run = relay.run([0.0] * 9, [0.0] * 9, slots=2, shape=(50, 3), method=method)
    assert run.put == run.taken == relay.checksum(9, (50, 3))
    assert run.order == list(range(9)) and max(run.ahead) <= 2
    assert not exists(run.segment)


def test_no_slot_is_filled_before_its_last_item_was_read():
    with suppress_fork_warning():
        run = relay.run([0.0] * 8, [0.003] * 8, slots=3, shape=(10,), method=methods()[0])
    fills, reads = run.of(relay.FILLS), run.of(relay.READS)
    assert len(fills) == len(reads) == 8
    assert all(fill.start >= read.end for fill, read in zip(fills[3:], reads, strict=False))
    assert all(read.start >= fill.end for fill, read in zip(fills, reads, strict=True))


class Alone:
    """Stands for a ring whose partner takes 10 s to come and for a barrier; it moves a planted clock."""

    def __init__(self, monkeypatch, items):
        self.now, self.left, self.put_count, self.taken_count = 100.0, items, 0, 0
        self.slot = np.zeros(4, np.float32)
        monkeypatch.setattr(relay, "CLOCK", lambda: self.now)
        monkeypatch.setattr("hpml_lab.core.timeline.CLOCK", lambda: self.now)
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
def test_each_side_s_waits_and_works_are_told_apart_on_a_planted_clock(monkeypatch, side, lane, kinds):
    alone = Alone(monkeypatch, items=2)
    told = side(alone, [3.0, 4.0], alone)
    spans = [(one.lane, one.what, one.start, one.end) for one in told["spans"]]
    waits, works = kinds
    assert spans == [
        (lane, waits, 1100, 1110),
        (lane, works, 1110, 1113),
        (lane, waits, 1113, 1123),
        (lane, works, 1123, 1127),
    ], "the wait for the other process to start is no wait for the ring"
    assert told.get("ahead", [1, 2]) == [1, 2] and told.get("order", [0, 0]) == [0, 0]


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
    with suppress_fork_warning(), pytest.raises(LabError, match=f"The {side} did not finish: ValueError: sleep length"):
        relay.run(make, use, slots=2, shape=(4,), method=methods()[0])


def test_the_checksum_is_that_of_the_items_one_after_the_other():
    import zlib

    items = np.zeros((3, 5), np.float32)
    for number, item in enumerate(items):
        relay.write_item(item, number)
    assert relay.checksum(3, (5,)) == zlib.crc32(items.tobytes())
    assert items[:, 0].tolist() == [0, 1, 2] and len(np.unique(items[:, 1:])) == 12
