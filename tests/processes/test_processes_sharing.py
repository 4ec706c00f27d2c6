"""Handles are short and share memory, pickles are copies, and the experiments on both hold what they claim."""

import multiprocessing
import pickle
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch

from hpml_lab.core.errors import LabError
from hpml_lab.core.workers import child_pids
from hpml_lab.processes import experiments_sharing, sharing
from hpml_lab.processes.experiments_sharing import producer_consumer, tensor_queues
from hpml_lab.processes.start import methods


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = child_pids(), sharing.named_segments(), set(threading.enumerate())
    yield
    assert (child_pids(), sharing.named_segments(), set(threading.enumerate())) == before


@pytest.fixture(scope="module")
def queues():
    return replace(tensor_queues, quick=dict(kib=(1, 64, 1024), seconds=0.002, rounds=2))("quick")


@pytest.fixture(scope="module")
def relays():
    return replace(
        producer_consumer,
        quick=dict(items=10, seconds=0.004, slots=3, kib=16, methods=tuple(multiprocessing.get_all_start_methods())),
    )("quick")


def test_both_rows_are_sound(queues, relays, sound):
    sound(queues)
    sound(relays)


def test_tensor_queues_measures_every_route_at_every_size(queues):
    assert queues, [claim for claim in queues.claims if not claim.holds]
    assert {(row["route"], row["KB"]) for row in queues.rows} == {
        (route, kib * 1.024) for route in sharing.ROUTES for kib in (1, 64, 1024)
    }
    for row in queues.rows:
        assert row["MB/s"] == pytest.approx(row["KB"] * row["messages/s"] / 1e3)
        assert row["µs per message"] == pytest.approx(1e6 / row["messages/s"])
    assert queues.quantities["message of a handle, bytes"] < 1000


def test_tensor_queues_leaves_out_what_does_not_fit_into_shared_memory(monkeypatch):
    if not sharing.SHM.is_dir():
        pytest.skip("needs /dev/shm")
    room = type("Room", (), {"free": 10 * 65536})
    monkeypatch.setattr(experiments_sharing.shutil, "disk_usage", lambda _: room)
    monkeypatch.setattr(sharing, "segments", list)
    result = replace(tensor_queues, quick=dict(kib=(1, 64, 1024), seconds=0.001, rounds=1))("quick")
    assert {row["KB"] for row in result.rows} == {1.024, 65.536}
    assert "too little for messages above 0.1 MB" in result.notes[0]


def test_producer_consumer_ran_by_every_safe_start_method(relays):
    assert relays, [claim for claim in relays.claims if not claim.holds]
    [claim] = [claim for claim in relays.claims if "however the processes are started" in claim.text]
    assert set(claim.measured.split(", ")) == set(methods())
    assert [len(panel["rows"]) for panel in relays.arrays["timelines"]] == [40] * 4, "4 spans an item"
    assert all(row["most in the ring"] <= row["slots"] for row in relays.rows)


def test_a_planted_early_refill_would_be_noticed(monkeypatch):
    """A ring whose producer does not wait for free slots breaks the exact claims."""
    real = experiments_sharing.relay.run

    def hasty(*arguments, slots, **named):
        run = real(*arguments, slots=slots, **named)
        return replace(run, taken=run.taken ^ 1, ahead=[slots + 1, *run.ahead])

    monkeypatch.setattr(experiments_sharing.relay, "run", hasty)
    broken = replace(producer_consumer, quick=dict(items=3, seconds=0.001, slots=2, kib=1, methods=("fork", "spawn")))("quick")
    failed = " ".join(claim.text for claim in broken.claims if claim.exact and not claim.holds)
    assert not broken and "checksums agree" in failed and "back-pressure" in failed


@pytest.mark.parametrize("nbytes", [32768, 48000])
def test_copies_are_counted_stage_by_stage(nbytes):
    rows = {row["route"]: row for row in sharing.copies(nbytes)}
    assert list(rows) == list(sharing.ROUTES)
    for route in ("pickle", "bytes"):
        row = rows[route]
        assert row["pipe"] == 1 and row["pack"] >= 1 and row["read"] >= 1 and row["unpack"] == 1
        assert nbytes < row["message"] < nbytes + 1000
    assert [rows[route]["copies"] for route in ("torch", "reused", "ring")] == [1, 0, 0]


def test_only_a_tensor_travels_as_a_handle():
    tensor = torch.ones(10_000)
    assert sharing.message_bytes(tensor) < 1000 < sharing.message_bytes(tensor.numpy())
    assert tensor.is_shared() and len(pickle.dumps(tensor)) > tensor.nbytes


def test_segments_are_seen_while_in_use_and_are_gone_afterwards():
    strategy = torch.multiprocessing.get_sharing_strategy()
    rows = sharing.segments()
    assert torch.multiprocessing.get_sharing_strategy() == strategy, "changed in children only"
    assert [row["while in use"] for row in rows] == [True] * len(rows)
    assert [row["afterwards"] for row in rows] == [False] * len(rows)
    assert len(rows) == (3 if sharing.SHM.is_dir() else 1)


def test_an_error_in_the_block_leaves_no_consumer_and_no_segment():
    with pytest.raises(ZeroDivisionError), sharing.Exchange(4096, methods()[0]) as exchange:
        assert exchange.send("torch", torch.ones(1024), 2) > 0
        raise ZeroDivisionError


def test_a_consumer_that_is_gone_is_told_within_the_deadline(monkeypatch):
    monkeypatch.setattr(sharing, "DEADLINE", 3.0)
    with pytest.raises(LabError, match="no answer within 3 s .exit code -9"), sharing.Exchange(4096, methods()[0]) as exchange:
        exchange._consumer.kill()
        exchange._consumer.join()
        exchange._control.send = lambda order: None  # the pipe would break at once; the answer is what is looked at
        exchange.send("bytes", torch.ones(16), 1)


def test_a_damaged_message_is_noticed():
    with sharing.Exchange(4096, methods()[0]) as exchange:
        exchange.send("bytes", torch.ones(16), 3)
        assert exchange.right
        exchange._put_bytes = lambda source, number: type(exchange)._put_bytes(exchange, source, number + 1)
        exchange.send("bytes", torch.ones(16), 3)
        assert not exchange.right


def planted(pickled, handed):
    sizes = [1000, 10_000, 100_000]
    return [
        {"route": route, "bytes": n, "MB/s": rate}
        for route, rates in (("pickle", pickled), ("torch", handed))
        for n, rate in zip(sizes, rates, strict=True)
    ]


def test_the_crossover_is_where_the_lines_meet():
    assert sharing.crossover(planted([10, 10, 10], [1, 1, 100])) == pytest.approx(10_000 * 10**0.5)
    assert sharing.crossover(planted([10, 10, 10], [20, 20, 20])) == 1000
    assert sharing.crossover(planted([10, 10, 10], [20, 20, 5])) is None
    assert sharing.crossover(planted([10, 10, 10], [100, 1, 100])) == pytest.approx(10_000 * 10**0.5), "after the last loss"


def test_thread_local_data_is_each_threads_own():
    shared, own, main = experiments_sharing.thread_local_demo(5)
    assert len(set(shared)) == 1 and own == [0, 1, 2, 3, 4] and "no attribute 'x'" in main


def test_a_ring_can_carry_a_tensor_without_a_copy():
    with sharing.Ring(1, (6,), np.float32, deadline_seconds=1) as ring:
        with ring.filling() as slot:
            view = torch.from_numpy(slot)
            assert view.data_ptr() == slot.ctypes.data
