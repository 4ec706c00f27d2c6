"""The forms of one net, float32 and int8, eager and compiled: how fast, how right and how large each is."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import Timing, interleaved
from hpml_lab.core.timing.counting import profiled
from hpml_lab.core.timing.noise import interval, speed_up
from hpml_lab.quantization.lessons.lenet import LabeledImages, accuracy
from hpml_lab.quantization.lessons.static_int8 import compiled_for, pt2e_int8
from hpml_lab.quantization.tools.sizes import sizes

EAGER, FROZEN = "float32, eager", "float32, compiled, frozen"
REFERENCE, INT8, OLD = "int8 by PT2E, eager", "int8 by PT2E, compiled", "int8, eager mode (older)"
COLORS = {EAGER: style.GREY, FROZEN: style.GREY, REFERENCE: style.ORANGE, INT8: style.BLUE, OLD: style.SKY}
Net = Callable[[torch.Tensor], torch.Tensor]


@dataclass
class StaticNet(Row):
    """One form of one net: how fast, how right and how large."""

    net: str = column("net")
    form: str = column("form")
    run_by: str = column("its convolutions are run by")
    batch_ms: float = column("a batch", "ms")
    low_ms: float
    high_ms: float
    gain: float | None = column("speed-up", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)
    accuracy: float | None = column("test accuracy", "%", None)
    error: float | None = column("relative error of the output", "%", None)
    same_classes: float | None = column("classes as the reference's", "%", None)
    weights_kb: float = column("weights that it computes with", "kB", 0.0)
    state_kb: float | None = column("tensors of its state_dict", "kB", None)
    compile_s: float | None = column("first call", "s", None)


def int8_forms(net: nn.Module, calibration: torch.Tensor, notes: list[str], any_batch: bool) -> dict[str, nn.Module]:
    """The reference graph of PT2E, where torchao is installed."""
    try:
        return {REFERENCE: pt2e_int8(net, calibration, any_batch)}
    except LabError as error:
        notes.append(f"{error} Without it there are no rows of PT2E.")
        return {}


def compile_forms(forms: dict[str, nn.Module], x: torch.Tensor, notes: list[str]) -> tuple[dict[str, Net], dict[str, float]]:
    """The compiled forms of what can be compiled here, and the seconds of each one's first call."""
    made: dict[str, Net] = {}
    seconds: dict[str, float] = {}
    for name, source in ((FROZEN, EAGER), (INT8, REFERENCE)):
        if source not in forms:
            continue
        start = time.perf_counter()
        try:
            made[name] = compiled_for(forms[source], x)
            seconds[name] = time.perf_counter() - start
        except LabError as error:
            notes.append(f"{error} Without it there are no compiled rows.")
            break
        except RuntimeError as error:  # inductor's int8 operators are for x86 processors
            notes.append(f"{name} does not run here: {str(error).strip().splitlines()[0][:160]}")
    return made, seconds


def convolution_operator(net: Net, x: torch.Tensor) -> str:
    """The operator in which the convolutions of one call spend their time."""
    events = profiled(lambda: net(x), x.device).key_averages()
    found = [event for event in events if "conv" in event.key and "::" in event.key]
    return max(found, key=lambda event: event.self_cpu_time_total).key


def weight_bytes(name: str, net: nn.Module, forms: dict[str, nn.Module]) -> int:
    """Bytes of the weights that a form multiplies with: float32, or int8 and its scales."""
    layers = [module for module in forms[EAGER].modules() if isinstance(module, nn.Conv2d | nn.Linear)]
    values, channels = sum(layer.weight.numel() for layer in layers), sum(len(layer.weight) for layer in layers)
    return values + 4 * channels if name in (REFERENCE, INT8, OLD) else 4 * values


def measure_net(
    label: str, forms: dict[str, nn.Module], x: torch.Tensor, data: LabeledImages | None, samples: int, notes: list[str]
) -> tuple[list[StaticNet], dict[str, Timing]]:
    """Compile, time in turns, and compare the outputs of all forms of one net; `data` for the accuracy, if it is trained."""
    made, seconds = compile_forms(forms, x, notes)
    order = [name for name in COLORS if name in forms or name in made]
    nets: dict[str, Net] = {name: made[name] if name in made else forms[name] for name in order}
    # What is timed has to be what was compiled: compiled once more, without freezing, nothing would run in int8.
    with torch.compiler.set_stance("fail_on_recompile"):
        times = interleaved({name: partial(net, x) for name, net in nets.items()}, samples=samples, placebo=EAGER)
        right = nets[EAGER](x)
        int8 = nets[REFERENCE](x).argmax(1) if REFERENCE in nets else None
        rows = []
        for name, net in nets.items():
            source = forms.get(name)
            out = net(x)
            low, high = interval(times[name].samples)
            rows.append(
                StaticNet(
                    net=label,
                    form=name,
                    run_by=convolution_operator(net, x),
                    batch_ms=times[name].seconds * 1e3,
                    low_ms=low * 1e3,
                    high_ms=high * 1e3,
                    **(speed_up(times, EAGER, name).columns if name != EAGER else {}),
                    accuracy=None if data is None else accuracy(net, data, len(x)),
                    error=None if name == EAGER else 100 * float((out - right).norm() / right.norm()),
                    same_classes=100 * float((out.argmax(1) == int8).float().mean()) if name == INT8 else None,
                    weights_kb=weight_bytes(name, net, forms) / 1e3,
                    state_kb=None if source is None else sizes(source).tensor_bytes / 1e3,
                    compile_s=seconds.get(name),
                )
            )
    return rows, times
