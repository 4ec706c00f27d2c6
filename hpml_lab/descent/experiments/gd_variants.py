"""Batch, mini-batch and stochastic gradient descent on softmax regression with real data.

What a gradient's noise is, by batch size, measured over draws and by the formula; what an update costs; and how fast each
variant makes progress per sample and per second.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import charts, style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.timing.clock import Timing, interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.descent.lessons.minibatch_descent import mean_of_parts_error, noise_of_batches, train, update_and_draw
from hpml_lab.descent.lessons.softmax_regression import real_data, softmax_gradient

NOTEBOOK = "04_descent"
QUICK = dict(data="digits", most=1280, batch=32, seeds=4, rates=(1.0, 0.5, 0.05), updates=(300, 1500, 4000), draws=600)
FULL = dict(data="mnist", most=57_600, batch=128, seeds=8, rates=(0.3, 0.1, 0.005), updates=(1000, 4500, 57_600), draws=600)

LEVEL = 0.5  # the loss that the variants race to
GPU_NOTE = (
    "No CUDA GPU here: on one, a large batch takes hardly more time than a small one. "
    "Run `hpml-lab run gd-variants --size full` on a machine that has one."
)


@dataclass
class Variant(Row):
    """One variant of gradient descent: the noise of its gradient, its cost and its progress."""

    name: str = column("variant")
    batch: int = column("batch")
    lr: float = column("learning rate")
    noise: float = column("noise |g_B − g|² / |g|²")
    noise_formula: float = column("by the formula")
    update_us: float = column("one update, with drawing the batch", "µs")
    draw_us: float = column("of that, drawing the batch", "µs")
    sample_us: float = column("one sample", "µs")
    updates_per_epoch: int = column("updates per epoch")
    samples_to_level: float = column(f"samples to loss {LEVEL}")
    seconds_to_level: float = column(f"to loss {LEVEL}", "s")
    gain: float | None = column(f"to loss {LEVEL}, speed-up over the whole batch", default=None)
    interval: str | None = column("interval", default=None)
    verdict: str | None = column("than the whole batch", default=None)


# ---- measuring -----------------------------------------------------------------------------------------------------


BATCH, MINI, SINGLE = "batch", "mini-batch", "stochastic"


def measured_costs(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, batches: dict[str, int], lr: float) -> dict[str, Timing]:
    """The time of an update of each variant, of its drawing, and of two variants once more, all in turns in one run."""
    pairs = {name: update_and_draw(w, x, y, batch, lr) for name, batch in batches.items()}
    updates = {name: update for name, (update, _) in pairs.items()}
    drawings = {drawing(name): draw_batch for name, (_, draw_batch) in pairs.items()}
    return interleaved(updates | drawings | {again(name): updates[name] for name in (BATCH, SINGLE)}, samples=11)


def drawing(variant: str) -> str:
    return f"drawing, {variant}"


def again(variant: str) -> str:
    """The placebo of a variant."""
    return f"{variant}, again"


def gain(times: dict[str, Timing], base: str, changed: str, per: Sequence[float] = (1, 1)) -> SpeedUp:
    """The speed-up of `changed` over `base`; an update of each counts `per` times."""
    before, after, placebo = (
        [seconds * times_counted for seconds in times[name].samples]
        for name, times_counted in ((base, per[0]), (changed, per[1]), (again(base), per[0]))
    )
    return speed_up_of(before, after, placebo)


def first_reached(curve: dict, axis: str) -> float:
    """How many samples or seconds until the median loss is at most LEVEL; inf if it never is."""
    return next((at for at, loss in zip(curve[axis], curve["median"], strict=True) if loss <= LEVEL), math.inf)


# ---- drawing -------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """The loss on all training samples of softmax regression under the three variants: left by samples seen, right by time.
    Lines are medians over seeds, bands reach from the lowest to the highest seed; the batch variant has no randomness and so
    no band. The dotted line is the loss to which the table counts samples and seconds."""
    figure = style.new_figure(9, 4)
    panels = figure.subplots(1, 2, sharey=True)
    for ax, axis, label in zip(panels, ("samples", "seconds"), ("samples seen", "time (s)"), strict=True):
        for index, (variant, curve) in enumerate(result.arrays["curves"].items()):
            keep = slice(1, None)  # a logarithmic axis has no 0
            runs = np.transpose([curve["low"], curve["median"], curve["high"]])[keep]
            look = {"color": style.CYCLE[index], "linestyle": style.LINES[index], "label": variant}
            charts.band(ax, curve[axis][keep], runs, shade=0.25, **look)
        ax.axhline(result.arrays["level"], color=style.GREY, linestyle=":", linewidth=1.2)
        ax.set(xscale="log", yscale="log", xlabel=label, title=f"Progress per {axis.removesuffix('s')}")
    panels[0].set_ylabel("cross-entropy on all samples")
    style.label_log_axis(panels[0].yaxis)
    panels[0].legend(fontsize=9)
    return figure


@picture
def noise_and_cost(result: Result):
    """What a less noisy gradient costs: the noise of a gradient by the time of one update. The triangle at the bottom stands
    for the whole batch, which has none. Both axes are logarithmic."""
    figure = style.new_figure(7, 3.6)
    axes = figure.subplots()
    rows = result.rows(Variant)
    noises = [row.noise for row in rows if row.noise_formula > 0]
    for index, row in enumerate(rows):
        look = {"color": style.CYCLE[index], "marker": style.MARKERS[index], "linestyle": "", "markersize": 9}
        height = row.noise if row.noise_formula > 0 else min(noises) / 5
        axes.plot(row.update_us, height, **look | ({} if row.noise_formula > 0 else {"marker": "v"}))
        words = f"{row.name}: {row.batch:,} {'sample' if row.batch == 1 else 'samples'}"
        axes.annotate(words, (row.update_us, height), (0, 10), textcoords="offset points", ha="center")
    axes.set(xscale="log", yscale="log", xlabel="time of one update (µs)", ylabel="noise |g_B − g|² / |g|²")
    axes.set_ylim(min(noises) / 10, 5 * max(noises))
    axes.margins(x=0.25)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------


@experiment("gd-variants", lecture="L0", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL, uses=("cuda", "mnist"))
def gd_variants(params: Params) -> Result:
    """Batch, stochastic and mini-batch gradient descent on real data."""
    device = params.device.torch
    x, y, name, notes = real_data(params.data, device, most=params.most)
    n = len(x) // params.batch * params.batch
    x, y = x[:n], y[:n]
    batches = {BATCH: n, MINI: params.batch, SINGLE: 1}

    w = torch.zeros(x.shape[1], 10, device=device)  # the noise is measured at a point on the way to the minimum
    for _ in range(20):
        w = w - params.rates[0] * softmax_gradient(w, x, y)
    noise = noise_of_batches(w, x, y, list(batches.values()), params.draws)
    parts_error = mean_of_parts_error(w, x, y, params.batch)
    times = measured_costs(w, x, y, batches, params.rates[0])

    rows, curves, to_level = [], {}, {}
    for (variant, b), lr, updates, (measured, formula) in zip(
        batches.items(), params.rates, params.updates, noise, strict=True
    ):
        evaluated, losses = train(x, y, b, lr, updates, 1 if b == n else params.seeds)
        cost, losses = times[variant].seconds, losses.double().cpu()
        curve = curves[variant] = {
            "samples": [update * b for update in evaluated],
            "seconds": [update * cost for update in evaluated],
            "low": losses.amin(1).tolist(),
            "median": losses.median(1).values.tolist(),
            "high": losses.amax(1).tolist(),
        }
        samples, seconds = first_reached(curve, "samples"), first_reached(curve, "seconds")
        to_level[variant] = samples / b
        columns = {} if b == n else gain(times, BATCH, variant, (to_level[BATCH], to_level[variant])).columns
        draw_us = 0.0 if b == n else times[drawing(variant)].seconds * 1e6
        costs = cost * 1e6, draw_us, cost / b * 1e6, n // b, samples, seconds
        rows.append(Variant(variant, b, lr, measured, formula, *costs, **columns))
    whole, mini, single = rows
    per_sample = gain(times, SINGLE, BATCH, (1, 1 / n))

    result = Result([Table(f"Softmax regression on {n} samples of {name}", rows)])
    result.key_figure("noise of one sample / noise of a mini-batch", single.noise / mini.noise)
    result.key_figure("time per sample, stochastic / batch", per_sample.ratio)
    result.key_figure("share of a stochastic update that draws the sample", 100 * single.draw_us / single.update_us, "%")
    result.claim(
        "The mean of an epoch's mini-batch gradients at one point is the batch gradient",
        parts_error < 1e-12,
        f"relative difference {parts_error:.1e} in float64",
    )
    result.claim(
        "The noise of a batch of B out of N is σ²/B · (N − B)/(N − 1): measured over draws, within a fifth",
        all(abs(row.noise - row.noise_formula) <= 0.2 * row.noise_formula + 1e-9 for row in rows),
        ", ".join(f"{row.name} {row.noise:.2e} ({row.noise_formula:.2e})" for row in rows),
    )
    result.claim(
        "To the same loss, batch gradient descent needs the most samples",
        whole.samples_to_level > 2 * max(mini.samples_to_level, single.samples_to_level),
        ", ".join(f"{row.name} {row.samples_to_level:.0f}" for row in rows),
    )
    shorter = gain(times, BATCH, SINGLE)
    result.measured("An update on a single sample takes less time than one on the whole batch", shorter.faster, str(shorter))
    result.measured(
        "Per sample, the whole batch is faster than single samples: many samples share the start of an operation",
        per_sample.faster,
        str(per_sample),
    )
    mini_batch = {base: gain(times, base, MINI, (to_level[base], to_level[MINI])) for base in (BATCH, SINGLE)}
    result.measured(
        f"Mini-batches reach loss {LEVEL} in fewer seconds than the whole batch and than single samples",
        all(speed_up.faster for speed_up in mini_batch.values()),
        "; ".join(f"{base}: {speed_up}" for base, speed_up in mini_batch.items()),
    )
    result.notes += notes + ([] if params.device.is_cuda else [GPU_NOTE])
    result.notes.append("Seconds are the number of updates times the measured time of one, with drawing its batch.")
    result.arrays = {"curves": curves, "level": LEVEL}
    return result
