"""Static quantization of convolutions: torchao's PT2E compiled by inductor, next to float32 and torch's eager mode."""

from dataclasses import replace

import torch
from torch import nn

from hpml_lab.quantization.lessons.affine import affine_parameters, quantize, value_range
from hpml_lab.quantization.lessons.lenet import SEEDS, LabeledImages, images, train
from hpml_lab.quantization.experiments.pt2e_inductor.static_nets import (
    COLORS,
    EAGER,
    FROZEN,
    INT8,
    OLD,
    REFERENCE,
    StaticNet,
    int8_forms,
    measure_net,
)
from hpml_lab.quantization.lessons.static_int8 import FUSED, all_convolutional, compiled_apart, eager_mode_int8, int8_weights
from hpml_lab.quantization.experiments.pt2e_inductor.traps import StaticTrap, compiler_traps, eager_mode_traps, pt2e_traps
from hpml_lab.quantization.tools.quantizers import quantized_modules
from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.timing.noise import SpeedUp, speed_up, speed_up_of
from hpml_lab.core.timing.clock import PLACEBO, SAMPLES, Timing
from hpml_lab.core.show import style

QUICK = dict(images=8_000, steps=80, tested=2_048, batch=32, calibration=256, samples=SAMPLES, resnet=False)
FULL = dict(images=60_000, steps=900, tested=10_000, batch=32, calibration=1_024, samples=15, resnet=True)

LEAST_SCALE = 2.0**-12  # the least scale that torchao gives weights for x86
OURS, RESNET = "five convolutions", "ResNet-18"


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: time of one batch, with an interval that holds the median with 90 % confidence; inside the light band, no
    different from eager float32 by more than noise. Behind each bar: how often it is right, if the net is trained. Right: the
    weights that it computes with, and the tensors of its state_dict. Look at the same int8 graph in eager mode and compiled;
    compare the latter with float32 in the hands of the same compiler."""
    rows = result.rows(StaticNet)
    nets = list(dict.fromkeys(row.net for row in rows))
    figure = style.new_figure(10, 0.9 + 2.7 * len(nets))
    panels = figure.subplots(len(nets), 2, squeeze=False, width_ratios=(1.5, 1))
    for net, (times, bytes_) in zip(nets, panels, strict=True):
        shown = [row for row in rows if row.net == net]
        draw_times(times, shown, 1 + result.arrays["noise"][net])
        places = range(len(shown))
        bytes_.barh([i - 0.2 for i in places], [row.weights_kb for row in shown], 0.4, color=style.BLUE, label="weights in use")
        state = [(i + 0.2, row.state_kb) for i, row in enumerate(shown) if row.state_kb]
        look = dict(color=style.YELLOW, hatch="///", edgecolor="white", label="state_dict")
        bytes_.barh([place for place, _ in state], [kb for _, kb in state], 0.4, **look)
        bytes_.set(xlabel="kB", title=f"{net}: size")
        bytes_.locator_params(axis="x", nbins=4)
        bytes_.xaxis.set_major_formatter("{x:,.0f}")
        bytes_.set_yticks(places, [""] * len(shown))
        bytes_.invert_yaxis()
        bytes_.legend(fontsize=8, loc="lower right", frameon=True)
        bytes_.grid(axis="y", visible=False)
        bytes_.set_axisbelow(True)
    return figure


def draw_times(axes, rows: list[StaticNet], noise: float) -> None:
    """Bars of one net's times, with their intervals and accuracies."""
    places, times = range(len(rows)), [row.batch_ms for row in rows]
    base = next(row.batch_ms for row in rows if row.form == EAGER)
    axes.axvspan(base / noise, base * noise, color=style.GREY, alpha=0.2, linewidth=0)
    spread = [[row.batch_ms - row.low_ms for row in rows], [row.high_ms - row.batch_ms for row in rows]]
    axes.barh(places, times, color=[COLORS[row.form] for row in rows], edgecolor="white")
    axes.errorbar(times, places, xerr=spread, fmt="none", ecolor=style.INK, capsize=3, linewidth=1)
    for place, row in enumerate(rows):
        words = f"{row.batch_ms:.3g} ms" if row.accuracy is None else f"{row.batch_ms:.3g} ms, {row.accuracy:.1f} % right"
        axes.annotate(words, (row.high_ms, place), (6, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(places, [row.form for row in rows])
    axes.set(
        xlabel="time of one batch in ms",
        ylabel="form of the net",
        title=f"{rows[0].net}: time",
        xlim=(0, 1.45 * max(row.high_ms for row in rows)),
    )
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)


# ---- claims ----------------------------------------------------------------------------------------------------------


def weights_from_scratch(net: nn.Module) -> list[torch.Tensor]:
    """The int8 weights of a net's convolutions by affine.py: symmetric, one scale for each output channel."""
    found = []
    for layer in net.modules():
        if isinstance(layer, nn.Conv2d):
            scale, *rest = affine_parameters(*value_range(layer.weight, axis=0), symmetric=True)
            found.append(quantize(layer.weight.detach(), scale.clamp(min=LEAST_SCALE), *rest, axis=0))
    return found


def claim_pt2e(result: Result, net: nn.Module, graph: nn.Module) -> None:
    """Add what holds of PT2E's converted graph on every machine."""
    weights = int8_weights(graph)
    scratch = weights_from_scratch(net)
    result.claim(
        "PT2E makes int8 weights for all five convolutions, equal to symmetric affine quantization per output channel",
        len(weights) == 5 and all(torch.equal(a, b) for a, b in zip(weights, scratch, strict=True)),
    )


def report_times(result: Result, label: str, rows: list[StaticNet], times: dict[str, Timing]) -> None:
    """Add key figures and measured claims about one net's times and errors."""
    by_form = {row.form: row for row in rows}
    noise = result.arrays["noise"][label] = speed_up(times, EAGER, EAGER).noise

    def compared(before: str, after: str) -> SpeedUp:
        base = times[before].samples
        again = times[PLACEBO].samples if before == EAGER else base  # only the eager net takes part twice
        return replace(speed_up_of(base, times[after].samples, again), noise=noise)

    if INT8 in by_form:
        same_compiler = compared(FROZEN, INT8)
        result.key_figure(f"{label}: int8 compared with float32, both compiled and frozen", str(same_compiler))
        result.key_figure(f"{label}: float32 compiled and frozen compared with eager", str(compared(EAGER, FROZEN)))
        result.key_figure(f"{label}: int8 compiled, relative error of the output", by_form[INT8].error, "%")
        result.measured(
            f"{label}: compiled, int8 is faster than float32 that the same compiler has frozen",
            same_compiler.faster,
            str(same_compiler),
        )
    if REFERENCE in by_form and label == OURS:
        reference = compared(EAGER, REFERENCE)
        result.measured(
            f"{label}: not compiled, the converted graph is slower than the float32 net",
            reference.slower,
            reference.slowdown_text,
        )
    if OLD in by_form:
        result.key_figure(f"{label}: int8 in eager mode, with stubs", str(compared(EAGER, OLD)))
    if INT8 in by_form and label == OURS:
        lost = by_form[EAGER].accuracy - by_form[INT8].accuracy
        result.measured(f"{label}: {INT8} loses less than 1 point of accuracy", lost < 1, f"{lost:.2f} points", SEEDS)


# ---- the experiment --------------------------------------------------------------------------------------------------


def trained_net(params: Params) -> tuple[nn.Module, LabeledImages]:
    """The trained net, and its images with as many test images as make whole batches: compiled code takes no others."""
    data = images(params.images)
    net = train(all_convolutional(), data, params.steps, lr=3e-3, batch=64)
    tested = min(params.tested, len(data.test_y)) // params.batch * params.batch
    return net, replace(data, test_x=data.test_x[:tested], test_y=data.test_y[:tested])


def add_resnet(result: Result, samples: int) -> list[StaticNet]:
    """ResNet-18 with random weights and random images, one at a time, as the lecture quantizes it."""
    from torchvision.models import resnet18

    net = resnet18(weights=None).eval().to(memory_format=torch.channels_last)
    x = torch.randn(1, 3, 224, 224)
    forms = {EAGER: net} | int8_forms(net, x, result.notes, any_batch=False)
    rows, times = measure_net(RESNET, forms, x, None, samples, result.notes)
    report_times(result, RESNET, rows, times)
    return rows


@experiment(
    "pt2e-inductor",
    lecture="own",
    notebook="16_quantization",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("mnist", "compiler", "torchao"),
)
def pt2e_inductor(params: Params) -> Result:
    """Static int8 for convolutions: PT2E, its traps, and what inductor makes of it."""
    net, data = trained_net(params)
    x, calibration = data.test_x[: params.batch], data.x[: params.calibration]
    result = Result(notes=list(data.notes), arrays={"noise": {}})
    with compiled_apart():
        forms = {EAGER: net} | int8_forms(net, calibration, result.notes, any_batch=True)
        forms[OLD] = eager_mode_int8(net, calibration, FUSED)
        # Before anything is compiled: an export makes torch forget compiled code.
        traps: dict[str, StaticTrap] = pt2e_traps(forms[REFERENCE]) if REFERENCE in forms else {}
        traps |= compiler_traps() | eager_mode_traps(net, calibration)
        if REFERENCE in forms:
            claim_pt2e(result, net, forms[REFERENCE])
        result.claim("With stubs, eager mode, too, quantizes all five convolutions", len(quantized_modules(forms[OLD])) == 5)
        rows, times = measure_net(OURS, forms, x, data, params.samples, result.notes)
        report_times(result, OURS, rows, times)
        resnet = add_resnet(result, params.samples) if params.resnet else []
    result.tables += [
        Table(f"{data.name}: five convolutions, batches of {params.batch}, one thread", rows),
        Table("What goes wrong", list(traps.values())),
    ]
    if resnet:
        result.tables.insert(1, Table("ResNet-18, random weights, one image of 224 × 224, one thread", resnet))
    if params.device.is_cuda:
        result.notes.append(
            "The int8 operators here are for x86 processors, so all rows ran on the CPU. On a GPU torchao's quantize_ serves "
            "Linear layers (int8, float8), and TensorRT convolutions."
        )
    return result
