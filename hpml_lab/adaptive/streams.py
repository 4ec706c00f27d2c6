"""Streams of gradients, and an optimizer driven by one of them while its state is written down.

A whole batch of runs is one parameter tensor: the rules work element by element, so each seed goes its own way.
"""

from collections.abc import Callable

import torch


def rare_and_frequent(steps: int, seeds: int, every: int) -> torch.Tensor:
    """Gradients (steps, seeds, 2) of two features: one in each step, one in a step out of `every`, else 0. Each is N(0, 1)."""
    made = torch.Generator().manual_seed(1)
    gradients = torch.randn(steps, seeds, 2, dtype=torch.float64, generator=made)
    gradients[..., 1] *= torch.rand(steps, seeds, dtype=torch.float64, generator=made) < 1 / every
    return gradients


def drifting_optimum(steps: int, seeds: int, drift: float) -> torch.Tensor:
    """Where the optimum is, (steps, seeds): a random walk of N(0, drift²) a step."""
    made = torch.Generator().manual_seed(2)
    return torch.cumsum(drift * torch.randn(steps, seeds, dtype=torch.float64, generator=made), 0)


def drive(
    optimizer_class: Callable,
    start: torch.Tensor,
    gradient: torch.Tensor | Callable[[torch.Tensor, int], torch.Tensor],
    steps: int | None = None,
    **options,
) -> dict[str, torch.Tensor]:
    """Run an optimizer and keep its parameter θ after each step, (steps, *shape), and each tensor of its state likewise.

    gradient  the stream (steps, *shape), or a function (θ, t) that gives the gradient of step t = 0, 1, …
    """
    theta = start.clone().requires_grad_()
    optimizer = optimizer_class([theta], **options)
    kept: dict[str, list[torch.Tensor]] = {}
    for t in range(len(gradient) if steps is None else steps):
        slope = gradient[t] if isinstance(gradient, torch.Tensor) else gradient(theta.detach(), t)
        theta.grad = slope.clone()
        optimizer.step()
        for name, value in {"theta": theta.detach(), **optimizer.state[theta]}.items():
            kept.setdefault(name, []).append(torch.as_tensor(value).clone())
    return {name: torch.stack(values) for name, values in kept.items()}


def steps_of(start: torch.Tensor, track: torch.Tensor) -> torch.Tensor:
    """The steps θₜ - θₜ₋₁ of a track (steps, *shape) that began at `start`."""
    return torch.diff(torch.cat([start[None], track]), dim=0)


def adadelta_with_units(theta, g, s, rho, eps_step, eps_gradient):
    """Adadelta with an ε for each of its two averages, so that each can bear the unit of what it is added to.

    E[g²] = ρ E[g²] + (1 − ρ) g²
    Δ = √(E[Δ²] + ε_Δ) / √(E[g²] + ε_g) · g
    E[Δ²] = ρ E[Δ²] + (1 − ρ) Δ²
    θ = θ − Δ
    """
    s.E_g2 = rho * s.E_g2 + (1 - rho) * g * g
    s.delta = (s.E_delta2 + eps_step) ** 0.5 / (s.E_g2 + eps_gradient) ** 0.5 * g
    s.E_delta2 = rho * s.E_delta2 + (1 - rho) * s.delta * s.delta
    theta = theta - s.delta
    return theta
