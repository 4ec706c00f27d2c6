"""Three ways of quantization-aware training: prepare, train, convert; and which integer operators run what is shipped.

`ship` is torchao's for Linear layers: weights have one scale for each output channel, inputs 8 bits with one scale for each
sample; convolutions stay as they are. `ship_graph` rounds convolutions, too, to static int8 in an exported graph, which is
compiled. `ship_lecture` is the lecture's prepare_qat.
"""

import copy
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.counting import profiled
from hpml_lab.quantization.lessons.static_int8 import (
    compiled_apart,
    compiled_for,
    eager_mode_int8,
    exported,
    int8_weights,
    lecture_qat,
    prepared,
    pt2e_int8,
)
from hpml_lab.quantization.tools.quantizers import quantized_modules
from hpml_lab.quantization.tools.torchao_parts import torchao, without_torchaos_warnings

GRAPH, LECTURE = "int8, also convolutions: PT2E", "int8, also convolutions: the lecture's prepare_qat"
NOT_COMPILED = "not compiled"
Train = Callable[[nn.Module], nn.Module]
Accuracy = Callable[[nn.Module], float]


@dataclass
class ShippedNet(Row):
    """QAT with one tool and integer type, from one seed."""

    weights: str = column("weights")
    ptq: float = column("without training", "%")
    trained: float = column("QAT, before convert", "%")
    converted: float = column("after convert", "%")
    difference: float = column("largest difference of outputs")
    linear: int = column("Linear layers converted")
    other: int = column("convolutions converted")
    run_by: str = column("integer operators in a call", "", "")
    integers: int = 0  # how many these are


def integer_operators(net: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> tuple[str, int]:
    """The integer operators of convolutions and Linear layers in one call, as text, and their number."""
    events = profiled(lambda: net(x), x.device).key_averages()
    found = {event.key: event.count for event in events if re.fullmatch(r"(quantized|onednn)::q?(conv|linear)\w*", event.key)}
    return ", ".join(f"{count} {name}" for name, count in sorted(found.items())) or "none", sum(found.values())


def ship(net: nn.Module, bits: int, train: Train, accuracy: Accuracy, x: torch.Tensor) -> ShippedNet:
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
        run_by = integer_operators(torch.no_grad()(rounded), x)
        return ShippedNet(f"int{bits}", accuracy(plain), before, accuracy(rounded), difference, *layers, *run_by)


def ship_graph(
    net: nn.Module, train: Train, accuracy: Accuracy, x: torch.Tensor, notes: list[str], *, compile: bool
) -> ShippedNet:
    """The same for all layers in static int8, by PT2E, on the CPU: without training the scales are those of `x`.

    Not compiled, the converted graph is the reference, which computes in float; a note says why nothing was compiled.
    """
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
        row = ShippedNet(GRAPH, accuracy(plain), before, accuracy(shipped), difference, *layers)
    if not compile:
        row.run_by = NOT_COMPILED
        notes.append("PT2E's net was not compiled, which takes half of the time: `--size full` does. See pt2e-inductor.")
        return row
    with compiled_apart():
        try:
            row.run_by, row.integers = integer_operators(compiled_for(shipped, x), x)
        except (LabError, RuntimeError) as error:  # no compiler, or not a processor that inductor's int8 operators are for
            row.run_by = NOT_COMPILED
            notes.append(f"PT2E's net was not compiled: {str(error).strip().splitlines()[0][:200]}")
    return row


@torch.no_grad()
def ship_lecture(net: nn.Module, train: Train, accuracy: Accuracy, x: torch.Tensor) -> ShippedNet:
    """The same by the lecture's lines and eager mode's convert, on the CPU. Stubs make integers of the input."""
    with collect_warnings():
        import torch.ao.quantization as quantization

        rounded = lecture_qat(quantization.QuantWrapper(net), training=True)
        with torch.enable_grad():
            train(rounded)
        rounded.apply(quantization.disable_observer)
        before, outputs = accuracy(rounded), rounded(x)
        shipped = quantization.convert(rounded)
    kinds = [type(shipped.get_submodule(name)).__name__ for name in quantized_modules(shipped)]
    layers = kinds.count("Linear"), kinds.count("Conv2d")
    accuracies = accuracy(eager_mode_int8(net, x)), before, accuracy(shipped)
    difference = (shipped(x) - outputs).abs().max().item()
    return ShippedNet(LECTURE, *accuracies, difference, *layers, *integer_operators(shipped, x))


def judge_shipped(result: Result, rows: list[ShippedNet]) -> None:
    """Add what the ways ship."""
    if by_quantize := [row for row in rows if row.weights not in (GRAPH, LECTURE)]:
        result.claim(
            "torchao's quantize_: the accuracy before and after convert is equal; what was trained is what is shipped",
            all(row.trained == row.converted for row in by_quantize),
        )
    if whole := [row for row in rows if row.weights == LECTURE or (row.weights == GRAPH and row.run_by != NOT_COMPILED)]:
        compiled = ", and by PT2E, compiled" if len(whole) > 1 else ""
        result.measured(
            f"After QAT all five layers run as integers, convolutions included: by the lecture's convert{compiled}",
            all(row.integers == 5 for row in whole),
            "; ".join(f"{row.weights.split(': ')[1]}: {row.run_by}" for row in whole),
            depends_on="the processor and its compiler",
        )


def _is_converted(layer: nn.Module) -> bool:
    weight = getattr(layer, "weight", None)
    return weight is not None and type(weight) not in (torch.Tensor, nn.Parameter)


@torch.no_grad()
def _outputs(net: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return net(x)
