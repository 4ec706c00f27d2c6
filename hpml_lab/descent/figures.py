"""The figures of notebook 04; each docstring is its figure's caption."""

import numpy as np
import torch
from matplotlib.colors import BoundaryNorm, ListedColormap, LogNorm

from hpml_lab.core import style
from hpml_lab.core.result import Result
from hpml_lab.landscape import SURFACES, Surface, quadratic

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)))


def surface_map(ax, surface: Surface, window: tuple[float, float, float, float] | None = None, levels: int = 18) -> None:
    """Contour lines of a surface, evenly spaced in the logarithm of its height above the lowest minimum."""
    x0, x1, y0, y1 = window or surface.window
    x = torch.linspace(x0, x1, 160, dtype=torch.float64)
    y = torch.linspace(y0, y1, 160, dtype=torch.float64)
    height = surface.value(x[None], y[:, None]) - surface.value(*surface.minima[0])
    height = torch.log10(height.clamp(min=1e-3)).numpy()
    ax.contour(x, y, height, levels=levels, colors=style.GREY, linewidths=0.6, alpha=0.6, linestyles="solid")
    ax.set(xlim=(x0, x1), ylim=(y0, y1), xlabel="x", ylabel="y")
    ax.grid(False)


def draw_gd_variants(result: Result):
    """Top: loss on all training samples of softmax regression under batch, mini-batch and stochastic gradient descent, against
    the samples seen and against seconds; medians over seeds, bands from the lowest to the highest seed. The batch variant has
    no randomness and so no band; the dotted line is the loss that the table's last columns wait for. Bottom: the noise of a
    gradient by batch size, measured and by formula, and the time of one update."""
    figure = style.new_figure(9.5, 6.6)
    (by_sample, by_second), (noise, cost) = figure.subplots(2, 2, height_ratios=[1.3, 1])
    for ax, axis, label in ((by_sample, "samples", "samples seen"), (by_second, "seconds", "time (s)")):
        for place, (variant, curve) in enumerate(result.arrays["curves"].items()):
            keep = slice(1, None)  # no place for 0 on a logarithmic axis
            at, colour = curve[axis][keep], style.CYCLE[place]
            ax.plot(at, curve["median"][keep], color=colour, linestyle=LINES[place], label=variant)
            ax.fill_between(at, curve["low"][keep], curve["high"][keep], color=colour, alpha=0.25, linewidth=0)
        ax.axhline(result.arrays["level"], color=style.GREY, linestyle=":", linewidth=1.2)
        ax.set(xscale="log", yscale="log", xlabel=label, ylabel="cross-entropy on all samples")
        ax.set_title(f"Progress per {axis.removesuffix('s')}")
    by_sample.legend(fontsize=9)
    random = [row for row in result.rows if row["by formula"] > 0]
    at = [row["batch"] for row in random]
    noise.plot(at, [row["by formula"] for row in random], color=style.GREY, linestyle="--", label="σ²/B · (N − B)/(N − 1)")
    for place, row in enumerate(result.rows):
        look = {"color": style.CYCLE[place], "marker": style.MARKERS[place], "linestyle": "", "markersize": 8}
        if row in random:
            noise.plot(row["batch"], row["noise |g_B − g|² / |g|²"], **look)
        cost.plot(row["batch"], row["one update, µs"], label=row["variant"], **look)
    noise.set(xscale="log", yscale="log", xlabel="samples in a batch", ylabel="|g_B − g|² / |g|²")
    noise.set_title("Noise of the gradient (the whole batch: none)")
    noise.legend(fontsize=9)
    cost.set(xscale="log", yscale="log", xlabel="samples in a batch", ylabel="one update (µs)", title="Cost of an update")
    cost.legend(fontsize=9)
    return figure


def draw_learning_rate(result: Result):
    """Top left: the loss on a quadratic after 100 steps by learning rate, with the boundary 2/λmax. Top right: the loss step by
    step at four rates. Bottom left: softmax regression on real data, how far the loss ends above the lowest, by rate over
    2/λmax. Bottom middle: four schedules. Bottom right: the loss in the noisy valley under them, median and quartiles over
    seeds."""
    figure = style.new_figure(11, 7.2)
    top, bottom = figure.subfigures(2, 1)
    sweep, steps = top.subplots(1, 2)
    arrays = result.arrays
    factors = np.array(arrays["factors"])
    sweep.plot(factors, np.clip(arrays["losses"], 1e-12, 1e12))
    sweep.axvline(1, color=style.RED, linestyle="--", linewidth=1.5, label="2 / λmax")
    sweep.axhline(arrays["loss_at_start"], color=style.GREY, linestyle=":", linewidth=1.2, label="loss at the start")
    sweep.set(xscale="log", yscale="log", ylim=(1e-9, 1e5), xlabel="learning rate × λmax / 2", ylabel="loss after 100 steps")
    sweep.set_title("Quadratic, κ = 25: sweep")
    sweep.legend(fontsize=8, loc="lower left")
    for place, (kind, heights) in enumerate(arrays["heights"].items()):
        label = f"{kind}: {arrays['kinds'][kind]:g} × 2 / λmax"
        steps.plot(np.maximum(heights, 1e-9), color=style.CYCLE[place], linestyle=LINES[place], label=label)
    steps.set(yscale="log", ylim=(1e-6, 1e3), xlabel="step", ylabel="loss", title="Quadratic, κ = 25: four rates")
    steps.legend(fontsize=8, loc="lower left")

    real, rates, losses = bottom.subplots(1, 3)
    found = arrays["real"]
    real.plot(found["ratios"], found["excess"], marker="o", markersize=4)
    real.axvline(1, color=style.RED, linestyle="--", linewidth=1.5, label="2 / λmax at the minimum")
    real.set(xscale="log", yscale="log", xlabel="learning rate × λmax / 2", ylabel="loss above the lowest")
    real.set_title(f"Softmax, {found['name']}, {found['steps']} steps")
    real.legend(fontsize=8, loc="lower left")
    for place, (name, curve) in enumerate(arrays["schedules"].items()):
        look = {"color": style.CYCLE[place], "linestyle": LINES[place], "linewidth": 1.6}
        rates.plot(range(1, len(curve["rates"]) + 1), np.maximum(curve["rates"], 1e-5), label=name, **look)
        losses.plot(np.maximum(curve["median"], 1e-9), **look)
        losses.fill_between(
            range(len(curve["median"])), curve["low"], curve["high"], color=style.CYCLE[place], alpha=0.2, linewidth=0
        )
    rates.set(yscale="log", xlabel="step", ylabel="learning rate", title="Schedules")
    rates.legend(fontsize=8, loc="lower left")
    losses.set(yscale="log", xlabel="step", ylabel="loss", title="Noisy valley")
    return figure


def _rate_map(ax, found: dict, which: str, title: str):
    """A map of convergence rates over (α λmax, γ) with the theory's boundary."""
    image = ax.pcolormesh(
        found["lr"], found["momentum"], np.array(found[which], dtype=float), vmin=0.65, vmax=1.05, rasterized=True
    )
    ax.plot(found["boundary"], found["momentum"], color=style.RED, linewidth=2, label="boundary by theory")
    ax.set(xlim=(0, max(found["lr"])), xlabel="learning rate × λmax", ylabel="momentum γ", title=title)
    ax.grid(False)
    return image


def draw_momentum(result: Result):
    """Top: paths in the valley x² + 25 y² at one learning rate and three momenta; and how far the lecture's form of momentum
    is from torch's, at a constant rate and when it drops by 10 after step 150. Bottom: the factor by which the distance to
    the minimum shrinks per step, for each learning rate and momentum, measured and by theory; brighter is slower, the line is
    the boundary of divergence, the cross Polyak's best setting."""
    figure = style.new_figure(10.5, 7.6)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1, 1.15])
    valley, forms = top.subplots(1, 2)
    surface_map(valley, quadratic(25))
    for place, (name, points) in enumerate(result.arrays["paths"].items()):
        x, y = zip(*points, strict=True)
        look = {"color": style.CYCLE[place], "marker": style.MARKERS[place], "linestyle": LINES[place]}
        valley.plot(x, y, label=name, markersize=3, linewidth=1.1, **look)
    valley.plot(0, 0, "*", color=style.INK, markersize=11)
    valley.set_title("60 steps at α = 0.07")
    valley.legend(fontsize=8, loc="upper right")
    for place, (name, apart) in enumerate(result.arrays["forms"].items()):
        forms.plot(apart, color=style.CYCLE[place], linestyle=LINES[place], label=name)
    forms.set(yscale="log", ylim=(1e-17, 1), xlabel="step", ylabel="distance between the two paths")
    forms.set_title("Lecture's form and torch's form")
    forms.legend(fontsize=8, loc="center left")

    measured, theory = bottom.subplots(1, 2, sharey=True)
    for ax, which, title in ((measured, "measured", "Measured"), (theory, "theory", "Theory: spectral radius")):
        image = _rate_map(ax, result.arrays["map"], which, title)
        ax.plot(*result.arrays["best"], "X", color="white", markeredgecolor=style.INK, markersize=9)
    bottom.colorbar(image, ax=[measured, theory], label="factor per step (1: no progress)", extend="both")
    measured.legend(fontsize=8, loc="upper left", labelcolor="white")
    return figure


def draw_nesterov(result: Result):
    """Top: one real step from the same point and velocity, classical momentum above and Nesterov below. The momentum step and
    the gradient step add up to the whole step; Nesterov takes its gradient at the end of the momentum step. Bottom: the
    loss of both at the same settings, and Nesterov's measured convergence rate over learning rate and momentum with its
    boundary."""
    figure = style.new_figure(10.5, 8.4)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.15, 1])
    panels = top.subplots(2, 1, sharex=True, sharey=True)
    corners = []
    for one in result.arrays["arrows"].values():
        start = np.array(one["from"])
        corners += [start, *(start + np.array(one[part]) for part in ("momentum step", "gradient step", "whole step"))]
    low, high = np.min(corners, 0), np.max(corners, 0)
    edge = 0.15 * (high - low) + 0.02
    window = (low[0] - edge[0], high[0] + edge[0], low[1] - edge[1], high[1] + edge[1])
    for ax, (name, one) in zip(panels, result.arrays["arrows"].items(), strict=True):
        surface_map(ax, quadratic(25), window, levels=30)
        start, carried = np.array(one["from"]), np.array(one["momentum step"])
        pull, whole = np.array(one["gradient step"]), np.array(one["whole step"])
        behind = start if name == "classical momentum" else start + carried
        for at, along, colour, label in (
            (start, carried, style.ORANGE, "momentum step −γ v"),
            (behind, pull, style.BLUE, "gradient step −α g"),
            (start, whole, style.GREEN, "whole step"),
        ):
            ax.annotate(
                "",
                at + along,
                at,
                arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2.4, "shrinkA": 0, "shrinkB": 0},
            )
            ax.plot([], [], color=colour, label=label)
        ax.plot(*start, "o", color=style.INK, markersize=6)
        ax.plot(
            *behind, "o", markerfacecolor="none", color=style.BLUE, markersize=10, linestyle="", label="gradient taken here"
        )
        ax.set_title(name)
    panels[0].set_xlabel("")
    panels[0].legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))

    curves, rates = bottom.subplots(1, 2)
    for place, (name, heights) in enumerate(result.arrays["heights"].items()):
        curves.plot(heights, color=style.CYCLE[place], linestyle=LINES[place], label=name)
    curves.set(yscale="log", xlabel="step", ylabel="loss", title="Same learning rate, same momentum")
    curves.legend(fontsize=8)
    image = _rate_map(rates, result.arrays["map"], "measured", "Nesterov, measured")
    bottom.colorbar(image, ax=rates, label="factor per step (1: no progress)", extend="both")
    rates.legend(fontsize=8, loc="upper left", labelcolor="white")
    return figure


def draw_saddle_and_minima(result: Result):
    """Top: which of Himmelblau's four minima each start reaches, under three rules (white: none of them). Middle: the loss at
    which each start on Rastrigin's surface ends. Bottom left: steps to leave the saddle by how far from its ridge the start
    lies, with the theory for gradient descent. Bottom right: the lowest loss above the minimum that each optimizer reaches
    on each surface over a sweep of rates."""
    figure = style.new_figure(10.5, 11.5)
    top, middle, bottom = figure.subfigures(3, 1, height_ratios=[1, 1, 1.15])
    basins = ListedColormap(["white", style.BLUE, style.ORANGE, style.GREEN, style.PURPLE])
    hill, rough = SURFACES["himmelblau"], SURFACES["rastrigin"]
    for ax, (title, found) in zip(top.subplots(1, 3, sharey=True), result.arrays["basins"].items(), strict=True):
        ax.imshow(
            found, cmap=basins, norm=BoundaryNorm(np.arange(-1.5, 4), 5), extent=hill.window, origin="lower", aspect="auto"
        )
        for place, (x, y) in enumerate(hill.minima):
            ax.plot(x, y, style.MARKERS[place], color="white", markeredgecolor=style.INK, markersize=8)
        ax.set(xlabel="x of the start", title=f"Himmelblau, {title}")
        ax.grid(False)
    top.axes[0].set_ylabel("y of the start")
    axes = middle.subplots(1, 3, sharey=True)
    for ax, (title, ends) in zip(axes, result.arrays["ends"].items(), strict=True):
        image = ax.imshow(ends, vmin=0, vmax=50, extent=rough.window, origin="lower", aspect="auto")
        ax.set(xlabel="x of the start", title=f"Rastrigin, {title}")
        ax.grid(False)
    axes[0].set_ylabel("y of the start")
    middle.colorbar(image, ax=axes, label="loss at the end")

    escape, sweeps = bottom.subplots(1, 2)
    starts = [10.0**-k for k in result.arrays["decades"]]
    for place, (title, times) in enumerate(result.arrays["escapes"].items()):
        look = {"color": style.CYCLE[place], "marker": style.MARKERS[place], "linestyle": LINES[place]}
        escape.plot(starts, [np.nan if one is None else one for one in times], markersize=4, linewidth=1.3, label=title, **look)
    escape.plot(
        starts, result.arrays["theory"], color=style.INK, linestyle=":", linewidth=1.5, label="theory, gradient descent"
    )
    escape.set(xscale="log", xlabel="distance of the start from the ridge", ylabel="steps until |y| > ½")
    escape.set_title("Leaving the saddle")
    escape.legend(fontsize=7.5)
    rows = result.rows
    names = [name for name in rows[0] if name != "optimizer"]
    table = np.array([[max(row[name], 1e-12) for name in names] for row in rows])
    image = sweeps.imshow(table, norm=LogNorm(1e-12, 100), aspect="auto", cmap="cividis")
    sweeps.set_xticks(range(len(names)), names, rotation=35, ha="right", fontsize=8)
    sweeps.set_yticks(range(len(rows)), [row["optimizer"] for row in rows], fontsize=8)
    sweeps.set(xlabel="surface", ylabel="optimizer", title="Best rate of a sweep")
    sweeps.grid(False)
    bottom.colorbar(image, ax=sweeps, label="loss above the minimum", extend="both")
    return figure
