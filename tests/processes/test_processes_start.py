"""Starting workers: every method starts and ends them, a fork copies a held lock, and nothing is left behind."""

import multiprocessing
import time

import psutil
import pytest

from hpml_lab.core.children import run_in_child
from hpml_lab.core.workers import HELPERS, child_pids
from hpml_lab.processes import held_lock, start
from hpml_lab.processes.experiments import start_methods
from hpml_lab.processes.work import tell_the_time


@pytest.fixture(scope="module")
def result():
    return start_methods("quick")


def test_the_experiment_is_sound(result, sound):
    sound(result)


def test_every_way_to_start_has_its_row_from_the_fastest_on(result):
    ways = {row["start"] for row in result.rows}
    assert {"thread", "spawn, then import torch", *start.methods()} <= ways
    times = [row["to the first line, ms"] for row in result.rows]
    assert times == sorted(times) and times[0] > 0


def test_the_ratios_are_those_of_the_rows_times(result):
    ready = {row["start"]: row["to the first line, ms"] for row in result.rows}
    if "fork" in ready:
        slower = {("fork", "thread"), ("forkserver", "fork"), ("spawn", "fork")}
        for way, other in slower:
            name = f"{way} against {'a thread' if other == 'thread' else other}, times slower"
            assert result.quantities[name] == ready[way] / ready[other]


def test_a_worker_is_ready_before_it_has_ended():
    for found in (start.start_thread(), *(start.start_one(multiprocessing.get_context(one)) for one in start.methods())):
        assert 0 < found["ready"] <= found["ended"]


def test_a_row_has_the_medians_in_milliseconds():
    found = [{"ready": 0.001, "ended": 0.004}, {"ready": 0.002, "ended": 0.005}, {"ready": 0.09, "ended": 0.1}]
    row = start._row("spawn", False, found)
    assert (row["to the first line, ms"], row["until it ended, ms"], row["starts"]) == (2, 5, 3)


def stuck(connection):
    time.sleep(600)


def test_a_worker_that_never_gets_to_its_first_line_is_ended(monkeypatch):
    monkeypatch.setattr(start, "PATIENCE", 0.3)
    before = child_pids()
    with pytest.raises(TimeoutError, match="first line"):
        start.start_one(multiprocessing.get_context("spawn"), stuck)
    assert child_pids() == before


def test_a_fork_server_can_have_torch_before_its_workers_start():
    rows = start.measure(methods=["forkserver"], samples=2, preload=True)
    preloaded = {row["start"]: row for row in rows if row["torch in the worker"]}
    first, next_one = preloaded.values()
    assert "first" in first["start"] and first["to the first line, ms"] > next_one["to the first line, ms"] > 0


def case(name, hold=0.05, patience=0.3):
    outcome = run_in_child(held_lock.start_while_held, name, hold, patience, method="spawn", deadline_seconds=60)
    assert outcome.how == "returned", outcome
    return outcome.value


def test_a_forked_child_waits_in_vain_for_a_lock_that_a_thread_held():
    found = case("fork")
    assert (found["asked"], found["child has it"], found["parent has it"]) == (True, False, True)
    spans = {span.lane: span for span in found["spans"]}
    assert spans["the child"].what == held_lock.NEVER
    assert spans["the child"].end > spans["its other thread"].end, "it still waits when the thread has let go"


def test_hooks_make_the_parent_wait_before_it_forks():
    found = case("fork with hooks")
    assert (found["asked"], found["child has it"]) == (True, True)
    spans = {span.lane: span for span in found["spans"]}
    assert spans["the parent"].end > spans["its other thread"].end


def test_a_spawned_child_has_a_lock_of_its_own():
    found = case("spawn", hold=3)  # held far longer than the child needs
    assert (found["asked"], found["child has it"]) == (True, True)
    spans = {span.lane: span for span in found["spans"]}
    assert spans["the child"].end < spans["its other thread"].end


def test_helpers_of_multiprocessing_do_not_pile_up():
    def helpers():
        return {
            child.pid for child in psutil.Process().children() if any(name in " ".join(child.cmdline()) for name in HELPERS)
        }

    start.start_one(multiprocessing.get_context("forkserver"))
    start.start_one(multiprocessing.get_context("spawn"))
    before = helpers()
    assert len(before) == 2, "one fork server, one tracker"
    for _ in range(3):
        start.start_one(multiprocessing.get_context("forkserver"))
        case("spawn")
    assert helpers() == before


@pytest.mark.parametrize("method", start.methods())
def test_a_worker_that_runs_on_is_seen_whatever_its_start_method(method):
    before = child_pids()
    process = multiprocessing.get_context(method).Process(target=time.sleep, args=(600,), daemon=True)
    process.start()
    try:
        assert child_pids() - before == {process.pid}
    finally:
        process.kill()
        process.join()


def test_the_first_line_is_told_on_the_common_clock():
    here, there = multiprocessing.Pipe(duplex=False)
    begin = time.monotonic()
    tell_the_time(there)
    with here:
        assert begin <= here.recv() <= time.monotonic()


@pytest.mark.cuda
def test_a_child_forked_after_cuda_was_used_is_refused_by_cuda():
    found = start_methods("quick", device="cuda")
    claim = next(claim for claim in found.claims if "CUDA" in claim.text)
    assert claim.holds, claim.measured
