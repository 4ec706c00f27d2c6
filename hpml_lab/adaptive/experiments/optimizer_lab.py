"""The optimizer lab checked: its paths against the classes, its steps against its paths, and its speed."""

from dataclasses import dataclass

from hpml_lab.core.experiment.findings import Row, Table, column
from hpml_lab.core.experiment.registry import Params, experiment
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.system.tools import need

QUICK = dict(steps=30, moves=60)
FULL = dict(steps=30, moves=400)


@dataclass
class Latency(Row):
    """The time from a slider's event to the new picture."""

    shown: str = column("lab with")
    median: float = column("median", "ms")
    p95: float = column("95th percentile", "ms")


@dataclass
class OptimizerPaths(Row):
    """How far the paths of one formula are from those of its class, over all surfaces."""

    optimizer: str = column("optimizer")
    surfaces: int = column("surfaces")
    steps: int = column("steps on each")
    distance: float = column("largest distance between formula and class / width of the window")
    worst_surface: str = column("on")


@experiment("optimizer-lab", lecture="own", notebook="05_adaptive", quick=QUICK, full=FULL)
def optimizer_lab(params: Params) -> Result:
    """The optimizer lab: its paths, its single steps and its speed."""
    need("ipywidgets")
    from hpml_lab.adaptive.views.lab import checks  # loads the widgets

    rows = _rows(checks.compare_with_classes(params.steps), params.steps)
    timings = [Latency(label, *milliseconds) for label, milliseconds in checks.latency(params.moves).items()]

    result = Result([Table("Paths of formula and class", rows), Table("From a slider's event to the new picture", timings)])
    for row in timings:
        result.key_figure(f"slider to picture, {row.shown}, median", row.median, "ms")
        result.key_figure(f"slider to picture, {row.shown}, 95th percentile", row.p95, "ms")
    largest = max(row.distance for row in rows)
    result.claim(
        "On every surface the path of each formula is the path of its class, within 10⁻¹¹ of the window's width",
        largest <= 1e-11,
        f"{largest:.1e}",
    )
    missed = checks.steps_that_miss(params.steps)
    result.check("In step mode the last line of every step gives exactly the path's next point", missed == 0, f"{missed} miss")
    result.check("Steps back and forward show the same pictures and the same numbers", checks.back_and_forth(8))
    result.check("After any slider moves the picture equals one that is drawn anew, byte by byte", checks.drawn_anew(6))
    return result


def _rows(paths: list, steps: int) -> list[OptimizerPaths]:
    """From PathComparisons one row for each optimizer, with the surface on which formula and class are furthest apart."""
    rows = []
    for optimizer in dict.fromkeys(path.optimizer for path in paths):
        own = [path for path in paths if path.optimizer == optimizer]
        worst = max(own, key=lambda path: path.distance)
        rows.append(OptimizerPaths(optimizer, len(own), steps, worst.distance, worst.surface))
    return rows
