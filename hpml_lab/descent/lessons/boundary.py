"""The learning rate at which gradient descent begins to diverge: found by bisection, on a quadratic and on real data."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from hpml_lab.descent.lessons.softmax_regression import (
    largest_eigenvalue,
    real_data,
    softmax_gradient,
    softmax_loss,
    softmax_minimum,
)
from hpml_lab.landscape import Surface, path


def bisect(diverges: Callable[[float], bool], low: float, high: float, rounds: int) -> float:
    """The learning rate between `low`, which converges, and `high`, which diverges, from which on it diverges."""
    if diverges(low) or not diverges(high):
        raise ValueError(f"the boundary is not between {low} and {high}")
    for _ in range(rounds):
        middle = (low + high) / 2
        low, high = (low, middle) if diverges(middle) else (middle, high)
    return (low + high) / 2


def boundary_on(surface: Surface) -> float:
    """The measured boundary on a quadratic: the rate from which on 100 steps lead away from the minimum along y."""
    theory = 2 / surface.eigenvalues[1]

    def diverges(lr: float) -> bool:
        return abs(path(surface, "gradient_descent", 100, (0.0, 1.0), lr=lr)[-1][1]) > 1

    return bisect(diverges, 0.5 * theory, 2 * theory, 50)


@dataclass(frozen=True)
class RealBoundary:
    """Gradient descent on softmax regression with real data.

    eigenvalue  λmax of the Hessian at the minimum; residual: how exactly it was found; at_start: λmax at W = 0
    measured    the boundary by bisection near the minimum
    ratios      learning rates of a sweep from W = 0, over 2 / λmax
    excess      for each of them, how far the loss ends above the lowest after `steps` steps
    """

    name: str
    notes: list[str]
    eigenvalue: float
    residual: float
    at_start: float
    measured: float
    ratios: list[float]
    excess: list[float]
    steps: int

    @property
    def theory(self) -> float:
        return 2 / self.eigenvalue


def boundary_on_real_data(data: str, samples: int, decay: float, steps: int, device: torch.device) -> RealBoundary:
    """Measure the boundary near the minimum in `steps` steps, and sweep rates from W = 0 in three times as many."""
    x, y, name, notes = real_data(data, device, torch.float64, samples)
    best = softmax_minimum(x, y, decay)
    eigenvalue, direction, residual = largest_eigenvalue(best, x, y, decay)
    theory, lowest = 2 / eigenvalue, softmax_loss(best, x, y, decay)

    def descend(w: torch.Tensor, lr: float | torch.Tensor, steps: int) -> torch.Tensor:
        for _ in range(steps):
            w = w - lr * softmax_gradient(w, x, y, decay)
        return w

    def diverges(lr: float) -> bool:
        distance = (descend(best + 1e-6 * direction, lr, steps) - best).mul(direction).sum().abs().item()
        return not distance <= 1e-6

    measured = bisect(diverges, 0.5 * theory, 2 * theory, 11)
    ratios = torch.cat([torch.logspace(-2, -0.15, 9), torch.linspace(0.8, 1.2, 9), torch.linspace(1.3, 3, 6)])
    rates = (ratios * theory).to(x)[:, None, None]
    ends = softmax_loss(descend(torch.zeros(len(ratios), *best.shape).to(x), rates, 3 * steps), x, y, decay)
    at_start = largest_eigenvalue(torch.zeros_like(best), x, y, decay)[0]
    excess = (ends - lowest).clamp(min=1e-16).tolist()
    return RealBoundary(name, notes, eigenvalue, residual, at_start, measured, ratios.tolist(), excess, 3 * steps)
