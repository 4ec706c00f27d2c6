"""Nets that compute the same in float and not in 8 bits: channels scaled by powers of two, and equalized again."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

import torch
from torch import nn

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.quantization.lessons.equalization import equalize_layers, ranges, scale_channels
from hpml_lab.quantization.lessons.fake_quantized import calibrate, with_fake_quantization
from hpml_lab.quantization.lessons.lenet import SEEDS, LeNet

TENSOR, CHANNEL = "per tensor", "per channel"
TRAINED, SCALED, EQUALIZED = "as trained", "channels scaled", "scaled, then equalized"
FACTORS = (1.0, 64.0, 0.125, 16.0, 1.0, 0.25)  # of conv1's channels
TENTH = 64.0  # of every tenth output of fc1


@dataclass
class ScaledNet(Row):
    """One of three nets that compute the same in float, and its accuracy at 8 bits, over all seeds."""

    net: str = column("net")
    tensor: str = column("8 bits, per tensor, median (range)", "%")
    channel: str = column("8 bits, per channel", "%")
    ratio: float = column("conv1: widest channel / narrowest, median")
    by_seed: dict[str, list[float]] = field(default_factory=dict)


def over_seeds(values: Sequence[float], form: str = ".1f") -> str:
    """Median and range."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def less(a: Sequence[float], b: Sequence[float]) -> list[float]:
    """a − b, seed by seed: the two start from the same net."""
    return [x - y for x, y in zip(a, b, strict=True)]


def scaled_lenet(net: LeNet) -> LeNet:
    """The same function, with channels scaled by powers of two between conv1 and conv2, and between fc1 and fc2."""
    net = copy.deepcopy(net)
    scale_channels(net.conv1, net.conv2, torch.tensor(FACTORS))
    factors = torch.ones(len(net.fc1.weight))
    factors[::10] = TENTH
    scale_channels(net.fc1, net.fc2, factors)
    return net


def equalized_lenet(net: LeNet, powers_of_two: bool = False) -> LeNet:
    """The same function, with all four pairs of layers equalized."""
    net = copy.deepcopy(net)
    equalize_layers([net.conv1, net.conv2, net.fc1, net.fc2, net.fc3], powers_of_two)
    return net


@torch.no_grad()
def claim_scaling(result: Result, net: LeNet, x: torch.Tensor) -> None:
    """Add what scaling does to the float outputs."""
    scaled = scaled_lenet(net)
    result.claim(
        "Channels scaled by powers of two, and what reads them by the inverse: float outputs bitwise identical",
        torch.equal(scaled(x), net(x)) and not torch.equal(scaled.conv1.weight, net.conv1.weight),
    )


def scaled_net(name: str, nets: Sequence[LeNet], by_seed: dict[str, list[float]]) -> ScaledNet:
    ratios = [(side.max() / side.min()).item() for side in (ranges(net.conv1, net.conv2)[0] for net in nets)]
    return ScaledNet(name, over_seeds(by_seed[TENSOR]), over_seeds(by_seed[CHANNEL]), median(ratios), by_seed)


def three_nets(
    nets: Sequence[LeNet],
    plain: dict[str, list[float]],
    images: torch.Tensor,
    accuracy: Callable[[nn.Module], float],
    result: Result,
) -> list[ScaledNet]:
    """The rows of the nets as trained, scaled and equalized; the first seed's ranges go into the result's arrays.

    plain  accuracies of the nets as trained, at 8 bits: {scales: by seed}
    """
    rows, result.arrays["ranges"] = [scaled_net(TRAINED, nets, plain)], {}
    variants = {TRAINED: nets, SCALED: list(map(scaled_lenet, nets))}
    variants[EQUALIZED] = list(map(equalized_lenet, variants[SCALED]))
    for name, changed in variants.items():
        result.arrays["ranges"][name] = [side.tolist() for side in ranges(changed[0].conv1, changed[0].conv2)]
        if name != TRAINED:
            by_seed = {
                scales: [
                    accuracy(calibrate(with_fake_quantization(net, 8, per_channel=scales == CHANNEL), images))
                    for net in changed
                ]
                for scales in (TENSOR, CHANNEL)
            }
            rows.append(scaled_net(name, changed, by_seed))
    return rows


def judge_scaled(result: Result, rows: Sequence[ScaledNet]) -> None:
    """Add what 8 bits do to three nets that are the same in float."""
    plain, scaled, equalized = (row.by_seed for row in rows)
    lost, by_channel = (less(scaled[scales], plain[scales]) for scales in (TENSOR, CHANNEL))
    left = less(equalized[TENSOR], plain[TENSOR])
    result.measured(
        "At 8 bits the scaled net loses more than 1 point per tensor in every seed; medians: it loses less per channel, and "
        "equalized it is within half a point of the net as trained",
        max(lost) < -1 and median(lost) < median(by_channel) and abs(median(left)) <= 0.5,
        "; ".join(f"{over_seeds(values, '+.1f')}" for values in (lost, by_channel, left)) + " points",
        depends_on=SEEDS,
    )


@picture
def channel_ranges(result: Result):
    """The largest |weight| of each channel between conv1 and conv2 (left: the weights that write the channel, right: those that
    read it), of three nets that compute the same. One scale for the layer takes its step from the largest of them: look how far
    the others lie below it, and how equalization makes the two layers meet."""
    figure = style.new_figure(9.5, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    for net, color, marker in zip(
        (TRAINED, SCALED, EQUALIZED), (style.GREY, style.RED, style.GREEN), style.MARKERS, strict=False
    ):
        for axes, side in zip(panels, result.arrays["ranges"][net], strict=True):
            axes.plot(range(len(side)), side, color=color, marker=marker, markersize=7, linestyle=":", label=net)
    for axes, title in zip(panels, ("conv1, which writes the channel", "conv2, which reads it"), strict=True):
        axes.set(yscale="log", xlabel="channel", title=title)
    style.label_log_axis(panels[0].yaxis, "{x:g}")
    panels[0].set_ylabel("largest |weight|")
    panels[1].legend(fontsize=9)
    return figure
