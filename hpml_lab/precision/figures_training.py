"""The figures of amp-training and loss-scaling."""

from math import log2
from statistics import median

from hpml_lab.core import style
from hpml_lab.core.result import Result
from hpml_lab.precision.formats import FP16

COLOURS = (style.BLUE, style.ORANGE, style.GREEN)


def draw_amp_training(result: Result):
    """Left: training loss by step of the fp32 loop and of both AMP loops, median over the seeds with a band from the smallest
    to the largest. Right: bytes kept for the backward pass, peak memory and time of one step as shares of the fp32 loop's;
    a loop that was not timed has no bar for time."""
    figure = style.new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    dashes = ("-", "--", ":")
    for (name, runs), colour, dash in zip(result.arrays["losses"].items(), COLOURS, dashes, strict=True):
        columns = list(zip(*runs, strict=True))
        steps = range(1, len(columns) + 1)
        left.plot(steps, [median(one) for one in columns], dash, color=colour, label=name)
        left.fill_between(steps, [min(one) for one in columns], [max(one) for one in columns], color=colour, alpha=0.15)
    left.set(xlabel="step", ylabel="training loss", title="Loss")
    left.legend()
    fp32 = result.rows[0]
    kinds = {"kept": "kept for backward, MB", "peak": "peak of a step, MB", "time": "ms a step"}
    for place, (row, colour) in enumerate(zip(result.rows, COLOURS, strict=True)):
        shown = [(k, row[key] / fp32[key]) for k, key in enumerate(kinds.values()) if row[key] is not None]
        where = [k + 0.27 * (place - 1) for k, _ in shown]
        bars = right.bar(
            where, [share for _, share in shown], 0.25, color=colour, hatch=("", "//", "..")[place], edgecolor="white"
        )
        right.bar_label(bars, fmt="%.2f", fontsize=8)
    right.set_xticks(range(3), ["kept for\nbackward, bytes", "peak memory\nof a step, bytes", "time\nof a step"])
    right.set(ylabel="share of the fp32 loop's", title="Memory and time")
    right.margins(y=0.15)
    right.grid(axis="x", visible=False)
    right.set_axisbelow(True)
    return figure


def draw_loss_scaling(result: Result):
    """Above left: magnitudes of gradients, in powers of two, with lines at fp16's smallest normal number, below which bits are
    lost, and at its smallest number, below which (grey) almost all is lost; a scale moves the whole histogram to the right.
    Above right: the scale that torch's scaler used at each step, with a cross for a step it skipped. Below: test accuracy
    minus that of the mixed recipe, one point a seed and a bar at the median; left with the loss as it is beside the lecture's
    figures, right with the loss times 2e-5."""
    figure = style.new_figure(11, 8)
    (hist, trace), (plain, hard) = figure.subplots(2, 2)
    edges = result.arrays["edges"]
    looks = ((style.GREEN, "-"), (style.RED, "--"), (style.BLUE, ":"))
    for (name, shares), (colour, dash) in zip(result.arrays["gradients"].items(), looks, strict=True):
        hist.step(edges, [100 * share for share in shares], dash, where="post", color=colour, label=name)
    for value, text in ((FP16.smallest_subnormal, "2⁻²⁴"), (FP16.smallest_normal, "2⁻¹⁴")):
        power = log2(value)
        hist.axvline(power, color=style.INK, linewidth=1)
        hist.annotate(text, (power, 1), (3, -9), xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=9)
    hist.axvspan(edges[0], log2(FP16.smallest_subnormal), color=style.GREY, alpha=0.15)
    hist.set(xlabel="log₂ of the gradient's magnitude", ylabel="share of all gradients, %", xlim=(-48, 28), title="Gradients")
    hist.margins(y=0.12)
    hist.legend(loc="upper right", fontsize=8)
    rows = result.arrays["trace"]
    trace.step([row["step"] for row in rows], [row["scale"] for row in rows], where="mid", color=style.BLUE, label="scale")
    skipped = [row for row in rows if row["overflow"]]
    trace.plot([row["step"] for row in skipped], [row["scale"] for row in skipped], "X", color=style.RED, label="skipped step")
    trace.set_yscale("log", base=2)
    trace.set(xlabel="step", ylabel="scale", title="torch's GradScaler, growth interval 8")
    trace.legend(loc="lower right")
    names = list(result.arrays["plain"])
    labels = [name.replace(", ", ",\n") for name in names]
    for axes, which in ((plain, "plain"), (hard, "hard")):
        found = result.arrays[which]
        base = median(found["mixed"])
        for place, name in enumerate(names):
            axes.plot([place] * len(found[name]), [value - base for value in found[name]], "o", color=style.BLUE, alpha=0.6)
            axes.plot(place, median(found[name]) - base, "_", color=style.BLUE, markersize=22, markeredgewidth=3)
        axes.set_xticks(range(len(names)), labels, fontsize=8)
        axes.set_xlim(-0.5, len(names) - 0.5)
        axes.set(xlabel="recipe", ylabel="accuracy − mixed, points")
    for (net, table), marker, colour in zip(
        result.arrays["lecture"].items(), ("D", "s", "^"), (style.RED, style.ORANGE, style.PURPLE), strict=True
    ):
        places = [names.index(name) + 0.2 for name in table]
        plain.plot(places, [value - table["mixed"] for value in table.values()], marker, color=colour, label=f"lecture: {net}")
    plain.set_title("Loss as it is")
    plain.legend(fontsize=8, loc="lower right")
    hard.set_title("Loss × 2e-5, rate ÷ 2e-5")
    return figure
