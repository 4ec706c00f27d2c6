"""The panels of notebook 06's figures: curves with bands over seeds, and sweeps of the learning rate."""

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, StrMethodFormatter

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


# ---- sparse data -----------------------------------------------------------------------------------------------------


def draw_sparse_data(result: Result):
    """Left: accuracy on the validation texts over the learning rate, median and range over the seeds. Middle: accuracy on the
    test texts that rare words decide, one dot a seed, each optimizer at its best rate; filled dots where rare words weigh more,
    hollow ones where all words weigh alike. Right: time of a training step by the size of the vocabulary; a step with a sparse
    gradient costs what the batch costs, a dense one what the vocabulary costs."""
    figure = new_figure(14.0, 4.4)
    left, middle, right = figure.subplots(1, 3)
    corpora = result.arrays["corpora"]
    first = next(iter(corpora.values()))
    for name, one in first.items():
        colour, line = LOOK[name]
        valid = 100 * np.array(one["valid"])
        left.plot(one["rates"], np.median(valid, 1), color=colour, linestyle=line, marker=MARK[name], markersize=5, label=name)
        left.fill_between(one["rates"], valid.min(1), valid.max(1), color=colour, alpha=0.12, linewidth=0)
    left.set(xscale="log", xlabel="learning rate", ylabel="validation accuracy (%)")
    left.set_title(f"Sweep: {next(iter(corpora)).lower()}")
    names = list(first)
    for shift, (where, found), hollow in zip((-0.15, 0.15), corpora.items(), (False, True), strict=True):
        for place, name in enumerate(names):
            colour = LOOK[name][0]
            values = 100 * np.array(found[name]["rare"])
            middle.plot(
                np.full(len(values), place + shift), values, "o", markersize=4.5,
                color=colour, markerfacecolor="none" if hollow else colour,
            )  # fmt: skip
            middle.plot([place + shift - 0.13, place + shift + 0.13], [np.median(values)] * 2, color=INK, linewidth=1.5)
        middle.plot([], [], "o", color=INK, markerfacecolor="none" if hollow else INK, label=where.lower())
    middle.set_xticks(range(len(names)), names, rotation=30, ha="right")
    middle.set(ylabel="accuracy (%)", title="Texts that rare words decide, best rates")
    middle.legend(fontsize=8, loc="upper left")
    middle.set_ylim(top=middle.get_ylim()[1] + 6)  # room for the legend
    costs = result.arrays["costs"]
    sizes = [one["vocabulary"] for one in costs]
    for name, colour, line, marker in (("Adam", RED, "-", "D"), ("SparseAdam", BLUE, "--", "o")):
        values = [one[f"{name} µs a step"] / 1000 for one in costs]
        right.plot(sizes, values, color=colour, linestyle=line, marker=marker, label=name)
    right.set(xscale="log", yscale="log", xlabel="words in the vocabulary", ylabel="time of a step (ms)")
    right.set_title("Dense and sparse gradient")
    right.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    for put in (right.yaxis.set_major_formatter, right.yaxis.set_minor_formatter):
        put(StrMethodFormatter("{x:g}"))
    right.legend()
    legend_of(figure, left)
    return figure


# ---- schedules -------------------------------------------------------------------------------------------------------

SCHEDULE_LINES = {"constant": "-", "step": "--", "cosine": "-.", "one-cycle": (0, (1, 1))}
SCHEDULE_MARKS = {"constant": "o", "step": "s", "cosine": "^", "one-cycle": "D"}


def draw_schedules_vs_adaptive(result: Result):
    """Left: the four schedules, as the factor of the peak rate over the training. Middle: test accuracy of SGD with momentum
    and of Adam under each, median over the seeds; the band of the constant rate goes from the smallest to the largest. Right:
    final accuracy against the iterations to the dotted accuracy, medians, with bars from the smallest to the largest: to the
    upper left is better. An entrant that did not get there in every seed stands at the right edge."""
    figure = new_figure(14.5, 4.8)
    left, middle, right = figure.subplots(1, 3, width_ratios=[0.8, 1.2, 1.2])
    arrays = result.arrays
    for name, factors in arrays["shapes"].items():
        part = np.linspace(0, 100, len(factors))
        left.plot(part, factors, linestyle=SCHEDULE_LINES[name], color=INK, label=name, linewidth=1.6)
    left.set(xlabel="part of the training (%)", ylabel="rate / peak rate", title="Schedules", ylim=(-0.03, 1.35))
    left.legend(fontsize=8, ncols=2, loc="upper center")
    iterations = np.array(arrays["iterations"])
    end = iterations[-1]
    for one in arrays["entrants"]:
        name, schedule = one["optimizer"], one["schedule"]
        colour, line = LOOK[name][0], SCHEDULE_LINES[schedule]
        curve = 100 * np.array(one["curve"])
        if name in ("Momentum", "Adam"):
            look = {"color": colour, "linestyle": line, "linewidth": 1.6}
            middle.plot(iterations[1:], np.median(curve, 0)[1:], label=f"{name}, {schedule}", **look)
            if schedule == "constant":
                middle.fill_between(iterations[1:], curve.min(0)[1:], curve.max(0)[1:], color=colour, alpha=0.15, linewidth=0)
        final = 100 * np.array(one["final"])
        reached = np.array(one["reached"], dtype=float)
        reached = np.where(np.isfinite(reached), reached, 1.15 * end)
        x, y = np.median(reached), np.median(final)
        right.plot([reached.min(), reached.max()], [y, y], color=colour, linewidth=0.8, alpha=0.7)
        right.plot([x, x], [final.min(), final.max()], color=colour, linewidth=0.8, alpha=0.7)
        right.plot(x, y, SCHEDULE_MARKS[schedule], color=colour, markersize=7, markeredgecolor="white")
    percent = 100 * arrays["threshold"]
    middle.axhline(percent, color=INK, linestyle=":", linewidth=1)
    last = [100 * np.median(np.array(one["curve"])[:, -1]) for one in arrays["entrants"]]
    middle.set_ylim(max(0, 2 * percent - 100 - 4), max(last) + 2)
    middle.set(xlabel="iterations", ylabel="test accuracy (%)", title="Momentum and Adam, best peak rates")
    middle.legend(fontsize=8, loc="lower right", ncols=2)
    right.set(xlabel=f"iterations to {percent:g} % (validation)", ylabel="final test accuracy (%)")
    right.set_title("How soon, and how well")
    shown = {one["optimizer"] for one in arrays["entrants"]}
    handles = [Line2D([], [], marker="o", linestyle="", color=LOOK[name][0], label=name) for name in LOOK if name in shown]
    handles += [Line2D([], [], marker=mark, linestyle="", color="grey", label=name) for name, mark in SCHEDULE_MARKS.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure
