"""The optimizer lab's paths, which follow the formulas, compared with those of the classes."""

import contextlib
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.landscape import RULES_WITH_CLASS, Surface, torch_equivalent
from hpml_lab.landscape.optimizer_lab.lab_paths import LabPath, run_path, settings
from hpml_lab.landscape.surfaces import SURFACES, Point
from hpml_lab.optim.formulas.by_name import FORMULAS

QUICK = dict(steps=30)
FULL = dict(steps=30)


@dataclass
class OptimizerPaths(Row):
    """How far the paths of one formula are from those of its class, over all surfaces."""

    optimizer: str = column("optimizer")
    surfaces: int = column("surfaces")
    steps: int = column("steps on each")
    distance: float = column("largest distance between formula and class / width of the window")
    worst_surface: str = column("on")


@contextlib.contextmanager
def _float64():
    """Inside, NAdam's class keeps its product of momenta in float64, like the formula; otherwise in float32, like torch."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def class_path(surface: Surface, optimizer: str, path: LabPath, hyper: dict[str, float], noise: float) -> list[Point]:
    """The points of the class of hpml_lab.optim in float64, with the gradients at its own points."""
    points = [(path.x[0], path.y[0])]
    theta = torch.tensor(points[0], dtype=torch.float64, requires_grad=True)
    instance = torch_equivalent(optimizer, [theta], **hyper)
    for t, rate in enumerate(path.rates, 1):
        theta.grad = torch.tensor(surface.seen_gradient(*points[-1], t, noise), dtype=torch.float64)
        instance.param_groups[0]["lr"] = rate
        instance.step()
        points.append(tuple(theta.tolist()))
    return points


def distance(surface: Surface, optimizer: str, steps: int) -> float:
    """The largest |Δx| or |Δy| between the paths of formula and class, over the window's width."""
    hyper = settings(surface, optimizer).hyper[optimizer]
    path = run_path(surface, optimizer, hyper, surface.start, surface.noise, steps=steps)
    with _float64():
        points = class_path(surface, optimizer, path, hyper, surface.noise)
    pairs = zip(zip(path.x, path.y, strict=True), points, strict=True)
    return max(max(abs(x - a), abs(y - b)) for (x, y), (a, b) in pairs) / (surface.window[1] - surface.window[0])


@experiment("optimizer-lab", lecture="own", notebook="05_adaptive", quick=QUICK, full=FULL)
def optimizer_lab(params: Params) -> Result:
    """The optimizer lab: its paths against those of the classes."""
    rows = []
    for optimizer in RULES_WITH_CLASS:
        found = {surface.title: distance(surface, optimizer, params.steps) for surface in SURFACES.values()}
        worst = max(found, key=found.get)
        rows.append(OptimizerPaths(FORMULAS[optimizer].title, len(found), params.steps, found[worst], worst))
    result = Result([Table("Paths of formula and class", rows)])
    largest = max(row.distance for row in rows)
    result.claim(
        "On every surface the path of each formula is the path of its class, within 10⁻¹¹ of the window's width",
        largest <= 1e-11,
        f"{largest:.1e}",
    )
    return result
