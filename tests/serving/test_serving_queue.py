"""Traffic, the server of threads and queues, and the virtual clock; nothing here depends on how long anything takes."""

import itertools
import math
import threading
from concurrent.futures import Future
from fractions import Fraction

import numpy as np
import pytest

from hpml_lab.core.experiment import Result
from hpml_lab.core.system.errors import LabError
from hpml_lab.serving.experiments.inference_pipeline import queue_theory
from hpml_lab.serving.lessons import traffic
from hpml_lab.serving.lessons.stage_server import ServerStage, StageServer
from hpml_lab.serving.lessons.traffic import Request, closed_loop, due_times, open_loop, percentiles, summary
from hpml_lab.serving.lessons.virtual_queue import (
    ServiceModel,
    batch_capacity,
    limit_needed,
    md1_sojourn,
    number_in_system,
    poisson_ticks,
    request_ticks,
    require_steady,
    simulate,
)
from hpml_lab.serving.views.queue_explorer import LIMITS, explore_queue, served

# ---- traffic ---------------------------------------------------------------------------------------------------------


def test_due_times_are_a_poisson_process_of_the_rate_and_one_seed_is_one_trace():
    due = due_times(250, 20_000, seed=3)
    gaps = np.diff(due, prepend=0)
    assert (gaps > 0).all() and gaps.mean() == pytest.approx(1 / 250, rel=0.02)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03), "an exponential's width is its mean"
    assert (gaps > 1 / 250).mean() == pytest.approx(math.exp(-1), abs=0.01)
    assert np.array_equal(due, due_times(250, 20_000, seed=3)) and not np.array_equal(due, due_times(250, 20_000, seed=4))


@pytest.mark.parametrize("rate, count", [(0, 5), (-1, 5), (math.nan, 5), (math.inf, 5), (1, 0), (1, 2.5), (1, True)])
def test_no_traffic_is_refused(rate, count):
    with pytest.raises(LabError, match="no traffic"):
        due_times(rate, count)


def test_percentiles_are_the_smallest_latency_that_so_many_do_not_exceed():
    assert percentiles([4, 1, 3, 2], (25, 50, 51, 75, 99, 100)) == (1, 2, 3, 3, 4, 4)
    assert percentiles([7.0]) == (7.0, 7.0, 7.0)
    for problem, latencies in (("no latencies", []), ("NaN", [1.0, math.nan])):
        with pytest.raises(LabError, match=problem):
            percentiles(latencies)


def test_a_rank_is_not_rounded_up_by_the_last_digit_of_a_float():
    """7 / 100 · 100 is 7.000000000000001, so NumPy's inverted_cdf takes the 8th of 100 for 7 %; so for 14, 28, 55 and 56 %."""
    hundred = range(1, 101)
    assert percentiles(hundred, range(1, 101)) == tuple(hundred)
    assert percentiles(hundred, (0, 6.5, 7.0, np.float64(99.9), np.int64(7))) == (1, 7, 7, 100, 7)
    assert percentiles(range(1, 1001), (99.9, 99.90001, 0.1)) == (999, 1000, 1)
    for share in (-1, 100.5, math.nan):
        with pytest.raises(LabError, match="percentile"):
            percentiles(hundred, (share,))


def answered(index):
    future = Future()
    future.set_result(index)
    return future


def failed(index):
    future = Future()
    future.set_exception(ValueError(f"request {index}\nis bad"))
    return future


def test_open_loop_sends_everything_in_order_and_an_error_belongs_to_one_request():
    sent = []

    def submit(index):
        sent.append(index)
        if index == 1:
            raise LabError("the server is closed.", "Open it.")
        return failed(index) if index == 3 else answered(index)

    requests = open_loop(submit, due_times(1e5, 6))
    assert sent == list(range(6)) and [request.error != "" for request in requests] == [i in (1, 3) for i in range(6)]
    assert requests[1].error == "LabError: the server is closed. Open it."
    assert requests[3].error == "ValueError: request 3 is bad", "in one line"
    assert all(request.due <= request.sent <= request.done for request in requests)
    seen = summary(requests)
    assert (seen.requests, seen.failed) == (6, 2) and seen.p50 <= seen.p95 <= seen.p99


def test_a_server_that_dies_leaves_requests_without_an_answer_and_the_others_count():
    silent = Future()
    requests = open_loop(lambda index: silent if index == 2 else answered(index), [0.0] * 5, timeout_seconds=0.05)
    assert [request.error for request in requests] == ["", "", "no answer within 0.05 s", "", ""]
    cancelled = Future()
    cancelled.cancel()
    cancelled.set_running_or_notify_cancel()
    assert [request.error for request in open_loop(lambda index: cancelled, [0.0])] == ["cancelled"]


def test_a_summary_counts_from_the_moment_due_and_without_answers_there_is_no_throughput():
    requests = [Request(0.0, 0.0, 1.0), Request(1.0, 3.0, 4.0), Request(2.0, 4.0, 9.0, "failed")]
    seen = summary(requests)
    assert (seen.p50, seen.p99, seen.throughput, seen.failed) == (1.0, 3.0, 2 / 4, 1) and seen.late == pytest.approx(2 / 3)
    nothing = summary([Request(0.0, 0.0, 1.0, "no answer")])
    assert nothing.throughput == 0 and nothing.p50 == math.inf


def test_a_closed_loop_sends_after_the_answer_and_goes_on_after_an_error(monkeypatch):
    clock = itertools.count()
    monkeypatch.setattr(traffic, "CLOCK", lambda: float(next(clock)))  # each look at the clock takes a second
    monkeypatch.setattr(traffic.time, "sleep", lambda seconds: None)

    def call(index):
        if index == 1:
            raise OSError("gone")

    requests = closed_loop(call, [0.0, 0.5, 1.0])
    assert [request.error for request in requests] == ["", "OSError: gone", ""]
    for before, after in itertools.pairwise(requests):
        assert after.sent > before.done
        assert after.latency > after.done - after.sent, "the client's own wait is in the latency"


# ---- the server ------------------------------------------------------------------------------------------------------


def double(items):
    return [2 * item for item in items]


def test_a_request_that_fails_gets_its_error_with_the_stage_and_the_others_their_results():
    def halve(items):
        return [100 // item for item in items]

    gate = threading.Event()

    def wait_then_double(items):
        gate.wait()
        return double(items)

    with StageServer([ServerStage("double", wait_then_double), ServerStage("halve", halve, limit=4)]) as server:
        futures = [server.submit(item) for item in (1, 0, 5, 25)]
        gate.set()
        with pytest.raises(LabError, match="stage 'halve' failed for this request: ZeroDivisionError") as caught:
            futures[1].result(timeout=60)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert [futures[i].result(timeout=60) for i in (0, 2, 3)] == [50, 10, 2]
        assert server.submit(10).result(timeout=60) == 5, "the server goes on"


@pytest.mark.parametrize("work", [lambda items: [], lambda items: (_ for _ in ()).throw(SystemExit(1))])
def test_a_worker_that_leaves_or_loses_requests_lets_nobody_wait(work):
    with StageServer([ServerStage("broken", work)]) as server, pytest.raises(LabError, match="'broken'"):
        server.submit(1).result(timeout=60)


def test_a_stage_takes_what_waits_up_to_its_limit():
    gate, busy = threading.Event(), threading.Event()

    def work(items):
        busy.set()
        gate.wait()
        return double(items)

    with StageServer([ServerStage("all", work, limit=4)]) as server:
        futures = [server.submit(0)]
        busy.wait()
        futures += [server.submit(item) for item in range(1, 10)]
        gate.set()
        assert [future.result(timeout=60) for future in futures] == [2 * item for item in range(10)]
    assert server.batches == [[1, 4, 4, 1]]


def test_a_window_waits_for_a_full_batch_and_not_longer():
    with StageServer([ServerStage("all", double, limit=3, window_seconds=600)]) as server:
        futures = [server.submit(item) for item in range(3)]
        assert [future.result(timeout=60) for future in futures] == [0, 2, 4], "a full batch does not wait for the window"
        last = server.submit(7)
        server.close()
        assert last.result(timeout=60) == 14, "nor does the last one"
    assert server.batches == [[3, 1]]
    with StageServer([ServerStage("all", double, limit=3, window_seconds=0.01)]) as server:
        assert server.submit(1).result(timeout=60) == 2, "when the window has passed, an incomplete batch starts"


def test_a_closed_server_answers_what_it_took_and_refuses_the_rest():
    server = StageServer([ServerStage("a", double), ServerStage("b", double, limit=2)])
    futures = [server.submit(item) for item in range(5)]
    server.close()
    server.close()
    assert [future.result(timeout=0) for future in futures] == [0, 4, 8, 12, 16]
    with pytest.raises(LabError, match="closed"):
        server.submit(1)
    assert not any(thread.name.startswith("stage ") and thread.is_alive() for thread in server._threads)


def test_a_request_cancelled_while_it_waits_is_left_out():
    gate, busy = threading.Event(), threading.Event()

    def work(items):
        busy.set()
        gate.wait()
        return double(items)

    with StageServer([ServerStage("all", work)]) as server:
        first, second, third = (server.submit(item) for item in (1, 2, 3))
        busy.wait()
        assert second.cancel()
        gate.set()
        assert (first.result(timeout=60), third.result(timeout=60)) == (2, 6)
    assert server.batches == [[1, 1]]


def test_servers_that_cannot_be_are_refused():
    for options, problem in (
        ({"limit": 0}, "batch limit of 0"),
        ({"limit": 1.5}, "1.5"),
        ({"window_seconds": -1}, "window of -1"),
    ):
        with pytest.raises(LabError, match=problem):
            ServerStage("all", double, **options)
    with pytest.raises(LabError, match="without a stage"):
        StageServer([])


# ---- the virtual clock -----------------------------------------------------------------------------------------------


def tick_by_tick(arrivals, base, per_request, limit, window):
    """The same server, one tick after the other: departures, and Σ of the requests in the system."""
    waiting, busy_until, serving, departures, in_system, area = [], 0, [], {}, 0, 0
    for now in itertools.count():
        if serving and now == busy_until:
            departures |= dict.fromkeys(serving, now)
            in_system -= len(serving)
            serving = []
        new = [i for i, moment in enumerate(arrivals) if moment == now]
        waiting += new
        in_system += len(new)
        if not serving and waiting and (len(waiting) >= limit or now >= arrivals[waiting[0]] + window):
            serving, waiting = waiting[:limit], waiting[limit:]
            busy_until = now + base + per_request * len(serving)
        if len(departures) == len(arrivals):
            return [departures[i] for i in range(len(arrivals))], area
        area += in_system


@pytest.mark.parametrize("limit, window", [(1, 0), (3, 0), (3, 9), (4, 25), (8, 4)])
def test_the_virtual_clock_agrees_with_a_simulation_of_every_tick(limit, window):
    arrivals = poisson_ticks(0.12, 60, seed=limit).tolist()
    trace = simulate(arrivals, 5, 2, limit=limit, window=window)
    departures, area = tick_by_tick(arrivals, 5, 2, limit, window)
    assert trace.departures.tolist() == departures
    assert trace.batches.sum() == 60 and trace.batches.max() <= limit
    assert request_ticks(trace.arrivals, trace.departures) == area == trace.sojourns.sum()


def test_littles_law_in_whole_numbers_by_hand():
    arrivals, departures = np.array([0, 2, 3]), np.array([4, 5, 9])
    moments, numbers = number_in_system(arrivals, departures)
    assert dict(zip(moments.tolist(), numbers.tolist(), strict=True)) == {0: 1, 2: 2, 3: 3, 4: 2, 5: 1, 9: 0}
    assert request_ticks(arrivals, departures) == (4 - 0) + (5 - 2) + (9 - 3)


def test_mean_times_are_those_of_the_formula_up_to_a_load_of_0_7():
    for row in queue_theory.queues_by_load((0.3, 0.5, 0.7), 100_000, 5):
        assert abs(row.difference) < 1 and row.little
        assert row.p50 <= row.formula <= row.p99
    assert md1_sojourn(0.5, 1.0) == 1.5 and md1_sojourn(0, 3.0) == 3.0


@pytest.mark.parametrize("rate", (1.0, 1.5))
def test_at_a_load_of_one_there_is_no_steady_state(rate):
    with pytest.raises(LabError, match="no steady state.*batches"):
        md1_sojourn(rate, 1.0)


def test_capacity_and_the_limit_that_a_rate_needs():
    assert batch_capacity(8, 8, 1) == Fraction(1, 2) and batch_capacity(1, 8, 1) == Fraction(1, 9)
    assert [limit_needed(rate, 8, 1) for rate in (0, 0.3, 0.5, 0.6, 0.9375)] == [1, 4, 9, 13, 121]
    for rate in (0.05, 0.3, 0.5, 0.77, 0.9375):
        n = limit_needed(rate, 8, 1)
        assert batch_capacity(n, 8, 1) > rate and (n == 1 or batch_capacity(n - 1, 8, 1) <= rate)
    with pytest.raises(LabError, match="even the largest batches have no steady state from 1 on"):
        limit_needed(1, 8, 1)


def test_a_load_above_capacity_says_so_and_what_would_be_enough():
    require_steady(0.3, 8, 8, 1)
    with pytest.raises(LabError, match=r"no steady state.*batch limit of 9 is enough"):
        require_steady(0.5, 8, 8, 1)
    with pytest.raises(LabError, match="No batch limit is enough"):
        require_steady(2.0, 8, 8, 1)


BASE, PER_REQUEST = 8_000, 1_000  # ticks: a batch of n takes 8 + n ms


@pytest.mark.parametrize("window", (0, 10_000))
@pytest.mark.parametrize("limit", (1, 8, 32))
def test_full_batches_of_requests_that_all_wait_at_tick_0_end_exactly_when_the_capacity_says(limit, window):
    trace = simulate(np.zeros(40 * limit, dtype=np.int64), BASE, PER_REQUEST, limit=limit, window=window)
    assert trace.span == 40 * limit / batch_capacity(limit, BASE, PER_REQUEST)


def test_above_capacity_each_request_waits_longer_than_the_one_before_by_service_minus_gap():
    service, gap, index = 1_000, 800, np.arange(2_000)
    assert (simulate(gap * index, 0, service).sojourns == service + index * (service - gap)).all()


def test_at_a_low_rate_a_window_makes_the_median_longer_by_itself():
    arrivals, window = poisson_ticks(0.05e-3, 20_000), 10_000
    (without,), (within,) = (
        percentiles(simulate(arrivals, BASE, PER_REQUEST, limit=8, window=size).sojourns, (50,)) for size in (0, window)
    )
    assert within - without == window


def test_a_client_that_waits_for_its_answers_hides_the_queue_unless_latency_counts_from_the_moment_due():
    service, sent, free = 1_000, [], 0
    due = poisson_ticks(0.9 / service, 5_000)
    for moment in due.tolist():
        sent.append(max(moment, free))
        free = sent[-1] + service
    client = simulate(np.array(sent), 0, service)
    assert (client.sojourns == service).all()
    assert np.array_equal(client.departures - due, simulate(due, 0, service).sojourns)


def test_what_the_clock_needs_of_a_server_gives_its_trace_and_capacity():
    model = ServiceModel(8e-3, 1e-3, 8)
    assert model.capacity == pytest.approx(500)
    arrivals = poisson_ticks(0.3e-3, 100)
    assert np.array_equal(model.trace(arrivals).departures, simulate(arrivals, BASE, PER_REQUEST, limit=8).departures)


def test_batches_at_rates_they_cannot_serve_have_no_percentiles():
    rows = queue_theory.batched_queues(400)
    assert {(row.rate >= row.capacity, row.steady == "none", row.p99 is None) for row in rows} == {(True,) * 3, (False,) * 3}


@pytest.mark.parametrize(
    "arrivals, options, problem",
    [
        ([], {}, "not a trace"),
        ([3, 2], {}, "not a trace"),
        ([0.5, 1.0], {}, "whole ticks"),
        ([1, 2], {"limit": 0}, "limit is 0"),
        ([1, 2], {"window": -1}, "window is -1"),
        ([1, 2], {"base": -5}, "base is -5"),
        ([1, 2], {"base": 0, "per_request": 0}, "takes no time"),
        ([1, 2], {"limit": 1.5}, "whole ticks"),
    ],
)
def test_what_is_no_trace_or_no_server_is_refused(arrivals, options, problem):
    with pytest.raises(LabError, match=problem):
        simulate(arrivals, **({"base": 5, "per_request": 1} | options))


# ---- views -----------------------------------------------------------------------------------------------------------


def test_the_sliders_show_another_queue_and_stay_a_picture():
    figure = explore_queue()
    rate, limit, window, image = figure.children
    seen = {bytes(image.value)}
    for slider, value in ((limit, LIMITS[3]), (rate, rate.options[-1][1]), (window, 10), (limit, 1)):
        slider.value = value
        seen.add(bytes(image.value))
    assert len(seen) == 5
    bundle = figure._repr_mimebundle_()
    assert "image/png" in bundle[0] and "rate" in bundle[1]["image/png"]["alt"]
    with pytest.raises(LabError, match="inference-pipeline"):
        explore_queue(Result(slug="num-workers"))


def test_the_same_requests_come_at_every_rate():
    slow, fast = (served(rate, 8e-3, 1e-3, 4, 0.0).arrivals for rate in (10.0, 100.0))
    assert np.abs(slow - 10 * fast).max() <= 6, "but for the rounding to ticks"
