"""Static quantization after training (PTQ) and quantization-aware training (QAT), next to a float net that is trained as long.

A net that is rounded to few bits loses accuracy, and training that goes on with the rounding in place gets it back. But a float
net gains from more training, too. So the control is the float net with the same additional steps on the same images.
"""

import copy
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import numpy as np
from matplotlib.ticker import LogLocator

from hpml_lab.quantization.lessons.fake_quantized import calibrate, with_fake_quantization
from hpml_lab.quantization.lessons.lenet import SEEDS, LabeledImages, accuracy, train, trained
from hpml_lab.quantization.experiments.static_and_qat.scaled_nets import (
    CHANNEL,
    TENSOR,
    ScaledNet,
    claim_scaling,
    judge_scaled,
    less,
    over_seeds,
    three_nets,
)
from hpml_lab.quantization.experiments.static_and_qat.qat_tools import ShippedNet, judge_shipped, ship, ship_graph, ship_lecture
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.errors import LabError

BITS = (8, 4, 3, 2)
QUICK = dict(images=8_000, steps=100, seeds=3, tests=1_000, more_steps=30, batch=32, lr=2e-4, ao_bits=(2,), compile=False)
QUICK |= dict(trained=((2, TENSOR), (4, CHANNEL), (2, CHANNEL)))
FULL = dict(
    images=60_000,
    steps=938,
    seeds=5,
    tests=10_000,
    trained=tuple((bits, scales) for bits in BITS for scales in (TENSOR, CHANNEL)),
    more_steps=156,
    batch=128,
    lr=5e-4,
    ao_bits=(4, 3, 2),
    compile=True,
)

PTQ, QAT = "PTQ", "QAT"
LOOK = {
    (kind, scales): dict(color=color, linestyle=line, marker=marker, markersize=6, fillstyle=fill)
    for kind, line, fill in ((PTQ, "--", "none"), (QAT, "-", "full"))
    for scales, marker, color in ((TENSOR, "s", style.ORANGE), (CHANNEL, "o", style.BLUE))
}


@dataclass
class RoundedNet(Row):
    """One width of the weights, before and after more training, over all seeds; 32 bits are the float net."""

    bits: int = column("weights", "bits")
    scales: str = column("scales")
    before: str = column("PTQ: median (range)", "%")
    after: str | None = column("QAT: the same steps more", "%", None)
    over_float: str | None = column("QAT − float", "points", None)
    over_control: str | None = column("QAT − control", "points", None)
    by_seed: dict[str, list[float]] = field(default_factory=dict)


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: test error by bits of the weights (inputs have 8 bits), rounded after training (PTQ, dashed) and trained further
    with rounding (QAT, solid); points are medians over the seeds, bars reach from the best seed to the worst. Gray is the
    float net, green the control: the float net after the same additional training. Compare QAT with the green band, not with
    the gray one. Right: three nets that compute the same in float, with weights and inputs of 8 bits."""
    figure = style.new_figure(10, 4.4)
    curve, same = figure.subplots(1, 2, width_ratios=(1.5, 1), sharey=True)
    base, *rows = result.rows(RoundedNet)
    bands = ((PTQ, style.GREY, "float net"), (QAT, style.GREEN, "control: float, trained on"))
    for axes, shown in ((curve, bands), (same, bands[:1])):
        for kind, color, label in shown:
            middle, low, high = errors([base.by_seed[kind]])
            axes.axhspan(low[0], high[0], color=color, alpha=0.25, linewidth=0)
            axes.axhline(middle[0], color=color, linewidth=1.5, label=label)
    for number, ((kind, scales), look) in enumerate(LOOK.items()):
        found = [row for row in rows if row.scales == scales and kind in row.by_seed]
        x = [BITS.index(row.bits) + 0.09 * (number - 1.5) for row in found]
        bars(curve, x, [row.by_seed[kind] for row in found], f"{kind}, {scales}", look)
    curve.set_xticks(range(len(BITS)), [str(bits) for bits in BITS])
    curve.set(xlabel="bits of a weight", ylabel="test error (%)", yscale="log", title="Rounded, and trained further")
    style.label_log_axis(curve.yaxis, "{x:g}")
    curve.yaxis.set_minor_locator(LogLocator(subs=range(1, 10)))
    curve.legend(fontsize=8.5, loc="upper left")
    nets = result.rows(ScaledNet)
    for offset, scales in ((-0.1, TENSOR), (0.1, CHANNEL)):
        look = LOOK[PTQ, scales] | {"linestyle": ""}
        bars(same, np.arange(len(nets)) + offset, [row.by_seed[scales] for row in nets], f"8 bits, {scales}", look)
    same.set_xticks(range(len(nets)), [row.net.replace(", ", ",\n").replace("channels ", "channels\n") for row in nets])
    same.set(xlim=(-0.5, len(nets) - 0.5), title="The same function at 8 bits")
    same.legend(fontsize=8.5, loc="upper right")
    return figure


def errors(by_seed: Sequence[list[float]]) -> np.ndarray:
    """Median, least and largest error of each setting in percent; a logarithmic axis has no 0."""
    found = 100 - np.array(by_seed)
    return np.array([np.median(found, 1), found.min(1), found.max(1)]).clip(min=0.05)


def bars(axes, x: Sequence[float], by_seed: Sequence[list[float]], label: str, look: dict) -> None:
    """The median error of each setting, and a bar from the best seed to the worst."""
    middle, low, high = errors(by_seed)
    axes.errorbar(x, middle, [middle - low, high - middle], label=label, capsize=2, elinewidth=1.2, **look)


# ---- the experiment --------------------------------------------------------------------------------------------------


def some_tests(data: LabeledImages, count: int) -> LabeledImages:
    """The same images with about `count` of the test images, from all parts of the set."""
    every = max(1, len(data.test_y) // count)
    return dataclasses.replace(data, test_x=data.test_x[::every], test_y=data.test_y[::every])


def rounded_row(bits: int, scales: str, by_seed: dict[str, list[float]], floats: dict[str, list[float]]) -> RoundedNet:
    if QAT not in by_seed:
        return RoundedNet(bits, scales, over_seeds(by_seed[PTQ]), by_seed=by_seed)
    ahead = [over_seeds(less(by_seed[QAT], floats[kind]), "+.1f") for kind in (PTQ, QAT)]
    return RoundedNet(bits, scales, over_seeds(by_seed[PTQ]), over_seeds(by_seed[QAT]), *ahead, by_seed)


def judge(result: Result, floats: dict[str, list[float]], found: dict[tuple[int, str], dict[str, list[float]]]) -> None:
    """Add what rounding loses and what training recovers, seed by seed."""
    trained_bits = [bits for bits, scales in found if QAT in found[bits, scales]]
    least, most = min(trained_bits), max(bits for bits in trained_bits if bits < 8)

    def measured(text: str, holds: bool, *figures: list[float]) -> None:
        shown = "; ".join(f"{over_seeds(values, '+.1f')} points" for values in figures)
        result.measured(text, holds, shown, depends_on=SEEDS)

    losses, gains = [], []
    for scales in (TENSOR, CHANNEL):
        losses.append(less(found[least, scales][PTQ], floats[PTQ]))
        gains.append(less(found[least, scales][QAT], found[least, scales][PTQ]))
    lost, gained = (list(map(median, values)) for values in (losses, gains))
    measured(
        f"{least} bits, per tensor or channel: the median seed loses more than 1 point by PTQ, and QAT recovers more than half",
        max(lost) < -1 and all(gain > -loss / 2 for gain, loss in zip(gained, lost, strict=True)),
        *losses,
        *gains,
    )
    ahead = less(found[most, CHANNEL][QAT], floats[QAT])
    measured(f"QAT at {most} bits is nowhere half a point ahead of the control", max(ahead) < 0.5, ahead)


@experiment(
    "static-and-qat", lecture="L2", notebook="16_quantization", draw=draw, quick=QUICK, full=FULL, uses=("mnist", "torchao")
)
def static_and_qat(params: Params) -> Result:
    """Fewer bits after training, or during training: accuracy, next to a float net that is trained as long."""
    floats: dict[str, list[float]] = {PTQ: [], QAT: []}
    found: dict[tuple[int, str], dict[str, list[float]]] = {(bits, scales): {} for bits in BITS for scales in (TENSOR, CHANNEL)}
    nets: list = []
    shipped: list[ShippedNet] = []
    result = Result()
    for seed in progress(range(params.seeds), "seeds"):
        net, data = trained(params.images, params.steps, seed, device=params.device.torch)
        data = some_tests(data, params.tests)
        share = partial(accuracy, data=data, batch=250)
        more = partial(train, data=data, steps=params.more_steps, lr=params.lr, batch=params.batch, seed=params.seeds + seed)
        calibration = data.x[:500]
        nets.append(net)
        floats[PTQ].append(share(net))
        floats[QAT].append(share(more(copy.deepcopy(net))))
        for (bits, scales), by_seed in found.items():
            rounded = calibrate(with_fake_quantization(net, bits, per_channel=scales == CHANNEL), calibration)
            by_seed.setdefault(PTQ, []).append(share(rounded))
            if (bits, scales) in params.trained:
                by_seed.setdefault(QAT, []).append(share(more(rounded)))
        if seed == 0:
            if not params.device.is_cuda:  # the operators of static int8 are for processors
                shipped.append(ship_lecture(net, more, share, calibration))
            try:
                shipped += [ship(net, bits, more, share, data.test_x) for bits in params.ao_bits]
                if not params.device.is_cuda:
                    shipped.append(ship_graph(net, more, share, calibration, result.notes, compile=params.compile))
            except LabError as missing:
                result.notes.append(f"{missing} Its rows are missing here; our own are complete.")
    plain = {scales: found[8, scales][PTQ] for scales in (TENSOR, CHANNEL)}
    scaled = three_nets(nets, plain, calibration, share, result)
    result.tables += [
        Table(
            f"{data.name}: {params.seeds} seeds, {params.more_steps} more steps of {params.batch} images",
            [
                RoundedNet(32, "float, and the control", over_seeds(floats[PTQ]), over_seeds(floats[QAT]), by_seed=floats),
                *(rounded_row(bits, scales, by_seed, floats) for (bits, scales), by_seed in found.items()),
            ],
        ),
        Table("Three nets that compute the same in float", scaled),
        *([Table("QAT by three tools, before and after convert", shipped)] if shipped else []),
    ]
    result.notes += data.notes
    least = min(bits for bits, _ in params.trained)
    result.key_figure("float net", over_seeds(floats[PTQ]), "%")
    result.key_figure("control: float, trained on", over_seeds(floats[QAT]), "%")
    for kind in (PTQ, QAT):
        result.key_figure(f"{kind}, {least} bits per channel", over_seeds(found[least, CHANNEL][kind]), "%")
    for row in scaled:
        result.key_figure(f"8 bits per tensor, {row.net}", row.tensor, "%")
    claim_scaling(result, nets[0], data.test_x[:250])
    judge_shipped(result, shipped)
    judge(result, floats, found)
    judge_scaled(result, scaled)
    return result
