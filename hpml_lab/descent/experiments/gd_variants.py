"""Batch, mini-batch and stochastic gradient descent on softmax regression with real data.

What a gradient's noise is, by batch size, measured over draws and by the formula; what an update costs; and how fast each
variant makes progress per sample and per second.
"""

import math
from dataclasses import dataclass

import torch

from hpml_lab.core import style
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.picture import picture
from hpml_lab.core.result import Result
from hpml_lab.core.timing import measure
from hpml_lab.descent.softmax import real_data, softmax_gradient, softmax_loss

NOTEBOOK = "04_descent"
QUICK = dict(data="digits", most=1280, batch=32, seeds=4, rates=(1.0, 0.5, 0.05), updates=(300, 1500, 4000), draws=600)
FULL = dict(data="mnist", most=57_600, batch=128, seeds=8, rates=(0.3, 0.1, 0.005), updates=(1000, 4500, 57_600), draws=600)

LEVEL = 0.5  # the loss that the variants race to
GPU_NOTE = (
    "No CUDA GPU here: on one, a large batch takes hardly more time than a small one. "
    "Run `hpml-lab run gd-variants --size full` on a machine that has one."
)


@dataclass
class Variant:
    """One variant of gradient descent: the noise of its gradient, its cost and its progress."""

    name: str = column("variant")
    batch: int = column("batch")
    lr: float = column("learning rate")
    noise: float = column("noise |g_B − g|² / |g|²")
    noise_formula: float = column("by the formula")
    update_us: float = column("one update", "µs")
    sample_us: float = column("one sample", "µs")
    updates_per_epoch: int = column("updates per epoch")
    samples_to_level: float = column(f"samples to loss {LEVEL}")
    seconds_to_level: float = column(f"to loss {LEVEL}", "s")


# ---- training and measuring ----------------------------------------------------------------------------------------


def evaluation_steps(updates: int) -> list[int]:
    """The numbers of updates at which the loss is evaluated: 0, 1, 2, … evenly spaced on a logarithmic axis."""
    return sorted({0, updates, *(round(10 ** (i / 8)) for i in range(int(8 * math.log10(updates)) + 1))})


def train(x: torch.Tensor, y: torch.Tensor, batch: int, lr: float, updates: int, seeds: int) -> tuple[list[int], torch.Tensor]:
    """Softmax regression from zero for several seeds at once: (numbers of updates, losses on all samples (…, seeds))."""
    n = len(x)
    generators = [torch.Generator().manual_seed(seed) for seed in range(seeds)]
    w = torch.zeros(seeds, x.shape[1], y.shape[1], dtype=x.dtype, device=x.device)
    evaluated, losses, order, used = evaluation_steps(updates), [], None, n
    for update in range(updates + 1):
        if update in evaluated:
            losses.append(softmax_loss(w, x, y))
        if update == updates:
            break
        if batch == n:
            w = w - lr * softmax_gradient(w, x, y)
            continue
        if used + batch > n:  # a new epoch; the rest of the old one is too small for a batch
            order, used = torch.stack([torch.randperm(n, generator=g) for g in generators]).to(x.device), 0
        chosen = order[:, used : used + batch]
        w, used = w - lr * softmax_gradient(w, x[chosen], y[chosen]), used + batch
    return evaluated, torch.stack(losses)


def noise_of_batches(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, batches: list[int], draws: int) -> list[tuple]:
    """(measured, by the formula) for each batch size: E|g_B − g|² / |g|² at the point w."""
    n, true = len(x), softmax_gradient(w, x, y)
    length = true.square().sum().item()
    errors = torch.softmax(x @ w, -1) - y  # a sample's gradient is the outer product of x and its error
    variance = ((x.square().sum(1) * errors.square().sum(1)).mean() - true.square().sum()).item()  # σ² = E|g_i − g|²
    generator = torch.Generator().manual_seed(0)
    found = []
    for batch in batches:
        picks = torch.stack([torch.randperm(n, generator=generator)[:batch] for _ in range(draws)]).to(x.device)
        if batch == n:
            picks = picks[:1]
        drawn = softmax_gradient(w, x[picks], y[picks])
        measured = (drawn - true).square().sum((1, 2)).mean().item() / length
        found.append((measured, variance / length / batch * (n - batch) / (n - 1)))
    return found


def mean_of_parts_error(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, batch: int) -> float:
    """Relative difference between the mean of an epoch's mini-batch gradients and the batch gradient, in float64."""
    x, y, w = x.double(), y.double(), w.double()
    parts = softmax_gradient(w, x.view(-1, batch, x.shape[1]), y.view(-1, batch, 10))
    whole = softmax_gradient(w, x, y)
    return ((parts.mean(0) - whole).norm() / whole.norm()).item()


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
            at, color = curve[axis][keep], style.CYCLE[index]
            ax.plot(at, curve["median"][keep], color=color, linestyle=style.LINES[index], label=variant)
            ax.fill_between(at, curve["low"][keep], curve["high"][keep], color=color, alpha=0.25, linewidth=0)
        ax.axhline(result.arrays["level"], color=style.GREY, linestyle=":", linewidth=1.2)
        ax.set(xscale="log", yscale="log", xlabel=label, title=f"Progress per {axis.removesuffix('s')}")
    panels[0].set_ylabel("cross-entropy on all samples")
    style.label_log_axis(panels[0].yaxis)
    panels[0].legend(fontsize=9)
    return figure


@picture
def noise_and_cost(result: Result):
    """Left: the noise of a gradient by batch size; the dashed line is the formula, and the whole batch has no noise. Right: the
    time of one update by batch size. Both axes are logarithmic: look at how much slower the time grows than the batch."""
    figure = style.new_figure(9, 3.4)
    noise, cost = figure.subplots(1, 2)
    rows = result.rows(Variant)
    noisy = [row for row in rows if row.noise_formula > 0]
    formula = [row.noise_formula for row in noisy]
    noise.plot([row.batch for row in noisy], formula, color=style.GREY, linestyle="--", label="σ²/B · (N − B)/(N − 1)")
    for index, row in enumerate(rows):
        look = {"color": style.CYCLE[index], "marker": style.MARKERS[index], "linestyle": "", "markersize": 8}
        if row in noisy:
            noise.plot(row.batch, row.noise, **look)
        cost.plot(row.batch, row.update_us, label=row.name, **look)
    noise.set(
        xscale="log", yscale="log", xlabel="samples in a batch", ylabel="|g_B − g|² / |g|²", title="Noise of the gradient"
    )
    noise.legend(fontsize=9)
    cost.set(xscale="log", yscale="log", xlabel="samples in a batch", ylabel="one update (µs)", title="Time of an update")
    style.label_log_axis(cost.yaxis)
    cost.legend(fontsize=9)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------


@experiment("gd-variants", lecture="L0", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def gd_variants(params: Params) -> Result:
    """Batch, stochastic and mini-batch gradient descent on real data."""
    device = params.device.torch
    x, y, name, notes = real_data(params.data, device, most=params.most)
    n = len(x) // params.batch * params.batch
    x, y = x[:n], y[:n]
    batches = {"batch": n, "mini-batch": params.batch, "stochastic": 1}

    w = torch.zeros(x.shape[1], 10, device=device)  # the noise is measured at a point on the way to the minimum
    for _ in range(20):
        w = w - params.rates[0] * softmax_gradient(w, x, y)
    noise = noise_of_batches(w, x, y, list(batches.values()), params.draws)
    parts_error = mean_of_parts_error(w, x, y, params.batch)

    rows, curves = [], {}
    for (variant, b), lr, updates, (measured, formula) in zip(
        batches.items(), params.rates, params.updates, noise, strict=True
    ):
        evaluated, losses = train(x, y, b, lr, updates, 1 if b == n else params.seeds)
        part_x, part_y = x[:b], y[:b]
        cost = measure(lambda x=part_x, y=part_y, lr=lr: w - lr * softmax_gradient(w, x, y), samples=7).seconds
        losses = losses.double().cpu()
        curve = curves[variant] = {
            "samples": [update * b for update in evaluated],
            "seconds": [update * cost for update in evaluated],
            "low": losses.amin(1).tolist(),
            "median": losses.median(1).values.tolist(),
            "high": losses.amax(1).tolist(),
        }
        reached = first_reached(curve, "samples"), first_reached(curve, "seconds")
        rows.append(Variant(variant, b, lr, measured, formula, cost * 1e6, cost / b * 1e6, n // b, *reached))
    whole, mini, single = rows
    sample_ratio = single.sample_us / whole.sample_us

    result = Result([Table(f"Softmax regression on {n} samples of {name}", rows)])
    result.key_figure("noise of one sample / noise of a mini-batch", single.noise / mini.noise)
    result.key_figure("time per sample, stochastic / batch", sample_ratio)
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
    result.measured(
        "One update on the whole batch takes longer than one on a single sample",
        whole.update_us > single.update_us,
        f"{whole.update_us / single.update_us:.1f} times",
    )
    result.measured(
        "Per sample, a stochastic update takes longer than a batch update", sample_ratio > 1, f"{sample_ratio:.0f} times"
    )
    fastest = min(rows, key=lambda row: row.seconds_to_level).name
    result.measured(f"Mini-batches reach loss {LEVEL} in the fewest seconds", fastest == "mini-batch", fastest)
    result.notes += notes + ([] if params.device.is_cuda else [GPU_NOTE])
    result.notes.append("Seconds are the number of updates times the measured time of one.")
    result.arrays = {"curves": curves, "level": LEVEL}
    return result
