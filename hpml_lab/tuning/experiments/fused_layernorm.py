"""Layer norm, forward and backward: composed of operators, torch's own kernel, and compiled."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from hpml_lab.core.experiment import Fits, Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars, timed_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import SAMPLES, copy_bandwidth, interleaved
from hpml_lab.core.timing.counting import operators
from hpml_lab.core.timing.noise import speed_up
from hpml_lab.tuning.experiments.tuned_networks import largest_difference, output_and_gradients
from hpml_lab.tuning.lessons.compositions import layer_norm
from hpml_lab.tuning.tools.generated_kernels import compiled

QUICK = dict(rows=2048, features=512, samples=SAMPLES)
FULL = dict(rows=16384, features=4096, samples=15)
EAGER, LIBRARY, COMPILED = "composed, eager", "nn.LayerNorm", "composed, torch.compile"


@dataclass
class LayerNormRun(Row):
    """One implementation of layer norm, forward and backward."""

    implementation: str = column("implementation")
    kernels: int = column("operators or kernels")
    moved_mb: float | None = column("memory traffic", "MB")
    limit_us: float = column("memory limit", "µs")
    time_us: float = column("time", "µs")
    bandwidth_share: float | None = column("share of the copy bandwidth")
    error: float = column("largest relative error")
    gain: float | None = column("speed-up", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)


def library_layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """torch's own layer norm."""
    return F.layer_norm(x, x.shape[-1:], weight, bias)


def draw(result: Result):
    """Layer norm, forward and backward. Left: time of each implementation; a color means that it differs from the composition's
    by more than noise, and the dashed line is the time that memory bandwidth needs. Right: how many operators, or for
    torch.compile generated kernels, each runs."""
    rows = result.rows(LayerNormRun)
    names = [row.implementation for row in rows]
    figure = style.new_figure(9, 3.2)
    times, counts = figure.subplots(1, 2, width_ratios=(1.5, 1))
    timed_bars(times, names, [row.time_us for row in rows], [row.verdict for row in rows], limit=rows[0].limit_us)
    times.set(title="layer norm, forward and backward", ylabel="implementation")
    figure.legend(*times.get_legend_handles_labels(), loc="outside lower left", fontsize=8)
    horizontal_bars(counts, names, [row.kernels for row in rows], color=style.SKY, labels="{:,.4g}")
    counts.set_xlabel("operators or kernels")
    return figure


def gpu_bytes(params: Params) -> float:
    """The memory of a GPU at its peak: as much as 16 float32 tensors of the shape of x, most of it for the float64 pass."""
    return 16 * 4 * params.rows * params.features


@experiment(
    "fused-layernorm",
    lecture="L4",
    notebook="11_tuning",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("cuda", "compiler"),
    fits=Fits(gpu_bytes, scale="rows", least=2048),
)
def fused_layernorm(params: Params) -> Result:
    """Layer norm: composed of operators, torch's own kernel, and compiled."""
    device, notes = params.device.torch, []
    x = torch.randn(params.rows, params.features, device=device, requires_grad=True)
    weight = (1 + 0.1 * torch.randn(params.features, device=device)).requires_grad_()
    bias = (0.1 * torch.randn(params.features, device=device)).requires_grad_()
    upstream = torch.randn(params.rows, params.features, device=device)
    inputs = (x, weight, bias)

    functions: dict[str, Callable[..., Tensor]] = {EAGER: layer_norm, LIBRARY: library_layer_norm}
    run = partial(output_and_gradients, inputs=inputs, upstream=upstream)
    forward = {name: len(operators(partial(function, *inputs))) for name, function in functions.items()}
    called = {name: operators(partial(run, function)) for name, function in functions.items()}
    counts = {name: len(found) for name, found in called.items()}
    moved_mb = {name: sum(op.bytes for op in found) / 1e6 for name, found in called.items()}
    try:
        found = compiled(layer_norm, run, device)
        functions[COMPILED], counts[COMPILED] = found.function, found.kernels
    except LabError as error:
        notes.append(str(error))

    wide = tuple(tensor.detach().double().requires_grad_() for tensor in inputs)
    truth = output_and_gradients(library_layer_norm, wide, upstream.double())
    largest_error = {name: largest_difference(run(function), truth) for name, function in functions.items()}
    works = {name: partial(run, function) for name, function in functions.items()}
    times = interleaved(works, samples=params.samples, placebo=EAGER, gpu=device if params.device.is_cuda else None)
    # Forward reads x and writes y. Backward reads x and the gradient of y, and writes that of x: five tensors as large as x.
    gb_per_s = copy_bandwidth(device).gb_per_s
    limit_us = 5 * x.nbytes / gb_per_s / 1e3
    gains = {name: speed_up(times, EAGER, name) for name in functions if name != EAGER}
    rows = [
        LayerNormRun(
            implementation=name,
            kernels=counts[name],
            moved_mb=moved_mb.get(name),
            limit_us=limit_us,
            time_us=times[name].seconds * 1e6,
            bandwidth_share=moved_mb[name] / times[name].seconds / gb_per_s / 1e3 if name in moved_mb else None,
            error=largest_error[name],
            **(gains[name].columns if name in gains else {}),
        )
        for name in functions
    ]
    composed, library = rows[:2]
    generated = counts.get(COMPILED, 0)

    result = Result([Table("Layer norm, forward and backward", rows)], notes=notes)
    result.key_figure("nn.LayerNorm over the composition", gains[LIBRARY].ratio, unit="times")
    result.key_figure("operators of the composition", composed.kernels)
    result.key_figure("operators of nn.LayerNorm", library.kernels)
    result.claim(
        "In the forward pass torch's layer norm is one operator, the composition eight or more",
        forward[LIBRARY] == 1 and forward[EAGER] >= 8,
        f"{forward[LIBRARY]} and {forward[EAGER]}",
    )
    result.claim(
        "Forward and backward together, the composition runs at least five times as many operators",
        composed.kernels >= 5 * library.kernels,
        f"{composed.kernels} and {library.kernels}",
    )
    result.claim(
        "The composition moves at least three times as many bytes",
        composed.moved_mb >= 3 * library.moved_mb,
        f"{composed.moved_mb:.0f} and {library.moved_mb:.0f} MB",
    )
    result.claim(
        "Outputs and gradients of every implementation are within 1e-5 of float64, relative to the largest value of each",
        max(largest_error.values()) < 1e-5,
        f"{max(largest_error.values()):.1e}",
    )
    result.claim(
        "torch.compile, where there is a compiler, generates at most a third as many kernels as the composition has operators",
        generated * 3 <= composed.kernels,
        f"{generated} of {composed.kernels}" if generated else "no compiler",
    )
    result.measured("torch's layer norm is faster than the composition", gains[LIBRARY].faster, str(gains[LIBRARY]))
    if device.type != "cuda":
        result.notes.append(NO_CUDA.format(what="a CPU has no kernels to launch", slug="fused-layernorm"))
    return result
