"""Timing warms up, takes several samples, takes turns, and counts against a measured ceiling."""

import contextlib
import time
import weakref
from itertools import groupby

import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.machine import cores
from hpml_lab.core.timing import clock
from hpml_lab.core.timing.clock import Ceiling, Timing, ceiling, interleaved, measure
from hpml_lab.core.timing.noise import Comparison, compare
from hpml_lab.core.timing.threads import all_threads, one_thread


def recorder():
    calls = []
    return calls, lambda name: lambda: calls.append(name)


def test_the_median_and_the_spread_ignore_one_disturbed_sample():
    timing = Timing((1.0, 1.1, 0.9, 1.0, 50.0), threads=1, bytes=2e9, flops=4e9)
    assert timing.seconds == 1.0
    assert timing.gb_per_s == 2.0 and timing.gflop_per_s == 4.0 and timing.intensity == 2.0
    assert Timing((1.0, 2.0, 3.0, 4.0, 5.0), 1).spread == 3.0


def test_work_is_called_before_it_is_timed_and_each_sample_counts():
    calls, call = recorder()
    timing = measure(call("work"), samples=3)
    assert len(timing.samples) == 3 and all(sample > 0 for sample in timing.samples)
    assert len(calls) > 5


def test_a_call_that_is_held_up_once_does_not_leave_too_few_calls_in_a_sample(monkeypatch):
    took = []  # seconds of each call, by a clock that only the work moves
    monkeypatch.setattr(clock, "timer", lambda: sum(took))

    def work():  # its second call is the first of those that tell how long it takes
        took.append(0.02 if len(took) == 1 else 0.001)

    assert measure(work, samples=1).seconds == pytest.approx(0.001)
    assert len(took) == 1 + 2 * (1 + 2 + 4) + 10, "the number of calls is doubled until they take 2.5 ms; ten make 10 ms"


def test_a_sample_on_many_threads_is_not_the_start_of_their_team(monkeypatch):
    """On 16 cores, products of 64² to 512² all took the 8 ms in which the team woke up, because one call was a sample."""
    now, calls = [0.0], [0]  # calls since the number of threads was set

    @contextlib.contextmanager
    def set_threads(number):
        calls[0] = 0
        yield

    def work():
        now[0] += 0.036 if calls[0] == 0 else 0.007 if calls[0] == 1 else 0.0001
        calls[0] += 1

    monkeypatch.setattr(clock, "timer", lambda: now[0])
    monkeypatch.setattr(clock, "set_torch_threads", set_threads)
    assert measure(work, threads=16).seconds == pytest.approx(0.0001)


def test_the_processor_s_time_is_the_better_of_one_thread_and_all(monkeypatch):
    monkeypatch.setattr(clock, "all_threads", lambda: 8)
    monkeypatch.setattr(clock, "measure", lambda work, threads: Timing((work[threads],), threads))
    assert clock.best_threads({1: 1.0, 8: 2.0}).threads == 1 and clock.best_threads({1: 2.0, 8: 1.0}).threads == 8


@pytest.mark.parametrize(
    ("there_is_a_gpu", "by_events", "wakes"), [(True, False, True), (True, True, False), (False, False, False)]
)
def test_a_gpu_that_may_be_idle_is_woken_unless_its_own_events_are_the_clock(monkeypatch, there_is_a_gpu, by_events, wakes):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: there_is_a_gpu)
    monkeypatch.setattr(clock, "event_seconds", lambda work, gpu: 1.0)
    assert clock._Sampler("work", lambda: None, 1, torch.device("cuda:0") if by_events else None)._sleeps is wakes


def test_times_that_stay_equal_while_the_work_grows_a_hundredfold_are_found():
    flops = [2 * n**3 for n in (64, 128, 256, 512)]
    assert clock.stuck(flops, [7.98e-3, 7.99e-3, 7.98e-3, 7.99e-3]) == [(flops[0], flops[3])]
    assert clock.stuck(flops, [4e-6, 2e-5, 1e-4, 9e-4]) == []
    assert clock.stuck(flops, [2e-5, 2e-5, 2e-5, 2e-5], floor=5e-6) == [], "so little work on a GPU takes a launch's time"


def test_a_launch_takes_a_time_that_is_measured_once():
    assert 0 < clock.launch_seconds(torch.device("cpu")) == clock.launch_seconds(torch.device("cpu")) < 0.1


def test_long_work_is_called_once_a_sample(monkeypatch):
    calls, call = recorder()
    monkeypatch.setattr("hpml_lab.core.timing.clock.SAMPLE_SECONDS", 1e-9)
    measure(call("work"), samples=5)
    assert len(calls) == 2 + 5


def test_a_comparison_takes_turns(monkeypatch):
    calls, call = recorder()
    monkeypatch.setattr("hpml_lab.core.timing.clock.SAMPLE_SECONDS", 1e-9)  # one call a sample
    compare(call("A"), call("B"), samples=4)
    turns = "".join(name for name, _ in groupby(calls))
    assert turns.endswith("ABABABABA"), "each sample of B is between two of A"


def test_the_ratio_is_taken_pair_by_pair():
    before = Timing((2.0, 20.0, 200.0), 1)
    drift = Comparison(before, Timing((1.0, 10.0, 100.0), 1), before)
    assert drift.ratio == 2.0, "a machine that slows down a hundredfold changes nothing"


def test_a_comparison_prints_its_interval_and_its_noise():
    a, b, again = (Timing(samples, 1) for samples in ((2.0, 2.0, 2.0), (1.0, 1.25, 1.0), (2.0, 2.0, 1.9)))
    assert str(Comparison(a, b, again)) == "1.9× faster (1.6 to 2; noise ±5.3 %)"
    assert str(Comparison(a, a, again)) == "1× (within noise; 0.95 to 1; noise ±5.3 %)"


def test_a_measurement_prints_a_summary():
    assert str(Timing((0.001, 0.002, 0.003), 1)) == "2 ms a call (3 samples, 1 ms to 3 ms)"
    assert str(Timing((2.5e-6,), 1)).startswith("2.5 µs a call")
    assert repr(Timing((2.0,), 1, bytes=4e9, flops=6e9)) == "2 s a call (1 sample, 2 s to 2 s), 2 GB/s, 3 GFLOP/s"


@pytest.mark.parametrize(
    "wrong, text",
    [
        (lambda: measure(3), r"work: 3 is not a function\. Give one without arguments, such as lambda: net\(x\)"),
        (lambda: compare(list, None), "b: None is not a function"),
        (lambda: interleaved({"torch's": 0.5}), "torch's: 0.5 is not a function"),
        (lambda: measure(list, samples=0), "samples=0 is not a whole number from 1 on"),
        (lambda: compare(list, list, samples="7"), "samples='7' is not a whole number from 1 on"),
        (lambda: measure(list, samples=1).spread, "One sample has no spread"),
    ],
)
def test_a_wrong_argument_is_named(wrong, text):
    with pytest.raises(LabError, match=text):
        wrong()


def test_between_events_a_result_is_dropped_before_the_next_call(monkeypatch):
    """A GPU's memory would not hold the results of a hundred calls; no GPU is needed to see them go."""

    def clocked(work, _):
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    monkeypatch.setattr(clock, "event_seconds", clocked)
    results, most = weakref.WeakSet(), 0

    def work():
        nonlocal most
        most = max(most, len(results))
        results.add(made := torch.empty(1))
        return made

    interleaved({"a": work}, samples=2, gpu=torch.device("cuda"))
    assert most <= 1


def test_more_work_takes_longer():
    small, large = torch.ones(100), torch.ones(1_000_000)
    assert compare(lambda: large.sin(), lambda: small.sin()).ratio > 1


def test_the_roofline_is_the_lower_of_two_limits():
    limit = Ceiling(gb_per_s=10.0, gflop_per_s=100.0, threads=1)
    assert limit.ridge == 10.0
    assert limit.attainable(1.0) == 10.0 and limit.attainable(1000.0) == 100.0
    assert limit.fraction(Timing((1.0,) * 3, 1, bytes=1e9, flops=5e9)) == 0.1
    assert limit.fraction(Timing((1.0,) * 3, 1, bytes=5e9)) == 0.5, "without FLOPs only bandwidth counts"


def test_the_ceiling_of_this_machine_is_measured_once(monkeypatch):
    first = ceiling(torch.device("cpu"))
    assert first.gb_per_s > 0 and first.gflop_per_s > 0
    monkeypatch.setattr("hpml_lab.core.timing.clock.measure", None)
    assert ceiling(torch.device("cpu")) is first


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_products_in_8_bits_have_a_ceiling_too(dtype):
    try:
        torch._scaled_mm(*torch.ones(2, 16, 16).to(torch.float8_e4m3fn), *torch.ones(2), out_dtype=torch.bfloat16)
    except RuntimeError:
        pytest.skip("this torch has no product in 8 bits on the CPU")
    assert ceiling(torch.device("cpu"), dtype).gflop_per_s > 0


def test_one_thread_holds_inside_and_is_undone_after_an_error():
    before = torch.get_num_threads()
    with pytest.raises(KeyError), one_thread():
        assert torch.get_num_threads() == 1 and all_threads() == min(before, cores())
        raise KeyError
    assert torch.get_num_threads() == before


@pytest.mark.cuda
def test_a_gpu_sample_waits_for_the_kernel():
    x = torch.randn(4096, 4096, device="cuda")
    timing = measure(lambda: x @ x, flops=2 * 4096**3)
    # A launch alone takes microseconds and would claim petaflops.
    assert 1e-5 < timing.seconds and timing.gflop_per_s < 2e6
