"""The optimizer lab as a picture, for the saved notebook and for reports: the panels of the page, without its controls."""

import math
from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, LogNorm
from matplotlib.figure import Figure, SubFigure

from hpml_lab.core.show import style
from hpml_lab.core.show.numbers import number
from hpml_lab.landscape.optimizer_lab.details import (
    STATE_SYMBOLS,
    followed_states,
    map_axes,
    second,
    settings_map,
    step_in_numbers,
)
from hpml_lab.landscape.optimizer_lab.figure import look, surface_map
from hpml_lab.landscape.optimizer_lab.lab_paths import PLAIN_RULES, LabSettings, surface_named
from hpml_lab.landscape.stability import largest_stable_rate
from hpml_lab.optim.formulas.arithmetic import Floats
from hpml_lab.optim.formulas.by_name import FORMULAS

LOWEST_LOSS, LOWEST_STEP = 1e-6, 1e-5  # where the logarithmic axes end
MAP_CELLS = (90, 60)
PARAMETERS = {"x": style.GREEN, "y": style.PURPLE}
STATE_LINES = ("-", "--", ":")
DECAYS = (0, 0.5, 0.9, 0.99, 0.999, 0.9999)
NAMES = {"momentum": "momentum γ", "beta2": "decay β₂", "rho": "decay ρ", "alpha": "decay ρ"}


def draw(chosen: LabSettings) -> Figure:
    """The panels of `chosen`: surface, curves over the steps, map, and below them one step in numbers.

    What leaves the window is cut there; a path that ends early says why in the legend.
    """
    curves = [panel for panel in CURVES if panel in chosen.panels]
    if "sizes" in curves and "schedule" in curves:
        curves.remove("schedule")  # the step sizes stand next to the rate
    left = [panel for panel in ("surface", "map") if panel in chosen.panels]
    columns = [left, curves] if left and curves else [[panel] for panel in left or curves]
    tall = max(map(len, columns), default=0) > 2 or len(left) == 2 and curves
    above, lines = 0.2 if not columns else 6.8 if tall else 3.9, step_in_numbers(chosen) if "step" in chosen.panels else []
    below = 0.3 + 0.2 * len(lines) if "step" in chosen.panels else 0.0
    figure = style.new_figure(9.6 if len(columns) != 1 or below else 5.2, above + below)
    with style.in_style():
        parts = figure.subfigures(2, 1, height_ratios=(above, below)) if below else [figure]
        for panel, ax, lowest in _axes(parts[0], columns):
            PANELS[panel](ax, chosen)
            if panel in CURVES:
                ax.set(xlim=(0, chosen.steps), xlabel="step" if lowest else "")
                ax.tick_params(labelbottom=lowest)
                if "step" in chosen.panels:
                    ax.axvline(chosen.step, color=style.INK, linestyle=":", linewidth=1)
        if below:
            _table(parts[1], chosen, lines)
    return figure


def _axes(figure: SubFigure | Figure, columns: list[list[str]]) -> Iterator[tuple[str, Axes, bool]]:
    """Each panel with its axes, and whether it is the lowest of its column."""
    grid = figure.add_gridspec(1, len(columns), width_ratios=(1.2, 1)[: len(columns)]) if columns else None
    for index, column in enumerate(columns):
        rows = grid[0, index].subgridspec(len(column), 1)
        for row, panel in zip(rows, column, strict=True):
            yield panel, figure.add_subplot(row), panel == column[-1]


def _marked(chosen: LabSettings, steps: int) -> int:
    """The step of a path that its marker shows."""
    return min(chosen.step, steps) if "step" in chosen.panels else steps


def _label(name: str, end: str) -> str:
    return FORMULAS[name].title + (f", {end}" if end else "")


def _surface(ax: Axes, chosen: LabSettings) -> None:
    surface = surface_named(chosen.surface)
    surface_map(ax, surface)
    ax.plot(*zip(*surface.minima, strict=True), ls="", marker="*", ms=13, mfc=style.YELLOW, mec=style.INK)
    ax.plot(*chosen.start, marker="+", ms=12, mew=2, color=style.INK)
    for name, path in chosen.paths.items():
        styled = look(name) | {"linewidth": 1.8, "markersize": 6, "label": _label(name, path.end)}
        ax.plot(path.x, path.y, markevery=[_marked(chosen, path.steps)], **styled)
        if name == chosen.follow:  # a dot at each step
            ax.plot(path.x, path.y, ls="", marker=".", ms=4, color=styled["color"])
    ax.set_title(f"{surface.title}, {chosen.steps} steps", loc="left")
    if "loss" not in chosen.panels:  # where the names stand
        ax.legend(fontsize=8)


def _losses(ax: Axes, chosen: LabSettings) -> None:
    surface = surface_named(chosen.surface)
    lowest = min(surface.value(*point) for point in surface.minima)
    for name, path in chosen.paths.items():
        styled = look(name) | {"linewidth": 1.8, "markersize": 5, "label": _label(name, path.end)}
        ax.plot(np.maximum(np.array(path.losses) - lowest, LOWEST_LOSS), markevery=[_marked(chosen, path.steps)], **styled)
    ax.set(yscale="log", ylim=(LOWEST_LOSS, None))
    ax.set_title("loss f − lowest f", loc="left")
    ax.legend(fontsize=8)


def _rate(ax: Axes, chosen: LabSettings) -> None:
    rates = chosen.paths[chosen.follow].rates
    ax.plot(range(1, len(rates) + 1), rates, color=style.GREY, linestyle=":", label="rate α")
    ax.set(ylim=(0, None))
    ax.set_title(f"rate α: {chosen.schedule}", loc="left")


def _sizes(ax: Axes, chosen: LabSettings) -> None:
    path = chosen.paths[chosen.follow]
    steps = range(1, path.steps + 1)
    for name, color in PARAMETERS.items():
        ax.plot(steps, np.maximum(np.abs(np.diff(getattr(path, name))), LOWEST_STEP), color=color, lw=1.3, label=f"|Δ{name}|")
    ax.plot(steps, np.maximum(path.rates, LOWEST_STEP), color=style.GREY, linestyle=":", lw=1.8, label="rate α")
    ax.set(yscale="log")
    ax.set_title(f"{FORMULAS[chosen.follow].title}: step sizes; rate: {chosen.schedule}", loc="left", fontsize=9)
    ax.legend(fontsize=8, ncols=3)


def _state(ax: Axes, chosen: LabSettings) -> None:
    states = followed_states(chosen)
    title = FORMULAS[chosen.follow].title
    shown = [name for name in states[0][2] if name in STATE_SYMBOLS]
    for name, line in zip(shown, STATE_LINES, strict=False):
        for index, (parameter, color) in enumerate(PARAMETERS.items()):
            values = [state[name][index] for *_, state in states]
            ax.plot(values, color=color, linestyle=line, lw=1.3, label=f"{STATE_SYMBOLS[name]} of {parameter}")
    if shown:
        largest = max(abs(value) for *_, state in states for name in shown for value in state[name]) or 1.0
        # Linear about zero, so that a velocity that swings looks like a swing; logarithmic beyond, for squares.
        ax.set_yscale("symlog", linthresh=largest / 100)
        power = 10.0 ** math.floor(math.log10(largest))
        ax.set_yticks([-power, 0, power], [f"{-power:g}", "0", f"{power:g}"])
        ax.set_title(f"{title}: state", loc="left", fontsize=9)
        ax.legend(fontsize=8, ncols=len(shown))
    else:
        ax.set_title(f"{title} has no state", loc="left", fontsize=9)


def _map(ax: Axes, chosen: LabSettings) -> None:
    surface, name = surface_named(chosen.surface), chosen.follow
    (a, b), (c, d) = map_axes(surface, name)
    key, cells = second(name), settings_map(chosen, *MAP_CELLS).numpy()
    reached = np.ma.masked_less_equal(cells, 0)
    edges = np.logspace(a, b, cells.shape[1] + 1), np.linspace(c, d, cells.shape[0] + 1)
    ax.pcolormesh(*edges, np.ma.masked_not_equal(cells, 0), cmap=ListedColormap([style.GREY]), alpha=0.5, rasterized=True)
    fewest = reached.min() if reached.count() else 1
    scale = LogNorm(fewest, max(chosen.steps, fewest + 1))
    image = ax.pcolormesh(*edges, reached, norm=scale, cmap="viridis", rasterized=True)
    if name in PLAIN_RULES and surface.eigenvalues and chosen.schedule == "constant":
        memories = np.linspace(c, d, 61)
        kind = "nesterov" if name.endswith("nesterov") else "momentum"
        gammas = 1 - 10**-memories if key else 0 * memories
        limits = [largest_stable_rate(kind, gamma, max(surface.eigenvalues)) for gamma in gammas]
        ax.plot(limits, memories, color=style.RED, lw=2, label="boundary by theory")
        ax.legend(fontsize=8, loc="upper left", labelcolor=style.DARK, frameon=True, facecolor="white", framealpha=0.8)
    values = chosen.hyper[name]
    height = -math.log10(1 - values[key]) if key else (c + d) / 2
    for color, width in (("black", 4), ("white", 2)):
        ax.plot(values["lr"], height, "o", ms=9, mfc="none", mec=color, mew=width)
    ax.set(xscale="log", xlim=(10**a, 10**b), ylim=(c, d), xlabel="rate α", ylabel=NAMES.get(key, ""))
    decays = [decay for decay in DECAYS if -math.log10(1 - decay) <= d] if key else []
    ax.set_yticks([-math.log10(1 - decay) for decay in decays], [f"{decay:g}" for decay in decays])
    ax.grid(False)
    ax.set_title(f"{FORMULAS[name].title}: steps to a thousandth", loc="left", fontsize=10)
    bar = ax.figure.colorbar(image, ax=ax, label=f"steps; gray: over {chosen.steps}, blank: diverges")
    style.label_log_axis(bar.ax.yaxis)


CURVES = {"schedule": _rate, "loss": _losses, "sizes": _sizes, "state": _state}
PANELS = {"surface": _surface, "map": _map} | CURVES


def _table(figure: SubFigure, chosen: LabSettings, lines: list[tuple[str, str, Floats]]) -> None:
    path, t = chosen.paths[chosen.follow], chosen.step
    title = f"{FORMULAS[chosen.follow].title}, step {t}"
    if lines:
        title += f", α = {number(path.rates[t - 1])}: f from {number(path.losses[t - 1])} to {number(path.losses[t])}"
    elif t:
        title += f": the path {path.end}"
    ax = figure.subplots()
    ax.axis("off")
    ax.set(xlim=(0, 1), ylim=(len(lines) + 1, 0))
    ax.text(0, 0.4, title, fontweight="bold", fontsize=9, va="center")
    for row, (formula, code, values) in enumerate(lines, 1):
        for at, text, family in ((0, formula, None), (0.3, code, "monospace")):
            ax.text(at, row + 0.4, text, fontsize=8, va="center", family=family)
        for at, name, value in zip((0.75, 0.88), PARAMETERS, values, strict=True):
            ax.text(at, row + 0.4, f"{name}: {number(value)}", fontsize=8, va="center")
