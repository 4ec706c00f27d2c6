"""Many starts on one surface as one batched program: which minimum each reaches, and when each leaves a saddle."""

import math
from dataclasses import dataclass

import torch

from hpml_lab.landscape import SURFACES, Grid, Surface, run_grid


@dataclass(frozen=True)
class RuleFromMany:
    """A rule, with settings for two surfaces at which it neither hardly moves nor diverges."""

    name: str
    on_himmelblau: dict[str, float]
    on_rastrigin: dict[str, float]


RULES_FROM_MANY = {
    "gradient descent": RuleFromMany("gradient_descent", {"lr": 0.01}, {"lr": 0.002}),
    "momentum": RuleFromMany("momentum", {"lr": 0.01, "momentum": 0.9}, {"lr": 0.002, "momentum": 0.9}),
    "Adam": RuleFromMany("adam", {"lr": 0.3}, {"lr": 0.3}),
}
ESCAPING_RULES = {
    "gradient descent": ("gradient_descent", {"lr": 0.1}),
    "momentum": ("momentum", {"lr": 0.1, "momentum": 0.9}),
    "Nesterov": ("nesterov", {"lr": 0.1, "momentum": 0.9}),
    "Adagrad": ("adagrad", {"lr": 0.1}),
    "RMSprop": ("rmsprop", {"lr": 0.01}),
    "Adam": ("adam", {"lr": 0.1}),
}


def run_from_everywhere(surface: Surface, rule: str, side: int, steps: int, device: torch.device, **hyper: float) -> Grid:
    """Run a rule from each point of a side × side raster of the surface's window."""
    x0, x1, y0, y1 = surface.window
    x = torch.linspace(x0, x1, side)[None].expand(side, side)
    y = torch.linspace(y0, y1, side)[:, None].expand(side, side)
    return run_grid(surface, rule, steps, (x, y), device=device, **hyper)


def basins_of(surface: Surface, rule: str, side: int, steps: int, device: torch.device, **hyper: float) -> torch.Tensor:
    """The index of the minimum that each start (side, side) of the window reaches; −1 for none."""
    grid = run_from_everywhere(surface, rule, side, steps, device, **hyper)
    distance = torch.stack([torch.hypot(grid.x - a, grid.y - b) for a, b in surface.minima])
    nearest = distance.nan_to_num(nan=math.inf).min(0)
    return nearest.indices.masked_fill(~(nearest.values < 0.3), -1).cpu()


def escape_times(starts: torch.Tensor, steps: int, device: torch.device) -> dict[str, list[int | None]]:
    """Steps from (1, y) until |y| > ½, for each start y close to the saddle's ridge and each rule; None if it stays."""
    times = {}
    for title, (rule, hyper) in ESCAPING_RULES.items():
        keep = range(steps + 1)
        start = (1.0, starts)
        grid = run_grid(SURFACES["saddle"], rule, steps, start, keep=keep, dtype=torch.float64, device=device, **hyper)
        escaped = (grid.kept[:, 1].abs() > 0.5).cpu()
        times[title] = [int(column.int().argmax()) if column.any() else None for column in escaped.T]
    return times
