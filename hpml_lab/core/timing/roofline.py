"""The roofline: measured work under the two limits of a machine, FLOP/s ≤ min(peak, intensity · bandwidth)."""

import contextlib
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from hpml_lab.core.show import style
from hpml_lab.core.show.picture import Picture, picture
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import Ceiling, Timing, ceiling

INTENSITIES = 0.03, 5000.0  # FLOP/byte
Pair = tuple[float, float]


def draw_roof(axes, limits: Ceiling, color: str, label: str) -> None:
    """The line that no work should pass: the slope is the bandwidth, the level the peak."""
    intensities = np.geomspace(*INTENSITIES, 200)
    rates = [limits.attainable(intensity) for intensity in intensities]
    axes.plot(intensities, rates, color=color, label=label)
    axes.set(xscale="log", yscale="log", xlabel="arithmetic intensity, FLOP/byte", ylabel="GFLOP/s", title="Roofline")


def roofline(
    points: Mapping[str, Timing | tuple[float, float]], *, ceilings: Ceiling | tuple[float, float] | None = None
) -> Picture:
    """Your own kernels under the roofline: a picture, to be shown as a cell's last line.

    points    {name: `measure(work, bytes=…, flops=…)`}, or {name: (FLOP/byte, GFLOP/s)}
    ceilings  (GB/s, GFLOP/s) of the machine; without it a large copy and a large product are measured here, on as many threads
              as the points; of a GPU `ceiling("cuda")` measures them

    Raises LabError for a point without bytes or FLOPs, and for limits that are not positive.
    """
    if not isinstance(points, Mapping):
        raise LabError(f"points={points!r} has no names.", 'Give a dictionary: {"my kernel": measure(work, bytes=…, flops=…)}.')
    placed = {name: _place(name, point) for name, point in points.items()}
    if ceilings is None:
        threads = max((point.threads for point in points.values() if isinstance(point, Timing)), default=1)
        limits, label = ceiling("cpu", threads=threads), "measured limits"
    elif isinstance(ceilings, Ceiling):
        limits, label = ceilings, "measured limits"
    else:
        limits, label = Ceiling(*_pair(ceilings, "ceilings", "(GB/s, GFLOP/s)"), threads=1), "given limits"
    return kernels_under(limits, label, placed)


@picture
def kernels_under(limits: Ceiling, label: str, placed: Mapping[str, tuple[float, float]]):
    """Each kernel under the roofline: its rate by its arithmetic intensity, and its share of what the roofline allows. Near the
    slope it is bound by memory, near the level by arithmetic; far below both it waits for something else."""
    figure = style.new_figure(7, 4.2)
    axes = figure.subplots()
    draw_roof(axes, limits, style.INK, f"{label}: {limits.gb_per_s:.3g} GB/s, {limits.gflop_per_s:.3g} GFLOP/s")
    looks = zip(itertools.cycle(style.CYCLE), itertools.cycle(style.MARKERS), strict=False)
    for (name, (intensity, rate)), (color, marker) in zip(placed.items(), looks, strict=False):
        words = f"{name}: {rate:.3g} GFLOP/s, {rate / limits.attainable(intensity):.0%}"
        axes.plot([intensity], [rate], linestyle="none", markersize=8, label=words, color=color, marker=marker)
    axes.legend(fontsize=8)
    return figure


def _place(name: str, point: Any) -> tuple[float, float]:
    """(FLOP/byte, GFLOP/s) of a point."""
    if isinstance(point, Timing):
        if not (point.bytes and point.flops):
            fix = "Measure it with both: measure(work, bytes=…, flops=…)."
            raise LabError(f"{name} says neither how many bytes it moves nor how many FLOPs it computes, or only one.", fix)
        return point.intensity, point.gflop_per_s
    return _pair(point, name, "a Timing, or (FLOP/byte, GFLOP/s)")


def _pair(values: Any, name: str, wanted: str) -> tuple[float, float]:
    """Two numbers that a logarithmic axis has a place for."""
    with contextlib.suppress(TypeError, ValueError):
        a, b = (float(value) for value in values)
        if 0 < a < math.inf and 0 < b < math.inf:
            return a, b
    raise LabError(f"{name}: {values!r} cannot be drawn.", f"Give {wanted}, both numbers above 0.")
