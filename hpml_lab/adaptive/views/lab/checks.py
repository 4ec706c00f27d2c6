"""Checks of the optimizer lab: its paths against the classes, its steps against its paths, and its speed."""

import contextlib
import itertools
import time
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import torch

from hpml_lab.adaptive.views.lab.rule_paths import LabPath, LabSettings, Pair, settings
from hpml_lab.adaptive.views.lab.single_step import class_of, class_options, step_lines
from hpml_lab.adaptive.views.lab.widget import RATES, OptimizerLab
from hpml_lab.landscape.surfaces import SURFACES
from hpml_lab.optim.formulas import FORMULAS

WITH_CLASS = [name for name in FORMULAS if class_of(name)]


@dataclass
class PathComparison:
    """The paths of a formula and of its class on one surface; `distance` is the largest |Δθ| over the window's width."""

    surface: str
    optimizer: str
    steps: int
    distance: float


@contextlib.contextmanager
def _float64():
    """Inside, NAdam's class keeps its product of momenta in float64, like the formula; otherwise in float32, like torch."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def class_path(path: LabPath, chosen: LabSettings) -> list[Pair]:
    """The points of the class of hpml_lab.optim in float64, with the gradients at its own points."""
    points = [(path.x[0], path.y[0])]
    theta = torch.tensor(points[0], dtype=torch.float64, requires_grad=True)
    optimizer = class_of(path.optimizer)([theta], **class_options(path.optimizer, path.hyper))
    for t, rate in enumerate(path.rates, 1):
        gradient = path.surface.seen_gradient(*points[-1], t, chosen.noise, chosen.seed)
        theta.grad = torch.tensor(gradient, dtype=torch.float64)
        optimizer.param_groups[0]["lr"] = rate
        optimizer.step()
        points.append(tuple(theta.tolist()))
    return points


def compare_with_classes(steps: int) -> list[PathComparison]:
    """The paths of formula and class on every surface, for every formula that has a class."""
    rows = []
    for surface, name in itertools.product(SURFACES.values(), WITH_CLASS):
        chosen = settings(surface, name, steps=steps)
        path = chosen.paths[name]
        with _float64():
            points = class_path(path, chosen)
        width = surface.window[1] - surface.window[0]
        both = zip(path.points, points, strict=True)
        distance = max(abs(a - b) for formula, own in both for a, b in zip(formula, own, strict=True))
        rows.append(PathComparison(surface.title, FORMULAS[name].title, path.steps, distance / width))
    return rows


def steps_that_miss(steps: int) -> int:
    """The number of steps in which the last line of step mode does not give exactly the path's next point, over all surfaces
    and rules."""
    missed = 0
    for surface, name in itertools.product(SURFACES, FORMULAS):
        path = settings(surface, name, steps=steps, schedule="cosine").paths[name]
        missed += sum(step_lines(path, t)[-1].results != (path.x[t], path.y[t]) for t in range(1, path.steps + 1))
    return missed


def back_and_forth(moves: int) -> bool:
    """Whether `moves` steps back and as many forward show the same pictures and the same numbers, step by step."""
    shown = OptimizerLab(settings(step=moves))
    seen = {}

    def look() -> bool:
        now = shown.image.value, shown.table.value
        return seen.setdefault(shown.chosen.step, now) == now

    same = [look()]
    for button in [shown.back] * moves + [shown.forward] * moves:
        button.click()
        same.append(look())
    return all(same) and len(seen) == moves + 1 == len(set(seen.values()))


def drawn_anew(moves: int) -> bool:
    """Whether the picture after slider moves equals that of a lab opened with these settings, byte by byte."""
    shown = OptimizerLab(settings(step=3))
    for move in range(moves):
        shown.hyper["lr"].value = RATES[7 * move % len(RATES)]
        shown.start[move % 2].value = shown.start[move % 2].min + 0.1 * move
        shown.schedule.index = move % len(shown.schedule.options)
    return shown.image.value == OptimizerLab(shown.chosen).image.value


def slider_seconds(shown: OptimizerLab, moves: int) -> list[float]:
    """Seconds from a slider's event to the new PNG, for `moves` moves of rate, start, step and decay in turn."""
    rates = [rate for rate in RATES if rate <= 1]
    decay = shown.hyper["momentum" if "momentum" in shown.chosen.hyper[shown.chosen.follow] else "beta1"]
    decays = [value for _, value in decay.options]
    begin, width = shown.start[0].min, shown.start[0].max - shown.start[0].min
    events = []
    for move in range(moves):
        control, value = (
            (shown.hyper["lr"], rates[move % len(rates)]),
            (shown.start[0], begin + width * (0.1 + 0.8 * (move * 13 % 89) / 89)),
            (shown.step, move % shown.chosen.steps + 1),
            (decay, decays[move // 4 % len(decays)]),
        )[move % 4]
        events.append((control, value))
    start, seconds = 0.0, []

    def done(change: Any) -> None:
        seconds.append(time.perf_counter() - start)

    shown.image.observe(done, "value")
    for control, value in events:
        start = time.perf_counter()
        control.value = value
    shown.image.unobserve(done, "value")
    return seconds


def latency(moves: int) -> dict[str, tuple[float, float]]:
    """Median and 95th percentile of `slider_seconds` in ms: for the lab as it opens, and with six optimizers."""
    six = ["gradient_descent", "momentum", "nesterov", "adagrad", "rmsprop", "adam"]
    found = {}
    for label, chosen in (("three optimizers", settings()), ("six optimizers", settings(optimizers=six))):
        shown = OptimizerLab(chosen)
        slider_seconds(shown, 8)  # fonts and first draws
        seconds = slider_seconds(shown, moves)
        found[label] = 1e3 * median(seconds), 1e3 * quantiles(seconds, n=20)[-1]
    return found
