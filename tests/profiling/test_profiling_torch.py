"""torch's profiler, the kernel table and the clocks: what is read from a trace can be worked out by hand."""

import threading

import pytest
import torch
from torch import nn

from hpml_lab.core.experiment import Result
from hpml_lab.core.show import style
from hpml_lab.core.timing import counting
from hpml_lab.core.timing.timeline import busy
from hpml_lab.profilers import trace_calls
from hpml_lab.profiling import async_timing, kernel_table, operators_and_memory, torch_profiler
from hpml_lab.profiling.exercises.name_the_bottleneck import PROFILES, profile_table
from hpml_lab.profiling.experiments.async_timing import NAIVE_SHARE, PartTimes
from hpml_lab.profiling.experiments.torch_profiler import CONVOLUTIONS, add_gpu_share, first_call, inside, thinned
from hpml_lab.profiling.experiments.torch_profiler.profiler_cost import LEFT_ON, RESTARTED, SCHEDULED, profiler_uses
from hpml_lab.profiling.lessons import step_clocks
from hpml_lab.profiling.lessons.bottleneck import BOUNDS
from hpml_lab.profiling.tools import nvprof, traces
from hpml_lab.profiling.tools.device_work import device_spans
from hpml_lab.profiling.tools.queued_device import QueuedDevice

CPU = torch.device("cpu")


@pytest.mark.parametrize("row", [torch_profiler, kernel_table, async_timing], ids=lambda row: row.slug)
def test_a_row_is_sound_without_a_gpu(row, sound, ran):
    result = ran(row.slug)
    sound(result)
    assert any(f"hpml-lab run {row.slug} --size full" in note for note in result.notes)
    assert not any(f.here for f in result.key_figures if "GPU" in f.label or "host-to-device" in f.label)
    rows = result.rows()
    if row is torch_profiler:  # parts of one whole, which is the forward pass
        whole = [100 * operator.self_ms / operator.self_percent for operator in rows]
        assert whole == pytest.approx([whole[0]] * len(whole)) and sum(operator.self_percent for operator in rows) <= 100.0001
        assert 0.2 < whole[0] / result.here("forward pass") < 1.1
        assert all(operator.total_ms >= operator.self_ms for operator in rows)
        assert any(operator.total_ms > operator.self_ms for operator in rows)
        assert result.here("conv2d, later calls, on the host") * 120 <= 1.02e3 * result.here("forward pass")
        first = next(figure for figure in result.key_figures if figure.label == "conv2d, first call, on the host")
        assert first.here > 0 and first.lecture == 9976.544, "the lecture's is the host's time of the first call, too"
        ten_times = f"step under the profiler: {RESTARTED}"
        assert [figure.label for figure in result.key_figures if figure.lecture] == [first.label, ten_times]
        assert result.here(CONVOLUTIONS) == 120 and len(operators_and_memory(result).figure.axes) == 2
    elif row is kernel_table:
        assert result.here("first row, share of the time") == rows[0].percent
    elif row is async_timing:
        backward = next(times for times in result.rows(PartTimes) if times.part == "backward")
        assert 19 < backward.synchronized < 2000 and 19 < backward.events < 2000, "it sleeps 20 ms"
        assert result.here(NAIVE_SHARE) > 0


# --- traces ------------------------------------------------------------------------------------------------------------------


def call(name, ts, dur, tid=1, cat="cpu_op"):
    return {"cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid}


KNOWN = [
    call("step", 0.0, 100.0, cat="user_annotation"),
    call("aten::linear", 10.0, 50.0),
    call("aten::addmm", 15.0, 30.0),
    call("aten::relu", 60.0, 20.0),  # begins when linear ends
    call("aten::other_thread", 20.0, 10.0, tid=2),
    call("gemm", 70.0, 200.0, tid=7, cat="kernel"),
    call("Memcpy HtoD (Pageable -> Device)", 65.0, 5.0, tid=7, cat="gpu_memcpy"),
    call("Memcpy HtoD (Pinned -> Device)", 300.0, 15.0, tid=7, cat="gpu_memcpy"),
    call("Memset (Device)", 320.0, 30.0, tid=7, cat="gpu_memset"),
]


def test_calls_lie_within_calls_and_self_times_are_what_is_left():
    found = {event["name"]: (event["depth"], event["self"]) for event in trace_calls.nested(KNOWN)}
    assert found == {
        "step": (0, 30.0),
        "aten::linear": (1, 20.0),
        "aten::addmm": (2, 30.0),
        "aten::relu": (1, 20.0),
        "aten::other_thread": (0, 10.0),
    }


def test_self_times_from_a_trace_are_those_of_the_table():
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    profile = counting.profiled(lambda: net(torch.ones(64, 64)).sum().backward(), CPU)
    table = sum(event.self_cpu_time_total for event in profile.key_averages() if event.key.startswith("aten::"))
    calls = trace_calls.nested(counting.trace_events(profile))
    from_trace = sum(event["self"] for event in calls if event["name"].startswith("aten::"))
    assert from_trace == pytest.approx(table, rel=0.02)


def test_the_first_call_of_an_operator_is_the_first_in_time_and_the_work_runs_once():
    runs = []

    def work():
        runs.append(torch.ones(3).exp())
        torch.randn(1 << 20).exp()

    assert 0 < first_call(work, "aten::exp") < 1e6
    assert len(runs) == 1, "a warm-up would leave no first call"


def test_the_gpu_is_busy_where_anything_runs_on_it_and_each_moment_counts_once():
    overlapping = call("Memcpy HtoD (Pinned -> Device)", 265.0, 10.0, tid=8, cat="gpu_memcpy")
    assert busy(device_spans([*KNOWN, overlapping])) == pytest.approx((5 + 205 + 15 + 30) / 1e6)
    assert busy(device_spans([])) == 0


@pytest.mark.parametrize("alone, idle", [(100_000.0, True), (30_000.0, False)])
def test_the_share_in_which_a_gpu_works_is_a_figure_of_the_pass_and_claimed_without_the_profiler(alone, idle):
    result = Result()
    add_gpu_share(result, 500_000.0, 20_000.0, lambda: alone)
    assert result.here("forward pass, share in which the GPU works") == pytest.approx(4)
    [claim] = result.claims
    assert claim.holds == idle and not claim.exact
    assert claim.measured == f"it works 20.00 ms of {alone / 1e3:.2f} ms; the profiled pass takes 500.00 ms"
    without = Result()
    add_gpu_share(without, 500_000.0, None, lambda: pytest.fail("no GPU: nothing is measured"))
    assert without.here("forward pass, share in which the GPU works") is None and not without.claims


def test_what_a_region_calls_is_within_it_and_its_self_times_sum_to_its_time():
    calls = trace_calls.nested(KNOWN)
    found = inside(calls[0], calls)
    assert [event["name"] for event in found] == ["step", "aten::linear", "aten::addmm", "aten::relu"]
    assert sum(event["self"] for event in found) == 100.0


def test_every_way_of_using_the_profiler_is_timed():
    uses = profiler_uses(CPU, steps=5, samples=2)
    assert list(uses) == [LEFT_ON, SCHEDULED, RESTARTED]
    assert all(seconds > 0 and cost.low <= cost.ratio <= cost.high for seconds, cost in uses.values())


def test_the_lanes_stand_under_each_other_as_the_calls_do():
    rows = {row["name"]: row for row in traces.lanes(KNOWN)}
    assert [rows[name]["lane"] for name in ("step", "aten::linear", "aten::addmm")] == [
        "regions",
        "operators",
        "called by them",
    ]
    assert rows["gemm"]["lane"] == "GPU: kernels" and rows["Memset (Device)"]["lane"] == "GPU: copies"
    assert rows["gemm"]["start"] == pytest.approx(70e-6) and rows["gemm"]["end"] == pytest.approx(270e-6)
    assert {row["lane"] for row in rows.values()} <= set(traces.LANES)
    assert traces.lanes([]) == []


def test_a_table_s_names_are_cut_where_they_agree():
    names = [f"void at::native::vectorized_elementwise_kernel<4, at::native::{name}>" for name in ("AddFunctor", "MulFunctor")]
    rows = [nvprof.KernelRow(name, 50.0, 1.0, 1, 1.0, 1.0, 1.0) for name in names]
    short = [row.name for row in nvprof.short_names(rows, most=30)]
    assert len(set(short)) == 2 and "Add" in short[0] and "Mul" in short[1] and max(map(len, short)) <= 30
    assert rows[0].name == names[0]


def test_a_lane_of_a_gpu_says_for_how_long_it_works():
    lane = {"lane": "GPU: kernels", "what": "convolution", "name": "k", "start": 0.010, "end": 0.012}
    rows = [{"lane": "operators", "what": "region", "name": "o", "start": 0.0, "end": 0.05}, lane]
    axes = style.new_figure().subplots()
    traces.draw_lanes(axes, rows)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["operators", "GPU: 1 kernels,\n2 ms together"]


def test_only_regions_that_are_long_enough_are_named():
    rows = [
        {"lane": "regions", "what": "region", "name": n, "start": s, "end": e} for n, s, e in (("a", 0, 0.9), ("b", 0.95, 1))
    ]
    axes = style.new_figure().subplots()
    traces.draw_lanes(axes, rows)
    assert [text.get_text() for text in axes.texts] == ["a"]


def test_lanes_begin_with_the_first_event_and_a_call_s_lane_says_how_many_operators_called_it():
    events = [
        call("net", 1000.0, 100.0, cat="user_annotation"),
        call("block", 1000.0, 90.0, cat="user_annotation"),
        call("aten::conv2d", 1010.0, 70.0),
        call("aten::convolution", 1015.0, 60.0),
        call("aten::_convolution", 1020.0, 50.0),
        call("aten::mkldnn_convolution", 1025.0, 40.0),
        call("aten::relu", 1082.0, 6.0),
        call("Memcpy HtoD (Pinned -> Device)", 1090.0, 100.0, tid=7, cat="gpu_memcpy"),
        call("aten::too_short", 1089.0, 0.1),
    ]
    rows = traces.lanes(events)
    assert [(row["name"], row["lane"]) for row in rows] == [
        ("net", "regions"),
        ("block", "regions within"),
        ("aten::conv2d", "operators"),
        ("aten::convolution", "called by them"),
        ("aten::_convolution", "called by these"),
        ("aten::mkldnn_convolution", "called by these"),
        ("aten::relu", "operators"),
        ("Memcpy HtoD (Pinned -> Device)", "GPU: copies"),
    ]
    assert (rows[0]["start"], rows[2]["start"], rows[-1]["end"]) == pytest.approx((0, 10e-6, 190e-6))
    assert [row["what"] for row in rows[-2:]] == ["activation", "copying"]


def test_a_kernel_table_of_a_gpu_has_copies_under_nvprofs_names():
    rows = nvprof.kernel_rows(KNOWN, gpu=True)
    assert [(row.name, row.calls, row.time_us) for row in rows] == [
        ("gemm", 1, 200.0),
        ("[CUDA memset]", 1, 30.0),
        ("[CUDA memcpy HtoD]", 2, 20.0),
    ]
    copies = rows[2]
    assert (copies.least_us, copies.mean_us, copies.most_us) == (5.0, 10.0, 15.0)
    assert nvprof.htod_percent(rows) == copies.percent == pytest.approx(8.0)


def test_a_kernel_table_of_a_cpu_has_operators_with_the_time_of_their_own():
    rows = nvprof.kernel_rows(KNOWN, gpu=False)
    assert {row.name: row.time_us for row in rows} == {
        "aten::addmm": 30.0,
        "aten::linear": 20.0,
        "aten::relu": 20.0,
        "aten::other_thread": 10.0,
    }


def test_the_lectures_log_is_read_with_its_units():
    rows = nvprof.read_nvprof(nvprof.LECTURE_LOG)
    assert len(rows) == 6 and rows[0].time_us == pytest.approx(19.0811e6) and rows[0].least_us == pytest.approx(0.736)
    last = rows[-1]
    assert (last.name, last.calls, last.percent) == ("[CUDA memcpy HtoD]", 2888, 0.12)
    assert (last.time_us, last.mean_us, last.least_us, last.most_us) == pytest.approx((204_610, 70.846, 0.672, 869.67))
    with_calls = nvprof.LECTURE_LOG + "      API calls:   90.00%  9.0s  10  900ms  1ms  2s  cudaMemcpy\n"
    assert nvprof.read_nvprof(with_calls) == rows


def test_regions_are_named_in_a_trace_and_the_hooks_are_gone():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with traces.named_regions([("first", net[0]), ("second", net[1])]):
        events = counting.trace_events(counting.profiled(lambda: net(torch.ones(2, 4)), CPU))
    assert [e["name"] for e in trace_calls.nested(events) if e["cat"] == "user_annotation"] == ["first", "second"]
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in net)


def test_memory_over_time_is_known_for_a_small_case():
    profile = counting.profiled(lambda: torch.ones(1 << 18) + torch.ones(1 << 18), CPU, profile_memory=True)
    curve = counting.memory_curve(counting.trace_events(profile))
    assert [used for _, used in curve][:3] == [1 << 20, 2 << 20, 3 << 20]
    assert curve[-1][1] == 0 and [ms for ms, _ in curve] == sorted(ms for ms, _ in curve)


def test_the_peak_of_a_memory_curve_is_what_is_counted_in_another_run():
    net = nn.Sequential(*(nn.Conv2d(3, 3, 3, padding=1) for _ in range(5)))
    images = torch.ones(1, 3, 64, 64)
    profile = counting.profiled(lambda: net(images), CPU, profile_memory=True)
    peak = max(used for _, used in counting.memory_curve(counting.trace_events(profile)))
    assert peak == pytest.approx(counting.peak_bytes(lambda: net(images), CPU), rel=0.01)


# --- the queued device -------------------------------------------------------------------------------------------------------


def test_calls_return_before_the_work_is_done_and_it_is_done_in_order():
    with QueuedDevice(held=True) as device:
        results = [device.launch(f"work {k}", 0.0, lambda k=k: k * k) for k in range(5)]
        assert (device.submitted, device.completed, device.done) == (5, 0, [])
        assert device.item(results[2]) == 4
        device.synchronize()
        assert device.completed == 5 and device.done == [f"work {k}" for k in range(5)]
        assert [device.item(result) for result in results] == [0, 1, 4, 9, 16]


def test_an_error_of_the_work_comes_where_its_result_is_asked_for():
    with QueuedDevice() as device:
        broken = device.launch("broken", 0.0, lambda: 1 / 0)
        after = device.launch("after", 0.0, lambda: "fine")
        with pytest.raises(ZeroDivisionError):
            device.item(broken)
        assert device.item(after) == "fine"


def test_events_lie_around_the_work_between_them_and_no_thread_is_left():
    with QueuedDevice() as device:
        begin = device.record()
        device.launch("sleep", 0.02)
        end = device.record()
        assert device.item(end) - device.item(begin) >= 0.02
        device.launch("never waited for", 0.0)
    assert device.completed == 2
    assert not any(thread.name == "queued-device" for thread in threading.enumerate())


class ScriptedStep:
    """A step on a device with a clock of its own: each call costs 1, forward's, backward's and step's work 10, 20 and 5."""

    def __init__(self):
        self.now, self.free = 0.0, 0.0

    def calls(self):
        def launch(work):
            def run():
                self.free = max(self.free, self.now) + work
                self.now += 1

            return run

        return {"forward": launch(10), "backward": launch(20), "step": launch(5), "loss.item()": self.synchronize}

    def synchronize(self):
        self.now = max(self.now, self.free)

    def event(self):
        return max(self.now, self.free)

    def between(self, a, b):
        return b - a


def test_each_way_of_timing_says_what_it_should_on_a_scripted_clock(monkeypatch):
    seconds = {}
    for name, clock in step_clocks.STEP_CLOCKS.items():
        step = ScriptedStep()
        monkeypatch.setattr(step_clocks, "CLOCK", lambda step=step: step.now)
        seconds[name] = clock(step)
    assert seconds["naive"] == {"forward": 1, "backward": 1, "step": 1, "loss.item()": 32}
    assert seconds["synchronized"] == {"forward": 10, "backward": 20, "step": 5, "loss.item()": 0}
    assert seconds["events"] == seconds["synchronized"]


# --- the profiles of an exercise ---------------------------------------------------------------------------------------------


def test_the_profiles_are_of_ten_seconds_and_each_has_one_bound():
    for figures, bound in PROFILES.values():
        assert sum(value for name, value in figures.items() if name.startswith("main")) == pytest.approx(10.0)
        assert figures["GPU: kernels, s"] + figures["GPU: copies from host, s"] <= 10.0 and bound in BOUNDS
    assert len({bound for _, bound in PROFILES.values()}) == len(PROFILES) == 6
    assert all(set(row) == {"figure", *PROFILES} for row in profile_table())


@pytest.mark.cuda
@pytest.mark.parametrize("row", [torch_profiler, kernel_table, async_timing], ids=lambda row: row.slug)
def test_on_a_gpu_a_row_has_what_only_a_gpu_shows(row, sound):
    result = row("quick", device="cuda")
    sound(result)
    if row is torch_profiler:
        assert "GPU: kernels" in {bar["lane"] for bar in result.arrays["lanes"]}
    elif row is kernel_table:
        assert result.here("host-to-device copies, number") == 2 * result.here("batches")
        assert any(kernel.name == "[CUDA memcpy HtoD]" for kernel in result.rows())
    else:
        assert {times.where for times in result.rows()} == {"simulation", "GPU"}


def test_a_thinned_memory_curve_keeps_its_peak():
    curve = [(at, 1000 if at == 1777 else at % 7) for at in range(4000)]
    thin = thinned(curve, most=100)
    assert len(thin) == 100 and (1777, 1000) in thin and thin == sorted(thin)
    assert thinned(curve[:50], most=100) == curve[:50]
