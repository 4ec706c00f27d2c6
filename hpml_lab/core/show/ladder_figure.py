"""Drawing a ladder of changes: the time of each rung, and which part of the program takes which share of it."""

from collections.abc import Mapping, Sequence
from typing import Any

from hpml_lab.core.show import style

HATCHES = (None, "///", "...", "xxx", "++", "ooo", "\\\\\\", "--")


def draw_rungs(rungs: Sequence[Any], colors: Mapping[str, str], unit: str):
    """Left: milliseconds on a logarithmic axis. Right: the share of each part. A rung that was taken back is in brackets.

    rungs   rows with `name`, `ms` and `profile`, {part: time}; `kept` is False for a change that was taken back
    colors  {part: color}
    unit    what takes the time: "an iteration", "a patient"
    """
    kept = [getattr(row, "kept", True) for row in rungs]
    figure = style.new_figure(9, 1.9 + 0.3 * len(rungs))
    times, shares = figure.subplots(1, 2, sharey=True, width_ratios=(1, 1.5))
    positions = range(len(rungs))
    times.plot(*zip(*[(row.ms, i) for i, row in enumerate(rungs) if kept[i]], strict=True), "o-", color=style.BLUE)
    for index, row in enumerate(rungs):
        if not kept[index]:
            times.plot(row.ms, index, "o", color=style.BLUE, markerfacecolor="none")
        label = f"{row.ms:.3g} ms" if row.ms < 1000 else f"{row.ms:,.0f} ms"
        times.annotate(label, (row.ms, index), (6, 0), textcoords="offset points", va="center", fontsize=8)
    times.set_xscale("log")
    style.label_log_axis(times.xaxis)
    times.tick_params(axis="x", labelsize=8)
    times.set_xlim(min(row.ms for row in rungs) / 1.4, max(row.ms for row in rungs) * 3)
    times.set_yticks(positions, [row.name if stays else f"({row.name})" for row, stays in zip(rungs, kept, strict=True)])
    times.set(xlabel=f"ms {unit}", ylabel="change", title="Time")
    reached = [0.0] * len(rungs)
    for (part, color), hatch in zip(colors.items(), HATCHES, strict=True):
        widths = [100 * row.profile[part] / sum(row.profile.values()) for row in rungs]
        shares.barh(positions, widths, left=reached, label=part, color=color, hatch=hatch, edgecolor="white", linewidth=0.5)
        reached = [left + width for left, width in zip(reached, widths, strict=True)]
    shares.set(xlabel="% of the work", xlim=(0, 100), title="Shares of the parts")
    shares.invert_yaxis()
    shares.grid(axis="y", visible=False)
    figure.legend(*shares.get_legend_handles_labels(), loc="outside lower center", fontsize=8, ncols=8)
    return figure
