"""The figures of the race on three nets: curves with ranges over the seeds, and sweeps of the learning rate."""

import math

import numpy as np

from hpml_lab.core.experiment import Result
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.style import INK, new_figure
from hpml_lab.optim.formulas.colors import optimizer_style
from hpml_lab.race.tools.program import CLASSES

CEILING = 10.0  # losses above it belong to diverged trainings; the axis ends there


def curves_panel(axes, group: dict, points: list[int]) -> None:
    """Median and range over the seeds of the training loss of each optimizer of `group`, over the iterations."""
    x = np.array(points, dtype=float)
    for name, record in group.items():
        values = np.array(record["loss"], dtype=float)[:, 1:]
        values = np.where(np.isfinite(values), values, np.inf).clip(max=CEILING)
        look = optimizer_style(name)
        axes.plot(x[1:], np.median(values, 0), label=name, linewidth=1.6, **look)
        axes.fill_between(x[1:], values.min(0), values.max(0), color=look["color"], alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("iterations")


def sweep_panel(axes, sweep: dict) -> None:
    """Final validation loss over the learning rate: median and range over the seeds.

    The lecture's rate is ringed, the best one is a star. A rate at which a seed diverged is a cross at the top.
    """
    for name, rates in sweep.items():
        lr, end = np.array(rates["lr"], dtype=float), np.array(rates["valid"], dtype=float)
        finite = np.isfinite(end).all(1)
        look = optimizer_style(name, marker=True)
        color = look["color"]
        middle = np.where(finite, np.median(end, 1), np.nan)
        axes.plot(lr, middle, markersize=4, linewidth=1.4, label=name, **look)
        axes.fill_between(lr[finite], end[finite].min(1), end[finite].max(1), color=color, alpha=0.15, linewidth=0)
        axes.plot(lr[~finite], np.full((~finite).sum(), 0.98), "x", color=color, transform=axes.get_xaxis_transform())
        for rate, mark in (("lecture", dict(marker="o", markersize=10)), ("best", dict(marker="*", markersize=13))):
            chosen = lr == rates[rate]
            axes.plot(lr[chosen], middle[chosen], linestyle="", markerfacecolor="none", markeredgecolor=color, **mark)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("learning rate")


def legend_below(figure, axes) -> None:
    """One legend for all panels, below them."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=len(names), handlelength=2.6, columnspacing=1.2, fontsize=8.5
    )


def panel_of_each_net(result: Result):
    """A figure with one panel for each net, the nets' results, and the panels; all panels share the vertical axis."""
    figure = new_figure(9.0, 3.6)
    nets = result.arrays["nets"]
    panels = figure.subplots(1, len(nets), sharey=True)
    for panel, (net, found) in zip(panels, nets.items(), strict=True):
        panel.set_title(f"{net}: {found['title']}".replace("ReLU, ", "ReLU,\n"), fontsize=9)
    return figure, zip(panels, nets.values(), strict=True), panels


def loss_at(result: Result, rates: str):
    """Training loss on each net at the "lecture" or the "best" rates."""
    figure, nets, panels = panel_of_each_net(result)
    for panel, found in nets:
        curves_panel(panel, found[rates], result.arrays["points"])
    panels[0].set_ylabel("training loss")
    legend_below(figure, panels[0])
    return figure


@picture
def race_at_best_rates(result: Result):
    """Training loss on the three nets, each optimizer at the rate that its own sweep chose on validation images: medians over
    the seeds, with bands from the smallest to the largest. Note who ends lowest on each net, and by how much."""
    return loss_at(result, "best")


@picture
def race_sweep(result: Result):
    """The sweep: final validation loss over the learning rate, one panel for each net: medians over the seeds, with bands from
    the smallest to the largest. A ring marks the lecture's rate, a star the best one, which the sweep chose; a cross at the top
    marks a rate at which a seed diverged. Compare the heights of the rings with the heights of the stars."""
    figure, nets, panels = panel_of_each_net(result)
    for panel, found in nets:
        sweep_panel(panel, found["sweep"])
    panels[0].set_ylabel("final validation loss")
    legend_below(figure, panels[0])
    return figure


@picture
def race_by_seed(result: Result):
    """Net 3 at the best rates, one panel for each seed: the plot that one run of each optimizer would have given. Look at which
    curve is lowest in each panel, and at when the curves leave the plateau at ln 10, the dotted line."""
    found, points = result.arrays["nets"]["net 3"]["best"], result.arrays["points"]
    seeds = len(next(iter(found.values()))["loss"])
    figure = new_figure(9.0, 3.4)
    panels = figure.subplots(1, seeds, sharey=True, squeeze=False)[0]
    for seed, panel in enumerate(panels):
        group = {name: {"loss": [record["loss"][seed]]} for name, record in found.items()}
        curves_panel(panel, group, points)
        panel.axhline(math.log(CLASSES), color=INK, linestyle=":", linewidth=1)
        panel.set_title(f"seed {seed}", fontsize=9)
    panels[0].set_ylabel("training loss")
    legend_below(figure, panels[0])
    return figure
