"""Adam: what its bias correction does in the first steps, and Adagrad as a special case."""

import math
from dataclasses import dataclass

import torch

from hpml_lab.adaptive.experiments.gradient_streams import (
    FLOAT64,
    band,
    normal,
    plot_band,
    relative_difference,
    run_formula,
    steps_of,
)
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.optim.formulas.arithmetic import sqrt
from hpml_lab.optim.formulas.by_name import FORMULAS, Formula
from hpml_lab.optim.formulas.colors import OPTIMIZER_COLORS

QUICK = dict(seeds=32, late=5000, special=300)
FULL = dict(seeds=256, late=20_000, special=300)

FIRST = 50  # the steps in which the correction matters most
GAPS = tuple(float(f"1e-{k}") for k in range(2, 16))  # 1 - β₂


@dataclass
class StepLength(Row):
    """The length of one step under gradients of constant size, in units of α."""

    step: int = column("step")
    adam: float = column("Adam, step / α")
    uncorrected: float = column("without correction")
    closed_form: float = column("(1 − β₁ᵗ)/√(1 − β₂ᵗ)")
    study: float = column("the study's")


def uncorrected(theta, g, s, t, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    """Adam without its bias correction.

    m = β₁ m + (1 − β₁) g
    v = β₂ v + (1 − β₂) g²
    θ = θ − α m / (√v + ε)
    """
    s.m = beta1 * s.m + (1 - beta1) * g
    s.v = beta2 * s.v + (1 - beta2) * g * g
    theta = theta - lr * s.m / (sqrt(s.v) + eps)
    return theta


def of_the_study(theta, g, s, t, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    """Adam as the code of the cited study (int8.io) has it for a net's first layer: the corrections lack their exponent.

    m = β₁ m + (1 − β₁) g
    v = β₂ v + (1 − β₂) g²
    m̂ = m / (1 − β₁)
    v̂ = v / (1 − β₂)
    θ = θ − α m̂ / (√v̂ + ε)
    """
    s.m = beta1 * s.m + (1 - beta1) * g
    s.v = beta2 * s.v + (1 - beta2) * g * g
    m_hat = s.m / (1 - beta1)
    v_hat = s.v / (1 - beta2)
    theta = theta - lr * m_hat / (sqrt(v_hat) + eps)
    return theta


ADAM, UNCORRECTED, STUDY = "Adam", "without correction", "the study's"
VARIANTS = {
    ADAM: FORMULAS["adam"],
    UNCORRECTED: Formula("uncorrected", UNCORRECTED, uncorrected, {"m": 0.0, "v": 0.0}),
    STUDY: Formula("of_the_study", STUDY, of_the_study, {"m": 0.0, "v": 0.0}),
}
LOOKS = {
    ADAM: {"color": OPTIMIZER_COLORS["Adam"], "linestyle": "-"},
    UNCORRECTED: {"color": style.GREY, "linestyle": "--"},
    STUDY: {"color": style.INK, "linestyle": ":"},
}


def draw(result: Result):
    """Left: the length of Adam's first 50 steps under gradients of constant size, with and without bias correction, and in the
    code of the cited study. Right: the cost in a noisy bowl for runs that start at its bottom, median and quartiles over the
    seeds. Without correction the first steps are several times too long and lead far up."""
    figure = style.new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    for name, lengths in result.arrays["lengths"].items():
        left.plot(range(1, len(lengths) + 1), lengths, label=name, **LOOKS[name])
        costs = result.arrays["costs"][name]
        plot_band(right, list(range(1, len(costs["median"]) + 1)), costs, LOOKS[name], name)
    left.set(xlabel="step", ylabel="length of the step / α", title="Constant gradients", ylim=(0, 7.4))
    right.set(xlabel="step", ylabel="cost ½ θ²", yscale="log", title="From the bottom of a noisy bowl")
    for axes in (left, right):
        axes.legend(fontsize=8)
    return figure


@picture
def adagrad_from_adam(result: Result):
    """How far Adam with β₁ = 0, a rate of α/√t and β₂ near 1 is from Adagrad. The distance falls with 1 − β₂. In float32 it
    stops falling at the rounding of θ; in float64 it goes on much further."""
    figure = style.new_figure(6.5, 3.8)
    axes = figure.subplots()
    for i, (kind, errors) in enumerate(result.arrays["special"].items()):
        finite = [(gap, error) for gap, error in zip(result.arrays["gaps"], errors, strict=True) if math.isfinite(error)]
        axes.plot(*zip(*finite, strict=True), color=style.CYCLE[i], marker=style.MARKERS[i], markersize=4, label=kind)
    axes.set(xscale="log", yscale="log", xlabel="1 − β₂", ylabel="distance from Adagrad / largest |θ|")
    axes.set_title("Adagrad as a limit of Adam")
    axes.legend(fontsize=8)
    return figure


@experiment("adam", lecture="L0", notebook="05_adaptive", draw=draw, quick=QUICK, full=FULL)
def adam(params: Params) -> Result:
    """Adam: its bias correction in the first 50 steps, and Adagrad as a special case."""
    device = params.device.torch
    lr, beta1, beta2, eps = (FORMULAS["adam"].defaults[name] for name in ("lr", "beta1", "beta2", "eps"))

    # Step lengths with gradients of constant size: the closed form is (1 - β₁ᵗ)/√(1 - β₂ᵗ).
    zero = torch.zeros(1, dtype=FLOAT64, device=device)
    ones = torch.ones(params.late, 1, dtype=FLOAT64, device=device)
    lengths = {name: -steps_of(zero, run_formula(rule, zero, ones, lr=lr))[:, 0] / lr for name, rule in VARIANTS.items()}
    t = torch.arange(1, params.late + 1, dtype=FLOAT64, device=device)
    closed = (1 - beta1**t) / (1 - beta2**t).sqrt()
    longest = int(lengths[UNCORRECTED].argmax()) + 1
    rows = [
        StepLength(
            step,
            lengths[ADAM][step - 1].item(),
            lengths[UNCORRECTED][step - 1].item(),
            closed[step - 1].item(),
            lengths[STUDY][step - 1].item(),
        )
        for step in (1, 2, 5, 10, longest, 20, 50, 500, params.late)
    ]

    # A noisy bowl, started at its bottom: what the long first steps cost.
    noise = normal(FIRST, params.seeds, 10, seed=6, device=device)
    bottom = torch.zeros(params.seeds, 10, dtype=FLOAT64, device=device)
    tracks = {name: run_formula(rule, bottom, noise, torch.add, lr=lr) for name, rule in VARIANTS.items()}
    costs = {name: 0.5 * track.square().sum(-1) for name, track in tracks.items()}  # (FIRST, seeds)

    result = Result([Table("Step lengths under gradients of constant size", rows)])
    result.key_figure("β₁", beta1, lecture=0.9)
    result.key_figure("β₂", beta2, lecture=0.999)
    result.key_figure("ε", eps, lecture=1e-8)
    result.key_figure("learning rate α", lr, lecture=0.001)
    _length_claims(result, lengths, closed, beta1, beta2)
    worse = (costs[UNCORRECTED].max(0).values / costs[ADAM].max(0).values).median().item()
    result.claim(
        "Started at the bottom of a noisy bowl, Adam without correction climbs more than twice as high within 50 steps",
        worse > 2,
        f"{worse:.1f} times, median over the seeds",
    )
    special = _adagrad_as_a_limit(result, params.special, device)
    result.arrays = {
        "lengths": {name: values[:FIRST].tolist() for name, values in lengths.items()},
        "costs": {name: band(values) for name, values in costs.items()},
        "gaps": list(GAPS),
        "special": special,
    }
    return result


def _length_claims(result: Result, lengths: dict[str, torch.Tensor], closed: torch.Tensor, beta1: float, beta2: float) -> None:
    off, study = lengths[UNCORRECTED], lengths[STUDY]
    result.claim(
        "With gradients of constant size every step of Adam has the length α, the first one included",
        (lengths[ADAM] - 1).abs().max().item() < 1e-7,
    )
    result.claim(
        "Without correction the step is (1 − β₁ᵗ)/√(1 − β₂ᵗ) times as long: 3.16 times at first, and over 6.5 times within the "
        "first 50 steps",
        relative_difference(off, closed) < 1e-6 and abs(off[0].item() - 10**0.5) < 1e-6 and off[:FIRST].max().item() > 6.5,
        f"{off[0].item():.4f}; {off.max().item():.4f} at step {int(off.argmax()) + 1}",
    )
    result.claim(
        "The study's Adam, whose corrections lack the exponent, starts right and ends with steps of √(1 − β₂)/(1 − β₁) = "
        "0.316 α",
        abs(study[0].item() - 1) < 1e-7 and abs(study[-1].item() / (math.sqrt(1 - beta2) / (1 - beta1)) - 1) < 0.01,
        f"{study[-1].item():.4f}",
    )
    result.key_figure("first step without correction / α", off[0].item())
    result.key_figure("longest step without correction / α", off.max().item())
    result.key_figure("steady step of the study's Adam / α", study[-1].item())


def _adagrad_as_a_limit(result: Result, steps: int, device: torch.device) -> dict[str, list[float]]:
    """Adagrad as Adam: β₁ = 0, β₂ = 1 - gap, α/√t, ε = 0. Exact in the limit, until θ's rounding."""
    stream, start = normal(steps, 8, seed=7, device=device), torch.zeros(8, dtype=FLOAT64, device=device)
    goal = run_formula("adagrad", start, stream, lr=0.01, eps=0.0)

    def distance(dtype: torch.dtype, gap: float) -> float:
        options = dict(beta1=0.0, beta2=1 - gap, eps=0.0)
        track = run_formula("adam", start.to(dtype), stream.to(dtype), lr=lambda t: 0.01 / math.sqrt(t), **options)
        return relative_difference(track.double(), goal)

    special = {
        name: [distance(dtype, gap) for gap in GAPS] for name, dtype in (("float64", FLOAT64), ("float32", torch.float32))
    }
    exact, single = (dict(zip(GAPS, errors, strict=True)) for errors in special.values())
    result.claim(
        "Adagrad is Adam in the limit β₁ = 0, β₂ → 1, rate α/√t, ε = 0: at β₂ = 1 − 10⁻⁹ they differ by less than 10⁻⁷ of the "
        "largest parameter",
        exact[1e-9] < 1e-7,
        f"{exact[1e-9]:.1e}",
    )
    lowest = min(special["float32"])
    result.claim("In float32 it stops at the rounding of θ: never below 10⁻⁸", lowest > 1e-8, f"{lowest:.1e}")
    result.key_figure("distance of Adam from Adagrad at 1 − β₂ = 1e-9, float64", exact[1e-9])
    result.key_figure("the same in float32", single[1e-9])
    return special
