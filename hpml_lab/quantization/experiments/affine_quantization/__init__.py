"""Affine quantization: what rounding to 2 to 8 bits costs, and whether our arithmetic is that of torch, bit for bit."""

import math
from dataclasses import dataclass

import torch

from hpml_lab.quantization.experiments.affine_quantization import agreement
from hpml_lab.quantization.lessons.affine import affine_parameters, fake_quantize, quantize, value_range
from hpml_lab.quantization.experiments.affine_quantization.agreement import EqualityCheck, seeded
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style

QUICK = dict(values=1_200_000)
FULL = dict(values=12_000_000)

BITS = (2, 3, 4, 5, 6, 7, 8)
NORMAL, RELU = "normal", "after ReLU"
AFFINE, SYMMETRIC = "affine", "symmetric"
SHOWN = {2: style.ORANGE, 3: style.BLUE, 4: style.GREEN}  # staircases
LOW, HIGH = -1.0, 2.0  # their range
LOOK = {
    (NORMAL, AFFINE): dict(color=style.BLUE, linestyle="-", marker="o", markersize=4),
    (RELU, AFFINE): dict(color=style.GREEN, linestyle="-", marker="^", markersize=5),
    (RELU, SYMMETRIC): dict(color=style.RED, linestyle="--", marker="s", markersize=9, fillstyle="none"),
}


@dataclass
class RoundingError(Row):
    """What is lost when values are quantized over their whole range."""

    data: str = column("values")
    scheme: str = column("scheme")
    bits: int = column("bits")
    scale: float = column("scale s")
    zero_point: int = column("zero point")
    largest: float = column("largest error", "s")
    rms: float = column("rms error", "s")
    ratio: float = column("signal to noise", "dB")


def rounding_error(data: str, scheme: str, bits: int, x: torch.Tensor) -> RoundingError:
    """Quantize over the range of `x`; unsigned where the scheme is affine, as torch does for activations."""
    low, high = value_range(x)
    p = affine_parameters(low, high, bits, scheme == SYMMETRIC, signed=scheme == SYMMETRIC)
    scale, error = p[0].item(), (fake_quantize(x, *p) - x).double()
    rms = error.square().mean().sqrt().item()
    ratio = 20 * math.log10(x.double().square().mean().sqrt().item() / rms)
    return RoundingError(data, scheme, bits, scale, p[1].item(), error.abs().max().item() / scale, rms / scale, ratio)


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: the staircases that 2, 3 and 4 bits make of a range from -1 to 2 (gray); 0 is a level of each. Middle: the error
    stays within half a step inside the range, and grows without end outside. Right: signal to noise by bits, of normal values
    and of the same after ReLU. Look at the slope of the lines, and at what the symmetric scheme loses where no value is
    negative."""
    figure = style.new_figure(10.0, 3.8)
    stairs, errors, noise = figure.subplots(1, 3)
    x = torch.linspace(LOW - 0.75, HIGH + 0.75, 3001)
    for axes in (stairs, errors):
        axes.axvspan(LOW, HIGH, color=style.GREY, alpha=0.12, linewidth=0)
        axes.set(xlabel="x", xticks=range(-1, 3))
    stairs.plot(x, x, color=style.GREY, linewidth=1, linestyle=":")
    for width, (bits, color) in zip((3.0, 2.0, 1.2), SHOWN.items(), strict=True):
        p = affine_parameters(LOW, HIGH, bits)
        rounded = fake_quantize(x, *p)
        stairs.plot(x, rounded, color=color, linewidth=width, label=f"{bits} bits: {2**bits} levels")
        errors.plot(x, rounded - x, color=color, linewidth=width / 1.5)
        for sign in (-1, 1):
            errors.axhline(sign * p[0].item() / 2, color=color, linewidth=1, linestyle=":")
    stairs.set(ylabel="fake_quantize(x)", title="Staircases")
    errors.set(ylabel="fake_quantize(x) − x", ylim=(-0.7, 0.7), title="The error, and ± s/2 (dotted)")
    stairs.legend(fontsize=9, loc="upper left")
    for (data, scheme), look in LOOK.items():
        rows = [row for row in result.rows(RoundingError) if (row.data, row.scheme) == (data, scheme)]
        noise.plot([row.bits for row in rows], [row.ratio for row in rows], label=f"{data}, {scheme}", **look)
    noise.set(xlabel="bits", ylabel="signal to noise (dB)", title="What is lost, by bits", xticks=BITS)
    noise.legend(fontsize=9, loc="lower right")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


def count(rows: list[EqualityCheck]) -> str:
    """How many values were compared, in all."""
    return f"{sum(row.differ for row in rows):,} of {sum(row.values for row in rows):,} differ"


def judge_agreement(result: Result, rows: dict[str, list[EqualityCheck]]) -> None:
    """Add what holds bit for bit of the arithmetic, and how rarely another order of rounding shows."""
    result.claim(
        "Values and gradients of fake_quantize are bitwise identical to torch's, per tensor and per channel",
        not any(row.differ for row in rows["fake"]),
        count(rows["fake"]),
    )
    inside, values, gradients = rows["one line"]
    result.claim(
        "The one-line estimator has the same values if nothing is clamped; else some differ, and clamped ones get a gradient",
        inside.differ == 0 < min(values.differ, gradients.differ),
        count(rows["one line"]),
    )
    others = rows["roundings"]
    result.measured(
        "Dividing by the scale, or adding the zero point before rounding, changes at most 20 of a million values, each by 1",
        all(row.differ <= 20e-6 * row.values and row.largest in (None, 1.0) for row in others),
        "; ".join(count([row]) for row in others),
        depends_on="the seed",
    )
    for row, what in zip(others, ("dividing by the scale", "adding the zero point before rounding"), strict=True):
        result.key_figure(f"{what}: integers that differ", round(1e6 * row.differ / row.values, 1), "of a million")


def judge_rounding(result: Result, errors: list[RoundingError]) -> None:
    """Add what rounding costs."""
    found = {(row.data, row.scheme, row.bits): row for row in errors}
    twice = {found[RELU, SYMMETRIC, bits].scale / found[RELU, AFFINE, bits].scale for bits in BITS}
    text = "After ReLU the symmetric scheme has exactly twice the step of the affine one: a whole bit is never used"
    result.claim(text, twice == {2.0}, ", ".join(f"{ratio:g}" for ratio in twice))
    halves, odd, even = halfway()
    text = "Added before rounding, an odd zero point moves every value halfway between two integers; an even one moves none"
    result.claim(text, odd == halves and even == 0, f"{odd} and {even} of {halves}")
    gain = (found[NORMAL, AFFINE, 8].ratio - found[NORMAL, AFFINE, 4].ratio) / 4
    text = "From 4 to 8 bits each bit adds 6 dB, within 0.3 dB: it halves the error"
    result.measured(text, abs(gain - 20 * math.log10(2)) < 0.3, f"{gain:.2f} dB", depends_on="the values")
    for bits in (8, 4, 2):
        result.key_figure(f"signal to noise of normal values, {bits} bits", round(found[NORMAL, AFFINE, bits].ratio, 1), "dB")


def halfway() -> tuple[int, int, int]:
    """How many values halfway between two integers there are, and how many an odd and an even zero point added early move."""
    scale, ends = torch.tensor(0.25), (-128, 127)
    x = (torch.arange(-50, 50) + 0.5) * scale
    moved = [int((torch.round(x / scale + zero) != quantize(x, scale, zero, *ends)).sum()) for zero in (3, 4)]
    return len(x), *moved


@experiment(
    "affine-quantization",
    lecture="own",
    notebook="16_quantization",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("torchao",),
    same_picture=True,
)
def affine_quantization(params: Params) -> Result:
    """Affine quantization from scratch: rounding error by bits, and equality with torch, torchao and the int8 engines."""
    x = seeded(params.values)
    on_device = x.to(params.device.torch)
    layers = agreement.compare_torchao()
    rows = {
        "fake": list(agreement.compare_fake(on_device)),
        "integers": [agreement.compare_integers(x)],
        "observers": [agreement.compare_observers(x[: min(len(x), 120_000)])],
        "products": list(agreement.compare_products()),
        "torchao": [layers] if layers else [],
        "engines": list(agreement.compare_engines()),
        "roundings": list(agreement.compare_other_roundings(x)),
        "one line": list(agreement.compare_one_line(x)),
    }
    sources = {NORMAL: x[:100_000], RELU: x[:100_000].relu()}
    errors = [rounding_error(data, scheme, bits, sources[data]) for data, scheme in LOOK for bits in BITS]
    result = Result(
        [
            Table("Rounding over the whole range, 100,000 values", errors),
            Table("Our arithmetic and others'", [row for kind in rows.values() for row in kind]),
        ]
    )
    if not layers:
        result.notes.append("torchao is not installed, so its row is missing: `pip install torchao` adds it.")
    judge_agreement(result, rows)
    judge_rounding(result, errors)
    return result
