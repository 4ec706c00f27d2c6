"""Handles are short and share memory, pickles are copies, and the experiments on both hold what they claim."""

import multiprocessing
import pickle
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from hpml_lab import processes
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import child_pids
from hpml_lab.processes.experiments import producer_consumer as relay_experiment
from hpml_lab.processes.experiments import tensor_queues as queues_experiment
from hpml_lab.processes.experiments.producer_consumer import RelayRow
from hpml_lab.processes.experiments.start_cost import safe_methods
from hpml_lab.processes.experiments.tensor_queues import exchange
from hpml_lab.processes.experiments.tensor_queues.exchange import Exchange, RouteRate, Throughput, crossover_kilobytes
from hpml_lab.processes.lessons.messages import ROUTES, RouteCopies, count_copies, message_bytes
from hpml_lab.processes.lessons.shared_memory_ring import SHM, Ring
from hpml_lab.processes.tools import segments
from hpml_lab.processes.tools.segments import named_segments


@pytest.fixture(autouse=True)
def nothing_is_left():
    before = child_pids(), named_segments(), set(threading.enumerate())
    yield
    end = time.monotonic() + 60
    while not set(threading.enumerate()) <= before[2] and time.monotonic() < end:
        time.sleep(0.05)  # the thread that feeds a queue ends when the queue has told it to
    assert (child_pids(), named_segments()) == before[:2] and set(threading.enumerate()) <= before[2]


@pytest.fixture(scope="module")
def queues(ran):
    return ran("tensor-queues")


@pytest.fixture(scope="module")
def relays(ran):
    return ran("producer-consumer")


def test_both_rows_are_sound(queues, relays, sound):
    sound(queues)
    sound(relays)


def test_tensor_queues_measures_every_route_at_every_size(queues):
    assert queues, [claim for claim in queues.claims if not claim.holds]
    rows = queues.rows(RouteRate)
    sizes, _ = queues_experiment._sizes_that_fit([kib * queues_experiment.KIB for kib in queues_experiment.QUICK["kib"]])
    assert {(row.route, row.kilobytes) for row in rows} == {(route, size / 1e3) for route in ROUTES for size in sizes}
    for row in rows:
        assert row.megabytes_per_second == pytest.approx(row.kilobytes * row.per_second / 1e3)
        assert row.microseconds == pytest.approx(1e6 / row.per_second)
    assert queues.here("message of a handle") < 1000
    assert {(row.route, row.kilobytes) for row in queues.rows(RouteCopies)} == {
        (route, size / 1e3) for route in ROUTES for size in (16 << 10, 256 << 10, sizes[-1])
    }, "in one of pickle's frames, above the frame's size, and at the largest"


def test_gains_are_over_the_same_routes_in_the_same_round():
    times = {"pickle": [1.0, 2.0], "pickle, again": [1.0, 1.6], "torch": [0.5, 1.0], "torch, again": [0.5, 1.0]}
    found = Throughput([], {}, True, {1024: times | {"reused": [0.25, 0.5]}})
    assert found.gain(1024, "torch", "pickle").ratio == pytest.approx(1.8), "against the half of the placebo that is nearer"
    assert found.gain(1024, "reused", "torch").ratio == 2
    assert found.gain(1024, "torch", "pickle").noise == pytest.approx(0.25)
    assert found.gain(1024, "reused", "torch").noise == 0


def test_tensor_queues_leaves_out_what_does_not_fit_into_shared_memory(monkeypatch):
    if not SHM.is_dir():
        pytest.skip("needs /dev/shm")
    room = type("Room", (), {"free": 10 * 65536})
    monkeypatch.setattr(queues_experiment.shutil, "disk_usage", lambda _: room)
    monkeypatch.setattr(segments, "shared_segments", list)
    result = replace(processes.tensor_queues, quick=dict(kib=(1, 64, 1024), seconds=0.001, rounds=1))("quick")
    assert {row.kilobytes for row in result.rows(RouteRate)} == {1.024, 65.536}
    assert "too little for messages above 0.1 MB" in result.notes[0]
    room.free = 4096
    with pytest.raises(LabError, match=r"0\.00 MB free, too little for any message"):
        queues_experiment._sizes_that_fit([1024, 65536])


def test_producer_consumer_ran_by_every_safe_start_method(relays):
    rest = tuple(set(multiprocessing.get_all_start_methods()) - set(relay_experiment.QUICK["methods"]))
    few = dict(items=2, seconds=0.001, slots=2, kib=1, methods=rest, rounds=1)
    methods = []
    for result in (relays, replace(processes.producer_consumer, quick=few)("quick")):
        assert result, [claim for claim in result.claims if not claim.holds]
        [claim] = [claim for claim in result.claims if "with every start method" in claim.text]
        methods += claim.measured.split("; ")[1].split(", ")
    assert sorted(methods) == sorted(safe_methods())
    items = relay_experiment.QUICK["items"]
    assert [len(rows) for rows in relays.arrays["timelines"].values()] == [4 * items] * 4, "4 spans an item"
    assert all(row.most_in_ring <= row.slots for row in relays.rows(RelayRow))


def test_a_slot_that_is_refilled_too_early_would_be_noticed(monkeypatch):
    """A ring whose producer does not wait for free slots breaks the exact claims."""
    real = relay_experiment.relay.run_relay

    def hasty(*arguments, slots, **named):
        run = real(*arguments, slots=slots, **named)
        return replace(run, taken=run.taken ^ 1, ahead=[slots + 1, *run.ahead])

    monkeypatch.setattr(relay_experiment.relay, "run_relay", hasty)
    broken = replace(
        processes.producer_consumer, quick=dict(items=3, seconds=0.001, slots=2, kib=1, methods=("fork", "spawn"), rounds=1)
    )("quick")
    failed = " ".join(claim.text for claim in broken.claims if claim.exact and not claim.holds)
    assert not broken and "checksums agree" in failed and "Back-pressure" in failed


@pytest.mark.parametrize("nbytes", [32768, 48000, 1 << 20, 3 << 20])
def test_copies_are_counted_stage_by_stage(nbytes):
    rows = {row.route: row for row in count_copies(nbytes)}
    assert list(rows) == list(ROUTES)
    for route in ("pickle", "bytes"):
        row = rows[route]
        assert row.pipe == 1 and row.pack >= 1 and row.read >= 1 and row.unpack == 1
        assert row.copies == row.pack + row.pipe + row.read + row.unpack
        assert nbytes < row.message_bytes < nbytes + 1000
    assert [rows[route].copies for route in ("torch", "reused", "ring")] == [1, 0, 0]


def test_large_objects_are_copied_less_often_than_those_that_pickle_collects_in_a_frame():
    small, large = ({row.route: row.copies for row in count_copies(nbytes)} for nbytes in (16 << 10, 4 << 20))
    assert 4 <= large["pickle"] < small["pickle"] and 4 <= large["bytes"] < small["bytes"]


def test_only_a_tensor_travels_as_a_handle():
    tensor = torch.ones(10_000)
    assert message_bytes(tensor) < 1000 < message_bytes(tensor.numpy())
    assert tensor.is_shared() and len(pickle.dumps(tensor)) > tensor.nbytes


def test_segments_are_seen_while_in_use_and_are_gone_afterwards():
    strategy = torch.multiprocessing.get_sharing_strategy()
    rows = segments.shared_segments()
    assert torch.multiprocessing.get_sharing_strategy() == strategy, "changed in children only"
    assert [(row.in_use, row.afterwards) for row in rows] == [(1, 0)] * len(rows)
    assert len(rows) == (3 if SHM.is_dir() else 1)
    assert "hpml_" in rows[0].name
    if SHM.is_dir():
        by_descriptor, by_name = rows[1:]
        assert by_descriptor.name.startswith("/dev/shm/torch_") and by_descriptor.name.endswith("(deleted)")
        assert by_name.name.startswith("/dev/shm/torch_") and "deleted" not in by_name.name


def test_an_error_in_the_block_leaves_no_consumer_and_no_segment():
    with pytest.raises(ZeroDivisionError), Exchange(4096, safe_methods()[0]) as routes:
        assert routes.send("torch", torch.ones(1024), 2) > 0
        raise ZeroDivisionError


def test_a_consumer_that_is_gone_is_reported_within_the_deadline(monkeypatch):
    monkeypatch.setattr(exchange, "DEADLINE_SECONDS", 3.0)
    with pytest.raises(LabError, match="no answer within 3 s .exit code -9"), Exchange(4096, safe_methods()[0]) as routes:
        routes._consumer.kill()
        routes._consumer.join()
        routes.send("bytes", torch.ones(16), 1)


@pytest.mark.parametrize("route", ROUTES)
def test_a_consumer_that_ends_in_the_middle_is_reported_too(monkeypatch, route):
    monkeypatch.setattr(exchange, "DEADLINE_SECONDS", 3.0)
    with pytest.raises(LabError, match="no answer within 3 s .exit code -9"), Exchange(4096, safe_methods()[0]) as routes:
        put = getattr(routes, f"_put_{route}")

        def put_until_it_ends(source, number):
            if number == 5:
                routes._consumer.kill()
            return put(source, number)

        setattr(routes, f"_put_{route}", put_until_it_ends)
        routes.send(route, torch.ones(1024), 50)


def test_a_damaged_message_is_noticed():
    with Exchange(4096, safe_methods()[0]) as routes:
        routes.send("bytes", torch.ones(16), 3)
        assert routes.right
        routes._put_bytes = lambda source, number: type(routes)._put_bytes(routes, source, number + 1)
        routes.send("bytes", torch.ones(16), 3)
        assert not routes.right


def rates(pickled, handed):
    """Rates of two routes in MB/s at 1, 10 and 100 KB."""
    return [
        RouteRate(route, size, 1, speed * 1e3 / size, size * 1e3 / speed, speed, 1.0, "")
        for route, speeds in (("pickle", pickled), ("torch", handed))
        for size, speed in zip([1, 10, 100], speeds, strict=True)
    ]


def test_the_crossover_is_where_the_lines_meet():
    assert crossover_kilobytes(rates([10, 10, 10], [1, 1, 100])) == pytest.approx(10 * 10**0.5)
    assert crossover_kilobytes(rates([10, 10, 10], [20, 20, 20])) == 1
    assert crossover_kilobytes(rates([10, 10, 10], [20, 20, 5])) is None
    assert crossover_kilobytes(rates([10, 10, 10], [100, 1, 100])) == pytest.approx(10 * 10**0.5), "after the last loss"


def test_a_ring_can_carry_a_tensor_without_a_copy():
    with Ring(1, (6,), np.float32, deadline_seconds=1) as ring:
        with ring.filling() as slot:
            view = torch.from_numpy(slot)
            assert view.data_ptr() == slot.ctypes.data
