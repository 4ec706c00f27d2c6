"""The chain rule for w = xy + 2: our engine, torch and central differences give the same gradient."""

from dataclasses import dataclass

import numpy as np
import torch

from hpml_lab.autograd.lessons import engine
from hpml_lab.autograd.lessons.central_differences import numeric_gradient
from hpml_lab.autograd.lessons.engine import Tensor
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style

QUICK = dict(points=200)
FULL = dict(points=5000)


@dataclass
class Derivative(Row):
    """One derivative of w at one point, computed in four ways."""

    x: float = column("x")
    y: float = column("y")
    w: float = column("w")
    name: str = column("derivative")
    by_rule: float = column("by the rule")
    by_engine: float = column("by the engine")
    by_torch: float = column("by torch")
    by_differences: float = column("by differences")


def draw(result: Result):
    """Lines of equal w = xy + 2 and, at some points, the gradient (∂w/∂x, ∂w/∂y) = (y, x) as an arrow of a sixth of its length.
    The arrows are perpendicular to the lines and point to where w grows; at the origin the gradient is zero."""
    figure = style.new_figure(6.5, 5.4)
    axes = figure.subplots()
    side = np.linspace(-4, 4, 81)
    x, y = np.meshgrid(side, side)
    lines = axes.contour(x, y, x * y + 2, levels=np.arange(-12, 17, 4), colors=style.GREY, linewidths=1)
    axes.clabel(lines, fontsize=8)
    points, gradients = np.array(result.arrays["points"]), np.array(result.arrays["gradients"])
    axes.quiver(*points.T, *gradients.T, color=style.BLUE, angles="xy", scale_units="xy", scale=6, width=0.006)
    axes.set(xlabel="x", ylabel="y", aspect="equal", xlim=(-4, 4), ylim=(-4, 4))
    axes.set_title("w = xy + 2 and its gradient")
    axes.set_axisbelow(True)
    return figure


@experiment("chain-rule", lecture="L2", notebook="02_autograd", draw=draw, quick=QUICK, full=FULL, same_picture=True)
def chain_rule(params: Params) -> Result:
    """w = xy + 2: engine, torch and differences agree."""
    side = np.linspace(-3.0, 3.0, 7)
    grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)  # for the figure
    points = np.concatenate([np.random.default_rng(0).uniform(-4, 4, (params.points, 2)), grid])

    a, b = (Tensor(coordinate, requires_grad=True) for coordinate in points.T)
    engine.sum_(a * b + 2).backward()  # each point has a w of its own: the sum does not mix their gradients
    by_engine = np.stack([a.grad, b.grad], axis=1)

    s, t = (torch.tensor(coordinate, device=params.device.torch, requires_grad=True) for coordinate in points.T)
    (s * t + 2).sum().backward()
    by_torch = torch.stack([s.grad, t.grad], dim=1).cpu().numpy()

    def w(point: np.ndarray) -> float:
        return point[0] * point[1] + 2

    by_differences = np.array([numeric_gradient(w, point) for point in points[:50]])
    by_rule = points[:, ::-1]  # (∂w/∂x, ∂w/∂y) = (y, x)
    passes = torch.autograd.gradcheck(lambda s, t: s * t + 2, (s[:20], t[:20]), raise_exception=False)
    largest_difference = np.abs(by_differences - by_rule[:50]).max()
    rows = [
        Derivative(x, y, w((x, y)), name, *(float(ways[i, j]) for ways in (by_rule, by_engine, by_torch, by_differences)))
        for i, (x, y) in enumerate(points[:3].tolist())
        for j, name in enumerate(("dw/dx = y", "dw/dy = x"))
    ]

    result = Result([Table("w = xy + 2 at three random points", rows)])
    result.arrays = {"points": grid, "gradients": by_engine[-len(grid) :]}
    result.key_figure("dw/dx", "y" if np.array_equal(by_engine[:, 0], points[:, 1]) else "not y", lecture="y")
    result.key_figure("dw/dy", "x" if np.array_equal(by_engine[:, 1], points[:, 0]) else "not x", lecture="x")
    result.claim(
        "By the engine and by torch, dw/dx = y and dw/dy = x exactly, at every point",
        np.array_equal(by_engine, by_rule) and np.array_equal(by_torch, by_rule),
        f"{len(points)} points",
    )
    result.claim("Central differences agree to 1e-6", largest_difference < 1e-6, f"largest difference {largest_difference:.1e}")
    result.claim("torch.autograd.gradcheck passes", passes)
    return result
