"""Timing warms up, takes several samples, takes turns, and counts against a measured ceiling."""

import weakref
from itertools import groupby

import pytest
import torch

from hpml_lab.core import timing
from hpml_lab.core.threads import all_threads, one_thread
from hpml_lab.core.timing import Ceiling, Comparison, Timing, ceiling, compare, interleaved, measure


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
    assert len(calls) > 5 and (len(calls) - 4) % 3 == 0, "four calls to warm up, then the same number in each sample"


def test_a_call_that_is_held_up_once_does_not_leave_too_few_calls_in_a_sample(monkeypatch):
    took = []  # seconds of each call, by a clock that only the work moves
    monkeypatch.setattr(timing, "timer", lambda: sum(took))

    def work():  # its second call is the first of those that tell how long it takes
        took.append(0.02 if len(took) == 1 else 0.001)

    assert measure(work, samples=1).seconds == pytest.approx(0.001)
    assert len(took) == 4 + 10, "ten calls make 10 ms"


def test_long_work_is_called_once_a_sample(monkeypatch):
    calls, call = recorder()
    monkeypatch.setattr("hpml_lab.core.timing.SAMPLE_SECONDS", 1e-9)
    measure(call("work"), samples=5)
    assert len(calls) == 2 + 5


def test_a_comparison_takes_turns(monkeypatch):
    calls, call = recorder()
    monkeypatch.setattr("hpml_lab.core.timing.SAMPLE_SECONDS", 1e-9)  # one call a sample
    compare(call("A"), call("B"), samples=4)
    turns = "".join(name for name, _ in groupby(calls))
    assert turns.endswith("ABABABAB"), "each sample of A is followed by one of B"


def test_the_ratio_is_taken_pair_by_pair():
    drift = Comparison(Timing((2.0, 20.0, 200.0), 1), Timing((1.0, 10.0, 100.0), 1))
    assert drift.ratio == 2.0, "a machine that slows down a hundredfold changes nothing"


def test_between_events_a_result_is_dropped_before_the_next_call(monkeypatch):
    """A GPU's memory would not hold the results of a hundred calls; no GPU is needed to see them go."""

    def clocked(work, _):
        work()
        return 1e-4

    monkeypatch.setattr(timing, "event_seconds", clocked)
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
    monkeypatch.setattr("hpml_lab.core.timing.measure", None)
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
        assert torch.get_num_threads() == 1 and all_threads() == before
        raise KeyError
    assert torch.get_num_threads() == before


@pytest.mark.cuda
def test_a_gpu_sample_waits_for_the_kernel():
    x = torch.randn(4096, 4096, device="cuda")
    timing = measure(lambda: x @ x, flops=2 * 4096**3)
    # A launch alone takes microseconds and would claim petaflops.
    assert 1e-5 < timing.seconds and timing.gflop_per_s < 2e6
