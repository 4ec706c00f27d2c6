"""torch's profiler, the kernel table and the clocks: what is read from a trace can be worked out by hand."""

import threading

import pytest
import torch
from torch import nn

from hpml_lab.core import counting
from hpml_lab.profiling import experiments_async as clocks
from hpml_lab.profiling import traces
from hpml_lab.profiling.exercise_profiles import BOUNDS, PROFILES, profile_table
from hpml_lab.profiling.experiments_async import async_timing
from hpml_lab.profiling.experiments_torch import hottest_region, kernel_table, scheduled_steps, thinned, torch_profiler
from hpml_lab.profiling.queued import QueuedDevice

CPU = torch.device("cpu")


@pytest.mark.parametrize("row", [torch_profiler, kernel_table, async_timing], ids=lambda row: row.slug)
def test_a_row_is_sound_without_a_gpu(row, sound):
    result = row("quick", device="cpu")
    sound(result)
    assert any(f"hpml-lab run {row.slug} --size full" in note for note in result.notes)
    assert not any("GPU" in name or "host-to-device" in name for name in result.quantities)
    if row is torch_profiler:  # parts of one whole, which is the forward pass
        whole = [100 * one["self, ms"] / one["self, %"] for one in result.rows]
        assert whole == pytest.approx([whole[0]] * len(whole)) and sum(one["self, %"] for one in result.rows) <= 100.0001
        assert 0.2 < whole[0] / result.quantities["forward pass, ms"] < 1.1
        assert all(one["total, ms"] >= one["self, ms"] for one in result.rows)
        assert any(one["total, ms"] > one["self, ms"] for one in result.rows)
        assert result.quantities["conv2d, one call, µs"] * 120 <= 1.02e3 * result.quantities["forward pass, ms"]
    elif row is kernel_table:
        assert result.quantities["first row, share of the time in %"] == result.rows[0]["time %"]
    elif row is async_timing:
        backward = next(one for one in result.rows if one["part"] == "backward")
        assert all(19 < backward[f"{clock}, ms"] < 2000 for clock in ("synchronised", "events")), "it sleeps 20 ms"


# --- traces ------------------------------------------------------------------------------------------------------------------


def call(name, ts, dur, tid=1, cat="cpu_op"):
    return {"cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid}


PLANTED = [
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
    found = {one["name"]: (one["depth"], one["self"]) for one in traces.nested(PLANTED)}
    assert found == {
        "step": (0, 30.0),
        "aten::linear": (1, 20.0),
        "aten::addmm": (2, 30.0),
        "aten::relu": (1, 20.0),
        "aten::other_thread": (0, 10.0),
    }


def test_the_lanes_stand_under_each_other_as_the_calls_do():
    rows = {row["name"]: row for row in traces.lanes(PLANTED)}
    assert [rows[name]["lane"] for name in ("step", "aten::linear", "aten::addmm")] == [
        "regions",
        "operators",
        "called by them",
    ]
    assert rows["gemm"]["lane"] == "GPU: kernels" and rows["Memset (Device)"]["lane"] == "GPU: copies"
    assert rows["gemm"]["start"] == pytest.approx(70e-6) and rows["gemm"]["end"] == pytest.approx(270e-6)
    assert {row["lane"] for row in rows.values()} <= set(traces.LANES)
    assert traces.lanes([]) == []


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
    rows = traces.kernel_rows(PLANTED, gpu=True)
    assert [(row["name"], row["calls"], row["time, µs"]) for row in rows] == [
        ("gemm", 1, 200.0),
        ("[CUDA memset]", 1, 30.0),
        ("[CUDA memcpy HtoD]", 2, 20.0),
    ]
    copies = rows[2]
    assert (copies["min, µs"], copies["avg, µs"], copies["max, µs"]) == (5.0, 10.0, 15.0)
    assert traces.htod_share(rows) == copies["time %"] == pytest.approx(8.0)


def test_a_kernel_table_of_a_cpu_has_operators_with_the_time_of_their_own():
    rows = traces.kernel_rows(PLANTED, gpu=False)
    assert {row["name"]: row["time, µs"] for row in rows} == {
        "aten::addmm": 30.0,
        "aten::linear": 20.0,
        "aten::relu": 20.0,
        "aten::other_thread": 10.0,
    }


def test_the_lectures_log_is_read_with_its_units():
    rows = traces.read_nvprof(traces.LECTURE_LOG)
    assert len(rows) == 6 and rows[0]["time, µs"] == pytest.approx(19.0811e6) and rows[0]["min, µs"] == pytest.approx(0.736)
    assert (rows[-1]["name"], rows[-1]["calls"], rows[-1]["time %"]) == ("[CUDA memcpy HtoD]", 2888, 0.12)
    spread = [rows[-1][f"{one}, µs"] for one in ("time", "avg", "min", "max")]
    assert spread == pytest.approx([204_610, 70.846, 0.672, 869.67])
    with_calls = traces.LECTURE_LOG + "      API calls:   90.00%  9.0s  10  900ms  1ms  2s  cudaMemcpy\n"
    assert traces.read_nvprof(with_calls) == rows


def test_regions_are_named_in_a_trace_and_the_hooks_are_gone():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    with traces.named_regions([("first", net[0]), ("second", net[1])]):
        events = counting.trace_events(counting.profiled(lambda: net(torch.ones(2, 4)), CPU))
    assert [e["name"] for e in traces.nested(events) if e["cat"] == "user_annotation"] == ["first", "second"]
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in net)


def test_memory_over_time_is_known_for_a_small_case():
    profile = counting.profiled(lambda: torch.ones(1 << 18) + torch.ones(1 << 18), CPU, profile_memory=True)
    curve = counting.memory_curve(counting.trace_events(profile))
    assert [used for _, used in curve][:3] == [1 << 20, 2 << 20, 3 << 20]
    assert curve[-1][1] == 0 and [ms for ms, _ in curve] == sorted(ms for ms, _ in curve)


def test_the_hot_region_is_found_wherever_it_stands():
    name, share = hottest_region(CPU, hot=100, n=256)
    assert name == "hot" and share > 50


@pytest.mark.parametrize("plan, recorded", [((1, 1, 2), 2), ((0, 1, 3), 3), ((2, 1, 1), 1)])
def test_a_schedule_records_its_active_steps_only(plan, recorded):
    assert scheduled_steps(6, **dict(zip(("wait", "warmup", "active"), plan, strict=True))) == recorded


# --- the queued device -------------------------------------------------------------------------------------------------------


def test_calls_return_before_the_work_is_done_and_it_is_done_in_order():
    with QueuedDevice(held=True) as device:
        results = [device.launch(f"work {k}", 0.0, lambda k=k: k * k) for k in range(5)]
        assert (device.submitted, device.completed, device.done) == (5, 0, [])
        assert device.item(results[2]) == 4
        device.synchronize()
        assert device.completed == 5 and device.done == [f"work {k}" for k in range(5)]
        assert [device.item(one) for one in results] == [0, 1, 4, 9, 16]


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


class Script:
    """A step on a device whose clock is told what it costs: calls 1, backward's and forward's work 10 and 20."""

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


def test_each_way_of_timing_says_what_it_should_on_a_planted_clock(monkeypatch):
    said = {}
    for name, clock in clocks.CLOCKS.items():
        one = Script()
        monkeypatch.setattr(clocks, "CLOCK", lambda one=one: one.now)
        said[name] = clock(one)
    assert said["naive"] == {"forward": 1, "backward": 1, "step": 1, "loss.item()": 32}
    assert said["synchronised"] == {"forward": 10, "backward": 20, "step": 5, "loss.item()": 0}
    assert said["events"] == said["synchronised"]


# --- planted profiles --------------------------------------------------------------------------------------------------------


def test_the_planted_profiles_are_of_ten_seconds_and_each_has_one_bound():
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
        assert "GPU: kernels" in {one["lane"] for one in result.arrays["lanes"]}
    elif row is kernel_table:
        assert result.quantities["host-to-device copies, calls"] == 2 * result.quantities["batches"]
        assert any(one["name"] == "[CUDA memcpy HtoD]" for one in result.rows)
    else:
        assert {one["where"] for one in result.rows} == {"simulation", "GPU"}


def test_a_thinned_memory_curve_keeps_its_peak():
    curve = [(at, 1000 if at == 1777 else at % 7) for at in range(4000)]
    thin = thinned(curve, most=100)
    assert len(thin) == 100 and (1777, 1000) in thin and thin == sorted(thin)
    assert thinned(curve[:50], most=100) == curve[:50]
