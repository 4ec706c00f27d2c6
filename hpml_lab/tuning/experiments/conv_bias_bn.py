"""A bias before batch norm: computed, subtracted again with the batch's mean, and trained with a gradient of zero."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import grouped_bars, timed_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.timing.counting import kernels, operators
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.tuning.experiments.tuned_networks import images_and_classes, largest_difference, loop_sgd, resnet
from hpml_lab.tuning.experiments.turns import REPLAYED, steps_in_turns

QUICK = dict(batch=4, side=32, samples=9)  # a step takes 50 ms
FULL = dict(batch=64, side=224, samples=9)
WITH, WITHOUT = "with bias", "without bias"


@dataclass
class BiasedStep(Row):
    """What one training step of ResNet-18 costs, with biases in its convolutions or without."""

    convolutions: str = column("convolutions")
    parameters: int = column("parameters")
    tensors: int = column("parameter tensors")
    operators: int = column("operators")
    moved_mb: float = column("memory traffic", "MB")
    kernels: int | None = column("kernels")
    step_ms: float = column("step", "ms")
    spread_ms: float = column("spread", "ms")
    gain: float | None = column("speed-up", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)


@dataclass
class BiasEffect(Row):
    """What the biases change, in float64. All but the lag of the running mean is relative to the largest value."""

    outputs: float = column("outputs in training")
    weight_gradients: float = column("gradients of the weights")
    bias_gradient: float = column("largest bias gradient over smallest weight gradient")
    evaluated: float = column("outputs in evaluation")
    lag: float = column("running mean minus momentum × bias")


def sgd_step(net: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, y: torch.Tensor) -> None:
    """One step of a training loop: drop the gradients, forward, backward, update."""
    optimizer.zero_grad(set_to_none=True)
    F.cross_entropy(net(x), y).backward()
    optimizer.step()


def bias_effect(biased: nn.Module, plain: nn.Module, x: torch.Tensor, y: torch.Tensor) -> BiasEffect:
    """Compare both networks in float64, where rounding is far smaller than anything that a bias could change."""
    outputs, gradients = [], []
    for net in (biased, plain):
        net.double().train()
        output = net(x.double())
        F.cross_entropy(output, y).backward()
        outputs.append(output.detach())
        gradients.append({name: parameter.grad for name, parameter in net.named_parameters()})
    convolutions = [name for name, layer in biased.named_modules() if isinstance(layer, nn.Conv2d)]
    bias_gradient = max(gradients[0][f"{name}.bias"].abs().max().item() for name in convolutions)
    weight_gradient = min(gradients[0][f"{name}.weight"].abs().max().item() for name in convolutions)
    mean_shift = biased.bn1.running_mean - plain.bn1.running_mean
    lag = mean_shift - biased.bn1.momentum * biased.conv1.bias.detach()
    evaluated = [net.eval()(x.double()).detach() for net in (biased, plain)]
    return BiasEffect(
        outputs=largest_difference(outputs[:1], outputs[1:]),
        weight_gradients=largest_difference((gradients[0][name] for name in gradients[1]), gradients[1].values()),
        bias_gradient=bias_gradient / weight_gradient,
        evaluated=largest_difference(evaluated[:1], evaluated[1:]),
        lag=lag.abs().max().item(),
    )


def draw(result: Result):
    """ResNet-18 with a bias in each convolution and without. Left: parameter tensors, operator calls and, on a GPU, kernels of
    a training step. Right: the time of that step, in color only if it differs by more than noise."""
    figure = style.new_figure(8.5, 3.4)
    counts, times = figure.subplots(1, 2, width_ratios=(1.6, 1))
    rows = result.rows(BiasedStep)
    groups = {"parameter tensors": "tensors", "operators": "operators", "kernels": "kernels"}
    if rows[0].kernels is None:
        del groups["kernels"]
    grouped_bars(
        counts,
        list(groups),
        {row.convolutions: [getattr(row, name) for name in groups.values()] for row in rows},
        labels="{:,g}",
    )
    counts.set_ylabel("number in one step")
    counts.legend(loc="upper left")
    columns = [row.convolutions for row in rows], [row.step_ms for row in rows], [row.verdict for row in rows]
    timed_bars(times, *columns, unit="ms")
    return figure


@experiment("conv-bias-bn", lecture="L4", notebook="11_tuning", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def conv_bias_bn(params: Params) -> Result:
    """A bias before batch norm: computed, subtracted again, and trained with a gradient of zero."""
    device = params.device.torch
    nets = {}
    for name, bias in ((WITH, True), (WITHOUT, False)):
        torch.manual_seed(0)
        nets[name] = resnet(bias).to(device)
    x, y = images_and_classes(params.batch, params.side, device)
    effect = bias_effect(*nets.values(), x[:4], y[:4])

    steps = {}
    for name, net in nets.items():
        net.float().train()
        net.zero_grad()
        steps[name] = partial(sgd_step, net, loop_sgd(net), x, y)
    called = {name: operators(step) for name, step in steps.items()}
    # None on a CPU, and where the profiler is not allowed to see the GPU
    launched = {
        name: sum(kernel.calls for kernel in kernels(step, device)) or None if params.device.is_cuda else None
        for name, step in steps.items()
    }
    times = steps_in_turns(steps, samples=params.samples, placebo=WITH, device=params.device)
    gain = speed_up(times, WITH, WITHOUT)
    rows = [
        BiasedStep(
            convolutions=name,
            parameters=sum(parameter.numel() for parameter in net.parameters()),
            tensors=len(list(net.parameters())),
            operators=len(called[name]),
            moved_mb=sum(op.bytes for op in called[name]) / 1e6,
            kernels=launched[name],
            step_ms=times[name].seconds * 1e3,
            spread_ms=times[name].spread * 1e3,
            **(gain.columns if name == WITHOUT else {}),
        )
        for name, net in nets.items()
    ]
    biased, plain = rows

    result = Result([Table("One training step of ResNet-18", rows), Table("What the biases change, in float64", [effect])])
    result.key_figure("operators saved", biased.operators - plain.operators)
    if biased.kernels and plain.kernels:
        result.key_figure("kernels saved", biased.kernels - plain.kernels)
    result.key_figure("step without bias", str(gain))

    result.claim(
        "In training, both networks give the same outputs and gradients of the weights, within 1e-8 of the largest in float64",
        max(effect.outputs, effect.weight_gradients) <= 1e-8,
        f"{effect.outputs:.1e} and {effect.weight_gradients:.1e}",
    )
    result.claim(
        "The gradient of a bias is zero except for rounding: below 1e-10 of any layer's largest weight gradient",
        effect.bias_gradient <= 1e-10,
        f"{effect.bias_gradient:.1e}",
    )
    result.claim(
        "Without the biases there are 20 parameter tensors less; a step calls 20 operators less and moves fewer bytes",
        biased.tensors - plain.tensors == biased.operators - plain.operators == 20 and biased.moved_mb > plain.moved_mb,
        f"{biased.operators} → {plain.operators} operators",
    )
    result.claim(
        "After one batch the running mean holds a tenth of the bias, its momentum, so the outputs in evaluation still differ",
        effect.lag <= 1e-12 and nets[WITH].bn1.momentum == 0.1 and effect.evaluated > 1e-3,
        f"{effect.evaluated:.1e} of the largest output",
    )
    result.measured("The step is faster without biases", gain.faster, str(gain))
    if biased.kernels and plain.kernels:
        result.measured(
            "Each bias costs three kernels: its addition, the sum in the backward pass and its update",
            biased.kernels - plain.kernels >= 3 * 20,
            f"{biased.kernels} → {plain.kernels} kernels",
        )
    if params.device.is_cuda:
        result.notes.append(REPLAYED)
    else:
        what = "a CPU adds the bias inside its convolution, so there is little time to save"
        result.notes.append(NO_CUDA.format(what=what, slug="conv-bias-bn"))
    return result
