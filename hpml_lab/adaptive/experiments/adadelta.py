"""Adadelta: Algorithm 1 line by line, its effective rate, and the unit of its steps."""

import math
from dataclasses import dataclass

import torch

from hpml_lab import optim
from hpml_lab.adaptive.experiments.gradient_streams import (
    FLOAT64,
    normal,
    relative_difference,
    run_class,
    run_formula,
    spread_indices,
    steps_of,
)
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.optim.formulas.arithmetic import sqrt
from hpml_lab.optim.formulas.by_name import FORMULAS, Formula
from hpml_lab.optim.formulas.colors import OPTIMIZER_COLORS, optimizer_style

QUICK = dict(steps=600)
FULL = dict(steps=6000)

ALGORITHM = (4, 5, 6, 7)  # the numbers that Algorithm 1 gives to the four lines of the formula
UNIT = 2.0**10  # about 1000, and exact in binary
IN_METERS = {"gradient descent, α = 0.005": "SGD", "Adagrad, α = 0.05": "Adagrad", "Adam, α = 0.01": "Adam"}
ONE_EPS, TWO_EPS = "Adadelta, ε = 10⁻⁶", "Adadelta, each ε in its unit"


@dataclass
class AlgorithmLine(Row):
    """One line of Algorithm 1 and the value that it computes."""

    number: str = column("line")
    formula: str = column("formula")
    code: str = column("code")
    after_1: float = column("after step 1")
    after_10: float = column("after step 10")
    after_100: float = column("after step 100")
    at_end: float = column("after the last step")


def with_units(theta, g, s, t, rho=0.9, eps_step=1e-6, eps_gradient=1e-6):
    """Adadelta with an ε for each of its two averages, so that each can have the unit of what it is added to.

    E[g²] = ρ E[g²] + (1 − ρ) g²
    Δ = √(E[Δ²] + ε_Δ) / √(E[g²] + ε_g) · g
    E[Δ²] = ρ E[Δ²] + (1 − ρ) Δ²
    θ = θ − Δ
    """
    s.E_g2 = rho * s.E_g2 + (1 - rho) * g * g
    s.delta = sqrt(s.E_delta2 + eps_step) / sqrt(s.E_g2 + eps_gradient) * g
    s.E_delta2 = rho * s.E_delta2 + (1 - rho) * s.delta * s.delta
    theta = theta - s.delta
    return theta


WITH_UNITS = Formula("with_units", TWO_EPS, with_units, FORMULAS["adadelta"].state)


def draw(result: Result):
    """Left: the effective rate. Under a constant gradient Adagrad's rate falls and Adadelta's does not; in a noisy bowl
    Adadelta's rate does not vanish either. Right: how much longer the whole path is if the parameter is written in a unit 1024
    times smaller. It should be 1024 times longer; that needs an ε for each of the two averages."""
    figure = style.new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    arrays = result.arrays
    looks = (optimizer_style("Adadelta"), {"color": OPTIMIZER_COLORS["Adadelta"], "linewidth": 1}, optimizer_style("Adagrad"))
    for (label, values), look in zip(arrays["rates"].items(), looks, strict=True):
        left.plot(arrays["step"], values, label=label, **look)
    left.set(xscale="log", yscale="log", xlabel="step", ylabel="effective rate (step / gradient)", title="The effective rate")
    left.legend(fontsize=8)
    names = list(arrays["scales"])[::-1]
    colors = [OPTIMIZER_COLORS[IN_METERS.get(name, "Adadelta")] for name in names]
    right.barh(names, [arrays["scales"][name] for name in names], color=colors)
    right.set_axisbelow(True)
    right.axvline(arrays["unit"], color=style.INK, linestyle="--")
    right.text(arrays["unit"] * 0.8, 3.55, "expected", ha="right", va="center", fontsize=8)
    right.set(xscale="log", xlabel="length of the path, new unit / old unit", title="A unit 1024 times smaller")
    right.tick_params(axis="y", labelsize=8)
    return figure


@picture
def adadelta_lines(result: Result):
    """The five lines of Adadelta's loop over time, in a noisy bowl: gradient (line 3) and parameter (line 7), the average of
    the squared gradients (line 4), the step (line 5), and the average of the squared steps (line 6). Each step has the
    sign of its gradient, and a size that follows from the two averages."""
    figure = style.new_figure(9, 5.2)
    lines, panels = result.arrays["lines"], figure.subplots(2, 2, sharex=True).flat
    shown = {"g": ("Lines 3 and 7", "g and θ"), "s.E_g2": ("Line 4", "E[g²]"), "s.delta": ("Line 5", "Δ")}
    shown["s.E_delta2"] = ("Line 6", "E[Δ²]")
    for i, (axes, (name, (title, label))) in enumerate(zip(panels, shown.items(), strict=True)):
        axes.plot(result.arrays["step"], lines[name], color=style.CYCLE[i], linewidth=1.2, label="g")
        if name == "g":
            axes.plot(result.arrays["step"], lines["theta"], color=style.INK, label="θ")
            axes.legend(fontsize=8)
        axes.set(xscale="log", xlabel="step" if i > 1 else "", ylabel=label)
        axes.set_title(title, pad=12)  # above the axis's power of ten
    return figure


@experiment("adadelta", lecture="L0", notebook="05_adaptive", draw=draw, quick=QUICK, full=FULL)
def adadelta(params: Params) -> Result:
    """Adadelta: Algorithm 1 line by line, a rate that does not vanish, and the unit of a step."""
    device, steps = params.device.torch, params.steps
    formula = FORMULAS["adadelta"]

    # Line by line, in a noisy bowl: J(θ) = ½ θ² from θ = 1, next to the class.
    noise = 0.5 * normal(steps, 1, seed=4, device=device)
    start = torch.ones(1, dtype=FLOAT64, device=device)
    run = run_class(optim.Adadelta, start, noise, torch.add)
    history = [
        torch.cat([g, state.E_g2, state.delta, state.E_delta2, theta])
        for theta, g, state in formula.run(start, noise, torch.add)
    ]
    values = dict(zip(("g", "s.E_g2", "s.delta", "s.E_delta2", "theta"), torch.stack(history).T, strict=True))
    lines = [("3", "g = ∇J(θ)", "g"), *((str(n), *pair) for n, pair in zip(ALGORITHM, formula.lines, strict=True))]
    rows = [
        AlgorithmLine(number, text, code, *(values[code.split(" = ")[0]][t - 1].item() for t in (1, 10, 100, steps)))
        for number, text, code in lines
    ]
    result = Result([Table("Algorithm 1 in a noisy bowl", rows)])
    for label, name, lecture in (("ρ", "rho", 0.9), ("ε", "eps", 1e-6), ("learning rate", "lr", 1.0)):
        result.key_figure(label, formula.defaults[name], lecture=lecture)
    rates = _rates(result, run, start, steps)
    scales = _units(result, min(steps, 600), device)

    chosen = spread_indices(steps)
    result.arrays = {
        "step": [index + 1 for index in chosen],
        "lines": {name: track[chosen].tolist() for name, track in values.items()},
        "rates": {name: track[chosen].tolist() for name, track in rates.items()},
        "scales": scales,
        "unit": UNIT,
    }
    return result


def _rates(result: Result, run: dict[str, torch.Tensor], start: torch.Tensor, steps: int) -> dict[str, torch.Tensor]:
    """The effective rate under gradients of constant and of random size."""
    rho, eps = (FORMULAS["adadelta"].defaults[name] for name in ("rho", "eps"))
    zero, ones = torch.zeros_like(start), torch.ones(steps, 1, dtype=FLOAT64, device=start.device)
    rate, rate_adagrad = (
        -steps_of(zero, run_class(optimizer_class, zero, ones)["theta"])[:, 0]
        for optimizer_class in (optim.Adadelta, optim.Adagrad)
    )
    before = torch.cat([zero, run["acc_delta"][:-1, 0]])
    noisy_rate = ((before + eps) / (run["square_avg"][:, 0] + eps)).sqrt()
    late = noisy_rate[steps // 2 :].median().item() / noisy_rate[: steps // 2].median().item()
    t = torch.arange(1, steps + 1, dtype=FLOAT64, device=start.device)
    result.claim(
        "With gradients of constant size Adagrad's steps shrink as 1/√t, and Adadelta's never shrink",
        relative_difference(rate_adagrad * t.sqrt(), torch.full_like(t, 0.01)) < 1e-8
        and bool((torch.diff(rate[50:]) > 0).all()),
        f"at the end {rate[-1].item():.3g} and {rate_adagrad[-1].item():.3g}",
    )
    result.claim(
        "In the noisy bowl Adadelta's rate does not vanish: its median over the second half is at least a third of that over "
        "the first half",
        late > 1 / 3,
        f"{late:.2f} times",
    )
    result.claim(
        "The first step is √ε/√((1 − ρ) g² + ε) · g: ε starts the movement",
        abs(rate[0].item() - math.sqrt(eps / (1 - rho + eps))) < 1e-15,
        f"{rate[0].item():.3e}",
    )
    result.key_figure("Adadelta's rate at the end / at step 10", (rate[-1] / rate[9]).item())
    result.key_figure("Adagrad's rate at the end / at step 10", (rate_adagrad[-1] / rate_adagrad[9]).item())
    return {"Adadelta, constant gradient": rate, "Adadelta, noisy bowl": noisy_rate, "Adagrad, constant gradient": rate_adagrad}


def unit_runs(steps: int, device: torch.device) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Each rule's steps in a curved valley, (steps, 2), in one unit and in a unit 1024 times smaller."""
    curvature = torch.tensor([1.0, 100.0], dtype=FLOAT64, device=device)
    noise = normal(steps, 2, seed=3, device=device)

    def steps_in(unit: float, formula: Formula, **hyper: float) -> torch.Tensor:
        def gradient(theta: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
            return (curvature * (theta / unit) + item) / unit  # the chain rule: d/d(unit·θ) = d/dθ / unit

        start = torch.ones(2, dtype=FLOAT64, device=device) * unit
        return steps_of(start, run_formula(formula, start, noise, gradient, **hyper))

    rules = {
        "gradient descent, α = 0.005": lambda unit: steps_in(unit, FORMULAS["gradient_descent"], lr=0.005),
        "Adagrad, α = 0.05": lambda unit: steps_in(unit, FORMULAS["adagrad"], lr=0.05),
        "Adam, α = 0.01": lambda unit: steps_in(unit, FORMULAS["adam"], lr=0.01),
        ONE_EPS: lambda unit: steps_in(unit, FORMULAS["adadelta"]),
        TWO_EPS: lambda unit: steps_in(unit, WITH_UNITS, eps_step=1e-6 * unit**2, eps_gradient=1e-6 / unit**2),
    }
    return {name: (rule(1.0), rule(UNIT)) for name, rule in rules.items()}


def _units(result: Result, steps: int, device: torch.device) -> dict[str, float]:
    """The same problem with θ in meters, and in a unit of which 1024 make a meter. Returns the ratios of the path lengths."""
    runs = unit_runs(steps, device)
    first = {name: (small[0, 0] / meters[0, 0]).item() for name, (meters, small) in runs.items()}
    whole = {name: (small.abs().sum() / meters.abs().sum()).item() for name, (meters, small) in runs.items()}
    meters, small = runs[TWO_EPS]
    result.claim(
        "In a unit 1024 times smaller, with each ε in its own unit, every step of Adadelta scales by exactly 1024",
        torch.equal(small, UNIT * meters),
    )
    result.claim(
        "Gradient descent's first step scales by 1/1024 instead, those of Adagrad and Adam do not change, and Adadelta's with "
        "one ε for both units does not double",
        abs(first["gradient descent, α = 0.005"] * UNIT - 1) < 1e-6
        and all(abs(first[name] - 1) < 0.01 for name in ("Adagrad, α = 0.05", "Adam, α = 0.01"))
        and first[ONE_EPS] < 2,
        ", ".join(f"{value:.4g}" for value in first.values()),
    )
    for name, value in whole.items():
        result.key_figure(f"path in a unit 1024 times smaller / path: {name}", value)
    return whole
