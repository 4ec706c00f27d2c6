"""What the optimizer lab shows: the settings that were chosen, and each optimizer's path under them.

Paths are calculated on plain Python floats, by the rules of hpml_lab.optim.formulas as they are printed: a fraction of a
millisecond each, so that they can follow a slider. Everything that a step read and wrote is kept, for step mode.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import SimpleNamespace

from hpml_lab.core.errors import LabError
from hpml_lab.landscape.surfaces import SURFACES, Surface
from hpml_lab.optim.formulas import FORMULAS

Pair = tuple[float, float]  # a number for x and one for y

MOST_OPTIMIZERS = 6  # more paths hide each other
MOST_STEPS = 500
DIVERGED = 1e12  # a loss beyond this is called divergence, and the path ends


def _one_cycle(t: int, steps: int) -> float:
    """Up from 1/25 along a cosine in the first 30 % of the steps, then down to 1/250 000."""
    top, low = 0.3 * steps - 1, 1 / 25
    if t - 1 <= top:
        return _between(low, 1.0, (t - 1) / top)
    return _between(1.0, low / 1e4, (t - 1 - top) / (steps - 1 - top))


def _between(start: float, end: float, part: float) -> float:
    """From `start` (part 0) to `end` (part 1) along half a cosine wave."""
    return end + (start - end) / 2 * (1 + math.cos(math.pi * part))


# The factor on the learning rate at step t (from 1) of T, as torch's schedulers of these names give it.
SCHEDULES: dict[str, Callable[[int, int], float]] = {
    "constant": lambda t, steps: 1.0,
    "drop by 10 at half": lambda t, steps: 0.1 if t - 1 >= steps // 2 else 1.0,  # MultiStepLR
    "cosine": lambda t, steps: _between(1.0, 0.0, (t - 1) / steps),  # CosineAnnealingLR
    "warm-up over a tenth": lambda t, steps: min(1.0, t / max(1, steps // 10)),  # LinearLR
    "one cycle": _one_cycle,  # OneCycleLR, whose own change of the momentum is left out
}

# Rates to begin with. Those without a denominator must fit the surface's curvature; the others move by about α a step.
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
    """A learning rate with which `optimizer` gets somewhere on `surface`."""
    if optimizer in ("gradient_descent", "momentum", "nesterov", "lecture_momentum", "lecture_nesterov"):
        return _PLAIN_RATES.get(surface.name, 0.01)
    return _ADAPTIVE_RATES.get(optimizer, 0.2)


@dataclass(frozen=True, eq=False)
class Path:
    """One optimizer's run. Entry 0 of `x`, `y`, `losses` and the states is the start; entry t is what step t left.

    gx, gy, rates  entry t - 1 is the gradient, the learning rate that step t used
    states         the rule's state for x and for y: {its name in the formula: values}
    end            why the path ended early: "diverges at 7", the step; else empty
    left           the first step after which the point is outside the window, or None

    All are flat lists of floats: lists of pairs would set off Python's garbage collector while a slider moves.
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
        """The state for x and for y that step `t` finds."""
        return tuple(SimpleNamespace(**{name: values[t - 1] for name, values in one.items()}) for one in self.states)


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
) -> Path:
    """The path of `optimizer` with all its hyperparameters; it ends early where it diverges, and never raises."""
    formula, values, factor = FORMULAS[optimizer], dict(hyper), SCHEDULES[schedule]
    step, rate = formula.step, values["lr"]
    looks_ahead = optimizer == "lecture_nesterov"
    (x, y), (x0, x1, y0, y1) = start, surface.window
    sx, sy = formula.start(x), formula.start(y)
    states = tuple({name: [value] for name, value in vars(s).items()} for s in (sx, sy))
    kept = [(states[0][name], states[1][name], name) for name in formula.state]
    vx, vy = vars(sx), vars(sy)
    path = Path(optimizer, surface, dict(hyper), [x], [y], [surface.value(x, y)], [], [], [], states, "", None)
    end, left = "", None
    for t in range(1, steps + 1):
        lr = values["lr"] = rate * factor(t, steps)
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
class Settings:
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
    def paths(self) -> dict[str, Path]:
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
) -> Settings:
    """Check what was chosen and fill in the rest.

    surface     a name in SURFACES, or a Surface such as quadratic(100)
    optimizers  names in FORMULAS
    lr          one learning rate for all, or {optimizer: rate}; left out: a rate that suits surface and optimizer
    start       (x, y); left out: the surface's
    noise       standard deviation of what is added to each gradient component; left out: the surface's
    schedule    a name in SCHEDULES
    follow      the optimizer to look at closely; left out: the last
    hyper       further hyperparameters by the formulas' names (momentum, rho, alpha, beta1, beta2, eps, weight_decay,
                momentum_decay), one number for all that have it, or {optimizer: number}

    Raises LabError for names that do not exist and values that make no sense.
    """
    if not isinstance(surface, Surface):
        surface = SURFACES[_one_of(surface, SURFACES, "surface")]
    listed = [optimizers] if isinstance(optimizers, str) else _several("optimizers", optimizers)
    names = list(dict.fromkeys(_one_of(name, FORMULAS, "optimizer") for name in listed))
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
            known = sorted({one for values in chosen.values() for one in values})
            raise LabError(f"none of {', '.join(names)} has a hyperparameter {key!r}.", f"They have {', '.join(known)}.")
        for name, value in each.items():
            _one_of(name, names, "chosen optimizer")
            _one_of(key, chosen[name], f"hyperparameter of {name}")
            chosen[name][key] = checked(key, value)
    start = surface.start if start is None else tuple(_number("start", value) for value in _several("start", start))
    if len(start) != 2:
        raise LabError(f"a start of {len(start)} numbers was given.", "Give two: (x, y).")
    noise = surface.noise if noise is None else _number("noise", noise)
    if noise < 0:
        raise LabError(f"noise = {noise:g} is negative.", "It is a standard deviation: 0 or more.")
    _one_of(schedule, SCHEDULES, "schedule")
    steps, step = _whole("steps", steps, 10, MOST_STEPS), _whole("step", step, 0, MOST_STEPS)
    seed = _whole("seed", seed, 0, 10**9)
    follow = names[-1] if follow is None else _one_of(follow, names, "chosen optimizer")
    return Settings(surface, chosen, start, noise, schedule, steps, seed, follow, min(step, steps))


def _several(what: str, given) -> list:
    try:
        return list(given)
    except TypeError:
        raise LabError(f"{what} = {given!r} is one thing.", "Give several, in a list or a tuple.") from None


def _one_of(name, known: Iterable[str], what: str) -> str:
    if not isinstance(name, str) or name not in known:
        raise LabError(f"{name!r} is no {what}.", f"There are {', '.join(known)}.")
    return name


def _number(what: str, value) -> float:
    try:
        value = float(value)
    except (TypeError, ValueError):
        raise LabError(f"{what} = {value!r} is not a number.", "Give a number.") from None
    if not math.isfinite(value):
        raise LabError(f"{what} = {value} is not finite.", "Give a finite number.")
    return value


def _whole(what: str, value, low: int, high: int) -> int:
    if int(_number(what, value)) != value or not low <= value <= high:
        raise LabError(f"{what} = {value!r} does not fit.", f"It is a whole number from {low} to {high}.")
    return int(value)


def checked(key: str, value: float) -> float:
    """`value` where it makes sense for the hyperparameter `key`; else LabError."""
    value = _number(key, value)
    if key == "lr" and value <= 0:
        raise LabError(f"lr = {value:g} does not descend.", "A learning rate is above 0.")
    if key in ("momentum", "rho", "alpha", "beta1", "beta2") and not 0 <= value < 1:
        raise LabError(f"{key} = {value:g} never forgets.", "It is a decay rate: from 0 to just below 1.")
    if value < 0:
        raise LabError(f"{key} = {value:g} is negative.", "It is 0 or more.")
    return value
