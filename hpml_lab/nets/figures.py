"""The figures of notebook 03; each docstring is its figure's caption."""

import math

import networkx as nx
import numpy as np
import torch
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from hpml_lab.core import style
from hpml_lab.core.graph import draw_graph
from hpml_lab.core.result import Result
from hpml_lab.nets import xor

LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))


def draw_three_layer_net(result: Result):
    """Top: the net as a graph, with the shape that leaves each node. Bottom: the loss of two trainings that
    differ only in the target's shape, and what the two nets then predict. The net whose target broadcasts
    gives nearly one value for every input."""
    figure = style.new_figure(9.5, 5.2)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1, 2.6])
    graph = nx.DiGraph()
    for node in result.arrays["nodes"]:
        graph.add_node(node["name"], label=node["label"], kind=node["kind"])
    graph.add_edges_from(map(tuple, result.arrays["edges"]))
    draw_graph(top.subplots(), graph, font_size=8)

    curves, scatter = bottom.subplots(1, 2)
    targets = result.arrays["targets"]
    looks = ((style.RED, "s", "--"), (style.BLUE, "o", "-"))
    for (shapes, losses), (colour, marker, line) in zip(result.arrays["losses"].items(), looks, strict=True):
        predictions = result.arrays["predictions"][shapes]
        curves.plot(losses, linestyle=line, color=colour, label=shapes)
        scatter.plot(targets, predictions, marker, color=colour, markersize=4, label=shapes)
    curves.axhline(np.var(targets), color=style.GREY, linestyle=":", label="variance of the target")
    curves.set(xlabel="training step", ylabel="MSE loss as printed", yscale="log")
    curves.set_title("Output and target shapes")
    curves.legend(fontsize=8, loc="center right")
    ends = [min(targets), max(targets)]
    scatter.plot(ends, ends, color=style.GREY, linestyle=":", linewidth=1.2, label="prediction = target")
    scatter.set(xlabel="target", ylabel="prediction after training", title="What each net has learned")
    scatter.legend(fontsize=8)
    return figure


def draw_manual_sgd(result: Result):
    """Left: the loss falls in the same way under every spelling of the update. Right: the largest difference
    of any weight from torch.optim.SGD in a plain loop, step by step."""
    figure = style.new_figure(9.5, 3.8)
    left, right = figure.subplots(1, 2)
    for place, (name, losses) in enumerate(result.arrays["losses"].items()):
        # Curves that coincide: each later one is thinner, so that all can be seen.
        look = {"color": style.CYCLE[place], "linestyle": LINES[place], "linewidth": 4 - 0.6 * place}
        apart = np.array(result.arrays["apart"][name]) * 1e7
        left.plot(losses, **look)
        right.plot(range(1, len(apart) + 1), apart, label=name, **look)
    left.set(xlabel="step", ylabel="MSE loss", title="Loss", yscale="log")
    right.set(xlabel="step", ylabel="largest difference of a weight (10⁻⁷)")
    right.set_title("Distance from torch.optim.SGD")
    right.set_ylim(top=1.7 * right.dataLim.ymax + 0.1)  # room for the legend
    right.legend(fontsize=7.5, loc="upper left")
    return figure


def draw_xor(result: Result):
    """Top: the net's answer p on the square around the four points at six epochs, for the seed of median
    speed and for the slowest. Circles are to give 0, squares 1; the white line is p = 0.5. Bottom: the loss
    of many seeds under the lecture's setting, the fraction of seeds that are right by epoch for each setting,
    and the epochs at which seeds under the lecture's setting are right for the first time."""
    figure = style.new_figure(11, 7.6)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.35, 1])
    panels = result.arrays["panels"]
    axes = top.subplots(2, len(panels[0]["snapshots"]), sharex=True, sharey=True)
    for line, panel, topmost in zip(axes, panels, (True, False), strict=True):
        for ax, snapshot in zip(line, panel["snapshots"], strict=True):
            surface = _surface(ax, snapshot["parameters"])
            if topmost:
                ax.set_title(f"epoch {snapshot['epoch']}", fontsize=9)
            else:
                ax.set_xlabel("$x_1$")
        line[0].set_ylabel(f"{panel['which']}\n(seed {panel['seed']})\n$x_2$", fontsize=9)
    top.colorbar(surface, ax=axes, label="p, the net's answer", shrink=0.8)

    curves, fractions, histogram = bottom.subplots(1, 3)
    thousands = np.array(result.arrays["epochs"]) / 1000
    curves.plot(thousands, np.array(result.arrays["losses"]), color=style.BLUE, linewidth=0.6, alpha=0.5)
    curves.axhline(math.log(2), color=style.GREY, linestyle=":", linewidth=1.5)
    curves.annotate(
        "ln 2: says 0.5 to everything", (thousands[-1], math.log(2)), (0, 4), textcoords="offset points", ha="right", fontsize=8
    )
    curves.set(xlabel="epoch (thousands)", ylabel="BCE loss", title="Loss, one line a seed", ylim=(0, 0.8))
    for place, (name, curve) in enumerate(result.arrays["fractions"].items()):
        fractions.plot(
            np.array(curve["epochs"]) / 1000,
            np.array(curve["right"]) * 100,
            color=style.CYCLE[place],
            linestyle=LINES[place],
            label=name,
        )
    fractions.set(xlabel="epoch (thousands)", ylabel="right seeds (%)", title="How many seeds have learned")
    fractions.legend(fontsize=7.5, loc="lower right")
    first = [epoch for epoch in result.arrays["first_right"] if epoch is not None]
    waiting = len(result.arrays["first_right"]) - len(first)
    bins = np.arange(0, thousands[-1] + 0.5, 0.5)
    histogram.hist(np.array(first) / 1000, bins=bins, color=style.BLUE, edgecolor="white")
    histogram.set(ylabel="seeds", title=f"When they learn (not yet: {waiting})")
    histogram.set_xlabel("first epoch with all four right (thousands)", fontsize=9)
    return figure


def _surface(ax, parameters: list):
    """p over the square around the four points, for one net with its parameters as nested lists."""
    side = np.linspace(-0.5, 1.5, 61)
    points = torch.tensor(np.stack(np.meshgrid(side, side), -1).reshape(-1, 2), dtype=torch.float32)
    p = torch.sigmoid(xor.forward([torch.tensor(part) for part in parameters], points)[1])
    p = p.reshape(len(side), len(side)).numpy()
    surface = ax.pcolormesh(side, side, p, vmin=0, vmax=1, rasterized=True)
    if p.min() < 0.5 < p.max():
        ax.contour(side, side, p, levels=[0.5], colors="white", linewidths=1.5)
    for (x1, x2), y in zip(xor.INPUTS.tolist(), xor.TARGETS[:, 0].tolist(), strict=True):
        marker, fill = ("s", style.INK) if y else ("o", "white")
        ax.plot(x1, x2, marker, color=fill, markeredgecolor=style.RED, markersize=6)
    ax.set(xticks=[0, 1], yticks=[0, 1])
    ax.grid(False)
    return surface


def draw_move_to_gpu(result: Result):
    """Time of one training step by the width of the net, both axes logarithmic: flat while starting the
    operations decides, steep once the arithmetic does. The point at width 4 is the XOR net. A GPU line is
    there only where a GPU was measured; the move pays where it lies below the CPU's."""
    figure = style.new_figure(7.5, 4.2)
    ax = figure.subplots()
    tiny, *wider = result.rows
    widths = [row["width"] for row in wider]
    for device, colour, marker in (("CPU", style.BLUE, "o"), ("GPU", style.ORANGE, "s")):
        column = f"{device} step, µs"
        if tiny.get(column) is not None:
            look = {"color": colour, "marker": marker}
            times = [row[column] for row in wider]
            ax.plot(widths, times, label=f"256-width-width-10 on the {device}", **look)
            ax.plot(
                tiny["width"],
                tiny[column],
                label=f"XOR net 2-4-1 on the {device}",
                linestyle="none",
                markersize=10,
                markerfacecolor="white",
                **look,
            )
    measured = tiny.get("GPU step, µs") is not None
    title = "When the move pays" if measured else "A training step on the CPU (no GPU was measured)"
    ax.set(xscale="log", yscale="log", title=title)
    ax.set(xlabel="width of the hidden layers (units)", ylabel="one training step (µs)")
    ticks = [tiny["width"], *widths]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.xaxis.minorticks_off()
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.legend(fontsize=8)
    return figure
