"""What the optimizer lab shows of the optimizer that is followed: its state, one step in numbers, and a map of its settings."""

import math
from types import SimpleNamespace

import torch

from hpml_lab.landscape.optimizer_lab.lab_paths import DIVERGED, SCHEDULES, LabSettings, first_rate, surface_named
from hpml_lab.landscape.surfaces import Surface
from hpml_lab.landscape.trajectories import run_grid
from hpml_lab.optim.formulas import arithmetic
from hpml_lab.optim.formulas.arithmetic import Floats
from hpml_lab.optim.formulas.by_name import FORMULAS

# The entries of a state that are drawn step by step, and their symbols; the others follow from them.
STATE_SYMBOLS = {"b": "b", "G": "G", "E_g2": "E[g²]", "E_delta2": "E[Δ²]", "v": "v", "m": "m", "u": "u", "r": "r", "size": "Δ"}

# The axes of a map: powers of ten around the first rate, and the memory of the first of these that the rule has.
RATE_REACH = (-1.5, 1.8)
MEMORY_REACH = {"momentum": 2.5, "beta2": 4.0, "rho": 2.5, "alpha": 2.5}
ARRIVED = 1e-3  # of the start's height above the lowest minimum


def second(optimizer: str) -> str | None:
    """The hyperparameter on the second axis of an optimizer's map, if there is one."""
    return next((name for name in MEMORY_REACH if name in FORMULAS[optimizer].defaults), None)


def map_axes(surface: Surface, optimizer: str) -> tuple[tuple[float, float], tuple[float, float]]:
    """The powers of ten of the rate, and the memories −log₁₀(1 − decay), from and to which the map reaches."""
    middle = math.log10(first_rate(surface, optimizer))
    return (middle + RATE_REACH[0], middle + RATE_REACH[1]), (0.0, MEMORY_REACH.get(second(optimizer), 2.5))


def settings_map(chosen: LabSettings, columns: int, rows: int) -> torch.Tensor:
    """Integers (rows, columns), the lowest memory first: the steps until the followed optimizer's height stays below a
    thousandth of the start's; 0 where it does not, −1 where the path diverges."""
    surface, name = surface_named(chosen.surface), chosen.follow
    (a, b), (c, d) = map_axes(surface, name)
    across, up = ((torch.arange(count, dtype=torch.float64) + 0.5) / count for count in (columns, rows))  # of the cells
    hyper = chosen.hyper[name] | {"lr": (10 ** (a + (b - a) * across)).expand(rows, columns)}
    if key := second(name):
        hyper[key] = 1 - 10 ** -(c + (d - c) * up)[:, None]
    rest = {"noise": chosen.noise, "seed": chosen.seed, "schedule": lambda t: SCHEDULES[chosen.schedule](t - 1, chosen.steps)}
    keep = range(chosen.steps + 1)
    grid = run_grid(surface, name, chosen.steps, chosen.start, keep, dtype=torch.float64, **rest, **hyper)
    losses = surface.value(grid.kept[:, 0], grid.kept[:, 1])
    lowest = min(surface.value(*point) for point in surface.minima)
    low = lowest + ARRIVED * (surface.value(*chosen.start) - lowest)
    steps = torch.arange(chosen.steps + 1)[:, None, None]
    last_above = torch.where(losses > low, steps, 0).amax(0)
    arrivals = torch.where(last_above < chosen.steps, last_above + 1, 0)
    return arrivals.masked_fill(~(losses.abs() < DIVERGED).all(0), -1)


def followed_states(chosen: LabSettings) -> list[tuple[Floats, Floats | None, dict[str, Floats]]]:
    """(θ, the gradient of the step that led there, the state) of the followed optimizer: the start first, then each step."""
    surface, formula, path = surface_named(chosen.surface), FORMULAS[chosen.follow], chosen.paths[chosen.follow]
    start = Floats(chosen.start)
    found = [(start, None, vars(formula.start(start)).copy())]

    def gradient(point: Floats, t: int) -> Floats:
        return Floats(surface.seen_gradient(*point, t, chosen.noise, chosen.seed))

    hyper = {key: value for key, value in chosen.hyper[chosen.follow].items() if key != "lr"}
    run = formula.run(start, range(1, path.steps + 1), gradient, lambda t: path.rates[t - 1], **hyper)
    found += [(theta, g, vars(state).copy()) for theta, g, state in run]
    return found


def step_in_numbers(chosen: LabSettings) -> list[tuple[str, str, Floats]]:
    """The marked step of the followed optimizer, line by line: formula, code, and what it gives for x and for y.

    Empty before the first step, and beyond the end of a path that diverges.
    """
    path, t = chosen.paths[chosen.follow], chosen.step
    if not 0 < t <= path.steps:
        return []
    states = followed_states(chosen)
    (theta, _, state), (_, g, _) = states[t - 1], states[t]
    known = chosen.hyper[chosen.follow] | {"lr": path.rates[t - 1], "t": t, "theta": theta, "g": g}
    known["s"] = SimpleNamespace(**state)
    known |= {name: getattr(arithmetic, name) for name in ("above", "largest", "norm", "ratio", "sqrt")}
    found = [("g = ∇f", "g = gradient(x, y)", g)]
    for formula, code in FORMULAS[chosen.follow].lines:
        target = code.partition(" = ")[0]
        exec(code, known)
        value = eval(target, known)
        found.append((formula, code, value if isinstance(value, Floats) else Floats((value, value))))
    return found
