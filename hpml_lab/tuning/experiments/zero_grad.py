"""Clearing gradients before the next step: write zeros into them, or set them to None.

The tuning guide recommends None. What that saves is counted as well as timed: one memset per parameter, one addition per
parameter in the backward pass, and the memory of all gradients during the forward pass.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core import style
from hpml_lab.core.counting import operators, peak_bytes
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.result import Result
from hpml_lab.core.timing import interleaved
from hpml_lab.tuning.bars import grouped_bars
from hpml_lab.tuning.networks import deep_mlp, gradient_bytes, images_and_classes, loop_sgd, resnet

QUICK = dict(batch=2, side=32, samples=2)
FULL = dict(batch=64, side=224, samples=9)


@dataclass
class ClearedStep:
    """One training step of ResNet-18 with one way of clearing the gradients."""

    way: str = column("gradients cleared by")
    zero_calls: int = column("zero_ calls")
    foreach_zero_calls: int = column("_foreach_zero_ calls")
    add_calls: int = column("add_ calls")
    operators: int = column("operators")
    held_mb: float = column("gradients held in the forward pass", "MB")
    peak_mb: float = column("peak memory", "MB")
    clearing_us: float = column("clearing", "µs")
    step_ms: float = column("whole step", "ms")


# ---- three ways to clear the gradients --------------------------------------------------------------------------------------


def zero_each(net: nn.Module) -> None:
    net.zero_grad(set_to_none=False)


def zero_together(net: nn.Module) -> None:
    if gradients := [parameter.grad for parameter in net.parameters() if parameter.grad is not None]:
        torch._foreach_zero_(gradients)


def set_to_none(net: nn.Module) -> None:
    net.zero_grad(set_to_none=True)


WAYS = {"memset per parameter": zero_each, "one call for all": zero_together, "set to None": set_to_none}


# ---- measuring --------------------------------------------------------------------------------------------------------------


def clearing_times(net: nn.Module, samples: int) -> dict[str, float]:
    """Seconds to clear the gradients of all parameters, for each way."""
    gradients = [torch.zeros_like(parameter) for parameter in net.parameters()]

    def clear_all(clear: Callable[[nn.Module], None]) -> None:
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            parameter.grad = gradient
        clear(net)

    times = interleaved({way: partial(clear_all, clear) for way, clear in WAYS.items()}, samples=samples)
    return {way: time.seconds for way, time in times.items()}


def trained_parameters(clear: Callable[[nn.Module], None], device: torch.device) -> list[torch.Tensor]:
    """The parameters of a small network after three steps of SGD with momentum."""
    torch.manual_seed(0)
    net = deep_mlp(4, 16).to(device)
    optimizer = loop_sgd(net, momentum=0.9)
    x = torch.randn(8, 16, device=device)
    for _ in range(3):
        clear(net)
        net(x).square().mean().backward()
        optimizer.step()
    return [parameter.detach() for parameter in net.parameters()]


def unused_layer_moves(clear: Callable[[nn.Module], None], device: torch.device) -> bool:
    """Whether SGD with momentum moves a layer in a step that does not use it, after a step that did."""
    torch.manual_seed(0)
    net = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)]).to(device)
    optimizer = loop_sgd(net, momentum=0.9)
    x = torch.ones(2, 4, device=device)
    for layers in (net, net[:1]):
        clear(net)
        before = net[1].weight.detach().clone()
        sum(layer(x).square().sum() for layer in layers).backward()
        optimizer.step()
    return not torch.equal(before, net[1].weight)


def draw(result: Result):
    """Three ways to clear the gradients of ResNet-18. Left: calls per training step. Middle: the time of the clearing alone.
    Right: the peak memory of a step."""
    rows = result.rows(ClearedStep)
    figure = style.new_figure(9, 3.4)
    calls, time, memory = figure.subplots(1, 3, width_ratios=(1.9, 1, 1))
    series = {row.way: [row.zero_calls, row.foreach_zero_calls, row.add_calls] for row in rows}
    grouped_bars(calls, ["zero_", "_foreach_zero_", "add_"], series, labels=True)
    calls.set_ylabel("calls per step")
    calls.legend(fontsize=8, loc="upper left")
    grouped_bars(time, [""], {row.way: [row.clearing_us] for row in rows}, labels=False)
    grouped_bars(memory, [""], {row.way: [row.peak_mb] for row in rows}, labels=False)
    for axes in (time, memory):
        axes.set_xticks([])
    time.set_ylabel("time of clearing in µs")
    memory.set_ylabel("peak memory in MB")
    return figure


@experiment("zero-grad", lecture="L4", notebook="10_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def zero_grad(params: Params) -> Result:
    """Clearing gradients: one memset per parameter, or set to None."""
    device = params.device.torch
    net = resnet().to(device)
    optimizer = loop_sgd(net)
    x, y = images_and_classes(params.batch, params.side, device)
    parameters = list(net.parameters())
    weights_mb = sum(parameter.nbytes for parameter in parameters) / 1e6

    def step(clear: Callable[[nn.Module], None]) -> None:
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
        clear(net)  # last, so that the next step starts with what this way leaves behind

    counts, held, peaks = {}, {}, {}
    for way, clear in WAYS.items():
        step(clear)
        counts[way] = Counter(op.name for op in operators(partial(step, clear)))
        held[way] = gradient_bytes(net)
        peaks[way] = held[way] + peak_bytes(partial(step, clear), device)
    clearing = clearing_times(net, params.samples)
    steps = interleaved({way: partial(step, clear) for way, clear in WAYS.items()}, samples=params.samples)
    rows = [
        ClearedStep(
            way=way,
            zero_calls=counts[way]["zero_"],
            foreach_zero_calls=counts[way]["_foreach_zero_"],
            add_calls=counts[way]["add_"],
            operators=counts[way].total(),
            held_mb=held[way] / 1e6,
            peak_mb=peaks[way] / 1e6,
            clearing_us=clearing[way] * 1e6,
            step_ms=steps[way].seconds * 1e3,
        )
        for way in WAYS
    ]
    memset, one_call, none = rows
    speedup = memset.clearing_us / none.clearing_us

    result = Result([Table("One training step of ResNet-18", rows)])
    result.key_figure("zero_ calls saved per step", memset.zero_calls - none.zero_calls)
    result.key_figure("add_ calls saved per step", memset.add_calls - none.add_calls)
    result.key_figure("gradient memory freed during the forward pass", memset.held_mb - none.held_mb, unit="MB")
    result.key_figure("clearing with None, speedup", speedup, unit="times")
    result.key_figure("whole step with None, speedup", memset.step_ms / none.step_ms, unit="times")

    first, *others = [trained_parameters(clear, device) for clear in WAYS.values()]
    result.claim(
        "All ways train to bitwise identical parameters",
        all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True)),
    )
    result.claim(
        "The loop clears each of the 62 parameters with a call of its own; None needs no call, and one call can clear all",
        (memset.zero_calls - none.zero_calls, one_call.foreach_zero_calls, len(parameters)) == (62, 1, 62),
        f"{memset.zero_calls} → {none.zero_calls} calls",
    )
    result.claim(
        "None also saves one addition per parameter, because the backward pass writes instead of adding",
        memset.add_calls - none.add_calls == len(parameters) == one_call.add_calls - none.add_calls,
        f"{memset.add_calls} → {none.add_calls} calls",
    )
    result.claim(
        "During the forward pass, zeroed gradients occupy as much memory as the weights; None occupies none",
        (memset.held_mb, none.held_mb) == (weights_mb, 0),
        f"{memset.held_mb:.1f} MB → 0",
    )
    result.claim(
        "None never needs more memory in a step",
        none.peak_mb <= memset.peak_mb,
        f"{memset.peak_mb:.1f} → {none.peak_mb:.1f} MB",
    )
    result.claim(
        "They differ for a layer that a step does not use: with zeros, momentum keeps moving it; with None it stays",
        [unused_layer_moves(clear, device) for clear in WAYS.values()] == [True, True, False],
    )
    result.measured("Clearing with None is faster", speedup > 1, f"{speedup:.1f} times")
    if not params.device.is_cuda:
        what = "a saved call is not a saved kernel launch, so it saves less time"
        result.notes.append(NO_CUDA.format(what=what, slug="zero-grad"))
    return result
