"""Debugging tools: what each costs when it is left on, and what anomaly mode finds and does not find."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core import style
from hpml_lab.core.attempt import attempt
from hpml_lab.core.device import NO_CUDA, Device
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.result import Result
from hpml_lab.core.timing import compare
from hpml_lab.core.warned import collect_warnings
from hpml_lab.tuning.anomaly import FAULTS, AnomalyReport, anomaly_report
from hpml_lab.tuning.bars import horizontal_bars
from hpml_lab.tuning.networks import deep_mlp, images_and_classes, resnet

QUICK = dict(layers=20, width=32, batch=2, side=32, samples=2, inputs=16)
FULL = dict(layers=20, width=32, batch=64, side=224, samples=7, inputs=64)
SMALL, LARGE, LAYER = "20 small layers", "ResNet-18", "one layer"


@dataclass
class DebugCost:
    """One training step with a debugging tool and without (gradcheck: one backward pass of one layer)."""

    tool: str = column("tool")
    net: str = column("network")
    plain_ms: float = column("without", "ms")
    debug_ms: float = column("with", "ms")
    slowdown: float = column("slowdown", "times")


def debug_tools(device: Device) -> dict[str, Callable]:
    """The tools that watch a whole step, as context managers."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    if device.is_cuda:
        activities.append(torch.profiler.ProfilerActivity.CUDA)
    tools = {
        "anomaly mode": torch.autograd.detect_anomaly,
        "profiler": partial(torch.profiler.profile, activities=activities, acc_events=True),
    }
    return tools | ({"emit_nvtx": torch.autograd.profiler.emit_nvtx} if device.is_cuda else {})


def watched_step(tool: Callable, step: Callable[[], list[torch.Tensor]]) -> list[torch.Tensor]:
    with tool():
        return step()


def gradcheck_cost(inputs: int, samples: int, device: torch.device) -> tuple[DebugCost, int]:
    """The cost of gradcheck for one layer, and how often it calls the function."""
    calls = 0
    layer = nn.Linear(inputs, 4).double().to(device)
    point = torch.randn(1, inputs, dtype=torch.float64, device=device, requires_grad=True)

    def counted(point: torch.Tensor) -> torch.Tensor:
        nonlocal calls
        calls += 1
        return torch.tanh(layer(point))

    torch.autograd.gradcheck(counted, (point,))  # raises where the gradient is wrong
    needed = calls
    times = compare(
        lambda: torch.autograd.gradcheck(counted, (point,)),
        lambda: torch.autograd.grad(counted(point).sum(), point),
        samples=samples,
    )
    return DebugCost("gradcheck", LAYER, times.b.seconds * 1e3, times.a.seconds * 1e3, times.ratio), needed


def draw(result: Result):
    """How many times as long a training step takes with each debugging tool, for a network of many small layers and for
    ResNet-18 (gradcheck: one layer). The dashed line is the step without a tool. The scale is logarithmic."""
    rows = result.rows(DebugCost)
    figure = style.new_figure(7.5, 0.45 * len(rows) + 1)
    axes = figure.subplots()
    colors = {SMALL: style.ORANGE, LARGE: style.BLUE, LAYER: style.GREEN}
    names = [f"{row.tool}, {row.net}" for row in rows]
    horizontal_bars(axes, names, [row.slowdown for row in rows], color=[colors[row.net] for row in rows], number="{:.2g}")
    axes.axvline(1, color=style.GREY, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(left=0.8)
    style.label_log_axis(axes.xaxis)
    axes.set(xlabel="times as long as the step without it", ylabel="debugging tool")
    return figure


@experiment("debug-apis", lecture="L4", notebook="10_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
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

    rows, unchanged = [], []
    for net, step in ((SMALL, small_step), (LARGE, large_step)):
        right = step()
        for name, tool in debug_tools(params.device).items():
            watched = partial(watched_step, tool, step)
            with collect_warnings():  # anomaly mode warns that it is slow
                times = compare(watched, step, samples=params.samples)
                gradients = watched()
            unchanged += [(a - b).abs().max() <= 1e-3 * b.abs().max() + 1e-7 for a, b in zip(gradients, right, strict=True)]
            rows.append(DebugCost(name, net, times.b.seconds * 1e3, times.a.seconds * 1e3, times.ratio))
    check_cost, needed = gradcheck_cost(params.inputs, params.samples, device)
    rows.append(check_cost)
    reports: list[AnomalyReport] = [anomaly_report(fault, device) for fault in FAULTS]
    nan, infinite, lost, sound = reports
    slowdown = {(row.tool, row.net): row.slowdown for row in rows}
    small_slowdown, large_slowdown = slowdown["anomaly mode", SMALL], slowdown["anomaly mode", LARGE]

    result = Result([Table("One training step", rows), Table("What anomaly mode reports", reports)])
    for row in rows:
        result.key_figure(f"{row.tool}, {row.net}, slowdown", row.slowdown, unit="times")
    result.key_figure("gradcheck, calls of the function", needed)
    result.claim("Debugging tools do not change gradients, within 1e-3 of each parameter's largest", all(unchanged))
    result.claim(
        "Anomaly mode stops at a NaN in the backward pass and names the operator, SqrtBackward0",
        (nan.reported or "").startswith("RuntimeError") and "SqrtBackward0" in nan.reported,
        nan.reported or "no report",
    )
    result.claim("It also names the function in the forward pass that called the operator", nan.names_forward_line)
    result.claim(
        "It does not report an infinite gradient: the lecture's 'or infinities' is wrong",
        infinite.gradient == float("inf") and infinite.reported is None,
    )
    result.claim(
        "It does not see a NaN in the forward pass whose gradient is finite",
        lost.loss != lost.loss and lost.gradient == -1 and lost.reported is None,
    )
    result.claim("It reports nothing where nothing is wrong", sound.reported is None)
    result.claim(
        "Anomaly mode ends with its `with` block, also after an exception", all(report.off_afterwards for report in reports)
    )
    result.claim(
        "gradcheck calls the function at least twice for each input number",
        needed >= 2 * params.inputs,
        f"{needed} calls for {params.inputs} numbers",
    )
    result.measured(
        "Anomaly mode at least doubles the step time of the network of small layers",
        small_slowdown >= 2,
        f"{small_slowdown:.1f} times",
    )
    result.measured(
        "It slows the small layers down more than ResNet-18, because it costs time per operator",
        small_slowdown > large_slowdown,
        f"{small_slowdown:.1f} compared with {large_slowdown:.1f} times",
    )
    if not params.device.is_cuda:
        what = f"emit_nvtx was not timed ({attempt(partial(watched_step, torch.autograd.profiler.emit_nvtx, list))})"
        result.notes.append(NO_CUDA.format(what=what, slug="debug-apis"))
    return result
