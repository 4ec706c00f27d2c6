"""Saddles and local minima: where many starts end, which way four rules take, and how long a saddle holds them."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from matplotlib.colors import BoundaryNorm, ListedColormap

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.descent.experiments.saddle_and_minima.many_starts import (
    RULES_FROM_MANY,
    basins_of,
    escape_times,
    run_from_everywhere,
)
from hpml_lab.landscape import SURFACES, Surface, path, run_grid
from hpml_lab.landscape.optimizer_lab.figure import surface_map
from hpml_lab.optim.formulas.colors import optimizer_style
from hpml_lab.optim.formulas.by_name import FORMULAS

NOTEBOOK = "04_descent"
QUICK = dict(steps=500, rates=40, side=80, basin_steps=300, escape_steps=400)
FULL = dict(steps=5000, rates=100, side=400, basin_steps=1000, escape_steps=2000)

SURFACES_DRAWN = ("rosenbrock", "beale", "himmelblau", "saddle")  # with the path of each optimizer
RULES_DRAWN = ("gradient_descent", "momentum", "rmsprop", "adam")
MARKED_EVERY = {"saddle": 10}  # steps


@dataclass
class BestRate(Row):
    """One optimizer on one surface, at the rate of a sweep whose last loss is lowest, of those that stay in the window."""

    surface: str = column("surface")
    optimizer: str = column("optimizer")
    lr: float = column("learning rate")
    loss: float = column("loss above the minimum")
    ends_at: str | None = column("ends at")
    distance: float = column("distance to the nearest minimum")
    converging: int = column("converging rates")


def path_at(surface: Surface, rule: str, lr: float, steps: int) -> list[list[float]]:
    """The path of one optimizer: its first 75 steps, and as many of the later ones, with growing distance."""
    points = path(surface, rule, steps, lr=lr)
    keep = [*range(75), *np.geomspace(75, steps, 75).round().astype(int)]
    return [[round(coordinate, 4) for coordinate in points[step]] for step in sorted({min(step, steps) for step in keep})]


def best_of_sweep(surface: Surface, rule: str, steps: int, rates: int, device: torch.device) -> BestRate:
    """Run one optimizer at many rates as one program, and describe the rate whose last loss is lowest.

    A rate with which the path leaves the surface's window is not taken: its figure could not show it.
    """
    lr = torch.logspace(-5, 0, rates, dtype=torch.float64)
    grid = run_grid(surface, rule, steps, keep=range(steps + 1), lr=lr, dtype=torch.float64, device=device)
    x0, x1, y0, y1 = surface.window
    x, y = grid.kept.unbind(1)
    inside = ((x >= x0) & (x <= x1) & (y >= y0) & (y <= y1)).all(0)
    values = surface.value(grid.x, grid.y).nan_to_num(nan=math.inf, posinf=math.inf, neginf=math.inf)
    cell = int(values.masked_fill(~inside, math.inf).argmin())
    end = (grid.x[cell].item(), grid.y[cell].item())
    lowest = surface.value(*surface.minima[0])
    distances = [math.dist(end, minimum) for minimum in surface.minima]
    nearest = min(range(len(distances)), key=distances.__getitem__)
    ends_at = "({:.2f}, {:.2f})".format(*surface.minima[nearest]) if distances[nearest] < 0.05 else None
    converging = int((values - lowest < 1e-2).sum())
    loss = values[cell].item() - lowest
    return BestRate(surface.name, FORMULAS[rule].title, lr[cell].item(), loss, ends_at, distances[nearest], converging)


# ---- drawing -------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Which of Himmelblau's four minima each start reaches, under three rules; left blank: none of them. The markers are the
    minima. Compare how smooth the edges of the regions are."""
    figure = style.new_figure(9, 3.4)
    hill = SURFACES["himmelblau"]
    colors = ListedColormap(["none", style.BLUE, style.ORANGE, style.GREEN, style.PURPLE])
    norm = BoundaryNorm(np.arange(-1.5, 4), 5)
    axes = figure.subplots(1, 3, sharey=True)
    for ax, (rule, basins) in zip(axes, result.arrays["basins"].items(), strict=True):
        ax.imshow(basins, cmap=colors, norm=norm, extent=hill.window, origin="lower", aspect="auto")
        for index, (x, y) in enumerate(hill.minima):
            ax.plot(x, y, style.MARKERS[index], color="white", markeredgecolor=style.INK, markersize=8)
        ax.set(xlabel="x of the start", title=rule)
        ax.grid(False)
    axes[0].set_ylabel("y of the start")
    return figure


@picture
def paths_on_surfaces(result: Result):
    """Contour lines of four surfaces (columns), evenly spaced in the logarithm of the height, and the paths of four rules
    (rows), with a marker at each of the first 75 steps; at the saddle, where steps are short, at every tenth. Each rule has the
    best rate of its sweep with which it stays in the frame. Both axes have one scale. Stars are minima."""
    figure = style.new_figure(9, 8.6)
    axes = figure.subplots(len(RULES_DRAWN), len(SURFACES_DRAWN), sharex="col", sharey="col")
    for column_axes, (name, paths) in zip(axes.T, result.arrays["paths"].items(), strict=True):
        surface, every = SURFACES[name], MARKED_EVERY.get(name, 1)
        words = "" if every == 1 else f", each {every}th step"
        column_axes[0].set_title(surface.title.removesuffix(" between two minima") + words, fontsize=10)
        for ax, rule in zip(column_axes, RULES_DRAWN, strict=True):
            surface_map(ax, surface)
            look = optimizer_style(rule, marker=True) | {"linestyle": "-", "linewidth": 1, "markersize": 3.5}
            ax.plot(*zip(*paths[rule], strict=True), markevery=range(0, min(75, len(paths[rule])), every), **look)
            ax.plot(*zip(*surface.minima, strict=True), "*", color=style.ORANGE, markersize=9)
            ax.plot(*surface.start, "o", color=style.INK, markersize=6)
            ax.set(aspect="equal", xlabel="x" if ax is column_axes[-1] else "", ylabel="")
    for ax, rule in zip(axes[:, 0], RULES_DRAWN, strict=True):
        ax.set_ylabel(FORMULAS[rule].title)
    return figure


@picture
def saddle_escapes(result: Result):
    """Steps until a path has left the saddle, by how far from the ridge it starts. The dotted line is the theory for gradient
    descent, which needs the same number of further steps for each factor of ten."""
    figure = style.new_figure(7.5, 4)
    ax = figure.subplots()
    starts = [10.0**-k for k in result.arrays["decades"]]
    for rule, times in result.arrays["escapes"].items():
        steps = [np.nan if time is None else time for time in times]
        ax.plot(starts, steps, markersize=5, linewidth=1.3, label=rule, **optimizer_style(rule, marker=True))
    theory = {"color": style.GREY, "linestyle": ":", "linewidth": 1.5}
    ax.plot(starts, result.arrays["theory"], label="theory, gradient descent", **theory)
    ax.set(xscale="log", xlabel="distance of the start from the ridge", ylabel="steps until |y| > ½")
    ax.set_title("Leaving the saddle")
    ax.legend(fontsize=8)
    return figure


# ---- the experiment ------------------------------------------------------------------------------------------------


@experiment("saddle-and-minima", lecture="L0", notebook=NOTEBOOK, draw=draw, quick=QUICK, full=FULL, same_picture=True)
def saddle_and_minima(params: Params) -> Result:
    """Saddles and local minima: four surfaces, four rules, many starts."""
    device = params.device.torch
    best, paths = [], {}
    for name in SURFACES_DRAWN:
        surface, paths[name] = SURFACES[name], {}
        for rule in RULES_DRAWN:
            best.append(best_of_sweep(surface, rule, params.steps, params.rates, device))
            paths[name][rule] = path_at(surface, rule, best[-1].lr, params.steps)
    result = Result([Table("The best rates of the sweeps", best)])

    basins, global_fraction = {}, {}
    rough = SURFACES["rastrigin"]
    for title, rule in RULES_FROM_MANY.items():
        basins[title] = basins_of(
            SURFACES["himmelblau"], rule.name, params.side, params.basin_steps, device, **rule.on_himmelblau
        )
        grid = run_from_everywhere(rough, rule.name, params.side, params.basin_steps, device, **rule.on_rastrigin)
        global_fraction[title] = (torch.hypot(grid.x, grid.y) < 0.3).float().mean().item()
    descent_basins, momentum_basins = basins["gradient descent"], basins["momentum"]
    reached = (descent_basins >= 0).float().mean().item()
    elsewhere = (descent_basins != momentum_basins).float().mean().item()

    decades = list(range(1, 11))
    times = escape_times(torch.tensor([10.0**-k for k in decades], dtype=torch.float64), params.escape_steps, device)
    theory = [math.log(0.5 * 10**k) / math.log(1.1) for k in decades]
    descent_times = times["gradient descent"]
    error = math.inf if None in descent_times else max(abs(a - b) for a, b in zip(descent_times, theory, strict=True))
    on_ridge = path(SURFACES["saddle"], "gradient_descent", 1000, (1.0, 0.0), lr=0.1)[-1]
    with_noise = path(SURFACES["saddle"], "gradient_descent", 1000, (1.0, 0.0), lr=0.1, noise=1e-3)[-1]
    delays = {title: steps[-1] - steps[0] for title, steps in times.items() if None not in steps}

    result.key_figure("Himmelblau starts that momentum takes elsewhere", 100 * elsewhere, "%")
    for title, fraction in global_fraction.items():
        result.key_figure(f"Rastrigin starts that end in the lowest minimum, {title}", 100 * fraction, "%")
    result.claim(
        "Gradient descent from all over Himmelblau's window ends in one of the four minima, in at least 95 % of starts",
        reached >= 0.95 and set(descent_basins.unique().tolist()) >= {0, 1, 2, 3},
        f"{reached:.1%}",
    )
    result.claim(
        "The rule decides, too: momentum ends in a different minimum than gradient descent from over 5 % of the starts",
        elsewhere > 0.05,
        f"{elsewhere:.1%}",
    )
    result.claim(
        "Of many starts on Rastrigin's surface fewer than one in twenty ends in the lowest of 121 minima, by any of the rules",
        0 < max(global_fraction.values()) < 0.05,
        ", ".join(f"{title} {fraction:.1%}" for title, fraction in global_fraction.items()),
    )
    result.claim(
        "Near the saddle gradient descent's y grows by the factor 1 + α per step: it leaves after ln(½ / y) / ln(1 + α) steps, "
        "within 5 steps",
        error <= 5,
        f"at most {error:.1f} steps off",
    )
    result.claim(
        "Started on the ridge itself, gradient descent never leaves it; with a little noise it does",
        on_ridge[1] == 0 and abs(on_ridge[0]) < 1e-9 and abs(abs(with_noise[1]) - 1) < 0.1,
        f"y = {on_ridge[1]} without, {with_noise[1]:.3f} with noise",
    )
    result.claim(
        "Started a billion times nearer the ridge, gradient descent leaves over 200 steps later, Adam under 50",
        delays.get("gradient descent", 0) > 200 and 0 <= delays.get("Adam", math.inf) < 50,
        ", ".join(f"{title} {steps}" for title, steps in delays.items()),
    )
    thin = slice(None, None, max(1, params.side // 100))  # a panel shows no more points a side
    result.arrays = {
        "paths": paths,
        "basins": {title: found[thin, thin].tolist() for title, found in basins.items()},
        "decades": decades,
        "escapes": times,
        "theory": theory,
    }
    return result
