"""The range test and one-cycle: a rate read from one short run and trained with, and what one-cycle gains over constant rates.

Each schedule has the best of the rates that were tried, found with the test images. One that stands at the edge of its range
need not be the best: each schedule has a range of its own, and what is claimed says where it is at the edge.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.progress import progress
from hpml_lab.large_batch.experiments.accuracy_gains import SEEDS, gain, median_range, points
from hpml_lab.large_batch.experiments.batched_trainings import BatchedTrainings, ImageRows, images
from hpml_lab.large_batch.lessons.range_test import RateChoice, choose, growing_rates, smoothed
from hpml_lab.optim import SGD
from hpml_lab.optim.schedules import one_cycle, one_cycle_momentum

QUICK = dict(images=8192, batches=(32, 96), steps=128, seeds=8, low=1e-4, high=3.0, test_steps=100)
FULL = dict(images=16_384, batches=(32, 256), steps=192, seeds=16, low=1e-4, high=3.0, test_steps=100)

CONSTANT, ONE_CYCLE, FOUND = "constant", "one-cycle", "constant, the found rate"
RATES = {CONSTANT: (0.01, 0.02, 0.05, 0.1, 0.2), ONE_CYCLE: (0.02, 0.05, 0.1, 0.2, 0.4)}
SCHEDULES = tuple(RATES)
COLORS = {CONSTANT: style.ORANGE, ONE_CYCLE: style.BLUE}
MARKERS = {CONSTANT: "s", ONE_CYCLE: "o"}
STEEPEST, LEAST, TENTH, DIVERGES = "falls fastest", "is least", "is least, a tenth of that rate", "has diverged"


@dataclass
class RateReading(Row):
    """One way to read a rate from a range test, over the seeds."""

    where: str = column("where the smoothed loss …")
    middle: float = column("rate, median")
    low: float = column("smallest")
    high: float = column("largest")

    @property
    def factor(self) -> float:
        return self.high / self.low


@dataclass
class RateTraining(Row):
    """One schedule at one rate and batch size, over all seeds."""

    batch: int = column("batch")
    schedule: str = column("schedule")
    rate: float = column("(peak) rate")
    accuracy: str = column("test accuracy, median (range)", "%")
    by_seed: list[float] = field(default_factory=list)


# ---- training --------------------------------------------------------------------------------------------------------


def train(data: ImageRows, params: Params, batch: int, schedule: str, rate: float) -> list[float]:
    """The accuracy of each seed after params.steps steps; one-cycle moves the momentum, too."""
    trainings = BatchedTrainings(data, range(params.seeds), batch, partial(SGD, lr=rate, momentum=0.9))
    if schedule != ONE_CYCLE:
        return trainings.run(params.steps).accuracy()
    trainings.set(momentum=one_cycle_momentum(0, params.steps))
    return trainings.run(
        params.steps,
        rate=lambda t: rate * one_cycle(t, params.steps),
        after_step=lambda t: trainings.set(momentum=one_cycle_momentum(t + 1, params.steps)),
    ).accuracy()


def range_test(trainings: BatchedTrainings, rates: Sequence[float]) -> torch.Tensor:
    """Train one step at each rate; the loss of each step before it is taken, (steps, seeds)."""
    return trainings.run(len(rates), rate=lambda t: rates[t]).losses.cpu()


def read_rates(choices: Sequence[RateChoice]) -> dict[str, RateReading]:
    """Each way to read a rate, over the choices of all seeds."""
    rates = {
        STEEPEST: [choice.steepest for choice in choices],
        LEAST: [choice.least for choice in choices],
        TENTH: [choice.tenth for choice in choices],
        DIVERGES: [choice.diverged for choice in choices],
    }
    return {where: RateReading(where, median(found), min(found), max(found)) for where, found in rates.items()}


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: the range test, smoothed losses while the rate grows; the line is the median of the seeds, the band reaches from
    the lowest to the highest, triangles are the rates at which each seed's loss is least, and bars where it falls fastest.
    Middle and right: test error by (peak) rate, constant and one-cycle, after the same number of steps at two batch sizes;
    bands from the best seed to the worst. The star is training with the rate that the range test finds."""
    figure = style.new_figure(10.5, 4.2)
    left, *right = figure.subplots(1, 3, width_ratios=(1.2, 1, 1))
    rates, losses = np.array(result.arrays["rates"]), np.array(result.arrays["losses"])
    curves = np.nan_to_num([smoothed(column) for column in losses.T.tolist()], nan=1e9, posinf=1e9)
    left.plot(rates, np.median(curves, 0), color=style.BLUE)
    left.fill_between(rates, curves.min(0), curves.max(0), color=style.BLUE, alpha=0.2, linewidth=0)
    top = 1.6 * curves[:, 0].max()
    choices = [choose(rates.tolist(), column) for column in losses.T.tolist()]
    for name, marker, color, height in (("steepest", "|", style.GREEN, 0.05), ("least", "^", style.RED, 0.12)):
        at = [getattr(choice, name) for choice in choices]
        left.plot(
            at, [height * top] * len(at), linestyle="", marker=marker, color=color, markersize=9, label=f"{name}, each seed"
        )
    left.set(xscale="log", ylim=(0, top), xlabel="learning rate", ylabel="training loss, smoothed", title="Range test")
    left.legend(fontsize=9, loc="upper left")
    for axes, batch in zip(right, batches_of(result), strict=True):
        axes.sharey(right[0])
        for schedule in SCHEDULES:
            rows = trained(result, batch, schedule)
            values, at = [errors(row) for row in rows], [row.rate for row in rows]
            look = {"color": COLORS[schedule], "marker": MARKERS[schedule], "markersize": 5}
            axes.plot(at, np.median(values, 1), label=schedule, **look)
            axes.fill_between(at, np.min(values, 1), np.max(values, 1), color=COLORS[schedule], alpha=0.2, linewidth=0)
        for row in trained(result, batch, FOUND):
            star = {"color": style.GREEN, "marker": "*", "markersize": 13, "linestyle": ""}
            axes.plot(row.rate, np.median(errors(row)), label="the found rate", **star)
        axes.set(xscale="log", yscale="log", xlabel="(peak) rate", title=f"Batch {batch}")
        rates_tried = sorted({row.rate for schedule in SCHEDULES for row in trained(result, batch, schedule)})
        axes.set_xticks(rates_tried, [f"{rate:g}" for rate in rates_tried], fontsize=8)
        axes.minorticks_off()
    right[0].set_ylabel("test error (%)")
    style.label_log_axis(right[0].yaxis)
    right[0].legend(fontsize=9, loc="upper left")
    left.set_xticks([10.0**power for power in range(-4, 1)], ["0.0001", "0.001", "0.01", "0.1", "1"])
    return figure


def errors(row: RateTraining) -> list[float]:
    """The test error of each seed in percent."""
    return [max(100 * (1 - accuracy), 0.05) for accuracy in row.by_seed]


@picture
def one_cycle_gains(result: Result):
    """What one-cycle at its best peak gains over each constant rate, seed by seed, in points of accuracy, at two batch sizes.
    Lines are medians; below 0 the constant rate was better. The axis is logarithmic beyond ±5 points. Rates that do not train
    are left out. In the last column each seed is compared with its own best constant rate."""
    figure = style.new_figure(9.5, 3.8)
    panels = figure.subplots(1, 2, sharey=True)
    for axes, batch in zip(panels, batches_of(result), strict=True):
        best, rows = best_of(result, batch, ONE_CYCLE), trained(result, batch, CONSTANT)
        opponents = {f"{row.rate:g}": row.by_seed for row in rows if median(row.by_seed) > 0.5}
        opponents["best of\neach seed"] = best_of_each_seed(rows)
        for x, accuracy in enumerate(opponents.values()):
            gained = points(best.by_seed, accuracy)
            spread = x + np.linspace(-0.25, 0.25, len(gained))
            axes.plot(spread, gained, linestyle="", marker="o", markersize=5, color=style.BLUE)
            axes.hlines(np.median(gained), x - 0.35, x + 0.35, color=style.INK, linewidth=2)
        axes.axhline(0, color=style.GREY, linewidth=1)
        axes.set_xticks(range(len(opponents)), opponents)
        axes.set_yscale("symlog", linthresh=5)
        axes.set_yticks([-5, -2, 0, 2, 5, 10, 20, 50], ["−5", "−2", "0", "2", "5", "10", "20", "50"])
        axes.minorticks_off()
        axes.set(xlabel="constant rate", title=f"Batch {batch}, one-cycle's peak {best.rate:g}")
    panels[0].set_ylabel("gain of one-cycle (points)")
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


def batches_of(result: Result) -> list[int]:
    return sorted({row.batch for row in result.rows(RateTraining)})


def trained(result: Result, batch: int, schedule: str) -> list[RateTraining]:
    return [row for row in result.rows(RateTraining) if (row.batch, row.schedule) == (batch, schedule)]


def best_of(result: Result, batch: int, schedule: str) -> RateTraining:
    """The training with the best median accuracy."""
    return max(trained(result, batch, schedule), key=lambda row: median(row.by_seed))


def shown_rate(result: Result, row: RateTraining) -> str:
    """Its rate, and whether that is the edge of what was tried: a better one may lie beyond."""
    rates = [other.rate for other in trained(result, row.batch, row.schedule)]
    return f"{row.rate:g}" + ", the edge of those tried" * (row.rate in (min(rates), max(rates)))


def best_of_each_seed(rows: list[RateTraining]) -> list[float]:
    return [max(accuracies) for accuracies in zip(*(row.by_seed for row in rows), strict=True)]


def judge(result: Result, readings: dict[str, RateReading]) -> None:
    """Add what depends on data and seeds."""
    least, steepest = readings[LEAST], readings[STEEPEST]
    result.measured(
        "The rate with the least loss differs between seeds by more than a factor of 2",
        least.factor > 2,
        f"{least.low:.3g} to {least.high:.3g}, a factor of {least.factor:.1f}; where it falls fastest {steepest.factor:.1f}",
        depends_on=SEEDS,
    )
    best = best_of(result, batches_of(result)[0], CONSTANT)
    result.key_figure("rate that the range test finds (a tenth of the least, median)", round(readings[TENTH].middle, 4))
    result.key_figure(f"best constant rate of those tried, batch {best.batch}", best.rate)
    result.key_figure("accuracy with that rate", best.accuracy, "%")
    for found in trained(result, best.batch, FOUND):
        result.key_figure("accuracy with the rate that the range test finds", found.accuracy, "%")
        result.measured(
            "The found rate is within a factor of 5 of the best constant rate",
            1 / 5 < found.rate / best.rate < 5,
            f"{found.rate:.2g} against {best.rate:g}; in accuracy {gain(found.by_seed, best.by_seed)}",
            depends_on=SEEDS,
        )
    gains = {}
    for batch in batches_of(result):
        best, cycle = best_of(result, batch, CONSTANT), best_of(result, batch, ONE_CYCLE)
        gains[batch] = gain(cycle.by_seed, best.by_seed)
        result.key_figure(
            f"batch {batch}: one-cycle over the best constant rate, median (interval)", str(gains[batch]), "points"
        )
    small, large = gains
    best = best_of(result, small, CONSTANT)
    result.measured(
        f"At batch {small} one-cycle at its best peak is better than the best constant rate",
        gains[small].certain,
        f"{gains[small]}, at {shown_rate(result, best_of(result, small, ONE_CYCLE))} against {shown_rate(result, best)}",
        depends_on=SEEDS,
    )
    result.measured(
        f"At batch {large}, whose gradients have less noise, it gains less",
        gains[large].median < gains[small].median,
        f"{gains[large].median:+.2f} and {gains[small].median:+.2f} points",
        depends_on=SEEDS,
    )
    both = [rate for rate in RATES[CONSTANT] if rate in RATES[ONE_CYCLE]]
    beyond = min((rate for rate in both if rate >= 2 * best.rate), default=both[-1])
    keeping, cycling = (
        next(row.by_seed for row in trained(result, small, schedule) if row.rate == beyond) for schedule in SCHEDULES
    )
    survived = gain(cycling, keeping)
    result.measured(
        f"At batch {small} and twice the best constant rate or more, one-cycle is better than keeping it, in every seed",
        survived.wins == survived.seeds,
        f"{survived} at {beyond:g}",
        depends_on=SEEDS,
    )


@experiment("lr-finder-one-cycle", lecture="L3", notebook="15_large_batch", draw=draw, quick=QUICK, full=FULL, uses=("mnist",))
def lr_finder_one_cycle(params: Params) -> Result:
    """Choose the rate by a range test, and let it rise and fall once."""
    data = images(params.images, params.device.torch)
    rates = growing_rates(params.low, params.high, params.test_steps)
    testing = BatchedTrainings(data, range(params.seeds), params.batches[0], partial(SGD, lr=params.low, momentum=0.9))
    losses = range_test(testing, rates)
    readings = read_rates([choose(rates, column) for column in losses.T.tolist()])
    plan = [(batch, schedule, rate) for batch in params.batches for schedule in SCHEDULES for rate in RATES[schedule]]
    plan.append((params.batches[0], FOUND, readings[TENTH].middle))
    rows = []
    for setting in progress(plan, "trainings, all seeds at once"):
        accuracy = train(data, params, *setting)
        batch, schedule, rate = setting
        rows.append(RateTraining(batch, schedule, rate, median_range(accuracy), accuracy))

    result = Result(
        [
            Table(f"What {params.seeds} seeds read from the range test", list(readings.values())),
            Table(f"{data.name}: {params.steps} steps, {params.seeds} seeds", rows),
        ],
        notes=data.notes,
        arrays={"data": data.name, "rates": rates, "losses": losses.tolist()},
    )
    least = readings[LEAST]
    result.key_figure("rate with the least loss, smallest to largest", f"{least.low:.3g} to {least.high:.3g}")
    judge(result, readings)
    return result
