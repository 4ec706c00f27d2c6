"""Debugging tools: what each costs when it is left on, and what anomaly mode finds and does not find."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

import hpml_lab.core.timing.counting  # noqa: F401  it keeps the profiler's status lines out of the output
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.show.numbers import number
from hpml_lab.core.system.attempt import attempt
from hpml_lab.core.system.device import NO_CUDA, Device
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.clock import PLACEBO, Timing, captured, interleaved, launch_seconds
from hpml_lab.core.timing.noise import CLAIMED, SpeedUp, speed_up
from hpml_lab.tuning.experiments.tuned_networks import deep_mlp, images_and_classes, resnet
from hpml_lab.tuning.experiments.turns import in_turns, one_sample
from hpml_lab.tuning.lessons.faults import FAULTS

# Few samples: a tool is put on anew for each, after a warm-up, and a step of ResNet-18 takes 0.1 s in anomaly mode.
QUICK = dict(layers=20, width=32, batch=2, side=24, samples=6, fastest_of=2, inputs=16)
FULL = dict(layers=20, width=32, batch=64, side=224, samples=9, fastest_of=3, inputs=64)
SMALL, LARGE, LAYER = "20 small layers", "ResNet-18", "one layer"
PLAIN, PROFILER, RESTARTED = "no tool", "profiler", "profiler, restarted each step"


@dataclass
class DebugCost(Row):
    """One training step with a debugging tool left on, and without (gradcheck: one backward pass of one layer)."""

    tool: str = column("tool")
    net: str = column("network")
    plain_ms: float = column("without", "ms")
    debug_ms: float = column("with", "ms")
    slowdown: float = column("slowdown")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")
    kernels_ms: float | None = column("kernels alone, without", "ms", None)


@dataclass
class AnomalyReport(Row):
    """What anomaly mode reports about the backward pass of one loss."""

    fault: str = column("fault")
    loss: float = column("loss")
    gradient: float = column("gradient")
    reported: str | None = column("anomaly mode reports")
    names_forward_line: bool = column("names the forward function")
    off_afterwards: bool = column("off afterwards")


def debug_tools(device: Device) -> dict[str, Callable]:
    """The tools that watch a whole step, as context managers."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.is_cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    tools = {
        "anomaly mode": torch.autograd.detect_anomaly,
        PROFILER: partial(torch.profiler.profile, activities=activities, acc_events=True),
    }
    return tools | ({"emit_nvtx": torch.autograd.profiler.emit_nvtx} if device.is_cuda else {})


def watched_step(tool: Callable, step: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor]:
    with tool():
        return step()


def sample_left_on(tool: Callable, step: Callable[[], object], fastest_of: int) -> float:
    """Seconds of a step with a tool that was on before it and stays on: its start and its end are not in the sample."""
    with tool():
        return one_sample(step, fastest_of=fastest_of)


def step_costs(step: Callable[[], object], tools: dict[str, Callable], samples: int, fastest_of: int) -> dict[str, Timing]:
    """Times of a step without a tool, with each tool left on, and with the profiler started anew for it.

    On a GPU, too, by the clock on the wall, because a tool costs time of the host. A host that is held up now and then would
    make single samples differ by as much as the tools cost: each sample is the fastest of `fastest_of`.
    """
    samplers = {PLAIN: nullcontext, **tools, PLACEBO: nullcontext}
    works = {name: partial(sample_left_on, tool, step, fastest_of) for name, tool in samplers.items()}
    works[RESTARTED] = partial(one_sample, partial(watched_step, tools[PROFILER], step), fastest_of=fastest_of)
    return in_turns(works, samples=samples)


def gains_of(net: str, times: dict[str, Timing]) -> dict[tuple[str, str], SpeedUp]:
    """{(tool, net): how fast the step is with the tool, compared with no tool}."""
    return {(tool, net): speed_up(times, PLAIN, tool) for tool in times if tool not in (PLAIN, PLACEBO)}


def gradcheck_times(inputs: int, samples: int, device: torch.device) -> tuple[dict[str, Timing], int]:
    """Times of gradcheck and of one backward pass for one layer, and how often gradcheck calls the function."""
    calls = 0
    layer = nn.Linear(inputs, 4).double().to(device)
    point = torch.randn(1, inputs, dtype=torch.float64, device=device, requires_grad=True)

    def counted(point: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return torch.tanh(layer(point))

    torch.autograd.gradcheck(counted, (point,))  # raises where the gradient is wrong
    needed = calls
    works = {
        "gradcheck": lambda: torch.autograd.gradcheck(counted, (point,)),
        PLAIN: lambda: torch.autograd.grad(counted(point).sum(), point),
    }
    return interleaved(works, samples=samples, placebo=PLAIN), needed


def anomaly_report(fault: str, device: torch.device) -> AnomalyReport:
    """Run one of FAULTS forward and backward, without anomaly mode and with it."""
    function = FAULTS[fault]
    x = torch.zeros(1, device=device, requires_grad=True)
    loss = function(x).sum()
    loss.backward()

    def in_anomaly_mode() -> None:
        with torch.autograd.detect_anomaly():
            function(torch.zeros(1, device=device, requires_grad=True)).sum().backward()

    with collect_warnings() as caught:  # the traceback of the forward pass comes as a warning
        outcome = attempt(in_anomaly_mode)
    return AnomalyReport(
        fault=fault,
        loss=loss.item(),
        gradient=x.grad.item(),
        reported=None if outcome == "works" else outcome,
        names_forward_line=any("hidden_root" in str(warning.message) for warning in caught),
        off_afterwards=not torch.is_anomaly_enabled(),
    )


def draw(result: Result):
    """The slowdown of a training step by each debugging tool that is left on, for a network of many small layers and
    for ResNet-18 (gradcheck: one layer). The dashed line is the step without a tool; gray bars do not differ from it by more
    than noise. The scale is logarithmic."""
    rows = result.rows(DebugCost)
    figure = style.new_figure(7.5, 0.45 * len(rows) + 1)
    axes = figure.subplots()
    nets = {SMALL: style.ORANGE, LARGE: style.BLUE, LAYER: style.GREEN}
    colors = [nets[row.net] if row.verdict in CLAIMED else style.GREY for row in rows]
    names = [f"{row.tool}, {row.net}" for row in rows]
    horizontal_bars(axes, names, [row.slowdown for row in rows], color=colors, labels="{:.2g}")
    axes.axvline(1, color=style.GREY, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(left=0.8)
    style.label_log_axis(axes.xaxis)
    axes.set(xlabel="slowdown of a step", ylabel="debugging tool")
    return figure


@experiment("debug-apis", lecture="L4", notebook="11_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def debug_apis(params: Params) -> Result:
    """What debugging tools cost when they are left on, and what anomaly mode finds and does not find."""
    device = params.device.torch
    small, large = deep_mlp(params.layers, params.width).to(device), resnet().to(device)
    x = torch.randn(params.batch, params.width, device=device)
    images, classes = images_and_classes(params.batch, params.side, device)

    def small_step() -> list[torch.Tensor]:
        return list(torch.autograd.grad(small(x).square().mean(), list(small.parameters())))

    def large_step() -> list[torch.Tensor]:
        return list(torch.autograd.grad(F.cross_entropy(large(images), classes), list(large.parameters())))

    times, alone = {}, {}
    tools = debug_tools(params.device)
    for net, step in ((SMALL, small_step), (LARGE, large_step)):
        with collect_warnings():  # anomaly mode warns that it is slow
            times[net] = step_costs(step, tools, params.samples, params.fastest_of)
        if params.device.is_cuda:
            alone[net] = one_sample(captured(step, device), device) * 1e3
    times[LAYER], needed = gradcheck_times(params.inputs, params.samples, device)
    gains = {key: gain for net, turns in times.items() for key, gain in gains_of(net, turns).items()}
    slowdown = {key: gain.slowdown for key, gain in gains.items()}
    rows = [
        DebugCost(
            tool=tool,
            net=net,
            plain_ms=times[net][PLAIN].seconds * 1e3,
            debug_ms=times[net][tool].seconds * 1e3,
            slowdown=slowdown[tool, net].ratio,
            interval=slowdown[tool, net].interval,
            verdict=gain.verdict,
            kernels_ms=alone.get(net),
        )
        for (tool, net), gain in gains.items()
    ]
    reports: list[AnomalyReport] = [anomaly_report(fault, device) for fault in FAULTS]
    nan, infinite, lost, _ = reports
    in_words = {key: gain.slowdown_text for key, gain in gains.items()}
    small_slowdown, large_slowdown = slowdown["anomaly mode", SMALL], slowdown["anomaly mode", LARGE]

    result = Result([Table("One training step", rows), Table("What anomaly mode reports", reports)])
    for row in rows:
        result.key_figure(f"{row.tool}, {row.net}, slowdown", row.slowdown)
    result.key_figure("gradcheck, calls of the function", needed)
    result.claim(
        "Anomaly mode stops at a NaN in the backward pass, and names the operator and the function that called it",
        (nan.reported or "").startswith("RuntimeError") and "SqrtBackward0" in nan.reported and nan.names_forward_line,
        nan.reported or "no report",
    )
    result.claim(
        "It reports neither an infinite gradient (the lecture's “or infinities” is wrong) nor a NaN whose gradient is finite",
        infinite.gradient == float("inf") and lost.loss != lost.loss and infinite.reported is lost.reported is None,
    )
    result.claim(
        "gradcheck calls the function at least twice for each input number",
        needed >= 2 * params.inputs,
        f"{needed} calls for {params.inputs} numbers",
    )
    result.measured(
        "Anomaly mode at least doubles the step time of the network of small layers",
        small_slowdown.low >= 2,
        in_words["anomaly mode", SMALL],
    )
    result.measured(
        "It slows the small layers down more than ResNet-18, because it costs time per operator",
        small_slowdown.low > large_slowdown.high,
        f"{in_words['anomaly mode', SMALL]}, compared with {in_words['anomaly mode', LARGE]}",
    )
    result.measured(
        "Starting the profiler anew for each step costs more than leaving it on",
        slowdown[RESTARTED, SMALL].low > slowdown[PROFILER, SMALL].high,
        f"{in_words[RESTARTED, SMALL]}, compared with {in_words[PROFILER, SMALL]}",
    )
    if params.device.is_cuda:
        steps = [
            f"{net} {number(times[net][PLAIN].seconds * 1e3, 3)} ms, its kernels alone {number(ms, 3)} ms"
            for net, ms in alone.items()
        ]
        result.notes.append(
            f"Without a tool, a step takes: {'; '.join(steps)}. Where the two differ, the step waits for launches: one costs"
            f" the host {launch_seconds(device) * 1e6:.3g} µs here, and what a tool costs the host is added in full."
        )
    else:
        what = f"emit_nvtx was not timed ({attempt(partial(watched_step, torch.autograd.profiler.emit_nvtx, list))})"
        result.notes.append(NO_CUDA.format(what=what, slug="debug-apis"))
    return result
