"""The figures of notebook 05; each docstring is its figure's caption."""

import math

from hpml_lab.core import style
from hpml_lab.core.result import Result

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def _shade(ax, x: list, band: dict, colour: str, line, label: str) -> None:
    """A median and the quartiles around it."""
    ax.plot(x, band["median"], color=colour, linestyle=line, label=label)
    ax.fill_between(x, band["low"], band["high"], color=colour, alpha=0.2, linewidth=0)


def draw_adagrad(result: Result):
    """Left: the effective rate of Adagrad for a feature that is seen in every step and for a rare one, median and quartiles
    over the seeds; both fall, the frequent one's further. The dotted line is the rate under gradients of size 1. Right: the
    length of the first step by the size of the gradient: with ε inside the root, small gradients take far shorter steps."""
    figure = style.new_figure(9.5, 3.8)
    left, right = figure.subplots(1, 2)
    arrays = result.arrays
    for (name, band), colour, line in zip(arrays["rates"].items(), (style.BLUE, style.ORANGE), LINES, strict=False):
        usable = [i for i, high in enumerate(band["high"]) if math.isfinite(high)]
        steps = [arrays["step"][i] for i in usable]
        _shade(left, steps, {key: [values[i] for i in usable] for key, values in band.items()}, colour, line, f"{name} feature")
    left.plot(arrays["step"], arrays["constant"], ":", color=style.GREY, label="gradients of size 1: α/√t")
    left.axhline(arrays["lr"], color=style.GREY, linewidth=1)
    left.text(arrays["step"][-1], arrays["lr"] * 1.06, "α", ha="right", va="bottom")
    left.set(xscale="log", yscale="log", xlabel="step", ylabel="effective rate α/√G", title="A rate for each parameter")
    left.legend(fontsize=8, loc="lower left")
    for (label, lengths), colour, line in zip(arrays["first step"].items(), style.CYCLE, LINES, strict=False):
        right.plot(arrays["gradient"], lengths, color=colour, linestyle=line, label=label)
    right.set(xscale="log", xlabel="size of the first gradient", ylabel="length of the first step / α")
    right.set_title("ε inside and outside the root")
    right.legend(fontsize=8, title="divided by", loc="upper left", title_fontsize=8)
    right.set_ylim(-0.05, 1.45)
    return figure


def draw_adadelta(result: Result):
    """Top: the five lines of Adadelta's loop over time, in a noisy bowl: gradient, average of its squares, step, average of
    the squared steps, parameter. Bottom left: the effective rate; Adagrad's falls, Adadelta's does not. Bottom right: by how
    much the whole way grows when the parameter is written in a unit 1024 times smaller; only with an ε for each unit does it
    grow as it should."""
    figure = style.new_figure(11, 6.2)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1, 1.35])
    arrays = result.arrays
    for ax, (label, values), colour in zip(top.subplots(1, 5), arrays["lines"].items(), style.CYCLE, strict=False):
        ax.plot(arrays["step"], values, color=colour, linewidth=1.2)
        ax.set(xscale="log", xlabel="step")
        ax.set_title(label, fontsize=9, pad=14)  # above the axis's power of ten
        ax.tick_params(labelsize=7)
        ax.yaxis.get_offset_text().set_fontsize(7)
    left, right = bottom.subplots(1, 2)
    for (label, values), colour, line in zip(arrays["rates"].items(), style.CYCLE, LINES, strict=False):
        left.plot(arrays["step"], values, color=colour, linestyle=line, label=label)
    left.set(
        xscale="log", yscale="log", xlabel="step", ylabel="effective rate (step / gradient)", title="Does the rate vanish?"
    )
    left.legend(fontsize=8)
    names = list(arrays["scales"])
    right.barh(names[::-1], [arrays["scales"][name] for name in names[::-1]], color=style.BLUE)
    right.set_axisbelow(True)
    right.axvline(arrays["unit"], color=style.RED, linestyle="--")
    right.text(arrays["unit"] * 0.8, 3.55, "as it should", ha="right", va="center", color=style.RED, fontsize=8)
    right.set(xscale="log", xlabel="whole way, new unit / old unit", title="A unit 1024 times smaller")
    right.tick_params(axis="y", labelsize=8)
    return figure


def draw_rmsprop(result: Result):
    """Left: the moving optimum of one seed and the two rules that follow it, in the second half of the run, where the noise has
    become a tenth. Middle: the distance from the optimum, a moving root mean square, median and quartiles over the seeds.
    Right: the effective rate when gradients of constant size shrink a hundredfold after step 500; RMSprop's recovers,
    Adagrad's does not."""
    figure = style.new_figure(12, 3.9)
    left, middle, right = figure.subplots(1, 3)
    arrays = result.arrays
    shown = {"Adagrad": (style.ORANGE, "--"), "RMSprop, ρ = 0.99": (style.BLUE, "-")}
    half = len(arrays["step"]) // 2
    left.plot(arrays["step"][half:], arrays["optimum"][half:], color=style.INK, linewidth=1, label="optimum")
    for name, (colour, line) in shown.items():
        left.plot(arrays["step"][half:], arrays["paths"][name][half:], line, color=colour, linewidth=1.2, label=name)
        _shade(middle, arrays["step"], arrays["errors"][name], colour, line, name)
        steps = [1 + arrays["rates every"] * i for i in range(len(arrays["rates"][name]))]
        right.plot(steps, arrays["rates"][name], line, color=colour, label=name)
    left.set(xlabel="step", ylabel="θ", title="One seed, second half")
    middle.set(
        xlabel="step", ylabel=f"distance from the optimum (over {arrays['window']} steps)", yscale="log", title="All seeds"
    )
    right.set(xlabel="step", ylabel="effective rate (step / gradient)", yscale="log", title="Gradients shrink")
    for ax in (left, middle, right):
        ax.legend(fontsize=8)
    return figure


def draw_adam(result: Result):
    """Left: the length of Adam's first 50 steps under gradients of constant size, with and without bias correction, and in the
    code of the cited study. Middle: the cost in a noisy bowl that is started at its bottom, median and quartiles over the
    seeds. Right: how far Adam with β₁ = 0 and β₂ near 1 is from Adagrad: nearer with a smaller 1 − β₂, until the digits of
    float32 run out; float64 goes on."""
    figure = style.new_figure(12, 3.9)
    left, middle, right = figure.subplots(1, 3)
    arrays = result.arrays
    for (name, lengths), colour, line in zip(arrays["lengths"].items(), style.CYCLE, LINES, strict=False):
        left.plot(range(1, len(lengths) + 1), lengths, color=colour, linestyle=line, label=name)
        band = arrays["costs"][name]
        _shade(middle, list(range(1, len(band["median"]) + 1)), band, colour, line, name)
    left.set(xlabel="step", ylabel="length of the step / α", title="Constant gradients", ylim=(0, 7.4))
    middle.set(xlabel="step", ylabel="cost ½ θ²", yscale="log", title="From the bottom of a noisy bowl")
    for (kind, errors), colour, marker in zip(
        arrays["special"].items(), (style.BLUE, style.ORANGE), ("o-", "s--"), strict=True
    ):
        pairs = [(gap, error) for gap, error in zip(arrays["gaps"], errors, strict=True) if math.isfinite(error)]
        right.plot(*zip(*pairs, strict=True), marker, color=colour, markersize=4, label=kind)
    right.set(xscale="log", yscale="log", xlabel="1 − β₂", ylabel="distance from Adagrad / way", title="Adagrad from Adam")
    for ax in (left, middle, right):
        ax.legend(fontsize=8)
    return figure


def draw_adamax_nadam(result: Result):
    """Left: Adam's second moment with an exponent p in place of 2, divided by Adamax's u; it tends to 1 as p grows. Middle: the
    momentum of NAdam, which rises from half of β₁ towards β₁. Right: the steps of four rules when a constant gradient turns
    round after step 30."""
    figure = style.new_figure(12, 3.9)
    left, middle, right = figure.subplots(1, 3)
    arrays = result.arrays
    left.plot([int(p) for p in arrays["norms"]], list(arrays["norms"].values()), "o-", color=style.BLUE)
    left.axhline(1, color=style.GREY, linestyle=":")
    left.set(xlabel="exponent p", ylabel="v^(1/p) / u, mean over the seeds", title="Adamax is the limit p → ∞")
    left.set_xscale("log", base=2)
    middle.plot(arrays["mu"]["step"], arrays["mu"]["momentum"], color=style.GREEN)
    middle.axhline(arrays["beta1"], color=style.GREY, linestyle=":")
    middle.text(1, arrays["beta1"] - 0.008, "β₁", va="top")
    middle.set(xscale="log", xlabel="step", ylabel="momentum μ", title="NAdam's momentum", ylim=(0.4, 0.95))
    for (name, steps), colour, line in zip(arrays["turned"].items(), style.CYCLE, LINES, strict=False):
        right.plot(range(1, len(steps) + 1), steps, color=colour, linestyle=line, label=name)
    right.axhline(0, color=style.GREY, linewidth=1)
    right.axvline(30.5, color=style.GREY, linestyle=":")
    right.set(xlabel="step", ylabel="step / α", title="The gradient turns round")
    right.legend(fontsize=8, loc="lower left")
    return figure


def draw_optimizer_lab(result: Result):
    """Left: three optimizers walk down Beale's function, whose height is drawn as contours. Right, over the steps: the loss of
    each, then how far Adam moves x and y in a step, and the state that Adam keeps for them."""
    from hpml_lab.adaptive.lab import draw_lab  # with its widgets

    return draw_lab(**result.arrays["settings"])
