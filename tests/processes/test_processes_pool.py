"""Process and Pool by every start method, the lecture's two functions called f, functions of a cell, and what goes wrong."""

import multiprocessing
import os
import signal
import time
from dataclasses import replace

import pytest

from hpml_lab import processes
from hpml_lab.core.system.workers import child_pids
from hpml_lab.core.timing.timeline import Span
from hpml_lab.processes.experiments import pool
from hpml_lab.processes.experiments import process_and_pool as experiment
from hpml_lab.processes.experiments.pool import Printed, pool_squares, process_prints
from hpml_lab.processes.lessons import work

METHODS = processes.safe_methods()


@pytest.fixture(scope="module")
def result(ran):
    return ran("process-and-pool")


@pytest.fixture
def nothing_left():
    before = child_pids()
    yield
    assert child_pids() <= before


def test_the_experiment_is_sound(result, sound):
    sound(result)


def test_the_rows_are_those_of_the_methods(result):
    pools = {row.method: row for row in result.rows()}
    assert list(pools) == METHODS
    for method, spans in result.arrays["timelines"].items():
        row = pools[method]
        assert 0 < row.first_ready <= row.ready == result.here(f"Pool(5) ready with {method}")
        assert row.busy_workers == len({span["lane"] for span in spans if span["what"] == pool.SQUARES}) <= 3
    assert pools[METHODS[0]].gain == 1 and pools[METHODS[0]].verdict == "within noise"


def test_with_known_pools_the_slower_one_is_named_and_the_fork_explained(monkeypatch):
    """Five workers: forked ones are ready after 10, 20, … 50 ms, those of the others all after 25."""

    def known(method, workers, items, *, seconds=0.0):
        ends = [0.01 * number if method == "fork" else 0.025 for number in range(1, workers + 1)]
        spans = [Span(f"worker {number}", pool.STARTS, 0.0, end) for number, end in enumerate(ends)]
        return pool.Squared([item * item for item in items], [*spans, Span("worker 0", pool.SQUARES, 1.0, 2.0)])

    monkeypatch.setattr(experiment, "pool_squares", known)
    result = replace(processes.process_and_pool, quick=experiment.QUICK | {"rounds": 1})("quick")
    pools = {row.method: row for row in result.rows()}
    assert (pools["fork"].first_ready, pools["fork"].ready) == pytest.approx((10, 50))
    assert pools["spawn"].gain == pytest.approx(2) and pools["spawn"].verdict == "faster"
    [claim] = [claim for claim in result.claims if "one after the other" in claim.text]
    assert claim.holds and "first ready after 10 ms, last after 50 ms" in claim.measured


def test_the_lecture_is_answered(result):
    assert result.here("Process(f, 'bob') prints") == "hello bob"
    assert result.here("Pool(5).map(f, [1, 2, 3]) returns") == "[1, 4, 9]"


@pytest.mark.parametrize("method", METHODS)
def test_a_process_prints_and_a_pool_squares(method, nothing_left):
    assert process_prints(method, work.greet, "bob") == Printed("hello bob\n", 0)
    assert pool_squares(method, 2, [3, -1, 0.5]).values == [9, 1, 0.25]


# As text: a function of this module would make the spawned process import it, and torch with it.
PRINT_MASK = "import signal; print(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))"


# Not forkserver: its server may have started before, outside of the block that shields it.
@pytest.mark.parametrize("method", [method for method in METHODS if method != "forkserver"])
def test_a_process_does_not_hear_the_ctrl_c_that_is_meant_for_its_parent(method):
    assert process_prints(method, exec, PRINT_MASK).text == "True\n"
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_the_spans_show_when_workers_are_ready_and_which_worker_squares():
    spans = pool_squares("fork", 3, [1, 2, 3, 4, 5], seconds=0.02).spans
    starts = [span for span in spans if span.what == pool.STARTS]
    done = [span for span in spans if span.what == pool.SQUARES]
    assert {span.lane for span in starts} == {"worker 1", "worker 2", "worker 3"} and len(done) == 5
    ready = {span.lane: span.end for span in starts}
    assert all(span.start >= ready[span.lane] and span.seconds >= 0.02 for span in done)


def test_a_chunk_stays_with_one_worker():
    spans = pool_squares("fork", 2, [1, 2, 3, 4], seconds=0.01, chunksize=4).spans
    assert len({span.lane for span in spans if span.what == pool.SQUARES}) == 1


def test_a_pool_that_is_too_slow_is_ended(nothing_left):
    with pytest.raises(multiprocessing.TimeoutError):
        pool_squares("fork", 2, [1, 2], seconds=600, deadline_seconds=0.3)


def test_an_item_that_cannot_be_squared_raises_in_the_parent(nothing_left):
    with pytest.raises(TypeError, match="can't multiply sequence"):
        pool_squares("fork", 2, [1, "bob"])


@pytest.mark.parametrize("method", METHODS)
def test_a_process_that_hangs_or_dies_is_ended(method, nothing_left):
    begin = time.monotonic()
    assert process_prints(method, time.sleep, 600, deadline_seconds=0.5) == Printed("", -signal.SIGKILL)
    assert process_prints(method, os._exit, 7) == Printed("", 7)
    assert time.monotonic() - begin < 300, "not the 600 s of its sleep"


def test_the_slides_second_f_takes_the_place_of_the_first():
    done = processes.run_slides()
    assert done.stdout == "exit code of the process: 1\n[1, 4, 9]\n" and done.exitcode == 0
    assert "TypeError: can't multiply sequence by non-int of type 'str'" in done.stderr


@pytest.mark.parametrize(("method", "printed"), [("fork", "9\nexit code 0\n"), ("spawn", "exit code 1\n")])
def test_a_function_of_a_cell_is_known_to_a_forked_child_only(method, printed):
    assert processes.run_cell_function(method).stdout == printed
