"""How paths of optimizers on a surface are compared: their length, their turns, and their distance from each other."""

import math
from collections.abc import Sequence

import torch

from hpml_lab.landscape import Surface

Trajectory = Sequence[tuple[float, float]]  # the points of a trajectory, the start first


def steps_to_a_millionth(points: Trajectory, surface: Surface) -> int | None:
    """The number of steps until the loss stays at or below a millionth of the first; None if it does not."""
    heights = [surface.value(*point) for point in points]
    above = [step for step, height in enumerate(heights) if not height <= 1e-6 * heights[0]]
    return above[-1] + 1 if above[-1] + 1 < len(heights) else None


def sign_changes(points: Trajectory) -> int:
    """The number of steps in which y changes its sign."""
    return sum(a[1] * b[1] < 0 for a, b in zip(points, points[1:], strict=False))


def relative_difference(a: Trajectory, b: Trajectory) -> float:
    """The largest difference of a coordinate between two paths, divided by the largest coordinate of `b`."""
    a, b = torch.tensor(a, dtype=torch.float64), torch.tensor(b, dtype=torch.float64)
    return ((a - b).abs().max() / b.abs().max()).item()


def distances(a: Trajectory, b: Trajectory) -> list[float]:
    """The distance between two paths after each step, at least 1e-17 so that a logarithmic axis can show it."""
    return [max(1e-17, math.dist(p, q)) for p, q in zip(a, b, strict=True)]


def drop_after_150(t: int) -> float:
    """A schedule that divides the rate by 10 after step 150."""
    return 1.0 if t <= 150 else 0.1
