"""Streams of gradients, and optimizers and formulas applied along them.

A whole batch of runs is one parameter tensor: the rules work element by element, so each seed runs independently.
"""

from collections.abc import Callable, Iterable

import numpy as np
import torch

from hpml_lab.core.show import charts
from hpml_lab.optim.formulas.by_name import FORMULAS, Formula

FLOAT64 = torch.float64


# ---- streams -------------------------------------------------------------------------------------------------------


def rare_and_frequent(steps: int, seeds: int, every: int) -> torch.Tensor:
    """Gradients (steps, seeds, 2) of two features: one in each step, one in a step out of `every`, else 0. Each is N(0, 1)."""
    generator = torch.Generator().manual_seed(1)
    gradients = torch.randn(steps, seeds, 2, dtype=FLOAT64, generator=generator)
    gradients[..., 1] *= torch.rand(steps, seeds, dtype=FLOAT64, generator=generator) < 1 / every
    return gradients


def drifting_optimum(steps: int, seeds: int, drift: float) -> torch.Tensor:
    """The position of the optimum, (steps, seeds): a random walk with N(0, drift²) per step."""
    generator = torch.Generator().manual_seed(2)
    return torch.cumsum(drift * torch.randn(steps, seeds, dtype=FLOAT64, generator=generator), 0)


def normal(*shape: int, seed: int, device: torch.device | str = "cpu") -> torch.Tensor:
    """Seeded numbers from N(0, 1), drawn on the CPU, so that they are the same on every device."""
    return torch.randn(*shape, dtype=FLOAT64, generator=torch.Generator().manual_seed(seed)).to(device)


# ---- running along a stream ----------------------------------------------------------------------------------------


def run_class(
    optimizer_class: Callable,
    start: torch.Tensor,
    stream: Iterable,
    gradient: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    **options,
) -> dict[str, torch.Tensor]:
    """Run an optimizer and keep its parameter θ after each step, (steps, *shape), and each tensor of its state likewise.

    stream    one gradient per step; with `gradient`, whatever that function needs for a step
    gradient  (θ, item of the stream) -> gradient
    """
    theta = start.clone().requires_grad_()
    optimizer = optimizer_class([theta], **options)
    history: dict[str, list[torch.Tensor]] = {}
    for item in stream:
        theta.grad = (item if gradient is None else gradient(theta.detach(), item)).clone()
        optimizer.step()
        for name, value in {"theta": theta.detach(), **optimizer.state[theta]}.items():
            history.setdefault(name, []).append(torch.as_tensor(value).clone())
    return {name: torch.stack(values) for name, values in history.items()}


def run_formula(formula: str | Formula, start: torch.Tensor, stream: Iterable, gradient=None, lr=None, **hyper) -> torch.Tensor:
    """θ of a formula after each step, (steps, *shape); the arguments are those of `Formula.run`."""
    formula = FORMULAS[formula] if isinstance(formula, str) else formula
    return torch.stack([theta for theta, _, _ in formula.run(start, stream, gradient, lr, **hyper)])


def steps_of(start: torch.Tensor, track: torch.Tensor) -> torch.Tensor:
    """The steps θₜ - θₜ₋₁ of a track (steps, *shape) that began at `start`."""
    return torch.diff(torch.cat([start[None], track]), dim=0)


# ---- comparing and thinning out ------------------------------------------------------------------------------------


def relative_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    """The largest difference, relative to the largest value of `b`."""
    return ((a - b).abs().max() / b.abs().max()).item()


def band(values: torch.Tensor) -> dict[str, list[float]]:
    """Median and quartiles over the last axis."""
    quartiles = torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype, device=values.device)
    low, middle, high = torch.quantile(values, quartiles, dim=-1)
    return {"low": low.tolist(), "median": middle.tolist(), "high": high.tolist()}


def spread_indices(steps: int, count: int = 200) -> list[int]:
    """At most `count` of the indices 0 … steps - 1, evenly spread over their logarithms, first and last among them."""
    return sorted({min(steps - 1, round(steps ** (i / (count - 1))) - 1) for i in range(count)})


def plot_band(axes, x: list, values: dict[str, list[float]], look: dict, label: str) -> None:
    """Plot a median with the quartiles around it; only where the quartiles are finite."""
    charts.band(axes, x, np.transpose([values["low"], values["median"], values["high"]]), label=label, **look)
