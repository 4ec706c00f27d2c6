"""Timelines below each other on one axis of time, and their legend."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.patches import Patch

from hpml_lab.core.show.style import time_unit
from hpml_lab.core.timing.timeline import HATCHES, gantt


def draw_timelines(
    panels: Sequence[Any], timelines: Mapping[str, list[dict]], colors: Mapping[str, str], lanes: Sequence[str] = ()
) -> float:
    """Draw {title: rows of spans} on panels that share one axis of time; return how many of its units make a second."""
    longest = max(row["end"] for rows in timelines.values() for row in rows)
    scale, unit = time_unit(longest)
    end = {"lane": "", "what": "the end of the longest", "start": longest, "end": longest}  # so that all have one unit
    for axes, (title, rows) in zip(panels, timelines.items(), strict=True):
        gantt(axes, [*rows, end], colors, lanes or sorted({row["lane"] for row in rows}))
        axes.set(title=title, xlabel="", axisbelow=True, xlim=(0, 1.02 * scale * longest))
    panels[-1].set_xlabel(f"time in {unit}")
    return scale


def legend_entries(colors: Mapping[str, str]) -> list[Patch]:
    """Entries of a legend for the colors of a timeline, also for what only some of several panels show."""
    return [
        Patch(facecolor=color, hatch=hatch, edgecolor="white", label=what)
        for (what, color), hatch in zip(colors.items(), itertools.cycle(HATCHES), strict=False)
    ]
