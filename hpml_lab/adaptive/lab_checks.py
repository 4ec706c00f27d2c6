"""What the optimizer lab claims, checked: its paths against the classes, its steps against its paths, and its speed."""

import contextlib
import itertools
import time
from statistics import median, quantiles
from typing import Any

import torch

from hpml_lab.adaptive.lab import RATES, OptimizerLab
from hpml_lab.adaptive.lab_paths import Pair, Path, Settings, settings
from hpml_lab.adaptive.lab_steps import class_of, class_options, step_lines
from hpml_lab.landscape.surfaces import SURFACES
from hpml_lab.optim.formulas import FORMULAS

WITH_CLASS = [name for name in FORMULAS if class_of(name)]


@contextlib.contextmanager
def _float64():
    """Within it, NAdam's class keeps its product of momenta in float64, as the formula does; else in float32, as torch does."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def own_trajectory(path: Path, chosen: Settings) -> list[Pair]:
    """The points of the class of hpml_lab.optim in float64, on the gradients at its own points."""
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


def compare_with_classes(steps: int) -> list[dict[str, Any]]:
    """Every surface by every optimizer that has a class: how far formula and class are apart at most, in each one's run.

    `apart` is |Δθ| over the window's width.
    """
    rows = []
    for surface, name in itertools.product(SURFACES.values(), WITH_CLASS):
        chosen = settings(surface, name, steps=steps)
        path = chosen.paths[name]
        with _float64():
            points = own_trajectory(path, chosen)
        width = surface.window[1] - surface.window[0]
        apart = max(abs(a - b) for one, other in zip(path.points, points, strict=True) for a, b in zip(one, other, strict=True))
        rows.append(
            {
                "surface": surface.title,
                "optimizer": FORMULAS[name].title,
                "steps": path.steps,
                "f at the start": path.losses[0],
                "f at the end": path.losses[-1],
                "apart": apart / width,
            }
        )
    return rows


def steps_that_miss(steps: int) -> int:
    """In how many steps the last line of step mode does not give the path's next point exactly, all surfaces and rules."""
    missed = 0
    for surface, name in itertools.product(SURFACES, FORMULAS):
        path = settings(surface, name, steps=steps, schedule="cosine").paths[name]
        missed += sum(step_lines(path, t)[-1].results != (path.x[t], path.y[t]) for t in range(1, path.steps + 1))
    return missed


def back_and_forth(moves: int) -> bool:
    """Whether `moves` steps back and as many forward bring the same pictures and the same numbers, one by one."""
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


def drawn_afresh(moves: int) -> bool:
    """Whether the picture after slider moves equals that of a lab opened with these settings, byte by byte."""
    shown = OptimizerLab(settings(step=3))
    for place in range(moves):
        shown.hyper["lr"].value = RATES[7 * place % len(RATES)]
        shown.start[place % 2].value = shown.start[place % 2].min + 0.1 * place
        shown.schedule.index = place % len(shown.schedule.options)
    return shown.image.value == OptimizerLab(shown.chosen).image.value


def slider_seconds(shown: OptimizerLab, moves: int) -> list[float]:
    """Seconds from a slider's event to the new PNG, for `moves` moves in turn of rate, start, step and decay."""
    rates = [rate for rate in RATES if rate <= 1]
    decay = shown.hyper["momentum" if "momentum" in shown.chosen.hyper[shown.chosen.follow] else "beta1"]
    decays = [value for _, value in decay.options]
    begin, width = shown.start[0].min, shown.start[0].max - shown.start[0].min
    events = []
    for place in range(moves):
        control, value = (
            (shown.hyper["lr"], rates[place % len(rates)]),
            (shown.start[0], begin + width * (0.1 + 0.8 * (place * 13 % 89) / 89)),
            (shown.step, place % shown.chosen.steps + 1),
            (decay, decays[place // 4 % len(decays)]),
        )[place % 4]
        events.append((control, value))
    begun, seconds = 0.0, []
    count = [0]

    def done(change: Any) -> None:
        count[0] += 1
        seconds.append(time.perf_counter() - begun)

    shown.image.observe(done, "value")
    for control, value in events:
        begun = time.perf_counter()
        control.value = value
    shown.image.unobserve(done, "value")
    return seconds


def latency(moves: int) -> dict[str, float]:
    """Median and 95th percentile of `slider_seconds` in ms: the lab as it opens, and with six optimizers."""
    six = ["gradient_descent", "momentum", "nesterov", "adagrad", "rmsprop", "adam"]
    found = {}
    for label, chosen in (("three optimizers", settings()), ("six optimizers", settings(optimizers=six))):
        shown = OptimizerLab(chosen)
        slider_seconds(shown, 8)  # fonts and first draws
        seconds = slider_seconds(shown, moves)
        found[f"slider to picture, {label}, median, ms"] = 1e3 * median(seconds)
        found[f"slider to picture, {label}, p95, ms"] = 1e3 * quantiles(seconds, n=20)[-1]
    return found
