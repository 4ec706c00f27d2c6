"""Momentum in an ill-conditioned valley: how many steps it saves, where it converges, and two ways to write it."""

import math
from dataclasses import dataclass

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.descent.experiments.path_measures import (
    distances,
    drop_after_150,
    relative_difference,
    sign_changes,
    steps_to_a_millionth,
)
from hpml_lab.descent.experiments.rate_maps import map_arrays, rate_map
from hpml_lab.landscape import SURFACES, best_settings, path, quadratic, stability_map
from hpml_lab.landscape.optimizer_lab.figure import surface_map
from hpml_lab.optim.formulas.colors import optimizer_style

NOTEBOOK = "04_descent"
QUICK = dict(conditions=(25, 100, 1000), cells=200, steps=600)
FULL = dict(conditions=(25, 100, 1000, 10_000), cells=300, steps=600)


@dataclass
class BestDescent(Row):
    """One rule at its best setting on a quadratic."""

    condition: int = column("condition number κ")
    rule: str = column("rule")
    lr: float = column("learning rate")
    momentum: float = column("momentum γ")
    rate: float = column("rate by theory")
    steps: int | None = column("steps to a millionth of the loss")


# ---- drawing -------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """The factor by which the distance to the minimum shrinks per step, for each learning rate and momentum: left measured,
    right by theory. Brighter is slower. The line is the boundary beyond which the iteration diverges, the cross Polyak's best
    setting."""
    figure = style.new_figure(9, 4)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, which, title in zip(axes, ("measured", "theory"), ("Measured", "Theory: spectral radius"), strict=True):
        image = rate_map(ax, result.arrays["map"], which, title)
        ax.plot(*result.arrays["best"], "X", color="white", markeredgecolor=style.INK, markersize=9)
    axes[1].set_ylabel("")
    figure.colorbar(image, ax=axes, label="factor per step (1: no progress)", extend="both")
    return figure


@picture
def momentum_paths(result: Result):
    """Paths of 60 steps at α = 0.07 in the valley ½ (x² + 25 y²), a marker at each step. Look at how often y changes its sign,
    and at how far each path goes beyond the minimum (the star)."""
    figure = style.new_figure(9, 6.5)
    panels = figure.subplots(3, 1, sharex=True, sharey=True)
    for ax, (name, points) in zip(panels, result.arrays["paths"].items(), strict=True):
        surface_map(ax, quadratic(25), (-4.5, 4.5, -1.2, 1.2))
        look = optimizer_style("SGD" if name == "γ = 0" else "momentum", marker=True)
        ax.plot(*zip(*points, strict=True), markersize=4, linewidth=1, **look | {"linestyle": "-"})
        ax.plot(0, 0, "*", color=style.RED, markersize=12)
        ax.set_title(f"{name}: y changes its sign {sign_changes(points)} times", loc="left")
        ax.set_xlabel("x" if ax is panels[-1] else "")
    return figure


@picture
def two_forms(result: Result):
    """How far the lecture's form of momentum is from torch's, step by step: at a constant rate, and with a rate that drops by
    10 after step 150."""
    figure = style.new_figure(7.5, 3.4)
    ax = figure.subplots()
    for index, (name, gaps) in enumerate(result.arrays["forms"].items()):
        ax.plot(gaps, color=style.CYCLE[index], linestyle=style.LINES[index], label=name)
    ax.set(yscale="log", ylim=(1e-17, 1), xlabel="step", ylabel="distance between the paths")
    ax.set_title("Lecture's form and torch's form")
    ax.legend(fontsize=8, loc="center left")
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------


@experiment("momentum", lecture="L0", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL, same_picture=True)
def momentum(params: Params) -> Result:
    """Momentum in an ill-conditioned valley: fewer steps, where it converges, and two ways to write it."""
    rows, ratios = [], {}
    for condition in params.conditions:
        surface = quadratic(condition)
        for name in ("gradient descent", "momentum"):
            best = best_settings(*surface.eigenvalues)[name]
            points = path(surface, "momentum", 12 * condition, lr=best.lr, momentum=best.momentum)
            steps = steps_to_a_millionth(points, surface)
            rows.append(BestDescent(condition, name, best.lr, best.momentum, best.rate, steps))
        plain, fast = rows[-2:]
        ratios[condition] = plain.steps / fast.steps
    result = Result([Table("Each rule at its best setting, on quadratics", rows)])

    # The valley of the figure, at one rate for all.
    valley = quadratic(25)
    paths = {f"γ = {gamma:g}": path(valley, "momentum", 60, lr=0.07, momentum=gamma) for gamma in (0.0, 0.5, 0.9)}
    turns = [sign_changes(points) for points in paths.values()]

    found = stability_map("momentum", 25, params.cells, params.steps, device=params.device.torch)
    median_error, high_error = found.errors.median().item(), found.errors.quantile(0.95).item()
    row, column_index = divmod(int(found.measured.argmin()), params.cells)
    fastest_lr, fastest_momentum = found.lr[0, column_index].item(), found.momentum[row, 0].item()
    theory = best_settings(1.0, 25.0)["momentum"]

    # The lecture's form and torch's, on a surface that is not a quadratic.
    hill = SURFACES["rosenbrock"]
    setting = {"lr": 2e-4, "momentum": 0.9}
    forms = ("lecture_momentum", "momentum")
    constant = [path(hill, name, 300, **setting) for name in forms]
    dropped = [path(hill, name, 300, schedule=drop_after_150, **setting) for name in forms]
    before = relative_difference(*(points[:151] for points in dropped))
    at_constant = relative_difference(*constant)
    gaps = {"constant rate": distances(*constant), "rate / 10 after step 150": distances(*dropped)}
    largest, after = (max(found) for found in gaps.values())

    result.key_figure("momentum γ with which the two forms are compared", setting["momentum"], lecture="0.9")
    result.key_figure("γ of the fastest cell of the map, κ = 25", fastest_momentum)
    result.key_figure("times fewer steps with momentum, κ = 1000", ratios[1000])
    result.key_figure("κ for which γ = 0.9 is best", ((1 + math.sqrt(0.9)) / (1 - math.sqrt(0.9))) ** 2)
    result.claim(
        "Each at its best setting, momentum needs fewer steps than gradient descent, and the ratio grows with κ",
        all(ratio > 2 for ratio in ratios.values()) and list(ratios.values()) == sorted(ratios.values()),
        ", ".join(f"κ = {condition}: {ratio:.1f} times fewer" for condition, ratio in ratios.items()),
    )
    result.claim(
        "With momentum the path keeps its direction longer: at one rate, y changes its sign less often",
        turns == sorted(turns, reverse=True) and len(set(turns)) == 3,
        ", ".join(f"{name}: {count}" for name, count in zip(paths, turns, strict=True)),
    )
    result.claim(
        "The map diverges where α λmax > 2 (1 + γ) and nowhere else, in at least 99.97 % of the cells",
        found.agreeing >= 0.99975 * found.cells,
        f"{found.agreeing} of {found.cells}",
    )
    result.claim(
        "The measured rate is the spectral radius of the update matrix: median error below 1e-6, 95 % below 0.3 %",
        median_error < 1e-6 and high_error < 3e-3,
        f"median {median_error:.0e}, 95 % below {high_error:.1e}",
    )
    result.claim(
        "The fastest cell of the map is Polyak's setting, within 5 % of the rate and 0.05 of γ",
        abs(fastest_lr / theory.lr - 1) < 0.05 and abs(fastest_momentum - theory.momentum) < 0.05,
        f"α = {fastest_lr:.4f} ({theory.lr:.4f}), γ = {fastest_momentum:.3f} ({theory.momentum:.3f})",
    )
    result.claim(
        "The lecture's form (rate inside v) and torch's (outside) take the same steps, until the rate drops and they separate",
        max(at_constant, before) < 1e-12 and after > 1e-3,
        f"at most {largest:.0e} apart at a constant rate, {after:.1e} after a drop by 10",
    )
    result.arrays = {
        "paths": paths,
        "map": map_arrays(found, max(1, params.cells // 100)),
        "best": [theory.lr * 25, theory.momentum],
        "forms": gaps,
    }
    return result
