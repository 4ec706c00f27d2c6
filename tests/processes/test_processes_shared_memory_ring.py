"""A ring passes every item once and in order, waits with a deadline, and leaves nothing behind."""

import multiprocessing
import os
import signal
import time
from multiprocessing.shared_memory import SharedMemory

import numpy as np
import pytest

from hpml_lab.core.system.children import child_process
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import child_pids
from hpml_lab.processes.lessons import shared_memory_ring as ring_module
from hpml_lab.processes.lessons.shared_memory_ring import SHM, Ring


def exists(name):
    """True where a block of that name can still be opened, on any system."""
    try:
        block = SharedMemory(name)
    except FileNotFoundError:
        return False
    block.close()
    return True


def segments():
    """The names in /dev/shm of this process's rings."""
    return {path.name for path in SHM.iterdir() if f"_{os.getpid()}_" in path.name} if SHM.is_dir() else set()


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = child_pids(), segments()
    yield
    assert (child_pids(), segments()) == before


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_items_come_out_once_and_in_order_round_after_round(slots):
    got = []
    with Ring(slots, (3,), np.int64, deadline_seconds=1) as ring:
        for number in range(4 * slots):
            ring.put(number)
            if number % slots == slots - 1:
                got += [ring.take().tolist() for _ in range(slots)]
        assert (ring.put_count, ring.taken_count) == (4 * slots, 4 * slots)
    assert got == [[number] * 3 for number in range(4 * slots)]


def test_a_slot_is_given_itself_and_a_taken_item_is_a_copy():
    import torch

    with Ring(1, (4,), deadline_seconds=1) as ring:
        with ring.filling() as slot:
            torch.from_numpy(slot).fill_(5)  # a tensor on the same bytes
        with ring.reading() as slot:
            assert slot.tolist() == [5.0] * 4
        ring.put(6)
        kept = ring.take()
        ring.put(7)
        assert kept.tolist() == [6.0] * 4


def test_slots_do_not_overlap_whatever_the_size_of_an_item():
    for shape, dtype in (((3,), np.uint8), ((7, 5), np.float64), ((1,), np.int16), ((100,), np.float32)):
        with Ring(3, shape, dtype, deadline_seconds=1) as ring:
            for number in (1, 2, 3):
                ring.put(np.full(shape, number, dtype))
            for number in (1, 2, 3):
                assert (ring.take() == number).all()


def test_a_full_and_an_empty_ring_end_the_wait_and_name_the_side_that_is_missing():
    with Ring(2, (1,), deadline_seconds=0.05, start_seconds=0.05) as ring:
        with pytest.raises(TimeoutError, match=r"empty: the producer .*0 put, 0 taken"):
            ring.take()
        ring.put(1)
        ring.put(2)
        with pytest.raises(TimeoutError, match=r"filled: the consumer .*2 put, 0 taken"):
            ring.put(3)
        assert [float(ring.take()[0]) for _ in range(2)] == [1, 2], "the timeouts have changed nothing"


def test_an_error_while_filling_puts_nothing_and_one_while_reading_keeps_the_item():
    with Ring(1, (1,), deadline_seconds=0.05) as ring:
        with pytest.raises(ZeroDivisionError), ring.filling():
            raise ZeroDivisionError
        assert ring.put_count == 0
        ring.put(4)
        with pytest.raises(ZeroDivisionError), ring.reading():
            raise ZeroDivisionError
        assert float(ring.take()[0]) == 4


def test_after_the_last_item_the_consumer_is_told_so_each_time_it_asks():
    with Ring(2, (1,), deadline_seconds=0.05) as ring:
        ring.put(1)
        ring.finish()
        assert float(ring.take()[0]) == 1
        for _ in range(3):
            with pytest.raises(EOFError, match="finished"):
                ring.take()


def test_the_block_is_found_by_its_name_until_the_ring_is_closed_even_by_an_error():
    with pytest.raises(ZeroDivisionError), Ring(2, (8,)) as ring:
        name = ring.name
        assert exists(name) and str(os.getpid()) in name
        raise ZeroDivisionError
    assert not exists(name)
    ring.close()  # a second time does nothing


def test_a_slot_that_is_held_too_long_keeps_its_memory_but_not_its_name():
    with Ring(1, (2,), deadline_seconds=1) as ring:
        ring.put(9)
        with ring.reading() as held:
            pass
        name = ring.name
    del ring
    assert held.tolist() == [9.0, 9.0] and not exists(name)


def test_a_ring_that_cannot_be_is_refused(monkeypatch, tmp_path):
    with pytest.raises(LabError, match="0 slots"):
        Ring(0, (1,))
    with pytest.raises(LabError, match="no elements"):
        Ring(1, (3, 0))
    monkeypatch.setattr(ring_module, "SHM", tmp_path)
    monkeypatch.setattr(ring_module.shutil, "disk_usage", lambda _: type("Room", (), {"free": 1000}))
    with pytest.raises(LabError, match="does not fit into /dev/shm.*shm-size"):
        Ring(2, (1000,))


def dies_with_a_slot(connection, ring):
    ring.put(1)
    with ring.filling():
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_child_that_dies_with_a_slot_in_its_hands_does_not_take_the_parent_with_it():
    context = multiprocessing.get_context("spawn")
    with Ring(3, (1,), context=context, deadline_seconds=0.3) as ring:
        with child_process(dies_with_a_slot, ring, context=context) as child:
            child.process.join(60)
        assert child.exitcode == -signal.SIGKILL
        assert float(ring.take()[0]) == 1
        with pytest.raises(TimeoutError, match="the producer is stuck or gone"):
            ring.take()
        assert exists(ring.name), "a child does not end the memory that the parent made"


def puts_after(connection, ring, seconds_to_start, seconds_to_work):
    """A producer that imports for a while, then calls the ring, and then works for a while."""
    time.sleep(seconds_to_start)
    with ring.filling() as slot:
        time.sleep(seconds_to_work)
        slot[...] = 5


def takes_after(connection, ring, seconds_to_start):
    time.sleep(seconds_to_start)
    connection.send(ring.take().tolist())


def test_the_deadline_starts_when_the_partner_comes_not_while_it_imports():
    context = multiprocessing.get_context("spawn")
    with Ring(1, (2,), context=context, deadline_seconds=0.2) as ring:
        with child_process(puts_after, ring, 1.0, 0.0, context=context):
            assert ring.take().tolist() == [5, 5]
    with Ring(1, (2,), context=context, deadline_seconds=0.2) as ring:
        with child_process(takes_after, ring, 1.0, context=context) as child:
            ring.put(7)
            ring.put(8)
            assert child.receive(60) == [7, 7]


def test_a_partner_that_has_come_and_works_too_long_is_stuck():
    context = multiprocessing.get_context("spawn")
    with Ring(1, (2,), context=context, deadline_seconds=0.3) as ring:
        with child_process(puts_after, ring, 0.5, 60.0, context=context):
            with pytest.raises(TimeoutError, match="waited 0.3 s for an item.*the producer is stuck or gone"):
                ring.take()


def test_a_partner_that_never_comes_has_not_started():
    with Ring(1, (1,), deadline_seconds=60, start_seconds=0.1) as ring:
        with pytest.raises(TimeoutError, match="waited 0.1 s for an item.*the producer has not started .0 put, 0 taken"):
            ring.take()
        ring.put(1)
        assert ring.take().tolist() == [1], "this process is its own partner: it has started"


def test_the_topic_exports_the_ring():
    from hpml_lab import processes

    assert processes.Ring is Ring and "Ring" in processes.__all__


def test_an_item_of_another_shape_is_refused_and_not_repeated():
    with Ring(2, (4, 2)) as ring:
        for item in (np.ones((1, 2)), np.ones(2), np.ones((5, 2))):
            with pytest.raises(ValueError, match=r"not one of \(4, 2\)"):
                ring.put(item)
        ring.put(3.0)
        assert (ring.take() == 3).all()
