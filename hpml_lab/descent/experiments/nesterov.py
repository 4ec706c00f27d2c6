"""Nesterov momentum: its look-ahead, its relation to torch's form and to classical momentum, and where it converges."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.descent.experiments.path_measures import drop_after_150, relative_difference, sign_changes, steps_to_a_millionth
from hpml_lab.descent.experiments.rate_maps import map_arrays, rate_map
from hpml_lab.landscape import SURFACES, Surface, best_settings, largest_stable_rate, path, quadratic, stability_map
from hpml_lab.landscape.optimizer_lab.figure import surface_map
from hpml_lab.optim.formulas.by_name import FORMULAS, State
from hpml_lab.optim.formulas.colors import optimizer_style

NOTEBOOK = "04_descent"
QUICK = dict(steps=300, cells=200, lr=0.04, momentum=0.9)
FULL = dict(steps=3000, cells=300, lr=0.04, momentum=0.9)

CLASSICAL, NESTEROV = "classical momentum", "Nesterov"
KINDS = {CLASSICAL: "momentum", NESTEROV: "nesterov"}  # name: the rule in FORMULAS, and in the theory of stability
BEST = {CLASSICAL: "momentum", NESTEROV: "Nesterov, tuned"}  # name: its entry in best_settings


@dataclass
class MomentumRule(Row):
    """Classical or Nesterov momentum in the valley with κ = 25, and on the map of all settings."""

    rule: str = column("rule")
    steps: int | None = column("steps to a millionth of the loss")
    turns: int = column("sign changes of y until then")
    boundary: float = column("largest stable α λmax")
    agreeing: int = column("cells that agree with the theory")
    cells: int = column("cells")
    map_rate: float = column("best rate on the map")
    theory_rate: float = column("best rate by theory")


def gradient_on(surface: Surface) -> Callable:
    """The surface's gradient at a point, for Formula.run."""
    return lambda point, _: torch.stack(surface.gradient(*point))


def arrows_of_a_step(surface: Surface, steps: int, lr: float, momentum: float) -> tuple[dict[str, dict], float]:
    """The arrows of step `steps` + 1 under both rules, from where classical momentum is after `steps` steps.

    Both rules start at the same θ and v: the momentum step −γ v, the gradient step −α g (classical: g at θ; Nesterov: at
    θ − γ v), and their sum. Also returned: the largest distance between such a sum and the step that the rule itself takes.
    """
    start = torch.tensor(surface.start, dtype=torch.float64)
    gradient, setting = gradient_on(surface), {"lr": lr, "momentum": momentum}
    *_, (theta, _, state) = FORMULAS["lecture_momentum"].run(start, range(steps), gradient, **setting)
    carried = -momentum * state.v
    arrows, error = {}, 0.0
    for name, rule in ((CLASSICAL, FORMULAS["lecture_momentum"]), (NESTEROV, FORMULAS["lecture_nesterov"])):
        own_state = State(v=state.v)
        g = gradient(rule.gradient_point(theta, own_state, **setting), None)
        whole = carried - lr * g
        error = max(error, (theta + whole - rule.step(theta, g, own_state, steps + 1, **setting)).norm().item())
        vectors = {"start": theta, "momentum": carried, "gradient": -lr * g, "whole": whole}
        arrows[name] = {label: vector.tolist() for label, vector in vectors.items()}
    return arrows, error


def look_ahead_points(surface: Surface, steps: int, schedule: Callable | None, lr: float, momentum: float) -> list:
    """The points θ − γ v of the lecture's form, at the start and after each step."""
    rule, start = FORMULAS["lecture_nesterov"], torch.tensor(surface.start, dtype=torch.float64)
    rates = (lambda t: lr * schedule(t)) if schedule else lr
    run = rule.run(start, range(steps), gradient_on(surface), lr=rates, momentum=momentum)
    return [surface.start, *(tuple(rule.gradient_point(theta, s, momentum=momentum).tolist()) for theta, _, s in run)]


def classical_by_direction(surface: Surface, steps: int, lr: float, momentum: torch.Tensor) -> list:
    """The path of the lecture's momentum with a γ of its own for each direction."""
    start = torch.tensor(surface.start, dtype=torch.float64)
    run = FORMULAS["lecture_momentum"].run(start, range(steps), gradient_on(surface), lr=lr, momentum=momentum)
    return [surface.start, *(theta.tolist() for theta, _, _ in run)]


def theorem_difference(surface: Surface, steps: int, lr: float) -> float:
    """How far Nesterov is from classical momentum with γ (1 − α λ) on each eigendirection, for three γ (Theorem 2.1)."""
    eigenvalues = torch.tensor(surface.eigenvalues, dtype=torch.float64)
    differences = []
    for gamma in (0.5, 0.9, 0.99):
        ahead = path(surface, "lecture_nesterov", steps, lr=lr, momentum=gamma)
        classical = classical_by_direction(surface, steps, lr, gamma * (1 - lr * eigenvalues))
        differences.append(relative_difference(ahead, classical))
    return max(differences)


# ---- drawing -------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """One step from the same point and the same velocity in the valley ½ (x² + 25 y²), classical momentum left and Nesterov
    right; both axes have one scale. The momentum step and the gradient step add up to the whole step. Look at the circle:
    classical momentum takes its gradient at the start, Nesterov at the end of the momentum step."""
    figure = style.new_figure(9, 6)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    arrows = {name: {label: np.array(v) for label, v in step.items()} for name, step in result.arrays["arrows"].items()}
    ends = [step["start"] + step[label] for step in arrows.values() for label in ("momentum", "whole")]
    corners = np.array([*(step["start"] for step in arrows.values()), *ends])
    half = 0.65 * np.ptp(corners, 0).max()
    (x0, y0), (x1, y1) = (middle := (corners.min(0) + corners.max(0)) / 2) - half, middle + half
    for ax, (name, step) in zip(panels, arrows.items(), strict=True):
        surface_map(ax, quadratic(25), (x0, x1, y0, y1), levels=30)
        start = step["start"]
        gradient_point = start if name == CLASSICAL else start + step["momentum"]
        for tail, vector, color, label in (
            (start, step["momentum"], style.ORANGE, "momentum step −γ v"),
            (gradient_point, step["gradient"], style.BLUE, "gradient step −α g"),
            (start, step["whole"], style.GREEN, "whole step"),
        ):
            arrow = {"arrowstyle": "-|>", "color": color, "linewidth": 2.4, "shrinkA": 0, "shrinkB": 0}
            ax.annotate("", tail + vector, tail, arrowprops=arrow)
            ax.plot([], [], color=color, label=label)
        ax.plot(*start, "o", color=style.INK, markersize=6)
        circle = {"markerfacecolor": "none", "color": style.BLUE, "markersize": 10, "linestyle": ""}
        ax.plot(*gradient_point, "o", label="gradient taken here", **circle)
        ax.set(title=name, aspect="equal")
    panels[1].set_ylabel("")
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=9, loc="outside lower center", ncols=4)
    return figure


@picture
def nesterov_convergence(result: Result):
    """Left: the loss of classical and Nesterov momentum at the same learning rate and momentum. Right: the factor by which
    Nesterov shrinks the distance per step, over learning rate and momentum, with its boundary; brighter is slower."""
    figure = style.new_figure(9, 3.8)
    curves, rates = figure.subplots(1, 2)
    for name, heights in result.arrays["heights"].items():
        curves.plot(heights, label=name, **optimizer_style(KINDS[name]))
    curves.set(yscale="log", xlabel="step", ylabel="loss", title="Same learning rate, same momentum")
    curves.legend(fontsize=8)
    image = rate_map(rates, result.arrays["map"], "measured", "Nesterov, measured")
    figure.colorbar(image, ax=rates, label="factor per step (1: no progress)", extend="both")
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------


@experiment("nesterov", lecture="L0", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL, same_picture=True)
def nesterov(params: Params) -> Result:
    """Nesterov momentum: look ahead first, then correct."""
    valley = quadratic(25)
    setting = {"lr": params.lr, "momentum": params.momentum}
    arrows, arrow_error = arrows_of_a_step(valley, 4, **setting)

    # The lecture's look-ahead point θ − γ v is torch's θ, step for step.
    hill, fine = SURFACES["rosenbrock"], {"lr": 2e-4, "momentum": 0.9}
    forms = {
        schedule: (
            look_ahead_points(hill, params.steps, schedule, **fine),
            path(hill, "nesterov", params.steps, schedule=schedule, **fine),
        )
        for schedule in (None, drop_after_150)
    }
    at_constant, after_drop = (relative_difference(*pair) for pair in forms.values())
    before_drop = relative_difference(*(points[:151] for points in forms[drop_after_150]))
    theorem = theorem_difference(valley, params.steps, params.lr / 2)

    runs = {name: path(valley, rule, params.steps, **setting) for name, rule in KINDS.items()}
    maps = {name: stability_map(kind, 25, params.cells, device=params.device.torch) for name, kind in KINDS.items()}
    rows = []
    for name, kind in KINDS.items():
        steps, found = steps_to_a_millionth(runs[name], valley), maps[name]
        until = sign_changes(runs[name][: steps + 1])  # later ones are those of what rounding leaves
        boundary = largest_stable_rate(kind, params.momentum, 1.0)
        rates = found.measured.min().item(), best_settings(1.0, 25.0)[BEST[name]].rate
        rows.append(MomentumRule(name, steps, until, boundary, found.agreeing, found.cells, *rates))
    classical, ahead = rows
    result = Result([Table("In the valley with κ = 25", rows)])
    result.key_figure("momentum γ", params.momentum, lecture="0.9")
    result.key_figure("steps, Nesterov / classical momentum", ahead.steps / classical.steps)
    result.check("The arrows of the figure add up to the steps of the two rules", arrow_error < 1e-12, f"{arrow_error:.0e}")
    result.claim(
        "The lecture's look-ahead point θ − γ v is torch's θ, step for step, at a constant rate",
        at_constant < 1e-12,
        f"difference {at_constant:.0e}",
    )
    result.claim(
        "Once the rate drops by 10 the two forms separate",
        before_drop < 1e-12 and after_drop > 1e-3,
        f"by {after_drop:.1e} of the largest coordinate",
    )
    result.claim(
        "Theorem 2.1 of Sutskever et al.: on an eigendirection Nesterov is classical momentum with γ (1 − α λ)",
        theorem < 1e-12,
        f"difference {theorem:.0e}",
    )
    result.claim(
        "At the same α and γ, Nesterov converges in fewer steps and changes direction less often",
        ahead.steps < classical.steps and ahead.turns < classical.turns,
        f"{ahead.steps} and {classical.steps} steps",
    )
    result.claim(
        "Nesterov's boundary is α λmax = 2 (1 + γ) / (1 + 2γ), and at least 99.97 % of the cells agree with it",
        ahead.agreeing >= 0.99975 * ahead.cells,
        f"{ahead.agreeing} of {ahead.cells}",
    )
    result.claim(
        "Nesterov's stable region is smaller, and on this quadratic its best rate is slower than heavy ball's",
        ahead.boundary < classical.boundary and ahead.map_rate > classical.map_rate,
        f"{ahead.map_rate:.3f} and {classical.map_rate:.3f} per step",
    )
    result.arrays = {
        "arrows": arrows,
        "heights": {name: [max(1e-16, valley.value(*point)) for point in points[:151]] for name, points in runs.items()},
        "map": map_arrays(maps[NESTEROV], max(1, params.cells // 100)),
    }
    return result
