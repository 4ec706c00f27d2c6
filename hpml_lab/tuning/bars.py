"""The bar charts that several experiments draw."""

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from hpml_lab.core.show import style

COLORS, HATCHES = (style.ORANGE, style.BLUE, style.GREEN), (None, "///", "...")
LIMIT = "memory limit"
VERDICTS = {"faster": style.BLUE, "slower": style.ORANGE}  # grey: the base, and what is within noise


def grouped_bars(
    axes: Axes,
    groups: Sequence[str],
    series: Mapping[str, Sequence[float]],
    *,
    spread: Mapping[str, Sequence[float]] | None = None,
    labels: bool = False,
) -> None:
    """For each group, one bar of each series side by side.

    series  {name: one value per group}
    spread  {name: interquartile range per group}, drawn as error bars
    labels  write the values above the bars
    """
    width = 0.8 / len(series)
    for index, (name, values) in enumerate(series.items()):
        positions = [group + (index - (len(series) - 1) / 2) * width for group in range(len(groups))]
        errors = [value / 2 for value in spread[name]] if spread else None
        look = dict(color=COLORS[index], hatch=HATCHES[index], edgecolor="white", label=name)
        bars = axes.bar(positions, values, width, yerr=errors, **look)
        if labels:
            axes.bar_label(bars, fontsize=8)
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="x", visible=False)
    axes.set_axisbelow(True)
    axes.margins(y=0.1)


def horizontal_bars(
    axes: Axes,
    names: Sequence[str],
    values: Sequence[float],
    *,
    color: str | Sequence[str] = style.BLUE,
    number: str | Callable[[float], str] = "{:,.4g}",
) -> None:
    """One bar per name, from top to bottom, with its value at the right edge."""
    axes.barh(range(len(names)), values, color=color, edgecolor="white")
    written = number if callable(number) else number.format
    for index, value in enumerate(values):  # in a column of their own, where no vertical line crosses them
        axes.text(0.995, index, written(value), fontsize=8, ha="right", va="center", transform=axes.get_yaxis_transform())
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.margins(x=0.3)
    axes.grid(axis="y", visible=False)
    axes.set_axisbelow(True)


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

    verdicts  as core.measure.noise.SpeedUp gives them: only a time that differs from the base by more than noise has a color
    """
    horizontal_bars(axes, names, times, color=[VERDICTS.get(verdict, style.GREY) for verdict in verdicts], number=_rounded)
    if limit is not None:
        axes.axvline(limit, color=style.RED, linestyle="--", label=LIMIT)
    axes.set_xlabel(f"time in {unit}")


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
