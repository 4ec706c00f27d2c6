"""fp16 and bf16: range and spacing, rounding, and updates that are lost because the weight's format is too coarse."""

import math
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.precision.experiments.fp16_vs_bf16.stored_descent import STORAGES, descend
from hpml_lab.precision.lessons.formats import BF16, E4M3, FORMATS, FP16, Format, is_lost, round_stochastically

QUICK = dict(weights=500, steps=1200, lr=0.01)
FULL = dict(weights=10_000, steps=2000, lr=0.01)
SLACK = 1 + 2.0**-7  # the gradient and lr times the gradient are rounded, too


# A sum, or with start 0 a conversion, and its result: (format, start, added, result).
ROUNDINGS = (
    (FP16, 2048.0, 1.0, 2048.0),
    (FP16, 2050.0, 1.0, 2052.0),
    (FP16, 1.0, 0.0004, 1.0),
    (FP16, 65504.0, 15.0, 65504.0),
    (FP16, 65504.0, 16.0, float("inf")),
    (FP16, 0.0, 70000.0, float("inf")),
    (FP16, 0.0, 2.0**-25, 0.0),
    (FP16, 0.0, 1.1 * 2.0**-25, 2.0**-24),
    (BF16, 256.0, 1.0, 256.0),
    (BF16, 258.0, 1.0, 260.0),
    (BF16, 1.0, 0.0004, 1.0),
    (BF16, 0.0, 70000.0, 70144.0),
    (BF16, 0.0, 2.0**-25, 2.0**-25),
)
WEIGHTS = (1.0, 1.25, 1 - 2.0**-8, 2.0, 100.0, 0.01171875, 2.0**-13, 2.0**-14)  # numbers of fp16 and of bf16


@dataclass
class RoundedSum(Row):
    """start + added as torch computes it in a format; with start 0 only the conversion."""

    number_format: str = column("format")
    start: float = column("start")
    added: float = column("added")
    result: float = column("result")
    expected: float = column("expected")


def rounded_sums() -> list[RoundedSum]:
    """Compute ROUNDINGS with torch."""
    rows = []
    for form, start, added, expected in ROUNDINGS:
        converted = torch.tensor(added, dtype=form.dtype)
        result = (torch.tensor(start, dtype=form.dtype) + converted if start else converted).item()
        rows.append(RoundedSum(form.name, start, added, result, expected))
    return rows


def predicts_lost_updates(form: Format) -> tuple[bool, int]:
    """Whether `is_lost` predicts, for each of WEIGHTS and each number of the format as its update, whether torch loses it;
    and the number of sums."""
    updates = torch.cat([form.values(), -form.values()])
    correct = []
    for weight in WEIGHTS:
        weights = torch.full_like(updates, weight)
        unchanged = weights.to(form.dtype) + updates.to(form.dtype) == weights.to(form.dtype)
        correct.append(torch.equal(unchanged, is_lost(weights, updates, form)))
    return all(correct), len(updates) * len(WEIGHTS)


@dataclass
class FormatRow(Row):
    """The range and the spacing of one number format."""

    number_format: str = column("format")
    layout: str = column("sign + exponent + fraction")
    largest: float = column("largest")
    smallest_normal: float = column("smallest normal")
    smallest: float = column("smallest")
    spacing_at_1: float = column("spacing at 1")
    spacing_at_1000: float | None = column("spacing at 1000")
    exact_integers: int = column("integers exact up to")


@dataclass
class StoredDescent(Row):
    """The same small descent with the weights stored in one way."""

    storage: str = column("weights stored in")
    final_loss: float = column("final loss")
    lost: int = column("updates lost")
    predicted: int | None = column("predicted by the rule")
    lost_percent: float = column("updates lost", "%")
    stuck: int = column("weights stuck at the end")
    distance: float = column("largest distance to the target")
    allowed: float = column("spacing / (2 lr)")


def format_row(form: Format) -> FormatRow:
    return FormatRow(
        number_format=form.name,
        layout=f"1 + {form.exponent} + {form.fraction}",
        largest=form.largest,
        smallest_normal=form.smallest_normal,
        smallest=form.smallest_subnormal,
        spacing_at_1=form.eps,
        spacing_at_1000=form.spacing(1000.0) if form.largest > 1000 else None,
        exact_integers=2 ** (form.fraction + 1),
    )


def spacing_curve(form: Format) -> dict[str, list[float]]:
    """The spacing of the format at each power of two from its smallest number to its largest."""
    low, high = (math.frexp(value)[1] - 1 for value in (form.smallest_subnormal, form.largest))
    magnitudes = [2.0**power for power in range(low, high + 1)]
    return {"magnitude": magnitudes, "spacing": [form.spacing(magnitude) for magnitude in magnitudes]}


LOOKS = dict(
    zip(
        ("fp32", "tf32", "bf16", "fp16", "fp8 e5m2", "fp8 e4m3"),
        zip((style.INK, style.GREY, style.BLUE, style.RED, style.GREEN, style.PURPLE), style.MARKERS, strict=False),
        strict=True,
    )
)


def draw(result: Result):
    """Above left: distance to the next number relative to the magnitude, from a format's smallest number to its largest; it
    rises where numbers are subnormal. Above right: every number from 1 to 1.25. Below: loss of a small descent with the weights
    stored in each format, dashed with an fp32 master copy, dotted with stochastic rounding; a solid curve becomes flat when its
    updates are smaller than half the spacing."""
    figure = style.new_figure(9, 7.5)
    grid = figure.subplot_mosaic([["spacing", "line"], ["loss", "loss"]])
    axes = grid["spacing"]
    for name, curve in result.arrays["spacing"].items():
        color, marker = LOOKS[name]
        relative = [gap / size for gap, size in zip(curve["spacing"], curve["magnitude"], strict=True)]
        width = 5 if name == "tf32" else 2
        axes.plot(curve["magnitude"], relative, marker, ls="-", lw=width, color=color, label=name, markevery=(0.1, 0.2))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks([2.0**power for power in range(-120, 121, 40)])
    axes.set(xlabel="magnitude", ylabel="distance to the next number / magnitude", title="range and spacing")
    axes.legend(fontsize=8, loc="center right", bbox_to_anchor=(1, 0.33))
    axes, line = grid["line"], result.arrays["line"]
    for height, (name, values) in enumerate(line.items()):
        axes.plot(values, [-height] * len(values), "|", color=LOOKS[name][0], markersize=22, markeredgewidth=0.8)
    axes.set_yticks([-height for height in range(len(line))], list(line))
    axes.set(xlabel="value", ylabel="format", title="every number from 1 to 1.25", ylim=(0.4 - len(line), 0.6))
    axes.grid(False)
    axes = grid["loss"]
    for name, curve in result.arrays["losses"].items():
        dashes = "--" if "master" in name else ":" if "stochastic" in name else "-"
        axes.plot(curve["step"], curve["loss"], dashes, color=LOOKS[name[:4]][0], label=name)
    axes.set_yscale("log")
    axes.set(xlabel="step", ylabel="mean of ½(w - t)²", title="the same descent, weights stored in …")
    axes.legend(fontsize=8, ncols=2)
    return figure


@experiment("fp16-vs-bf16", lecture="L1", notebook="12_precision", draw=draw, quick=QUICK, full=FULL)
def fp16_vs_bf16(params: Params) -> Result:
    """fp16 and bf16: range, rounding, and when an update is lost."""
    sums: list[RoundedSum] = rounded_sums()
    descents = {
        storage.name: descend(storage, params.weights, params.steps, params.lr, params.device.torch) for storage in STORAGES
    }
    rows = {
        name: StoredDescent(
            storage=name,
            final_loss=run.losses[-1],
            lost=run.lost,
            predicted=run.predicted,
            lost_percent=100 * run.lost / params.weights / params.steps,
            stuck=run.stuck,
            distance=run.distance,
            allowed=run.allowed,
        )
        for name, run in descents.items()
    }
    tables = [
        Table("Number formats", [format_row(form) for form in FORMATS]),
        Table("Sums and conversions", sums),
        Table("The same descent with weights stored in different formats", list(rows.values())),
    ]
    result = Result(tables)
    for name, row in rows.items():
        result.key_figure(f"final loss, {name}", row.final_loss)
    for name, row in rows.items():
        result.key_figure(f"updates lost, {name}", row.lost_percent, unit="%")

    result.claim(
        "2048 + 1 is 2048 in fp16, 256 + 1 is 256 in bf16, 1 + 0.0004 is 1 in both, and 65504 + 16 is infinite in fp16",
        all(row.result == row.expected for row in sums),
        f"{len(sums)} sums and conversions",
    )
    by_rule = [row for row in rows.values() if row.predicted is not None]
    predictions = [predicts_lost_updates(form) for form in (FP16, BF16)]
    result.claim(
        "An update is lost if it does not reach halfway to the next number, or reaches exactly halfway from an even one; the"
        " descent loses exactly as many",
        all(correct for correct, _ in predictions) and all(row.lost == row.predicted for row in by_rule),
        f"{sum(count for _, count in predictions)} sums; " + ", ".join(f"{row.storage}: {row.lost}" for row in by_rule),
    )
    plain = [rows["fp16"], rows["bf16"]]
    result.claim(
        "With 16-bit weights alone every weight gets stuck, at most spacing / (2 lr) from its target, within 1 %",
        all(row.stuck == params.weights and row.distance <= row.allowed * SLACK for row in plain),
        ", ".join(f"{row.storage}: {row.distance:.3f} of {row.allowed:.3f}" for row in plain),
    )
    result.claim(
        "With an fp32 master copy the final loss is less than a thousandth of that without",
        all(rows[f"{row.storage}, fp32 master"].final_loss < row.final_loss / 1000 for row in plain),
        ", ".join(f"{row.storage}: {row.final_loss:.1e}" for row in rows.values()),
    )
    result.claim(
        "Rounded stochastically, 1 + 2⁻¹⁰ is always 1 or the next bf16 number, and on average itself", rounds_stochastically()
    )
    beyond = torch.tensor(1000.0).to(E4M3.dtype).item()
    result.notes += [
        f"fp8 e4m3 has no infinity: here 1000 becomes {beyond:g} (NaN with torch 2.11, the largest number with torch 2.15).",
        "tf32 is never stored: its rows are derived from its bits.",
    ]
    shown = range(0, params.steps, max(1, params.steps // 200))
    result.arrays = {
        "spacing": {form.name: spacing_curve(form) for form in FORMATS},
        "line": {form.name: [1 + k * form.eps for k in range(int(0.25 / form.eps) + 1)] for form in FORMATS[2:]},
        "losses": {name: {"step": list(shown), "loss": [run.losses[step] for step in shown]} for name, run in descents.items()},
    }
    return result


def rounds_stochastically() -> bool:
    """Whether 65536 stochastic roundings of 1 + 2⁻¹⁰ give only its two neighbors in bf16, and on average itself (5 σ)."""
    x = torch.full((2**16,), 1 + 2.0**-10)
    rounded = round_stochastically(x, torch.Generator().manual_seed(0)).double()
    five_sigma = 5 * BF16.eps * math.sqrt(1 / 8 * 7 / 8 / len(x))  # rounded up by eps with probability 1/8
    return set(rounded.tolist()) == {1.0, 1 + BF16.eps} and abs(rounded.mean().item() - x[0].item()) < five_sigma
