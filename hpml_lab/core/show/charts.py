"""The charts that many experiments draw: horizontal, stacked and grouped bars, and lines with bands.

Each draws into given axes, in the house's colors, and leaves titles, axis labels and legends to its caller:

    horizontal_bars(axes, ["loop", "fused"], [31.0, 8.2], labels="{:.3g}")         one bar a name, from top to bottom
    timed_bars(axes, ["loop", "fused"], [31.0, 8.2], [None, "faster"])             measured times, colored by their verdicts
    stacked_bars(axes, ["gloo", "nccl"], {"compute": [4, 4], "waiting": [9, 1]})   parts of a whole, end to end
    grouped_bars(axes, ["calls", "kernels"], {"loop": [90, 40], "fused": [1, 1]})  vertical, the series side by side
    band(axes, steps, losses, label="Adam", color=style.BLUE)                      median line, shade from least to most
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike

from hpml_lab.core.show import style

COLORS, HATCHES = (style.ORANGE, style.BLUE, style.GREEN, style.SKY), (None, "///", "...", "xxx", "++")
LIMIT = "memory limit"
VERDICTS = {"faster": style.BLUE, "slower": style.ORANGE}  # grey: the base, and what is within noise


def horizontal_bars(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float],
    *,
    labels: str | Callable[[float], str] | Sequence[str] | None = None,
    color: str | Sequence[str] = style.BLUE,
    hatch: str | Sequence[str | None] | None = None,
) -> None:
    """One bar for each name, from top to bottom.

    labels  texts in a column at the right edge, where no line crosses them: a format such as "{:.2g}", a function of the value,
            or the texts themselves
    """
    axes.barh(range(len(names)), values, color=color, hatch=hatch, edgecolor="white")
    if isinstance(labels, str):
        labels = labels.format
    for index, text in enumerate(map(labels, values) if callable(labels) else labels or ()):
        axes.text(0.995, index, text, fontsize=8, ha="right", va="center", transform=axes.get_yaxis_transform())
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.margins(x=0.05 if labels is None else 0.3)
    _rows(axes, names)


def timed_bars(
    axes: Axes,
    names: Sequence[str],
    times: Sequence[float],
    verdicts: Sequence[str | None],
    *,
    unit: str = "µs",
    limit: float | None = None,
) -> None:
    """Bars of measured times; a dashed line at `limit`, the time that memory bandwidth allows.

    verdicts  as core.timing.noise.SpeedUp gives them: only a time that differs from the base by more than noise has a color
    """
    horizontal_bars(axes, names, times, color=[VERDICTS.get(verdict, style.GREY) for verdict in verdicts], labels=_rounded)
    if limit is not None:
        axes.axvline(limit, color=style.RED, linestyle="--", label=LIMIT)
    axes.set_xlabel(f"time in {unit}")


def stacked_bars(
    axes: Axes, names: Sequence[str], parts: Mapping[str, Sequence[float]], *, colors: Sequence[str] = COLORS
) -> None:
    """One bar for each name, from top to bottom, of parts that follow one another: {part: one value for each name}."""
    reached = np.zeros(len(names))
    for (part, values), color, hatch in zip(parts.items(), colors, HATCHES, strict=False):
        axes.barh(range(len(names)), values, left=reached, color=color, hatch=hatch, edgecolor="white", label=part)
        reached = reached + np.asarray(values)
    _rows(axes, names)


def grouped_bars(
    axes: Axes, groups: Sequence[str], series: Mapping[str, Sequence[float]], *, labels: str | None = None
) -> None:
    """For each group, one vertical bar of each series side by side: {series: one value for each group}.

    labels  the format of the values above the bars, such as "{:,g}"
    """
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        positions = [group + (index - (len(series) - 1) / 2) * width for group in range(len(groups))]
        look = dict(color=COLORS[index], hatch=HATCHES[index], edgecolor="white", label=name)
        bars = axes.bar(positions, values, width, **look)
        if labels:
            axes.bar_label(bars, fmt=labels, fontsize=8)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="x", visible=False)
    axes.set_axisbelow(True)
    axes.margins(y=0.1)


def band(axes: Axes, x: Sequence[float], runs: ArrayLike, *, shade: float = 0.2, **look: object) -> None:
    """A line at the median of some runs, and a shade from the smallest to the largest.

    runs   for each x a row with one number of each run; or with the low, middle and high end of an interval, which is then
           what is drawn. A row with an infinity or a NaN is left out.
    shade  the shade's opacity
    look   of the line, and its label; the shade has its color
    """
    rows = np.array(runs, dtype=float)
    rows[~np.isfinite(rows).all(1)] = np.nan
    (line,) = axes.plot(x, np.median(rows, 1), **look)
    axes.fill_between(x, rows.min(1), rows.max(1), color=line.get_color(), alpha=shade, linewidth=0)


def _rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
