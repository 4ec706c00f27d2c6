"""Checkpointing keeps less for the backward pass and computes it again: memory and time for right and wrong choices."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from hpml_lab.core.experiment import Fits, Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.show.numbers import number
from hpml_lab.core.system.attempt import attempt
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.clock import SAMPLES, Timing, interleaved, measure
from hpml_lab.core.timing.counting import operators, peak_bytes, saved_tensors
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.tuning.lessons.recomputing import each_linear, gelu_and_next_linear, in_segments, keep_products, mlp_blocks

QUICK = dict(batch=256, gpu_batch=256, width=64, depth=128, samples=SAMPLES)
# On a GPU an activation of 256 MiB: the 47 of them make a peak of 13 GB, far above a library's workspace, and a step of
# 6.6 TFLOP takes tens of milliseconds, so that Python's launches (some 500 of a few µs) hide nothing of the extra forward pass.
FULL = dict(batch=2048, gpu_batch=1 << 17, width=512, depth=512, samples=SAMPLES)
BLOCKS = 16
Forward = Callable[[nn.Sequential, torch.Tensor], torch.Tensor]


@dataclass
class CheckpointedStep(Row):
    """One training step of 16 MLP blocks with one choice of what to checkpoint."""

    checkpointed: str = column("checkpointed")
    kept: float | None = column("kept", "activations")
    kept_mb: float | None = column("kept", "MB")
    peak_mb: float = column("peak memory", "MB")
    products: int = column("products, forward")
    gelus: int = column("GELUs, forward")
    step_ms: float = column("step", "ms")
    times_as_long: float = column("slowdown")
    interval: str = column("90 % interval")
    extra_forwards: float = column("extra time", "forward passes")
    gradients_equal: bool = column("gradients bitwise equal")


@dataclass
class OperatorValue(Row):
    """What a millisecond of computing one operator again saves."""

    operator: str = column("operator")
    output_mb: float = column("output", "MB")
    time_ms: float = column("time", "ms")
    mb_per_ms: float = column("saved", "MB per ms")
    is_product: bool = column("matrix product")


@dataclass
class ReentrantForm(Row):
    """`checkpoint` of a layer whose input needs no gradient, such as the first layer of a network."""

    use_reentrant: str = column("use_reentrant")
    outcome: str = column("outcome")
    warns: bool = column("warns")


FORWARD = "forward pass alone"
VARIANTS: dict[str, Forward] = {
    "none": lambda net, x: net(x),
    "2 segments": partial(in_segments, segments=2),
    "4 segments": partial(in_segments, segments=4),
    "8 segments": partial(in_segments, segments=8),
    "each block": partial(in_segments, segments=BLOCKS),
    "each linear alone": each_linear,
    "GELU + next linear": gelu_and_next_linear,
    "policy: keep products": keep_products,
}
SEGMENTS = list(VARIANTS)[:5]


def checkpointed_steps(
    net: nn.Sequential, x: torch.Tensor, samples: int
) -> tuple[dict[str, CheckpointedStep], dict[str, SpeedUp]]:
    """Measure a training step for each of VARIANTS: its row, and how fast it is compared with keeping everything."""

    def step(forward: Forward) -> None:
        forward(net, x).sum().backward()
        net.zero_grad()

    def gradients(forward: Forward) -> list[torch.Tensor]:
        return list(torch.autograd.grad(forward(net, x).sum(), list(net.parameters())))

    def kept_bytes(forward: Forward) -> int:
        with saved_tensors([*net.parameters(), x]) as saved:
            forward(net, x)
        return sum(saved.values())

    right = gradients(VARIANTS["none"])
    works = {name: partial(step, forward) for name, forward in VARIANTS.items()} | {FORWARD: partial(VARIANTS["none"], net, x)}
    times = interleaved(works, samples=samples, placebo="none")
    gains = {name: speed_up(times, "none", name) for name in VARIANTS}
    rows = {}
    for name, forward in VARIANTS.items():
        called = [op.name for op in operators(partial(step, forward))]
        kept = None if forward is keep_products else kept_bytes(forward)  # hooks do not see what a policy keeps
        rows[name] = CheckpointedStep(
            checkpointed=name,
            kept=None if kept is None else kept / x.nbytes,
            kept_mb=None if kept is None else kept / 1e6,
            peak_mb=peak_bytes(partial(step, forward), x.device) / 1e6,
            products=called.count("addmm"),
            gelus=called.count("gelu"),
            step_ms=times[name].seconds * 1e3,
            times_as_long=gains[name].slowdown.ratio,
            interval=gains[name].slowdown.interval,
            extra_forwards=extra_forwards(times, name),
            gradients_equal=all(torch.equal(a, b) for a, b in zip(gradients(forward), right, strict=True)),
        )
    return rows, gains


def extra_forwards(times: dict[str, Timing], name: str) -> float:
    """How many forward passes the extra time of a step is worth: the median over the turns."""
    turns = zip(times[name].samples, times["none"].samples, times[FORWARD].samples, strict=True)
    return median((step - plain) / forward for step, plain, forward in turns)


def operators_to_recompute(batch: int, width: int, device: torch.device) -> dict[str, tuple[Callable[[], torch.Tensor], bool]]:
    """Single operators on x (batch, width): {name: (the operator, whether it is a matrix product)}."""
    x = torch.randn(batch, width, device=device, requires_grad=True)
    image = x.view(batch, 1, 1, width)
    thin = torch.randn(batch, 8, device=device, requires_grad=True)
    shallow, deep = nn.Linear(8, width, device=device), nn.Linear(width, width, device=device)
    return {
        "ReLU": (lambda: F.relu(x), False),
        "GELU": (lambda: F.gelu(x), False),
        "sigmoid": (lambda: torch.sigmoid(x), False),
        "dropout": (lambda: F.dropout(x, 0.5), False),
        "layer norm": (lambda: F.layer_norm(x, (width,)), False),
        "batch norm": (lambda: F.batch_norm(x, None, None, training=True), False),
        "upsampling ×4": (lambda: F.interpolate(image, scale_factor=2), False),
        "product, depth 8": (lambda: shallow(thin), True),
        f"product, depth {width}": (lambda: deep(x), True),
    }


def operator_values(batch: int, width: int, device: torch.device, samples: int) -> list[OperatorValue]:
    """Output and time of single operators."""
    rows = []
    for name, (work, is_product) in operators_to_recompute(batch, width, device).items():
        time_ms = measure(work, samples=samples).seconds * 1e3
        output_mb = work().nbytes / 1e6
        rows.append(OperatorValue(name, output_mb, time_ms, output_mb / time_ms, is_product))
    return rows


def reentrant_forms(device: torch.device) -> list[ReentrantForm]:
    """Call `checkpoint` without use_reentrant, with True and with False."""
    layer = nn.Linear(4, 4, device=device)
    x = torch.ones(2, 4, device=device)
    rows = []
    for name, options in (("not given", {}), ("True", {"use_reentrant": True}), ("False", {"use_reentrant": False})):
        layer.zero_grad()
        with collect_warnings() as caught:
            outcome = attempt(lambda options=options: checkpoint(layer, x, **options).sum().backward())
        warns = any("use_reentrant parameter should be passed" in str(warning.message) for warning in caught)
        rows.append(ReentrantForm(name, outcome, warns))
    return rows


def draw(result: Result):
    """Left: peak memory and time of a training step for each choice of what to checkpoint; lower is less memory, further right
    is slower, and inside the gray band no slower than noise. Right: megabytes of output that a millisecond of computing an
    operator again saves (matrix products orange)."""
    figure = style.new_figure(9, 4.2)
    steps, values = figure.subplots(1, 2, width_ratios=(1.5, 1))
    looks = zip((*style.CYCLE, style.INK), (*style.MARKERS, "*"), strict=True)
    plain, noise = result.rows(CheckpointedStep)[0].step_ms, 1 + result.arrays["noise"]
    steps.axvspan(plain / noise, plain * noise, color=style.GREY, alpha=0.2, label="noise")
    for row, (color, marker) in zip(result.rows(CheckpointedStep), looks, strict=True):
        steps.plot(row.step_ms, row.peak_mb, marker, color=color, markersize=9, label=row.checkpointed)
    steps.set(xlabel="time of a step in ms", ylabel="peak memory in MB", ylim=(0, None))
    steps.legend(fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    rows = sorted(result.rows(OperatorValue), key=lambda row: -row.mb_per_ms)
    colors = [style.ORANGE if row.is_product else style.BLUE for row in rows]
    horizontal_bars(values, [row.operator for row in rows], [row.mb_per_ms for row in rows], color=colors)
    values.set(xscale="log", xlabel="MB of output per ms")
    style.label_log_axis(values.xaxis)
    return figure


def gpu_bytes(params: Params) -> float:
    """The memory of a GPU at its peak: the input, the 47 activations that are kept, and two in the backward pass."""
    return 50 * 4 * params.gpu_batch * params.width


@experiment(
    "checkpointing",
    lecture="L4",
    notebook="11_tuning",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("cuda",),
    fits=Fits(gpu_bytes, scale="gpu_batch", least=1 << 14),
)
def checkpointing(params: Params) -> Result:
    """Keep less and compute it again: memory and time for right and wrong choices of what to checkpoint."""
    device = params.device.torch
    net = mlp_blocks(BLOCKS, params.width).to(device)
    batch = params.gpu_batch if params.device.is_cuda else params.batch
    x = torch.randn(batch, params.width, device=device)
    steps, gains = checkpointed_steps(net, x, params.samples)
    values = operator_values(batch, params.depth, device, params.samples)
    forms = reentrant_forms(device)
    none, linear, gelu = (steps[name] for name in ("none", "each linear alone", "GELU + next linear"))
    peaks = [steps[name].peak_mb for name in SEGMENTS]
    deep = next(row for row in values if row.operator == f"product, depth {params.depth}")
    pointwise = min(row.mb_per_ms for row in values if row.operator in ("ReLU", "sigmoid", "upsampling ×4"))

    result = Result(
        [
            Table("One training step of 16 blocks", list(steps.values())),
            Table("Operators to compute again", values),
            Table("A layer whose input needs no gradient", forms),
        ]
    )
    result.arrays["noise"] = gains["none"].noise
    for name in SEGMENTS:
        result.key_figure(f"peak memory, {name}", steps[name].peak_mb, unit="MB")
    result.key_figure("peak memory, GELU + next linear", gelu.peak_mb, unit="MB")
    result.key_figure("activations kept, GELU + next linear", gelu.kept)
    for row in (steps["8 segments"], gelu):
        result.key_figure(f"{row.checkpointed}, slowdown", row.times_as_long)
        result.key_figure(f"{row.checkpointed}, extra time", row.extra_forwards, unit="forward passes")

    result.claim("Every choice gives bitwise identical gradients", all(row.gradients_equal for row in steps.values()))
    result.claim(
        "The peak falls up to 8 segments and rises again for 16, where the inputs of the segments outweigh what they save",
        peaks[0] > peaks[1] > peaks[2] > peaks[3] < peaks[4],
        ", ".join(f"{peak:.1f}" for peak in peaks) + " MB",
    )
    result.claim(
        "Each linear layer alone saves nothing; GELU with the layer that reads its output keeps 31 activations instead of 47,"
        " and repeats no product",
        (none.kept, linear.kept, gelu.kept, gelu.products - none.products) == (47, 47, 31, 0),
    )
    result.measured(
        "In 8 segments a step takes at most one more forward pass of time",
        steps["8 segments"].extra_forwards <= 1,
        f"{steps['8 segments'].extra_forwards:.2f} forward passes; {gains['8 segments'].slowdown_text}",
    )
    gelu_gain, block_gain = gains["GELU + next linear"], gains["each block"]
    result.measured(
        "Computing GELU again costs less time than computing whole blocks again",
        gelu_gain.low > block_gain.high,
        f"{gelu_gain.slowdown_text}, compared with {block_gain.slowdown_text}",
    )
    result.measured(
        "ReLU, sigmoid and upsampling save more memory per millisecond than a deep product",
        pointwise > deep.mb_per_ms,
        f"{number(pointwise, 3)} compared with {number(deep.mb_per_ms, 3)} MB per ms",
    )
    if not params.device.is_cuda:
        what = "bytes are the same on a GPU, but the times are those of a CPU"
        result.notes.append(NO_CUDA.format(what=what, slug="checkpointing"))
    return result
