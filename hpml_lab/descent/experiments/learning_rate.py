"""The learning rate: the boundary 2/λmax on quadratics and on real data, and four schedules under noisy gradients."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import charts, style
from hpml_lab.core.show.picture import picture
from hpml_lab.descent.experiments.path_measures import sign_changes
from hpml_lab.descent.lessons.boundary import boundary_on, boundary_on_real_data
from hpml_lab.landscape import SURFACES, path, quadratic, run_grid
from hpml_lab.optim.schedules import constant, cosine, one_cycle, step_at

NOTEBOOK = "04_descent"
QUICK = dict(conditions=(2, 25, 400), steps=400, seeds=24, lr=0.4, data="digits", samples=500, decay=0.01, real_steps=120)
FULL = dict(conditions=(2, 25, 400), steps=4000, seeds=64, lr=0.4, data="mnist", samples=2000, decay=0.05, real_steps=400)

RATES = {"too small": 0.03, "good": 0.9, "oscillates": 0.99, "diverges": 1.01}  # over 2 / λmax
DROPS = (0.4, 0.8)  # where the step schedule divides the rate by 10, as fractions of the training
SCHEDULES = {"constant": constant, "step": step_at(*DROPS), "cosine": cosine, "one-cycle": one_cycle}
SHOWN = 400  # steps of a schedule's curves, so that a recorded run stays below 1 MB


@dataclass
class Boundary(Row):
    """The learning rate from which on gradient descent diverges on one problem, in theory and measured."""

    problem: str = column("problem")
    eigenvalue: float = column("λmax")
    theory: float = column("2 / λmax")
    measured: float = column("boundary measured")
    ratio: float = column("measured / theory")


@dataclass
class ScheduledDescent(Row):
    """Gradient descent in the noisy valley under one schedule."""

    schedule: str = column("schedule")
    mean_end_loss: float = column("mean loss over the last 5 % of the steps")


def schedule_factor(schedule: str, steps: int) -> Callable[[int], float]:
    """A schedule as a function of the step t = 1, 2, …, `steps`, which multiplies the rate."""
    return lambda t: SCHEDULES[schedule](t - 1, steps)


# ---- drawing -------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Left: the loss on a quadratic after 100 steps, by learning rate. Middle: the loss step by step at four rates. Right:
    softmax regression on real data, how far the loss ends above the lowest. The dashed line is the boundary 2/λmax: look at
    what happens just before it and just beyond it."""
    figure = style.new_figure(9, 4)
    sweep, steps, real = figure.subplots(1, 3)
    arrays = result.arrays
    sweep.plot(arrays["factors"], np.clip(arrays["losses"], 1e-12, 1e12))
    sweep.axhline(arrays["loss_at_start"], color=style.GREY, linestyle=":", linewidth=1.2, label="loss at the start")
    sweep.set(ylim=(1e-9, 1e5), ylabel="loss after 100 steps", title="Quadratic, κ = 25")
    for index, (rate, heights) in enumerate(arrays["heights"].items()):
        look = {"color": style.CYCLE[index], "linestyle": style.LINES[index]}
        steps.plot(np.maximum(heights, 1e-9), label=f"{RATES[rate]:g}: {rate}", **look)
    steps.set(yscale="log", ylim=(1e-7, 1e3), xlabel="step", ylabel="loss", title="Four rates, × 2 / λmax")
    found = arrays["real"]
    real.plot(found["ratios"], found["excess"], marker="o", markersize=4)
    real.set(ylabel="loss above the lowest", title=f"Softmax, {found['name']}")
    for ax in (sweep, real):
        ax.axvline(1, color=style.RED, linestyle="--", linewidth=1.5, label="2 / λmax")
        ax.set(xscale="log", yscale="log", xlabel="rate × λmax / 2")
    for ax in (sweep, steps, real):
        ax.legend(fontsize=8, loc="lower left")
    return figure


@picture
def schedules_under_noise(result: Result):
    """Left: four schedules of the learning rate. Right: the loss in the noisy valley under each, median and quartiles over
    seeds. Compare the levels at which the curves end."""
    figure = style.new_figure(9, 3.6)
    rates, losses = figure.subplots(1, 2)
    for index, (name, curve) in enumerate(result.arrays["schedules"].items()):
        look = {"color": style.CYCLE[index], "linestyle": style.LINES[index], "linewidth": 1.6}
        rates.plot(curve["steps"][1:], np.maximum(curve["rates"], 1e-5), label=name, **look)
        runs = np.transpose([curve["low"], curve["median"], curve["high"]])
        charts.band(losses, curve["steps"], np.maximum(runs, 1e-9), label=name, **look)
    rates.set(yscale="log", xlabel="step", ylabel="learning rate", title="Schedules")
    losses.set(yscale="log", xlabel="step", ylabel="loss", title="Noisy valley")
    losses.legend(fontsize=8)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------


@experiment("learning-rate", lecture="L0", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL, uses=("mnist",))
def learning_rate(params: Params) -> Result:
    """The learning rate: too small, too large, the boundary between them, and schedules."""
    rows: list[Boundary] = []

    def add_boundary(problem: str, eigenvalue: float, measured: float) -> None:
        rows.append(Boundary(problem, eigenvalue, 2 / eigenvalue, measured, measured * eigenvalue / 2))

    for condition in params.conditions:
        surface = quadratic(condition)
        add_boundary(f"quadratic, κ = {condition}", surface.eigenvalues[1], boundary_on(surface))
    largest_error = max(abs(row.ratio - 1) for row in rows)
    real = boundary_on_real_data(params.data, params.samples, params.decay, params.real_steps, params.device.torch)
    add_boundary(f"softmax regression, {real.name}", real.eigenvalue, real.measured)
    ends: list[ScheduledDescent] = []
    result = Result([Table("Where gradient descent begins to diverge", rows), Table("Noisy valley", ends)], notes=real.notes)

    # The sweep on the quadratic with κ = 25: one batched program over the rates, and four paths.
    bowl = SURFACES["quadratic"]
    edge = 2 / bowl.eigenvalues[1]
    factors = torch.logspace(-3, math.log10(1.3), 60, dtype=torch.float64)
    swept = run_grid(bowl, "gradient_descent", 100, lr=factors * edge, dtype=torch.float64)
    paths = {rate: path(bowl, "gradient_descent", 100, lr=factor * edge) for rate, factor in RATES.items()}
    flips = {rate: sign_changes(points) for rate, points in paths.items()}
    heights = {rate: [bowl.value(*point) for point in points] for rate, points in paths.items()}
    too_small, good, *_ = ((curve[0], curve[-1]) for curve in heights.values())

    # Schedules in the noisy valley: each seed has its own noise.
    valley, steps = SURFACES["noisy-valley"], params.steps
    kept = list(range(0, steps + 1, max(1, steps // SHOWN)))
    curves = {}
    for name in SCHEDULES:
        factor = schedule_factor(name, steps)
        descent = {"optimizer": "gradient_descent", "steps": steps, "lr": params.lr, "schedule": factor}
        formula_rates = [params.lr * factor(t) for t in range(1, steps + 1)]
        runs = [[valley.value(*point) for point in path(valley, seed=seed, **descent)] for seed in range(params.seeds)]
        runs = torch.tensor(runs)
        low, median, high = runs[:, kept].quantile(torch.tensor([0.25, 0.5, 0.75]), 0).tolist()
        shown_rates = [formula_rates[step - 1] for step in kept[1:]]
        curves[name] = {"steps": kept, "rates": shown_rates, "low": low, "median": median, "high": high}
        ends.append(ScheduledDescent(name, runs[:, -steps // 20 :].mean().item()))

    result.key_figure("boundary × λmax, quadratic", rows[0].measured * rows[0].eigenvalue)
    result.key_figure("boundary × λmax, real data", real.measured * real.eigenvalue)
    result.key_figure("λmax at the start / λmax at the minimum, real data", real.at_start / real.eigenvalue)
    result.claim(
        "On quadratics the rate at which gradient descent begins to diverge, found by bisection, is 2/λmax",
        largest_error < 1e-9,
        f"relative error at most {largest_error:.0e}",
    )
    result.claim(
        "Too small a rate is slow: at 0.03 of the boundary 100 steps leave over 1 % of the loss, at 0.9 less than 1e-5",
        too_small[1] > 0.01 * too_small[0] and good[1] < 1e-5 * good[0],
        f"{too_small[1] / too_small[0]:.1e}, {good[1] / good[0]:.1e}",
    )
    result.claim(
        "Above half the boundary gradient descent oscillates: y changes its sign in every step; below it never does",
        flips["oscillates"] == flips["good"] == 100 and flips["too small"] == 0,
        ", ".join(f"{rate}: {count}" for rate, count in flips.items()),
    )
    result.claim(
        "On softmax regression with real data, 2/λmax at the minimum is the boundary too, within 1 %",
        abs(rows[-1].ratio - 1) < 0.01 and real.residual < 1e-6,
        f"{real.measured:.4f} measured, {real.theory:.4f} from λmax",
    )
    sweep = list(zip(real.ratios, real.excess, strict=True))
    at_095 = min(sweep, key=lambda point: abs(point[0] - 0.95))[1]
    result.claim(
        "There, from a start far away, every rate from 0.5 to 0.96 of the boundary comes within 0.001 of the lowest loss, "
        "and no rate above 1.04 does, though none goes to infinity",
        all(excess < 1e-3 for ratio, excess in sweep if 0.5 < ratio < 0.96)
        and all(1e-3 < excess < 1e3 for ratio, excess in sweep if ratio > 1.04),
        f"at 0.95: {at_095:.1e}, largest {max(real.excess):.1f}",
    )
    result.claim(
        "With noisy gradients a constant rate stays at a higher loss than any of the three schedules, over all seeds",
        ends[0].mean_end_loss > 3 * max(row.mean_end_loss for row in ends[1:]),
        ", ".join(f"{row.schedule} {row.mean_end_loss:.1e}" for row in ends),
    )
    result.arrays = {
        "factors": factors.tolist(),
        "losses": bowl.value(swept.x, swept.y).tolist(),
        "loss_at_start": bowl.value(*bowl.start),
        "heights": heights,
        "schedules": curves,
        "real": {"name": real.name, "ratios": real.ratios, "excess": real.excess, "steps": real.steps},
    }
    return result
