"""The large-batch gap: the same images in fewer, larger batches, and what three rules for the learning rate recover.

All batch sizes see the same number of images, so a batch k times as large takes 1/k of the steps. The nets of all seeds are
trained at once, as one batched program (batched_trainings.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.progress import progress
from hpml_lab.large_batch.experiments.batched_trainings import BatchedTrainings, images
from hpml_lab.large_batch.lessons.rate_scaling import KEPT, LINEAR, ROOT, RULES, WARM, scaled_rate, schedule
from hpml_lab.large_batch.experiments.accuracy_gains import SEEDS, gain, median_range, points, span
from hpml_lab.large_batch.experiments.large_batch_gap.small_steps import RATE, check_proportional, steps_at_each_rate
from hpml_lab.optim import SGD

QUICK = dict(images=8192, side=14, seen=32_768, small=16, factors=(16, 32), seeds=5)
FULL = dict(images=16_384, side=28, seen=65_536, small=32, factors=(4, 8, 16, 32), seeds=16)

SHARP = 2 * 6**0.5  # times torch's weights: He's start has √6 times their standard deviation, and this is twice that

COLORS = dict(zip(RULES, (style.GREY, style.ORANGE, style.BLUE, style.GREEN), strict=True))
LOOK = {rule: {"color": COLORS[rule], "linestyle": style.LINES[i], "marker": style.MARKERS[i]} for i, rule in enumerate(RULES)}


@dataclass
class ScaledTraining(Row):
    """One batch size with one rule for the rate, over all seeds."""

    rule: str = column("rule")
    k: int = column("k")
    batch: int = column("batch")
    steps: int = column("steps")
    rate: float = column("(peak) rate")
    accuracy: str = column("test accuracy, median (range)", "%")
    lost: float | None = column("largest loss of a seed", "points", None)
    by_seed: list[float] = field(default_factory=list)


@dataclass
class SharpTraining(ScaledTraining):
    """The same from initial weights that are far too large."""


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: test error by batch size, the images seen being the same; lines are medians over the seeds, bands reach from the
    lowest seed to the highest, and the gray band is the small batch. Right: every seed at the largest batch. Look at how far
    each rule comes back to the gray band, and where its seeds begin to scatter."""
    figure = style.new_figure(9.5, 4.2)
    curve, strip = figure.subplots(1, 2, width_ratios=(1.3, 1), sharey=True)
    base, *rows = result.rows()
    for axes in (curve, strip):
        axes.axhspan(min(errors(base)), max(errors(base)), color=style.GREY, alpha=0.3, linewidth=0)
    for rule in RULES:
        found = [base, *(row for row in rows if row.rule == rule)]
        values, sizes = np.array([errors(row) for row in found]), [row.batch for row in found]
        curve.plot(sizes, np.median(values, 1), label=rule, markersize=5, **LOOK[rule])
        curve.fill_between(sizes, values.min(1), values.max(1), color=COLORS[rule], alpha=0.15, linewidth=0)
    curve.set(xscale="log", yscale="log", xlabel="batch size", ylabel="test error (%)", title="The same images, fewer steps")
    sizes = sorted({row.batch for row in result.rows()})
    curve.set_xticks(sizes, [f"{size:,}" for size in sizes])
    curve.minorticks_off()
    style.label_log_axis(curve.yaxis)
    curve.legend(fontsize=9, loc="upper left")
    largest = [row for row in rows if row.k == max(row.k for row in rows)]
    for x, row in enumerate(largest):
        spread = x + np.linspace(-0.25, 0.25, len(row.by_seed))
        strip.plot(spread, errors(row), **LOOK[row.rule] | {"linestyle": ""}, markersize=5)
        strip.hlines(np.median(errors(row)), x - 0.35, x + 0.35, color=COLORS[row.rule], linewidth=2)
    strip.set_xticks(range(len(largest)), [row.rule.replace(", ", ",\n") for row in largest])
    strip.set(title=f"Every seed at batch {largest[0].batch:,}")
    return figure


def errors(row: ScaledTraining) -> list[float]:
    """The test error of each seed in percent, for a logarithmic axis."""
    return [max(100 * (1 - accuracy), 0.05) for accuracy in row.by_seed]


@picture
def large_batch_losses(result: Result):
    """The training loss step by step, without warm-up above and with it below: medians over the seeds, bands from the lowest
    seed to the highest. Left: at the largest batch. Right: at half of it, from initial weights that are far too large. Look at
    the first steps: where does the loss rise, and does it come down again?"""
    figure = style.new_figure(9.5, 5.2)
    panels = figure.subplots(2, 2, sharex="col", sharey=True)
    for column_axes, (title, curves) in zip(panels.T, result.arrays["losses"].items(), strict=True):
        column_axes[0].set_title(title)
        column_axes[-1].set_xlabel("step")
        for axes, (rule, (low, middle, high)) in zip(column_axes, curves.items(), strict=True):
            steps = np.arange(1, len(middle) + 1)
            axes.plot(steps, middle, color=COLORS[rule])
            axes.fill_between(steps, low, high, color=COLORS[rule], alpha=0.3, linewidth=0)
            axes.set(yscale="log", ylim=(0.01, 300))
            axes.text(0.98, 0.93, rule, transform=axes.transAxes, ha="right", va="top", color=COLORS[rule], weight="bold")
    for axes in panels[:, 0]:
        axes.set_ylabel("training loss")
        axes.set_yticks([0.01, 0.1, 1, 10, 100], ["0.01", "0.1", "1", "10", "100"])
        axes.minorticks_off()
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@torch.no_grad()
def sharpen(trainings: BatchedTrainings) -> BatchedTrainings:
    """Start from weights that are SHARP times as large: the gradients of the first steps are larger than any later ones."""
    for W in trainings.parameters[0::2]:
        W.mul_(SHARP)
    return trainings


def band(losses: torch.Tensor) -> list[list[float]]:
    """Lowest, median and highest over the seeds, by step, of losses (steps, S); 1e9 where a seed has diverged."""
    losses = losses.cpu().nan_to_num(nan=1e9, posinf=1e9)
    return [losses.amin(1).tolist(), losses.median(1).values.tolist(), losses.amax(1).tolist()]


def judge(result: Result, base: Sequence[float], found: dict[tuple, list[float]], factors: Sequence[int]) -> None:
    """Add what the large batches lose and what each rule recovers, seed by seed."""
    *moderate, most = factors
    edge = moderate[-1]

    def lost(rule: str, k: int) -> list[float]:
        return points(base, found[rule, k])

    result.measured(
        f"With the rate kept, a batch {most} times as large loses more than 25 points in every seed",
        min(lost(KEPT, most)) > 25,
        span(lost(KEPT, most)),
        depends_on=SEEDS,
    )
    recovered = [loss for k in moderate for loss in lost(LINEAR, k)]
    worse = points(found[LINEAR, edge], found[LINEAR, most])
    result.measured(
        f"In every seed, linear scaling is within 3 points of the small batch for k up to {edge}, and worse at k = {most}",
        max(recovered) < 3 and min(worse) > 0,
        f"{span(recovered)}; worse by {span(worse)}",
        depends_on=SEEDS,
    )
    ahead = points(found[LINEAR, edge], found[ROOT, edge])
    result.measured(
        f"At k = {edge} linear scaling is better than the square root, in every seed",
        min(ahead) > 0,
        span(ahead),
        depends_on=SEEDS,
    )
    gains = {k: gain(found[WARM, k], found[LINEAR, k]) for k in factors}
    result.measured(
        f"For k up to {edge} warm-up gains nothing over linear scaling alone: less than half a point, median over the seeds",
        all(gains[k].median < 0.5 for k in moderate),
        "; ".join(f"k = {k}: {gains[k]}" for k in moderate),
        depends_on=SEEDS,
    )
    sharp, warmed = found[LINEAR, edge, "sharp"], found[WARM, edge, "sharp"]
    result.measured(
        f"From weights far too large, at k = {edge}, linear scaling leaves a seed below 50 %; with warm-up none is below 85 %",
        min(sharp) < 0.5 and min(warmed) > 0.85,
        f"{median_range(sharp)} and {median_range(warmed)} %",
        depends_on=SEEDS,
    )
    result.key_figure(f"warm-up's gain at k = {most}, median (interval)", str(gains[most]), "points")


@experiment("large-batch-gap", lecture="L3 L4", notebook="15_large_batch", draw=draw, quick=QUICK, full=FULL, uses=("mnist",))
def large_batch_gap(params: Params) -> Result:
    """Large batches train worse without care: the same images, by batch size and rule for the rate."""
    data, (*_, edge, most) = images(params.images, params.device.torch, side=params.side), params.factors

    def train(rule: str, k: int, start: str = "") -> BatchedTrainings:
        batch, steps = params.small * k, params.seen // (params.small * k)
        trainings = BatchedTrainings(data, range(params.seeds), batch, partial(SGD, lr=RATE, momentum=0.9))
        if start:
            sharpen(trainings)
        return trainings.run(steps, schedule(rule, RATE, k, steps))

    plan = [
        (KEPT, 1),
        *((rule, k) for k in params.factors for rule in RULES),
        *((rule, edge, "sharp") for rule in (LINEAR, WARM)),
    ]
    found, losses = {}, {}
    for setting in progress(plan, "trainings, all seeds at once"):
        trainings = train(*setting)
        found[setting], losses[setting] = trainings.accuracy(), trainings.losses
    base = found[KEPT, 1]

    def row(rule: str, k: int, start: str = "") -> ScaledTraining:
        batch, accuracy = params.small * k, found[rule, k, start] if start else found[rule, k]
        lost, rate = None if k == 1 or start else max(points(base, accuracy)), scaled_rate(rule, RATE, k)
        return ScaledTraining(rule, k, batch, params.seen // batch, rate, median_range(accuracy), lost, accuracy)

    curves = {
        f"Batch {params.small * most:,}": {rule: band(losses[rule, most]) for rule in (LINEAR, WARM)},
        f"Batch {params.small * edge:,}, a sharp start": {rule: band(losses[rule, edge, "sharp"]) for rule in (LINEAR, WARM)},
    }
    result = Result(
        [
            Table(f"{data.name}: {params.seen:,} images seen, {params.seeds} seeds", [row(*s) for s in plan if len(s) == 2]),
            Table("From weights that are far too large", [SharpTraining(**vars(row(*s))) for s in plan if len(s) == 3]),
        ],
        notes=data.notes,
        arrays={"data": data.name, "losses": curves, "small_steps": steps_at_each_rate(data, params.small, most)},
    )
    result.key_figure(f"accuracy at batch {params.small}", median_range(base), "%")
    for rule in RULES:
        result.key_figure(f"accuracy at batch {params.small * most:,}, {rule}", median_range(found[rule, most]), "%")
    check_proportional(result, most)
    judge(result, base, found, params.factors)
    return result
