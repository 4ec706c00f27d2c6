"""A layer's weights to quantize by hand: controls for bits, range, scheme and layer, and what the net then still classifies."""

from dataclasses import dataclass

import ipywidgets
import numpy as np
import torch
from torch import nn

from hpml_lab.core.show import style
from hpml_lab.core.show.live_figure import LiveFigure
from hpml_lab.core.system.errors import LabError
from hpml_lab.quantization.lessons.affine import affine_parameters, dequantize, quantize, value_range
from hpml_lab.quantization.lessons.fake_quantized import LEAST_HIGH
from hpml_lab.quantization.lessons.lenet import LabeledImages

IMAGES = 400  # of the test set: two passes of them fit into one move of a slider
CHANNELS = 6  # number lines
POINTS = 1500  # of the error
BINS = np.linspace(-1.025, 1.025, 42)
SYMMETRIC, AFFINE = "symmetric", "affine"
TENSOR, CHANNEL = "per tensor", "per channel"


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """The weight of a layer, rounded; everything that the figure shows is divided by its largest value."""

    rounded: torch.Tensor
    levels: torch.Tensor  # (channels, 2^bits): what each channel can be rounded to


def quantize_weight(weight: torch.Tensor, bits: int, kept: float, symmetric: bool, per_channel: bool) -> QuantizedWeight:
    """Quantize over the part `kept` of the weight's range, or of that of each output channel."""
    axis = 0 if per_channel else None
    low, high = value_range(weight, axis)
    scale, zero, *ends = affine_parameters(kept * low, kept * high.clamp(min=LEAST_HIGH), bits, symmetric)
    integers = torch.arange(ends[0], ends[1] + 1)
    levels = dequantize(integers.expand(zero.numel(), -1), scale.reshape(-1), zero.reshape(-1), axis=0)
    rounded = dequantize(quantize(weight, scale, zero, *ends, axis=axis), scale, zero, axis=axis)
    return QuantizedWeight(rounded, levels.expand(len(weight), -1))


class QuantizedLayers:
    """A net whose weights are rounded one layer or all at once, and what share of some test images it classifies correctly."""

    def __init__(self, net: nn.Module, data: LabeledImages) -> None:
        self.net, self.x, self.y = net, data.test_x[:IMAGES], data.test_y[:IMAGES]
        layers = {name: module for name, module in net.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
        self.weights = {name: module.weight.detach() for name, module in layers.items()}
        if not self.weights:
            raise LabError("The net has neither a Conv2d nor a Linear layer.", "Give a net such as LeNet.")

    def quantized(self, *settings) -> dict[str, QuantizedWeight]:
        """Each layer's weight with the same number of bits, part of the range, scheme and granularity."""
        return {name: quantize_weight(weight, *settings) for name, weight in self.weights.items()}

    @torch.no_grad()
    def accuracy(self, rounded: dict[str, torch.Tensor]) -> float:
        """The percentage that is correct with these weights in place of the net's own."""
        logits = torch.func.functional_call(self.net, {f"{name}.weight": weight for name, weight in rounded.items()}, self.x)
        return 100 * (logits.argmax(1) == self.y).double().mean().item()


def explore_affine(net: nn.Module, data: LabeledImages) -> LiveFigure:
    """The weights of one layer, as they are and rounded. Top: their distribution. Middle: number lines of some output
    channels, with the range of the channel's weights (gray) and the levels that they are rounded to. Bottom: the error of
    each weight. Right: test accuracy with float weights, with this layer rounded, and with all layers rounded alike."""
    layers = QuantizedLayers(net, data)
    names = list(layers.weights)
    controls = {
        "bits": ipywidgets.IntSlider(value=2, min=2, max=8, description="bits"),
        "kept": ipywidgets.IntSlider(value=100, min=20, max=100, step=5, description="range (%)"),
        "scheme": ipywidgets.ToggleButtons(options=[SYMMETRIC, AFFINE], description="scheme"),
        "granularity": ipywidgets.ToggleButtons(options=[TENSOR, CHANNEL], description="scales"),
        "layer": ipywidgets.Dropdown(options=names, value="fc1" if "fc1" in names else names[0], description="layer"),
    }
    exact = layers.accuracy({})

    def build(figure) -> list:
        grid = figure.add_gridspec(3, 2, width_ratios=(3, 1), height_ratios=(2, 1.5, 1.5))
        shares, lines, errors = (figure.add_subplot(grid[row, 0]) for row in range(3))
        bars = figure.add_subplot(grid[:, 1])
        for axes in (shares, lines, errors):
            axes.set_xlim(-1.05, 1.05)
            axes.tick_params(labelbottom=axes is errors)
        shares.set(yscale="log", ylim=(0.005, 150), ylabel="weights (%)", title="The weights of the layer")
        shares.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
        middles = (BINS[:-1] + BINS[1:]) / 2
        (before,) = shares.plot(middles, 0 * middles, color=style.GREY, drawstyle="steps-mid", linewidth=1.5, label="float")
        (after,) = shares.plot(middles, 0 * middles, color=style.BLUE, marker="o", markersize=4, linestyle="", label="rounded")
        shares.legend(fontsize=9, loc="upper right")
        lines.set(ylim=(-0.6, CHANNELS - 0.4), yticks=[], ylabel="channels")
        spans = lines.hlines([], [], [], color=style.GREY, alpha=0.45, linewidth=7)
        ticks = lines.vlines([], [], [], color=style.BLUE, linewidth=1)
        (points,) = errors.plot([], [], color=style.RED, marker=".", markersize=3, linestyle="")
        errors.set(ylim=(-0.55, 0.55), ylabel="error", xlabel="weight, divided by the largest of the layer")
        heights = bars.bar(["float", "this\nlayer", "all\nlayers"], [exact, 0, 0], color=[style.GREY, style.BLUE, style.ORANGE])
        bars.set(ylim=(0, 112), yticks=range(0, 101, 20), title=f"Accuracy (%)\nof {len(layers.y)} test images")
        numbers = [bars.text(place, 0, "", ha="center", va="bottom") for place in range(3)]
        note = errors.text(-1.02, -0.5, "", va="bottom", fontsize=9)
        return [before, after, spans, ticks, points, *heights, *numbers, note]

    def update(artists: list, bits: int, kept: int, scheme: str, granularity: str, layer: str) -> None:
        before, after, spans, ticks, points, *bars, note = artists
        found = layers.quantized(bits, kept / 100, scheme == SYMMETRIC, granularity == CHANNEL)
        weight, rounded = layers.weights[layer], found[layer].rounded
        largest = weight.abs().max()
        w, r = (weight / largest).flatten().numpy(), (rounded / largest).flatten().numpy()
        for line, values in ((before, w), (after, r)):
            share = 100 * np.histogram(values, BINS)[0] / len(values)
            line.set_ydata(np.where(share > 0, share, np.nan) if line is after else share)
        low, high = (end / largest for end in value_range(weight, 0))
        order = (high - low).argsort()
        chosen = order[torch.linspace(0, len(order) - 1, min(CHANNELS, len(order))).round().long()]
        spans.set_segments([[(low[c], y), (high[c], y)] for y, c in enumerate(chosen.tolist())])
        levels = (found[layer].levels / largest)[chosen].numpy()
        ticks.set_segments([[(x, y - 0.4), (x, y + 0.4)] for y, row in enumerate(levels) for x in row])
        ticks.set_linewidth(1.0 if bits < 6 else 0.4)
        shown = np.linspace(0, len(w) - 1, min(POINTS, len(w))).astype(int)
        points.set_data(w[shown], (r - w)[shown])
        alone = layers.accuracy({layer: rounded})
        everywhere = layers.accuracy({name: each.rounded for name, each in found.items()})
        for bar, number, height in zip(bars[:3], bars[3:], (exact, alone, everywhere), strict=True):
            bar.set_height(height)
            number.set_y(height + 1)
            number.set_text(f"{height:.1f}")
        lost = np.sqrt(np.square(r - w).mean() / np.square(w).mean())
        note.set_text(f"rms error: {100 * lost:.3g} % of the rms weight")

    return LiveFigure(build, update, controls, " ".join(explore_affine.__doc__.split()), width=9.0, height=5.6)
