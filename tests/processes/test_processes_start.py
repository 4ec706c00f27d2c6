"""Starting workers: every method starts and ends them, a fork copies a held lock, and nothing is left behind."""

import multiprocessing
import os
import time

import psutil
import pytest

from hpml_lab import processes
from hpml_lab.core.system.children import child_process, run_in_child
from hpml_lab.core.system.workers import HELPERS, child_pids
from hpml_lab.processes.experiments import start_cost
from hpml_lab.processes.experiments.start_cost import SPAWN_WITH_TORCH, StartCost, safe_methods, start_process, start_thread
from hpml_lab.processes.experiments.start_methods import _gains
from hpml_lab.processes.lessons import held_lock
from hpml_lab.processes.lessons.work import send_time


@pytest.fixture(scope="module")
def result(ran):
    return ran("start-methods")


def test_the_experiment_is_sound(result, sound):
    sound(result)


def test_every_way_to_start_has_its_row_from_the_fastest_on(result):
    ways = {row.way for row in result.rows(StartCost)}
    assert {"thread", SPAWN_WITH_TORCH, *safe_methods()} <= ways
    times = [row.ready for row in result.rows(StartCost)]
    assert times == sorted(times) and times[0] > 0


def test_the_ratios_are_those_of_the_rows_times(result):
    ready = {row.way: row.ready for row in result.rows(StartCost)}
    assert result.here("spawn and import torch") == ready[SPAWN_WITH_TORCH]
    if "fork" in ready:
        gain = {row.way: row.gain for row in result.rows(StartCost)}
        assert result.here("fork compared with a thread") == gain["thread"]
        for way in ("forkserver", "spawn"):
            assert result.here(f"{way} compared with fork") == 1 / gain[way]
        assert gain["fork"] is None and not any("again" in way for way in gain), "the placebo is no row"


def test_gains_are_pair_by_pair_over_the_cheapest_method_that_took_turns_with_it():
    def cost(way, *samples):
        return StartCost(way, False, 0.0, None, len(samples), samples=samples)

    rows = [cost("first", 9.0), cost("fork", 1.0, 2.0), cost("fork, again", 1.0, 2.0), cost("spawn", 4.0, 8.0)]
    gains = _gains(rows, "fork")
    assert list(gains) == ["spawn"] and gains["spawn"].slower
    assert (rows[3].gain, rows[3].interval, rows[0].gain) == (0.25, "0.25 to 0.25", None)


def test_the_timelines_show_each_case_of_the_held_lock(result):
    assert list(result.arrays["held"]) == list(held_lock.HELD_LOCK_CASES)
    assert len(processes.held_lock_timelines(result).figure.axes) == 3


def test_a_worker_is_ready_before_it_has_ended():
    for ready, ended in (start_thread(), *(start_process(multiprocessing.get_context(name)) for name in safe_methods())):
        assert 0 < ready <= ended


def test_a_row_has_the_medians_in_milliseconds():
    row = start_cost._row("spawn", False, [(0.001, 0.004), (0.002, 0.005), (0.09, 0.1)])
    assert row == StartCost("spawn", False, 2, 5, 3, samples=(0.001, 0.002, 0.09))


@pytest.mark.parametrize(
    "product, end",
    [(lambda _: None, start_cost.DONE), (lambda _: time.sleep(600), start_cost.HANGS), (lambda _: os._exit(6), "exit code 6")],
)
def test_a_forked_product_that_crashes_is_none_that_hangs(monkeypatch, product, end):
    monkeypatch.setattr(start_cost, "_multiply", product)
    patience = 0.3 if end == start_cost.HANGS else 60.0
    assert start_cost._forked_product(multiprocessing.get_context("fork"), None, patience) == end


def stuck(connection):
    time.sleep(600)


def test_a_worker_that_never_gets_to_its_first_line_is_ended(monkeypatch):
    monkeypatch.setattr(start_cost, "PATIENCE_SECONDS", 0.3)
    before = child_pids()
    with pytest.raises(TimeoutError, match="first line"):
        start_process(multiprocessing.get_context("spawn"), stuck)
    assert child_pids() == before


def test_a_fork_server_can_have_torch_before_its_workers_start():
    rows = start_cost.measure_starts(methods=["forkserver"], samples=2, preload=True)
    first, following = (row for row in rows if row.has_torch)
    assert "first" in first.way and first.ready > following.ready > 0


def case(name, hold=0.05, patience=0.3):
    outcome = run_in_child(held_lock.start_while_held, name, hold, patience, method="spawn", deadline_seconds=300)
    assert outcome.how == "returned", outcome
    return outcome.value


def test_a_forked_child_waits_in_vain_for_a_lock_that_a_thread_held():
    found = case("fork")
    assert (found.asked, found.child, found.parent) == (True, held_lock.GETS_NOT, held_lock.GETS)
    spans = {span.lane: span for span in found.spans}
    assert spans["the child"].what == held_lock.NEVER
    assert spans["the child"].end > spans["its other thread"].end, "it still waits when the thread has let go"


def test_the_lock_is_still_held_when_a_busy_machine_forks_late(monkeypatch):
    """The thread held it for a time of its own, and with eight programs a core four of nine forks came after that."""

    def late(*arguments, **options):
        time.sleep(0.3)
        return child_process(*arguments, **options)

    monkeypatch.setattr(held_lock, "child_process", late)
    found = held_lock.start_while_held("fork", 0.05, 0.3)
    assert (found.asked, found.child, found.parent) == (True, held_lock.GETS_NOT, held_lock.GETS)


def test_hooks_make_the_parent_wait_before_it_forks():
    found = case("fork with hooks")
    assert (found.asked, found.child) == (True, held_lock.GETS)
    spans = {span.lane: span for span in found.spans}
    assert spans["the parent"].end > spans["its other thread"].end


def test_a_spawned_child_has_a_lock_of_its_own():
    """The thread holds the other one until the child has asked, however long the child takes to start."""
    found = case("spawn")
    assert (found.asked, found.child) == (True, held_lock.GETS_OWN)
    spans = {span.lane: span for span in found.spans}
    assert spans["its other thread"].start < spans["the child"].start
    assert spans["the child"].end < spans["its other thread"].end


def test_a_lock_that_both_processes_share_is_not_taken_for_the_childs_own(monkeypatch):
    monkeypatch.setattr(held_lock, "LOCK", multiprocessing.get_context("fork").Lock())
    found = held_lock.start_while_held("fork", 0.05, 60)
    assert (found.asked, found.child) == (True, held_lock.GETS)
    spans = {span.lane: span for span in found.spans}
    assert spans["the child"].end > spans["its other thread"].end


def test_helpers_of_multiprocessing_do_not_pile_up():
    def helpers():
        return {
            child.pid for child in psutil.Process().children() if any(name in " ".join(child.cmdline()) for name in HELPERS)
        }

    start_process(multiprocessing.get_context("forkserver"))
    start_process(multiprocessing.get_context("spawn"))
    before = helpers()
    assert len(before) == 2, "one fork server, one tracker"
    for _ in range(3):
        start_process(multiprocessing.get_context("forkserver"))
        case("spawn")
    assert helpers() == before


@pytest.mark.parametrize("method", safe_methods())
def test_a_worker_that_runs_on_is_seen_whatever_its_start_method(method):
    before = child_pids()
    process = multiprocessing.get_context(method).Process(target=time.sleep, args=(600,), daemon=True)
    process.start()
    try:
        assert child_pids() - before == {process.pid}
    finally:
        process.kill()
        process.join()


def test_the_first_line_is_reported_on_the_common_clock():
    here, there = multiprocessing.Pipe(duplex=False)
    begin = time.monotonic()
    send_time(there)
    with here:
        assert begin <= here.recv() <= time.monotonic()


@pytest.mark.cuda
def test_a_child_forked_after_cuda_was_used_is_refused_by_cuda():
    found = processes.start_methods("quick", device="cuda")
    claim = next(claim for claim in found.claims if "CUDA" in claim.text)
    assert claim.holds, claim.measured
