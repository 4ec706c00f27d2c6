"""What the optimizer lab shows: the settings that were chosen, and each optimizer's path under them, on plain Python floats.

The page computes the same paths in the browser, by the same rules: `module.py` writes them in JavaScript.
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.landscape.surfaces import SURFACES, Point, Surface, quadratic
from hpml_lab.landscape.trajectories import walk
from hpml_lab.optim import schedules
from hpml_lab.optim.formulas.by_name import FORMULAS

MOST_OPTIMIZERS = 6  # more paths hide each other
MOST_STEPS = 500
DIVERGED = 1e12  # a loss beyond this is called divergence, and the path ends
PANELS = ("choose", "schedule", "surface", "loss", "sizes", "state", "map", "step")  # parts of the page


def drop_at_half(t: int, T: int) -> float:
    """A tenth of the rate from half of the steps on (MultiStepLR)."""
    return 0.1 if t >= T // 2 else 1.0


# The factor on the learning rate before step t (from 0) of T.
SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "constant": schedules.constant,
    "drop by 10 at half": drop_at_half,
    "cosine": schedules.cosine,  # CosineAnnealingLR
    "warm-up over a tenth": schedules.warm_up,  # LinearLR
    "one cycle": schedules.one_cycle,  # OneCycleLR, without its change of the momentum
}

# Initial rates. Rules without a denominator need one that fits the surface's curvature; the others move by about α per step.
PLAIN_RULES = ("gradient_descent", "momentum", "nesterov", "lecture_momentum", "lecture_nesterov")
_PLAIN_RATES = {"rosenbrock": 0.0008, "beale": 0.01, "himmelblau": 0.005, "saddle": 0.1, "rastrigin": 0.001}
_ADAPTIVE_RATES = {"adagrad": 0.5, "lecture_adagrad": 0.5, "adadelta": 1.0, "rmsprop": 0.05, "ruder_rmsprop": 0.05}
_ADAPTIVE_RATES |= {"lars": 5.0, "lamb": 0.05, "novograd": 0.05}


def first_rate(surface: Surface, optimizer: str) -> float:
    """A learning rate with which `optimizer` makes progress on `surface`."""
    if optimizer not in (*PLAIN_RULES, "radam"):  # whose first five steps are those of momentum
        return _ADAPTIVE_RATES.get(optimizer, 0.2)
    if surface.eigenvalues:
        return float(f"{0.5 / max(surface.eigenvalues):.1g}")
    return _PLAIN_RATES.get(surface.name, 0.01)


def surface_named(name: str) -> Surface:
    """A surface of SURFACES, or the bowl of another condition number: "quadratic-37". Raises LabError for other names."""
    if isinstance(name, str) and (bowl := re.fullmatch(r"quadratic-(\d+(\.\d+)?)", name)) and float(bowl[1]) >= 1:
        return quadratic(float(bowl[1]))
    return SURFACES[_known(name, SURFACES, "surface")]


@dataclass(frozen=True, eq=False)
class LabPath:
    """One optimizer's run: entry 0 of `x`, `y` and `losses` is the start, entry t is what step t left.

    rates  entry t - 1 is the learning rate of step t
    end    why the path ended early, "diverges at 7" with the step; otherwise empty
    """

    x: list[float]
    y: list[float]
    losses: list[float]
    rates: list[float]
    end: str

    @property
    def steps(self) -> int:
        """How many steps the path has."""
        return len(self.rates)


def run_path(
    surface: Surface,
    optimizer: str,
    hyper: Mapping[str, float],
    start: Point,
    noise: float = 0.0,
    schedule: str = "constant",
    steps: int = 200,
    seed: int = 0,
) -> LabPath:
    """The path of `optimizer` with all its hyperparameters; it ends early where it diverges, and never raises."""
    factor, end, rest = SCHEDULES[schedule], "", {name: value for name, value in hyper.items() if name != "lr"}
    rates = [hyper["lr"] * factor(t, steps) for t in range(steps)]
    points = walk(surface, optimizer, steps, start, noise, seed, lambda t: rates[t - 1], **rest)
    path = LabPath([start[0]], [start[1]], [surface.value(*start)], [], "")
    for t, rate in enumerate(rates, 1):
        try:
            x, y = next(points)
            loss = surface.value(x, y)
        except ZeroDivisionError:
            end = f"divides by 0 at {t}"
            break
        except OverflowError:
            loss = math.inf
        if not abs(loss) < DIVERGED:  # nan too
            end = f"diverges at {t}"
            break
        path.x.append(x)
        path.y.append(y)
        path.losses.append(loss)
        path.rates.append(rate)
    return LabPath(path.x, path.y, path.losses, path.rates, end)


@dataclass(frozen=True)
class LabSettings:
    """What the lab shows.

    hyper    {optimizer: {hyperparameter: value}}, in the order in which they were chosen
    follow   the optimizer whose sliders, step sizes, state, map and single steps are shown
    step     the step that is marked, from 0 (the start)
    panels   which of PANELS are there
    """

    surface: str
    hyper: dict[str, dict[str, float]]
    start: Point
    noise: float
    schedule: str
    steps: int
    seed: int
    follow: str
    step: int
    panels: tuple[str, ...]

    @property
    def paths(self) -> dict[str, LabPath]:
        """The path of each chosen optimizer."""
        rest = self.start, self.noise, self.schedule, self.steps, self.seed
        return {name: run_path(surface_named(self.surface), name, hyper, *rest) for name, hyper in self.hyper.items()}

    @property
    def options(self) -> dict[str, Any]:
        """The same for the page."""
        return asdict(self) | {"start": list(self.start), "panels": list(self.panels)}


def settings(
    surface: str | Surface = "beale",
    optimizers: str | Iterable[str] = ("gradient_descent", "momentum", "adam"),
    lr: float | Mapping[str, float] | None = None,
    start: Point | None = None,
    noise: float | None = None,
    schedule: str = "constant",
    steps: int = 200,
    seed: int = 0,
    follow: str | None = None,
    step: int = 10,
    panels: Iterable[str] = PANELS,
    **hyper: float | Mapping[str, float],
) -> LabSettings:
    """Check the chosen settings and fill in the others.

    surface     a name in SURFACES, or a bowl such as quadratic(100)
    optimizers  names in FORMULAS
    lr          one learning rate for all, or {optimizer: rate}; default: a rate that suits surface and optimizer
    start       (x, y); default: the surface's
    noise       standard deviation of the noise on each gradient component; default: the surface's
    schedule    a name in SCHEDULES
    follow      the optimizer to show in detail; default: the last
    panels      parts of the lab, names in PANELS; default: all
    hyper       further hyperparameters by the formulas' names (momentum, rho, alpha, beta1, beta2, eps, weight_decay,
                momentum_decay, trust_coeff, eta_minus, eta_plus), one number for all that have it, or {optimizer: number}

    Raises LabError for unknown names and invalid values.
    """
    surface = surface_named(surface.name if isinstance(surface, Surface) else surface)
    listed = [optimizers] if isinstance(optimizers, str) else _several("optimizers", optimizers)
    names = list(dict.fromkeys(_known(name, FORMULAS, "optimizer") for name in listed))
    if not 1 <= len(names) <= MOST_OPTIMIZERS:
        raise LabError(f"{len(names)} optimizers were chosen.", f"Choose 1 to {MOST_OPTIMIZERS}: more paths hide each other.")
    chosen = {}
    for name in names:
        chosen[name] = FORMULAS[name].defaults | {"lr": first_rate(surface, name)}
    for key, given in {"lr": lr, **hyper}.items():
        if given is None:
            continue
        each = given if isinstance(given, Mapping) else {name: given for name in names if key in chosen[name]}
        if not each:
            known = sorted({option for values in chosen.values() for option in values})
            raise LabError(f"none of {', '.join(names)} has a hyperparameter {key!r}.", f"They have {', '.join(known)}.")
        for name, value in each.items():
            _known(name, names, "chosen optimizer")
            _known(key, chosen[name], f"hyperparameter of {name}")
            chosen[name][key] = _checked(key, value)
    start = surface.start if start is None else tuple(_number("start", value) for value in _several("start", start))
    if len(start) != 2:
        raise LabError(f"a start of {len(start)} numbers was given.", "Give two: (x, y).")
    noise = surface.noise if noise is None else _number("noise", noise)
    if noise < 0:
        raise LabError(f"noise = {noise:g} is negative.", "Give a standard deviation of 0 or more.")
    _known(schedule, SCHEDULES, "schedule")
    steps, step = _integer("steps", steps, 10, MOST_STEPS), _integer("step", step, 0, MOST_STEPS)
    seed = _integer("seed", seed, 0, 10**9)
    follow = names[-1] if follow is None else _known(follow, names, "chosen optimizer")
    panels = tuple(_known(panel, PANELS, "panel") for panel in _several("panels", panels))
    return LabSettings(surface.name, chosen, start, noise, schedule, steps, seed, follow, min(step, steps), panels)


def _several(what: str, given) -> list:
    try:
        return list(given)
    except TypeError:
        raise LabError(f"{what} = {given!r} is not a list.", "Give a list or a tuple.") from None


def _known(name, names: Iterable[str], what: str) -> str:
    if not isinstance(name, str) or name not in names:
        raise LabError(f"{name!r} is not a known {what}.", f"Choose one of {', '.join(names)}.")
    return name


def _number(what: str, value) -> float:
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise LabError(f"{what} = {value!r} is not a number.", "Give a number.") from None
    if not math.isfinite(value):
        raise LabError(f"{what} = {value} is not finite.", "Give a finite number.")
    return value


def _integer(what: str, value, low: int, high: int) -> int:
    if int(_number(what, value)) != value or not low <= value <= high:
        raise LabError(f"{what} = {value!r} is not valid.", f"Give an integer from {low} to {high}.")
    return int(value)


def _checked(key: str, value: float) -> float:
    """`value` if it is valid for the hyperparameter `key`; otherwise raises LabError."""
    value = _number(key, value)
    if key == "lr" and value <= 0:
        raise LabError(f"lr = {value:g} does not descend.", "Give a learning rate above 0.")
    if key in ("momentum", "rho", "alpha", "beta1", "beta2") and not 0 <= value < 1:
        raise LabError(f"{key} = {value:g} never forgets.", "Give a decay rate from 0 to just below 1.")
    if key in ("eta_minus", "eta_plus") and not (0 < value < 1 if key == "eta_minus" else value > 1):
        raise LabError(f"{key} = {value:g} is not valid.", "Give an eta_minus between 0 and 1 and an eta_plus above 1.")
    if value < 0:
        raise LabError(f"{key} = {value:g} is negative.", "Give 0 or more.")
    return value
