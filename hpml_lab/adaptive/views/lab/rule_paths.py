"""What the optimizer lab shows: the settings that were chosen, and each optimizer's path under them.

Paths are computed on plain Python floats, by the rules of hpml_lab.optim.formulas: a fraction of a millisecond each, so that
they can follow a slider. Everything that a step reads and writes is kept, for step mode.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import SimpleNamespace

from hpml_lab.core.system.errors import LabError
from hpml_lab.landscape.surfaces import SURFACES, Surface
from hpml_lab.optim import schedules
from hpml_lab.optim.formulas import FORMULAS

Pair = tuple[float, float]  # a number for x and one for y

MOST_OPTIMIZERS = 6  # more paths hide each other
MOST_STEPS = 500
DIVERGED = 1e12  # a loss beyond this is called divergence, and the path ends


# The factor on the learning rate before step t (from 0) of T.
SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "constant": schedules.constant,
    "drop by 10 at half": schedules.step_at(0.5),  # MultiStepLR
    "cosine": schedules.cosine,  # CosineAnnealingLR
    "warm-up over a tenth": schedules.warm_up,  # LinearLR
    "one cycle": schedules.one_cycle,  # OneCycleLR, without its change of the momentum
}

# Initial rates. Rules without a denominator need one that fits the surface's curvature; the others move by about α per step.
_PLAIN_RATES = {
    "quadratic": 0.02,
    "rosenbrock": 0.0008,
    "beale": 0.01,
    "himmelblau": 0.005,
    "saddle": 0.1,
    "rastrigin": 0.001,
    "noisy-valley": 0.05,
}
_ADAPTIVE_RATES = {"adagrad": 0.5, "lecture_adagrad": 0.5, "adadelta": 1.0, "rmsprop": 0.05, "ruder_rmsprop": 0.05}


def first_rate(surface: Surface, optimizer: str) -> float:
    """A learning rate with which `optimizer` makes progress on `surface`."""
    if optimizer in ("gradient_descent", "momentum", "nesterov", "lecture_momentum", "lecture_nesterov"):
        return _PLAIN_RATES.get(surface.name, 0.01)
    return _ADAPTIVE_RATES.get(optimizer, 0.2)


@dataclass(frozen=True, eq=False)
class LabPath:
    """One optimizer's run. Entry 0 of `x`, `y`, `losses` and the states is the start; entry t is what step t left.

    gx, gy, rates  entry t - 1 is the gradient and the learning rate that step t used
    states         the rule's state for x and for y: {its name in the formula: values}
    end            why the path ended early, "diverges at 7" with the step; otherwise empty
    left           the first step after which the point is outside the window, or None

    All are flat lists of floats: lists of pairs would trigger Python's garbage collector while a slider moves.
    """

    optimizer: str
    surface: Surface
    hyper: dict[str, float]
    x: list[float]
    y: list[float]
    losses: list[float]
    gx: list[float]
    gy: list[float]
    rates: list[float]
    states: tuple[dict[str, list[float]], dict[str, list[float]]]
    end: str
    left: int | None

    @property
    def steps(self) -> int:
        """How many steps the path has."""
        return len(self.x) - 1

    @property
    def points(self) -> list[Pair]:
        """The points, the start first."""
        return list(zip(self.x, self.y, strict=True))

    def state_before(self, t: int) -> tuple[SimpleNamespace, SimpleNamespace]:
        """The state for x and for y before step `t`."""
        return tuple(SimpleNamespace(**{name: values[t - 1] for name, values in state.items()}) for state in self.states)


@lru_cache(maxsize=64)
def run_path(
    surface: Surface,
    optimizer: str,
    hyper: tuple[tuple[str, float], ...],
    start: Pair,
    noise: float,
    schedule: str,
    steps: int,
    seed: int,
) -> LabPath:
    """The path of `optimizer` with all its hyperparameters; it ends early where it diverges, and never raises."""
    formula, values, factor = FORMULAS[optimizer], dict(hyper), SCHEDULES[schedule]
    step, rate = formula.step, values["lr"]
    looks_ahead = optimizer == "lecture_nesterov"
    (x, y), (x0, x1, y0, y1) = start, surface.window
    sx, sy = formula.start(x), formula.start(y)
    states = tuple({name: [value] for name, value in vars(s).items()} for s in (sx, sy))
    kept = [(states[0][name], states[1][name], name) for name in formula.state]
    vx, vy = vars(sx), vars(sy)
    path = LabPath(optimizer, surface, dict(hyper), [x], [y], [surface.value(x, y)], [], [], [], states, "", None)
    end, left = "", None
    for t in range(1, steps + 1):
        lr = values["lr"] = rate * factor(t - 1, steps)
        try:
            at_x, at_y = x, y
            if looks_ahead:
                at_x, at_y = x - values["momentum"] * sx.v, y - values["momentum"] * sy.v  # Formula.gradient_point
            gx, gy = surface.seen_gradient(at_x, at_y, t, noise, seed) if noise else surface.gradient(at_x, at_y)
            x, y = step(x, gx, sx, t, **values), step(y, gy, sy, t, **values)
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
        path.gx.append(gx)
        path.gy.append(gy)
        path.rates.append(lr)
        for of_x, of_y, name in kept:
            of_x.append(vx[name])
            of_y.append(vy[name])
        if left is None and not (x0 <= x <= x1 and y0 <= y <= y1):
            left = t
    return replace(path, end=end, left=left)


@dataclass(frozen=True)
class LabSettings:
    """Everything that the lab's picture depends on.

    hyper    {optimizer: {hyperparameter: value}}, in the order in which they were chosen
    follow   the optimizer whose step sizes, state and single steps are shown
    step     the step that is marked, from 0 (the start)
    """

    surface: Surface
    hyper: dict[str, dict[str, float]]
    start: Pair
    noise: float
    schedule: str
    steps: int
    seed: int
    follow: str
    step: int

    @property
    def paths(self) -> dict[str, LabPath]:
        """The path of each chosen optimizer."""
        rest = self.start, self.noise, self.schedule, self.steps, self.seed
        return {name: run_path(self.surface, name, tuple(hyper.items()), *rest) for name, hyper in self.hyper.items()}


def settings(
    surface: str | Surface = "beale",
    optimizers: str | Iterable[str] = ("gradient_descent", "momentum", "adam"),
    lr: float | Mapping[str, float] | None = None,
    start: Pair | None = None,
    noise: float | None = None,
    schedule: str = "constant",
    steps: int = 200,
    seed: int = 0,
    follow: str | None = None,
    step: int = 10,
    **hyper: float | Mapping[str, float],
) -> LabSettings:
    """Check the chosen settings and fill in the others.

    surface     a name in SURFACES, or a Surface such as quadratic(100)
    optimizers  names in FORMULAS
    lr          one learning rate for all, or {optimizer: rate}; default: a rate that suits surface and optimizer
    start       (x, y); default: the surface's
    noise       standard deviation of the noise on each gradient component; default: the surface's
    schedule    a name in SCHEDULES
    follow      the optimizer to show in detail; default: the last
    hyper       further hyperparameters by the formulas' names (momentum, rho, alpha, beta1, beta2, eps, weight_decay,
                momentum_decay), one number for all that have it, or {optimizer: number}

    Raises LabError for unknown names and invalid values.
    """
    if not isinstance(surface, Surface):
        surface = SURFACES[_known(surface, SURFACES, "surface")]
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
            chosen[name][key] = checked(key, value)
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
    return LabSettings(surface, chosen, start, noise, schedule, steps, seed, follow, min(step, steps))


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


def checked(key: str, value: float) -> float:
    """`value` if it is valid for the hyperparameter `key`; otherwise raises LabError."""
    value = _number(key, value)
    if key == "lr" and value <= 0:
        raise LabError(f"lr = {value:g} does not descend.", "Give a learning rate above 0.")
    if key in ("momentum", "rho", "alpha", "beta1", "beta2") and not 0 <= value < 1:
        raise LabError(f"{key} = {value:g} never forgets.", "Give a decay rate from 0 to just below 1.")
    if value < 0:
        raise LabError(f"{key} = {value:g} is negative.", "Give 0 or more.")
    return value
