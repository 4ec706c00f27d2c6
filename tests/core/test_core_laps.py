"""Two clocks: the processor's says how long work takes where it only computes, whatever other programs do; else the wall's."""

import multiprocessing
import os
import time

import pytest
import torch

from hpml_lab.core.experiment.registry import busy_note
from hpml_lab.core.timing import laps
from hpml_lab.core.timing.clock import Timing, interleaved, measure
from hpml_lab.core.timing.laps import HELD_UP, Lap, held_up, lap, seconds_by_one_clock, stretches
from hpml_lab.core.timing.noise import Comparison

needs_queue = pytest.mark.skipif(not laps.HAS_QUEUE, reason="only Linux says how long a thread waits for a core")
COMPUTING = Lap(wall=3.0, cpu=1.0, queued=1.99)
BLOCKED = Lap(wall=3.0, cpu=1.0, queued=0.5)


@pytest.fixture(autouse=True)
def load_is_said(monkeypatch):
    monkeypatch.setattr(laps, "HELD_UP", HELD_UP)


def compute() -> float:
    end = time.thread_time() + 0.05
    start = time.perf_counter()
    while time.thread_time() < end:
        pass
    return time.perf_counter() - start


def sleep() -> float:
    time.sleep(0.05)
    return 0.05


def test_a_thread_that_was_never_blocked_took_its_time_on_a_core():
    assert COMPUTING.computes and COMPUTING.seconds == 1.0
    assert not BLOCKED.computes and BLOCKED.seconds == 3.0
    assert not Lap(3.0).computes and Lap(3.0).seconds == 3.0, "a system without these counters has the wall clock"


@needs_queue
def test_computing_and_sleeping_are_told_apart():
    found = [lap(compute) for _ in range(5)]  # a page that has to be read first is a wait
    assert sum(one.computes for one in found) >= 3 and min(one.cpu for one in found) == pytest.approx(0.05, rel=0.2)
    assert not lap(sleep).computes


@needs_queue
def test_other_programs_on_the_core_change_the_wall_clock_alone():
    """Four programs on this process's one core: the work takes at least twice as long, and the same time on the core."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    others = [multiprocessing.get_context("fork").Process(target=spin, daemon=True) for _ in range(4)]
    try:
        for other in others:
            other.start()
        found = [lap(compute) for _ in range(5)]
    finally:
        for other in others:
            other.kill()
            other.join()
        os.sched_setaffinity(0, cores)
    assert sum(one.computes for one in found) >= 3
    assert sum(one.wall for one in found) > 2 * sum(one.cpu for one in found)
    assert min(one.cpu for one in found) == pytest.approx(0.05, rel=0.2)


def spin() -> None:
    while True:
        pass


def test_without_the_counters_or_with_a_gpu_only_the_wall_clock_counts(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert lap(lambda: 2.0) == Lap(2.0)
    monkeypatch.undo()
    monkeypatch.setattr(laps, "HAS_QUEUE", False)
    assert laps.queued_seconds(1) == 0
    assert lap(lambda: 2.0) == Lap(2.0)


def test_works_are_compared_by_one_clock():
    """One that is blocked brings the wall clock to all: a ratio of two clocks would mean nothing."""
    seconds, stretch = seconds_by_one_clock({"a": [COMPUTING], "b": [COMPUTING, COMPUTING]})
    assert seconds == {"a": (1.0,), "b": (1.0, 1.0)} and stretch == 3.0
    assert seconds_by_one_clock({"a": [COMPUTING], "b": [BLOCKED]}) == ({"a": (3.0,), "b": (3.0,)}, 1.0)


def test_a_work_on_two_threads_is_timed_by_the_wall_clock(monkeypatch):
    monkeypatch.setattr("hpml_lab.core.timing.clock.lap", lambda work: pytest.fail("not the calling thread's time alone"))
    measure(lambda: None, samples=2, threads=2)


@needs_queue
def test_a_comparison_with_a_wait_is_of_the_wall_clock():
    times = interleaved({"computes": compute, "sleeps": sleep}, samples=2)
    assert times["sleeps"].seconds >= 0.05 and times["computes"].stretch == 1.0


def test_a_busy_machine_is_named():
    busy = Timing((1.0,) * 11, 1, stretch=3.14)
    assert str(busy).endswith("other programs had the cores: 3.1 times as long on the wall clock")
    assert "; other programs had the cores" in str(Comparison(busy, busy, busy))
    assert held_up(1.1) == "" and "other" not in str(Timing((1.0,) * 11, 1))
    assert busy_note([]) == busy_note([1.0, 1.05, 9.0]) == []
    [note] = busy_note([3.0, 3.0, 1.0])
    assert note.startswith("While this ran, other programs had the cores: 3.0 times")


def test_an_experiments_run_hears_of_each_comparison_in_it():
    with stretches() as outer, stretches() as inner:
        seconds_by_one_clock({"a": [COMPUTING]})
    seconds_by_one_clock({"a": [COMPUTING]})
    assert outer == inner == [3.0]
