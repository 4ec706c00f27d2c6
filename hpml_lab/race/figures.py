"""The panels of notebook 06's figures: curves with bands over seeds, and sweeps of the learning rate."""

import numpy as np

from hpml_lab.core.result import Result
from hpml_lab.core.style import BLUE, GREEN, INK, ORANGE, PURPLE, RED, SKY, in_style, new_figure

# One colour and one line style an optimizer, the same in every figure.
LOOK = {
    "SGD": (INK, "-"),
    "Momentum": (BLUE, "--"),
    "Nesterov": (SKY, "-."),
    "Adagrad": (GREEN, "-"),
    "Adadelta": (ORANGE, "--"),
    "Adam": (RED, "-"),
    "RMSprop": (PURPLE, (0, (1, 1))),
}
MARK = dict(zip(LOOK, "osv^DXP", strict=True))
CEILING = 10.0  # losses above it belong to diverged trainings; the axis ends there


def curves_panel(axes, group: dict, points: list[int], what: str, seconds: dict[str, float] | None = None) -> None:
    """Median and range over the seeds of `what` ("loss" or "accuracy") for each optimizer of `group`, against iterations, or
    against seconds where the seconds of an iteration are given."""
    x = np.array(points, dtype=float)
    for name, record in group.items():
        values = np.array(record[what], dtype=float)[:, 1:]
        values = np.where(np.isfinite(values), values, np.inf).clip(max=CEILING)
        along = x[1:] * (seconds[name] if seconds else 1.0)
        colour, line = LOOK[name]
        axes.plot(along, np.median(values, 0), color=colour, linestyle=line, label=name)
        axes.fill_between(along, values.min(0), values.max(0), color=colour, alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    if what == "loss":
        axes.set_yscale("log")
        axes.set_ylabel("training loss")
    else:
        axes.set_ylim(0, 1)
        axes.set_ylabel("test accuracy")
    axes.set_xlabel("seconds of training" if seconds else "iterations")


def sweep_panel(axes, sweep: dict) -> None:
    """Final training loss over the learning rate: median and range over the seeds, the lecture's rate ringed, a cross at the
    top where a seed diverged."""
    for name, found in sweep.items():
        lr, end = np.array(found["lr"], dtype=float), np.array(found["end"], dtype=float)
        finite = np.isfinite(end).all(1)
        colour, line = LOOK[name]
        middle = np.where(finite, np.median(end, 1), np.nan)
        axes.plot(lr, middle, color=colour, linestyle=line, marker=MARK[name], markersize=5)
        axes.fill_between(lr[finite], end[finite].min(1), end[finite].max(1), color=colour, alpha=0.15, linewidth=0)
        axes.plot(lr[~finite], np.full((~finite).sum(), 0.98), "x", color=colour, transform=axes.get_xaxis_transform())
        at = lr == found["lecture"]
        axes.plot(lr[at], middle[at], "o", markersize=12, markerfacecolor="none", markeredgecolor=colour)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("learning rate")
    axes.set_ylabel("final training loss")


def legend_of(figure, axes) -> None:
    """One legend below all panels."""
    handles, names = axes.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(names), handlelength=3.5)


def draw_race_curves(result: Result, rates: str = "best"):
    """Loss and accuracy of the race of seven optimizers on three nets, against iterations and against seconds of training
    alone: one row a net, medians over the seeds with bands from the smallest to the largest."""
    with in_style():
        return _draw_race_curves(result, rates)


def _draw_race_curves(result: Result, rates: str):
    figure = new_figure(15.0, 10.5)
    axes = figure.subplots(3, 4)
    for row, (net, found) in zip(axes, result.arrays["nets"].items(), strict=True):
        for place, what in enumerate(("loss", "accuracy")):
            curves_panel(row[place], found[rates], result.arrays["points"], what)
            curves_panel(row[2 + place], found[rates], result.arrays["points"], what, found["seconds"])
        row[0].set_ylabel(f"{net}\n\ntraining loss")
    for panel, title in zip(axes[0], ("Loss", "Accuracy", "Loss by time", "Accuracy by time"), strict=True):
        panel.set_title(title)
    legend_of(figure, axes[0, 0])
    return figure
