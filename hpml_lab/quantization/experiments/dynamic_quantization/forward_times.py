"""How long the forward passes of dynamic-quantization take: one Linear layer and whole models, on the CPU and on a GPU."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.quantization.experiments.dynamic_quantization.rows import (
    DTYPES,
    RefusedModel,
    TimedForward,
    outcome_of,
    timed_forwards,
)
from hpml_lab.quantization.tools.quantizers import INT8, converted

COMPILED = ", compiled"


@dataclass(frozen=True)
class TimedPlace:
    """Where forward passes are timed, such as "on the CPU": its format without quantization, and those to compare with it."""

    where: str
    device: torch.device
    base: str
    names: list[str]
    samples: int


def linear_times(place: TimedPlace, widths: Iterable[int], batches: Iterable[int]) -> tuple[list[TimedForward], list[float]]:
    """One Linear layer over widths and batch sizes; and ms by which torchao takes longer than the base on the smallest."""
    rows, extra, dtype = [], [], DTYPES[place.base]
    for width in widths:
        layer = nn.Sequential(nn.Linear(width, width)).to(place.device, dtype)
        nets = {place.base: layer} | {name: converted(layer, name) for name in place.names}
        for batch in batches:
            x = torch.randn(batch, width, device=place.device, dtype=dtype)
            found, times = timed_forwards(f"Linear {width:,}", nets, x, place.samples, width, place.where)
            rows += found
            if INT8 in times and not extra:
                extra = [1e3 * (a - b) for a, b in zip(times[INT8].samples, times[place.base].samples, strict=True)]
    return rows, extra


def model_times(
    place: TimedPlace, models: dict[str, tuple[nn.Module, tuple[int, ...]]], compiled: bool = False
) -> tuple[list[TimedForward], list[RefusedModel]]:
    """The same for whole models, {label: (model, shape of the input)}, which are moved there.

    compiled  also the base and torchao's int8 dynamic by torch.compile, and compare all with the compiled base
    """
    rows, refused, dtype = [], [], DTYPES[place.base]
    for label, (model, shape) in models.items():
        model, x = model.to(place.device, dtype), torch.randn(shape, device=place.device, dtype=dtype)
        nets = {place.base: model} | {name: converted(model, name) for name in place.names}
        if compiled:
            fast, more = compiled_nets({name: nets[name] for name in (place.base, INT8) if name in nets}, x)
            nets = fast | nets
            refused += [RefusedModel(f"{name}: {label} {place.where}", outcome) for name, outcome in more.items()]
        rows += timed_forwards(label, nets, x, place.samples, where=place.where)[0]
    return rows, refused


def compiled_times(
    place: TimedPlace, label: str, model: nn.Module, shape: tuple[int, ...]
) -> tuple[list[TimedForward], list[RefusedModel]]:
    """A model and torchao's int8 dynamic, both by torch.compile, timed in turns; empty where either is missing."""
    if INT8 not in place.names:
        return [], []
    x = torch.randn(shape, device=place.device)
    with collect_warnings():  # torchao's tensors cannot be cached
        fast, said = compiled_nets({place.base: model, INT8: converted(model, INT8)}, x)
    refused = [RefusedModel(f"{name}: {label} {place.where}", outcome) for name, outcome in said.items()]
    return (timed_forwards(label, fast, x, place.samples, where=place.where)[0] if len(fast) == 2 else []), refused


@torch.no_grad()
def compiled_nets(nets: dict[str, nn.Module], x: torch.Tensor) -> tuple[dict[str, nn.Module], dict[str, str]]:
    """Each of `nets` by torch.compile for inputs like x, and what those say that do not compile here. Without the first, the
    base, there is nothing to compare with, and none is returned."""
    torch.compiler.reset()  # else it may count them as one function that is compiled again and again
    fast = {name + COMPILED: torch.compile(net, dynamic=False) for name, net in nets.items()}
    said = {name: outcome_of(lambda net=net: net(x)) for name, net in fast.items()}
    refused = {name: outcome for name, outcome in said.items() if outcome != "runs"}
    base = next(iter(fast))
    return {} if base in refused else {name: net for name, net in fast.items() if name not in refused}, refused
