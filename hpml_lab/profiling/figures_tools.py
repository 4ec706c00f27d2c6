"""The figures of notebook 09 on profilers of Python and of native programs."""

import textwrap

from hpml_lab.core import style
from hpml_lab.core.result import Result
from hpml_lab.profiling import stacks


def draw_cprofile_line_profiler(result: Result):
    """Top left: the functions of the random walk with the most time of their own, by cProfile. Top right: how much longer a
    tight loop takes when a sampler looks at it now and then, and when every call or every line is traced. Bottom: the lines of
    simulate with their share of its time by line_profiler; diamonds are the lecture's shares."""
    figure = style.new_figure(10, 6.4)
    grid = figure.add_gridspec(2, 2, height_ratios=(1.2, 1))
    left, right, below = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, :])
    calls = [row for row in result.rows if row["profiler"] == "cProfile"]
    left.barh(range(len(calls)), [row["ms"] for row in calls], color=style.BLUE)
    left.set_yticks(range(len(calls)), [row["what"] for row in calls])  # two functions may have one name
    for place, row in enumerate(calls):
        left.text(row["ms"], place, f" {row['calls or hits']}×", va="center", fontsize=8)
    left.set(xlabel="own time in ms (and calls)")
    left.set_title("cProfile: functions")
    left.margins(x=0.15)
    costs = result.arrays["slower"]
    right.barh(list(costs), list(costs.values()), color=style.ORANGE, hatch="///", edgecolor="white")
    right.axvline(1, color=style.GREY, linestyle="--", linewidth=1.2)
    right.set(xlabel="times as long as without")
    right.set_title("A tight loop under a profiler")
    lines = [row for row in result.rows if row["profiler"] == "line_profiler"]
    below.barh(
        [textwrap.fill(row["what"], 40) for row in lines], [row["share %"] for row in lines], color=style.GREEN, label="here"
    )
    said = [(place, row["lecture, %"]) for place, row in enumerate(lines) if row["lecture, %"] is not None]
    below.plot([one for _, one in said], [place for place, _ in said], "D", color=style.RED, label="lecture")
    below.set(xlabel="share of simulate's time in %", xlim=(0, 100), ylabel="line of the source")
    below.set_title("line_profiler: lines of simulate")
    below.legend(loc="lower right")
    for axes in (left, right, below):
        axes.invert_yaxis()
        axes.set_axisbelow(True)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", labelsize=8)
    return figure


def draw_flame_graph(result: Result):
    """Icicle of a training program: each box is a function, as wide as its share of the samples, below the one that called it;
    neighbours stand in alphabetical order, not in order of time. The planted function is red and holds the widest end. Where
    py-spy may not watch a program, it shows the stacks that the run wrote itself."""
    root = stacks.tree(result.arrays["folded"])
    figure = style.new_figure(10, 4.8)
    axes = figure.subplots()
    stacks.icicle(axes, root, stacks.HOT)
    axes.set_title(f"{result.arrays['source']}: {root.total} samples")
    return figure


def draw_perf_counters(result: Result):
    """Left: the elapsed time of each program, split into its own code (user), the system's work for it, and the rest, in which
    it waited or another program had its core. Right: page faults and context switches of each program, on a logarithmic axis:
    touching pages makes faults, sleeping makes voluntary switches."""
    figure = style.new_figure(10, 4.2)
    left, right = figure.subplots(1, 2)
    names = [row["program"] for row in result.rows]
    reached = [0.0] * len(names)
    parts = {
        "user": [row["user s"] for row in result.rows],
        "system": [row["system s"] for row in result.rows],
        "not on a core": [max(0.0, row["elapsed s"] - row["user s"] - row["system s"]) for row in result.rows],
    }
    colours = (style.BLUE, style.ORANGE, "#d1d5db")
    for (part, seconds), colour, hatch in zip(parts.items(), colours, (None, "///", "..."), strict=True):
        width = [1e3 * one for one in seconds]
        left.barh(names, width, left=reached, color=colour, hatch=hatch, edgecolor="white", label=part)
        reached = [a + b for a, b in zip(reached, width, strict=True)]
    left.set(xlabel="time in ms")
    left.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    kinds = {"minor faults": style.GREEN, "voluntary switches": style.PURPLE, "involuntary switches": style.SKY}
    for offset, (kind, colour) in enumerate(kinds.items()):
        places = [place + 0.27 * (offset - 1) for place in range(len(names))]
        counted = [max(row[kind] - 0.5, 0) for row in result.rows]  # a logarithmic axis has no zero: it starts at 0.5
        right.barh(
            places, counted, 0.25, left=0.5, color=colour, hatch=(None, "///", "xxx")[offset], edgecolor="white", label=kind
        )
    right.set_yticks(range(len(names)), names)
    right.set_xscale("log")
    right.set(xlabel="number", xlim=(0.5, None))
    right.legend(fontsize=9, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3)
    for axes in (left, right):
        axes.invert_yaxis()
        axes.set_axisbelow(True)
        axes.grid(axis="y", visible=False)
    return figure
