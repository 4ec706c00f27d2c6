"""torchao's quantization-aware training: prepare, train, convert. What was trained is what is shipped.

`ship` rounds the weights of Linear layers, one scale for each output channel, and their inputs to 8 bits, one scale for each
sample; convolutions stay as they are. `ship_graph` rounds convolutions, too, to static int8 in an exported graph.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.quantization.lessons.static_int8 import exported, int8_weights, prepared, pt2e_int8
from hpml_lab.quantization.tools.torchao_parts import torchao, without_torchaos_warnings

GRAPH = "int8, also convolutions: PT2E"


@dataclass
class ShippedNet(Row):
    """torchao's QAT with one integer type, from one seed."""

    weights: str = column("weights")
    ptq: float = column("without training", "%")
    trained: float = column("QAT, before convert", "%")
    converted: float = column("after convert", "%")
    difference: float = column("largest difference of outputs")
    linear: int = column("Linear layers converted")
    other: int = column("convolutions converted")


def ship(
    net: nn.Module, bits: int, train: Callable[[nn.Module], nn.Module], accuracy: Callable[[nn.Module], float], x: torch.Tensor
) -> ShippedNet:
    """Quantize a copy of `net`; train another with torchao's fake quantization, and convert it. Outputs are those of `x`."""
    ao, QATConfig = torchao(), torchao("quantization.qat").QATConfig
    with without_torchaos_warnings():
        dtype = getattr(torch, f"int{bits}")
        # One scale a row: groups of 32, the default, do not divide the 400 inputs of fc1.
        base = ao.Int8DynamicActivationIntxWeightConfig(weight_dtype=dtype, weight_granularity=ao.PerAxis(0))
        plain, rounded = copy.deepcopy(net), copy.deepcopy(net)
        ao.quantize_(plain, base)
        ao.quantize_(rounded, QATConfig(base, step="prepare"))
        train(rounded)
        before, outputs = accuracy(rounded), _outputs(rounded, x)
        ao.quantize_(rounded, QATConfig(base, step="convert"))
        difference = (_outputs(rounded, x) - outputs).abs().max().item()
        changed = [layer for layer in rounded.modules() if _is_converted(layer)]
        linear = sum(isinstance(layer, nn.Linear) for layer in changed)
        layers = linear, len(changed) - linear
        return ShippedNet(f"int{bits}", accuracy(plain), before, accuracy(rounded), difference, *layers)


def ship_graph(
    net: nn.Module, train: Callable[[nn.Module], nn.Module], accuracy: Callable[[nn.Module], float], x: torch.Tensor
) -> ShippedNet:
    """The same for all layers in static int8, by PT2E, on the CPU: without training the scales are those of `x`."""
    pt2e = torchao("quantization.pt2e")
    graph_of = torchao("quantization.pt2e.quantize_pt2e")
    plain = pt2e_int8(net, x)
    rounded = prepared(exported(net, x), qat=True)
    pt2e.allow_exported_model_train_eval(rounded)  # else train() and eval() raise
    with without_torchaos_warnings():
        train(rounded)
        rounded.apply(pt2e.disable_observer)  # in evaluation mode, too, it would go on adapting its scales
        before, outputs = accuracy(rounded), _outputs(rounded, x)
        shipped = graph_of.convert_pt2e(rounded)
        difference = (_outputs(shipped, x) - outputs).abs().max().item()
        shapes = [weight.ndim for weight in int8_weights(shipped)]
        layers = shapes.count(2), shapes.count(4)
        return ShippedNet(GRAPH, accuracy(plain), before, accuracy(shipped), difference, *layers)


def _is_converted(layer: nn.Module) -> bool:
    weight = getattr(layer, "weight", None)
    return weight is not None and type(weight) not in (torch.Tensor, nn.Parameter)


@torch.no_grad()
def _outputs(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x)
