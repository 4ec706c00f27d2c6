"""torch.profiler on one forward pass of DenseNet-121: a table of operators, a trace, memory over time."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.profiler import ProfilerActivity, record_function

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.experiment.render import plural
from hpml_lab.core.timing import counting
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.timing.timeline import busy
from hpml_lab.core.timing.clock import SAMPLES, measure
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.profiling.tools.device_work import device_spans
from hpml_lab.profilers.trace_calls import GPU, nested, of_categories
from hpml_lab.profiling.tools import traces
from hpml_lab.profiling.experiments.torch_profiler.profiler_cost import LEFT_ON, RESTARTED, ProfilerUse, profiler_uses

QUICK = dict(top=8, steps=10, samples=SAMPLES)
FULL = dict(top=12, steps=50, samples=SAMPLES)
CONVOLUTIONS = "calls of the convolution"
WITH_GRADIENTS, NO_GRAD = "with gradients", "under no_grad"


@dataclass
class OperatorRow(Row):
    """One operator in the forward pass, all its calls together."""

    operator: str = column("operator")
    calls: int = column("calls")
    self_ms: float = column("self time", "ms")
    self_percent: float = column("share of all self time", "%")
    total_ms: float = column("total time", "ms")
    slowest_input: str = column("input that took most")


# ---- measuring -------------------------------------------------------------------------------------------------------


def operator_rows(profile: torch.profiler.profile, top: int, on_gpu: bool) -> list[OperatorRow]:
    """The `top` operators by self time."""
    self_time = "self_device_time_total" if on_gpu else "self_cpu_time_total"
    total_time = "device_time_total" if on_gpu else "cpu_time_total"
    operators = [event for event in profile.key_averages() if event.key.startswith("aten::")]
    operators.sort(key=lambda event: -getattr(event, self_time))
    whole = sum(getattr(event, self_time) for event in operators)
    slowest: dict[str, list] = {}
    for event in sorted(profile.key_averages(group_by_input_shape=True), key=lambda event: -getattr(event, self_time)):
        slowest.setdefault(event.key, (event.input_shapes or [[]])[0])
    return [
        OperatorRow(
            operator=event.key,
            calls=event.count,
            self_ms=getattr(event, self_time) / 1e3,
            self_percent=100 * getattr(event, self_time) / whole,
            total_ms=getattr(event, total_time) / 1e3,
            slowest_input="×".join(map(str, slowest[event.key])) or "a list",
        )
        for event in operators[:top]
    ]


def inside(region: dict, calls: list[dict]) -> list[dict]:
    """The calls within a region of the same thread, the region among them."""
    end = region["ts"] + region["dur"]
    return [call for call in calls if call["tid"] == region["tid"] and region["ts"] <= call["ts"] and call["ts"] < end]


def thinned(curve: list, most: int = 800) -> list:
    """About `most` points of a memory curve: of neighbors the one with the most bytes, so that the figure has the peak."""
    step = max(1, len(curve) // most)
    return [max(curve[start : start + step], key=lambda point: point[1]) for start in range(0, len(curve), step)]


def first_call(work: Callable[[], object], operator: str) -> float:
    """µs on the host of the first call of an operator in `work()`, which is run once, without a warm-up."""
    with torch.profiler.profile(activities=[ProfilerActivity.CPU], acc_events=True) as profile:
        work()
    calls = [event.time_range for event in profile.events() if event.name == operator]
    return min(calls, key=lambda call: call.start).elapsed_us()


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """One forward pass of DenseNet-121 as a trace, time from left to right. Each lane is called by the lane above it: the
    net's blocks, the operators, what they call in turn, and, where there is a GPU, its kernels, each a hairline that is wider
    than it is. Look for bars that repeat: a dense block is the same layer many times."""
    figure = style.new_figure(9, 3.4)
    axes = figure.subplots()
    traces.draw_lanes(axes, result.arrays["lanes"])
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=7, fontsize=8)
    return figure


@picture
def operators_and_memory(result: Result):
    """Left: the operators of the forward pass with the most time of their own, and their calls. Right: memory in use over the
    same pass, once kept for the backward pass and once under no_grad. With gradients memory rises until the end; without them
    each block gives its memory back."""
    figure = style.new_figure(9, 3.4)
    table, memory = figure.subplots(1, 2)
    rows = result.rows(OperatorRow)
    names, calls = [row.operator.removeprefix("aten::") for row in rows], [plural(row.calls, "call") for row in rows]
    horizontal_bars(table, names, [row.self_ms for row in rows], labels=calls)
    table.tick_params(axis="y", labelsize=8)
    table.set(xlabel="self time in ms", title="operators")
    for (name, curve), color, line in zip(result.arrays["memory"].items(), (style.RED, style.GREEN), ("-", "--"), strict=True):
        memory.step([ms for ms, _ in curve], [size / 1e6 for _, size in curve], line, where="post", color=color, label=name)
    memory.set(xlabel="time in ms", ylabel="memory in use in MB", title="memory", ylim=(0, None))
    memory.legend(fontsize=9)
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("torch-profiler", lecture="L1", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def torch_profiler(params: Params) -> Result:
    """torch.profiler on DenseNet-121: a table of operators, a trace, memory over time."""
    from torchvision.models import densenet121  # late: this import takes seconds

    device = params.device.torch
    on_gpu = device.type == "cuda"
    model = densenet121(weights=None).to(device)
    x = torch.randn(1, 3, 224, 224, device=device, requires_grad=True)

    def forward() -> None:
        with record_function("forward"):
            model(x)

    def without_grad() -> None:
        with torch.no_grad():
            forward()

    first_us = first_call(forward, "aten::conv2d")  # before anything else has run: the library chooses and loads its kernels
    with traces.named_regions(model.features.named_children()):
        profile = counting.profiled(forward, device, record_shapes=True, profile_memory=True)
    events, table = counting.trace_events(profile), profile.key_averages()
    rows = operator_rows(profile, params.top, on_gpu)
    bare = counting.trace_events(counting.profiled(without_grad, device, profile_memory=True))
    curves = {
        name: counting.memory_curve(trace, device_type=int(on_gpu))
        for name, trace in ((WITH_GRADIENTS, events), (NO_GRAD, bare))
    }
    peaks = {name: max(in_use for _, in_use in curve) for name, curve in curves.items()}

    # Torch's own calls only: those of CUDA's runtime are stamped by another clock, and may seem to end after their callers.
    calls = nested(of_categories(events, ("cpu_op", "user_annotation")))
    [region] = [call for call in calls if call["name"] == "forward"]
    self_sum = sum(call["self"] for call in inside(region, calls))
    forward_us = max(e["ts"] + e["dur"] for e in (region, *of_categories(events, GPU))) - region["ts"]
    layers = sum(isinstance(layer, nn.Conv2d) for layer in model.modules())
    convolved = next(event.count for event in table if event.key == "aten::convolution")
    in_trace = sum(call["name"] == "aten::convolution" for call in calls)
    conv2d = next(event for event in table if event.key == "aten::conv2d")

    result = Result([Table("Operators of the forward pass, by self time", rows)])
    result.arrays |= {"lanes": traces.lanes(events), "memory": {name: thinned(curve) for name, curve in curves.items()}}
    result.key_figure("conv2d, first call, on the host", first_us, unit="µs", lecture=9976.544)
    result.key_figure("conv2d, later calls, on the host", conv2d.cpu_time_total / conv2d.count, unit="µs, mean")
    result.key_figure(
        "conv2d, later calls, on the GPU", conv2d.device_time_total / conv2d.count if on_gpu else None, "µs, mean"
    )
    result.key_figure("forward pass", forward_us / 1e3, unit="ms")
    add_gpu_share(
        result, forward_us, 1e6 * busy(device_spans(events)) if on_gpu else None, lambda: measure(forward).seconds * 1e6
    )
    result.key_figure(CONVOLUTIONS, convolved)
    result.key_figure("peak memory with gradients", peaks[WITH_GRADIENTS] / 1e6, unit="MB")
    result.key_figure("peak memory under no_grad", peaks[NO_GRAD] / 1e6, unit="MB")

    result.claim(
        "A forward pass of DenseNet-121 calls the convolution once for each of its 120 layers, by the table and by the trace",
        convolved == in_trace == layers == 120,
    )
    result.claim(
        "The self times of the forward pass and of all that it calls sum to its time on the host",
        abs(self_sum / region["dur"] - 1) < 0.005,
        f"{self_sum / 1e3:.2f} ms of {region['dur'] / 1e3:.2f} ms",
    )
    result.claim(
        "What is kept for the backward pass makes the peak of memory higher",
        peaks[WITH_GRADIENTS] > peaks[NO_GRAD],
        f"{peaks[WITH_GRADIENTS] / peaks[NO_GRAD]:.1f} times as high",
    )
    add_costs(result, profiler_uses(device, params.steps, params.samples))
    if not on_gpu:
        result.notes.append(NO_CUDA.format(what="the trace has no lanes of kernels and copies", slug="torch-profiler"))
    return result


def add_gpu_share(result: Result, traced_us: float, busy_us: float | None, alone: Callable[[], float]) -> None:
    """For how much of a forward pass the GPU works.

    traced_us  the pass under the profiler; `alone()` measures one without
    busy_us    for how long the GPU worked; None where there is none
    """
    result.key_figure("forward pass, share in which the GPU works", busy_us and 100 * busy_us / traced_us, unit="%")
    if busy_us is None:
        return
    alone_us = alone()
    result.measured(
        "One image leaves the GPU idle for most of the forward pass, also without the profiler: the host launches too slowly",
        busy_us < 0.5 * alone_us,
        f"it works {busy_us / 1e3:.2f} ms of {alone_us / 1e3:.2f} ms; the profiled pass takes {traced_us / 1e3:.2f} ms",
        depends_on="the GPU and its host",
    )


def add_costs(result: Result, uses: dict[str, tuple[float, SpeedUp]]) -> None:
    """What the profiler costs a step in each way of using it."""
    rows = [
        ProfilerUse(use, 1e3 * seconds, cost.slowdown.ratio, cost.slowdown.interval, 100 * cost.noise)
        for use, (seconds, cost) in uses.items()
    ]
    result.tables.append(Table("What the profiler costs a step of small operators", rows))
    for use, (_, cost) in uses.items():
        # The lecture's advice to trace every run of a session, "It will slow down the training duration by 10x".
        result.key_figure(f"step under the profiler: {use}", cost.slowdown_text, lecture="10×" if use == RESTARTED else None)
    left_on, restarted = uses[LEFT_ON][1], uses[RESTARTED][1]
    result.measured(
        "A profiler that is left on costs a step less than a new profiler for each step",
        left_on.slowdown.high < restarted.slowdown.low,
        f"{left_on.slowdown_text}; {restarted.slowdown_text}",
    )
