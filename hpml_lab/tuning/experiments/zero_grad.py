"""Clearing gradients before the next step: write zeros into them, or set them to None.

The tuning guide recommends None. What that saves is counted as well as timed: one memset per parameter, one addition per
parameter in the backward pass, and the memory of all gradients during the forward pass. Operators are counted on every machine,
and on a GPU also the kernels that ran.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import grouped_bars, timed_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.timing.clock import interleaved, launch_seconds
from hpml_lab.core.timing.counting import Kernel, kernels, operators, peak_bytes
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.tuning.experiments.tuned_networks import deep_mlp, gradient_bytes, images_and_classes, loop_sgd, resnet
from hpml_lab.tuning.experiments.turns import REPLAYED, steps_in_turns

QUICK = dict(batch=2, side=32, samples=9)  # a step takes 60 ms
FULL = dict(batch=64, side=224, samples=9)


@dataclass
class ClearedStep(Row):
    """One training step of ResNet-18 with one way of clearing the gradients."""

    way: str = column("gradients cleared by")
    zero_calls: int = column("zero_ calls")
    foreach_zero_calls: int = column("_foreach_zero_ calls")
    add_calls: int = column("add_ calls")
    operators: int = column("operators")
    fill_kernels: int | None = column("kernels that fill")
    kernels: int | None = column("kernels")
    held_mb: float = column("gradients held in the forward pass", "MB")
    peak_mb: float = column("peak memory", "MB")


@dataclass
class ClearingTime(Row):
    """The time of one way of clearing the gradients: of the clearing alone, or of the whole step."""

    work: str = column("time of")
    way: str = column("gradients cleared by")
    time_us: float = column("time", "µs")
    gain: float | None = column("speed-up", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)


# ---- three ways to clear the gradients --------------------------------------------------------------------------------------


def zero_each(net: nn.Module) -> None:
    net.zero_grad(set_to_none=False)


def zero_together(net: nn.Module) -> None:
    if gradients := [parameter.grad for parameter in net.parameters() if parameter.grad is not None]:
        torch._foreach_zero_(gradients)


def set_to_none(net: nn.Module) -> None:
    net.zero_grad(set_to_none=True)


MEMSET, ONE_CALL, NONE = "memset per parameter", "one call for all", "set to None"
WAYS = {MEMSET: zero_each, ONE_CALL: zero_together, NONE: set_to_none}
ALONE, WHOLE = "clearing alone", "whole step"
FILLING = ("FillFunctor", "ZeroFunctor", "Memset")  # in the names of the kernels that zero_ and _foreach_zero_ launch


# ---- measuring --------------------------------------------------------------------------------------------------------------


def clearing(net: nn.Module) -> Callable[[Callable[[nn.Module], None]], None]:
    """Work to be timed: give each parameter a gradient, then clear them all in the given way."""
    gradients = [torch.zeros_like(parameter) for parameter in net.parameters()]

    def clear_all(clear: Callable[[nn.Module], None]) -> None:
        for parameter, gradient in zip(net.parameters(), gradients, strict=True):
            parameter.grad = gradient
        clear(net)

    return clear_all


def sgd_step(
    net: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor, clear: Callable[[nn.Module], None]
) -> None:
    """One step of a training loop. It clears last, so that the next step starts with what this way leaves behind."""
    F.cross_entropy(net(x), y).backward()
    optimizer.step()
    clear(net)


def filling(ran: list[Kernel]) -> int:
    """How many of the kernels that ran only fill a tensor with one number."""
    return sum(kernel.calls for kernel in ran if any(word in kernel.name for word in FILLING))


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
    """Three ways to clear the gradients of ResNet-18. Left: operator calls per training step and, on a GPU, kernels. Middle:
    the time of the clearing alone, in color where it differs from the memsets' by more than noise. Right: the peak memory of a
    step."""
    rows = result.rows(ClearedStep)
    groups = {"zero_": "zero_calls", "_foreach\n_zero_": "foreach_zero_calls", "add_": "add_calls", "operators": "operators"}
    if rows[0].kernels is not None:
        groups |= {"kernels\nthat fill": "fill_kernels", "kernels": "kernels"}
    figure = style.new_figure(12.5, 3.6)
    calls, time, memory = figure.subplots(1, 3, width_ratios=(3.2, 1.2, 0.7))
    grouped_bars(
        calls, list(groups), {row.way: [getattr(row, name) for name in groups.values()] for row in rows}, labels="{:,g}"
    )
    calls.set_ylabel("number in one step")
    calls.legend(fontsize=8, loc="upper left")
    alone = [row for row in result.rows(ClearingTime) if row.work == ALONE]
    timed_bars(time, [row.way for row in alone], [row.time_us for row in alone], [row.verdict for row in alone])
    time.set_xlabel("time of clearing in µs")
    grouped_bars(memory, [""], {row.way: [row.peak_mb] for row in rows})
    memory.set_xticks([])
    memory.set_ylabel("peak memory in MB")
    return figure


@experiment("zero-grad", lecture="L4", notebook="11_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def zero_grad(params: Params) -> Result:
    """Clearing gradients: one memset per parameter, or set to None."""
    device = params.device.torch
    x, y = images_and_classes(params.batch, params.side, device)
    nets = {way: resnet().to(device) for way in WAYS}  # a GPU's graph of a step writes into the gradients of its own network
    parameters = list(nets[NONE].parameters())
    weights_mb = sum(parameter.nbytes for parameter in parameters) / 1e6

    counts, held, peaks, ran, steps = {}, {}, {}, {}, {}
    for way, clear in WAYS.items():
        steps[way] = step = partial(sgd_step, nets[way], loop_sgd(nets[way]), x, y, clear)
        step()
        counts[way] = Counter(op.name for op in operators(step))
        held[way] = gradient_bytes(nets[way])
        peaks[way] = held[way] + peak_bytes(step, device)
        ran[way] = kernels(step, device) if params.device.is_cuda else []
    counted = all(ran.values())  # not on a CPU, nor where the profiler is not allowed to see the GPU
    clearings = {way: partial(clearing(nets[way]), clear) for way, clear in WAYS.items()}
    gpu = device if params.device.is_cuda else None
    timed = {
        ALONE: interleaved(clearings, samples=params.samples, placebo=MEMSET, gpu=gpu),
        WHOLE: steps_in_turns(steps, samples=params.samples, placebo=MEMSET, device=params.device),
    }
    times, gains = [], {}
    for work, found in timed.items():
        gains[work] = {way: speed_up(found, MEMSET, way) for way in (ONE_CALL, NONE)}
        for way in WAYS:
            columns = gains[work][way].columns if way in gains[work] else {}
            times.append(ClearingTime(work, way, found[way].seconds * 1e6, **columns))
    rows = [
        ClearedStep(
            way=way,
            zero_calls=counts[way]["zero_"],
            foreach_zero_calls=counts[way]["_foreach_zero_"],
            add_calls=counts[way]["add_"],
            operators=counts[way].total(),
            fill_kernels=filling(ran[way]) if counted else None,
            kernels=sum(kernel.calls for kernel in ran[way]) if counted else None,
            held_mb=held[way] / 1e6,
            peak_mb=peaks[way] / 1e6,
        )
        for way in WAYS
    ]
    memset, one_call, none = rows

    result = Result([Table("One training step of ResNet-18", rows), Table("Times", times)])
    result.key_figure("zero_ calls saved per step", memset.zero_calls - none.zero_calls)
    result.key_figure("add_ calls saved per step", memset.add_calls - none.add_calls)
    result.key_figure("operators saved per step", memset.operators - none.operators)
    if counted:
        result.key_figure("kernels saved per step", memset.kernels - none.kernels)
    result.key_figure("gradient memory freed during the forward pass", memset.held_mb - none.held_mb, unit="MB")
    result.key_figure("clearing with None", str(gains[ALONE][NONE]))
    result.key_figure("whole step with None", str(gains[WHOLE][NONE]))

    first, *others = [trained_parameters(clear, device) for clear in WAYS.values()]
    result.claim(
        "All ways train to bitwise identical parameters",
        all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True)),
    )
    saved = (memset.zero_calls - none.zero_calls, memset.add_calls - none.add_calls, one_call.add_calls - none.add_calls)
    result.claim(
        "None saves a call that writes zeros and an addition for each of the 62 parameters; one call for all still adds",
        saved == (62, 62, 62) == (len(parameters),) * 3 and one_call.foreach_zero_calls == 1,
        f"{saved[0]} and {saved[1]} calls saved",
    )
    result.claim(
        "During the forward pass, zeroed gradients occupy as much memory as the weights; None occupies none",
        (memset.held_mb, none.held_mb) == (weights_mb, 0),
        f"{memset.held_mb:.1f} MB → 0",
    )
    result.claim(
        "They differ for a layer that a step does not use: with zeros, momentum keeps moving it; with None it stays",
        [unused_layer_moves(clear, device) for clear in WAYS.values()] == [True, True, False],
    )
    result.measured("Clearing with None is faster", gains[ALONE][NONE].faster, str(gains[ALONE][NONE]))
    if counted:
        result.measured(
            "None saves at least two kernels for each parameter, one that fills and one that adds",
            memset.fill_kernels - none.fill_kernels >= len(parameters) and memset.kernels - none.kernels >= 2 * len(parameters),
            f"{memset.kernels} → {one_call.kernels} → {none.kernels} kernels, of which "
            f"{memset.fill_kernels} → {one_call.fill_kernels} → {none.fill_kernels} fill",
        )
    if params.device.is_cuda:
        result.notes.append(REPLAYED)
        launch = f"each costs {launch_seconds(device) * 1e6:.3g} µs here"
        result.notes.append(f"The clearing alone is timed as Python calls it: what it takes is mostly launches, and {launch}.")
    else:
        what = "a saved call is not a saved kernel launch, so it saves less time"
        result.notes.append(NO_CUDA.format(what=what, slug="zero-grad"))
    return result
