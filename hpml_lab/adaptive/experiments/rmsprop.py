"""RMSprop against Adagrad: an optimum that moves, and gradients that shrink."""

from dataclasses import dataclass

import torch
from matplotlib.ticker import MaxNLocator

from hpml_lab import optim
from hpml_lab.adaptive.experiments.gradient_streams import (
    FLOAT64,
    band,
    drifting_optimum,
    normal,
    plot_band,
    relative_difference,
    run_class,
    run_formula,
    steps_of,
)
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.progress import progress
from hpml_lab.optim.formulas.by_name import FORMULAS
from hpml_lab.optim.formulas.colors import optimizer_style

QUICK = dict(steps=4000, seeds=16, drift=0.02, rates=13)
FULL = dict(steps=20_000, seeds=64, drift=0.02, rates=25)

ADAGRAD, RMSPROP, SHORT_MEMORY = "Adagrad", "RMSprop, ρ = 0.99", "RMSprop, ρ = 0.9"
RULES = {ADAGRAD: ("adagrad", {}), RMSPROP: ("rmsprop", {"alpha": 0.99}), SHORT_MEMORY: ("rmsprop", {"alpha": 0.9})}
LARGE_STEPS, RATE_EVERY = 500, 10  # steps with large gradients; every tenth rate is drawn


@dataclass
class Tracking(Row):
    """How closely a rule follows the moving optimum, at its best learning rate."""

    rule: str = column("rule")
    best_rate: float = column("best rate of the sweep")
    error: float = column("tracking error, mean over seeds")
    deviation: float = column("standard deviation")
    first_half: float = column("first half")
    second_half: float = column("second half")


@dataclass
class BestRun:
    """The runs of all seeds with a rule's best rate."""

    squared: torch.Tensor  # (steps, seeds): squared distance from the optimum
    path: torch.Tensor  # (steps,): θ of the first seed

    @property
    def errors(self) -> torch.Tensor:
        return self.squared.mean(0).sqrt()

    @property
    def halves(self) -> tuple[torch.Tensor, torch.Tensor]:
        half = len(self.squared) // 2
        return self.squared[:half].mean(0).sqrt(), self.squared[half:].mean(0).sqrt()


def draw(result: Result):
    """Top: the moving optimum of one seed and the two rules that follow it, in the second half of the run, where the noise is a
    tenth. Bottom left: the distance from the optimum, a moving root mean square, median and quartiles over the seeds. Bottom
    right: the effective rate when gradients of constant size shrink a hundredfold after step 500. RMSprop's rate recovers,
    Adagrad's does not."""
    figure = style.new_figure(9, 6.4)
    panels = figure.subplot_mosaic([["paths", "paths"], ["errors", "rates"]])
    arrays = result.arrays
    half = len(arrays["step"]) // 2
    panels["paths"].plot(arrays["step"][half:], arrays["optimum"][half:], color=style.INK, linewidth=1, label="optimum")
    for name in (ADAGRAD, RMSPROP):
        look = optimizer_style(name)
        panels["paths"].plot(arrays["step"][half:], arrays["paths"][name][half:], linewidth=1.5, label=name, **look)
        plot_band(panels["errors"], arrays["step"], arrays["errors"][name], look, name)
        steps = [1 + RATE_EVERY * i for i in range(len(arrays["rates"][name]))]
        panels["rates"].plot(steps, arrays["rates"][name], label=name, **look)
    panels["paths"].set(xlabel="step", ylabel="θ", title="One seed, second half")
    distance = f"distance from the optimum\n(over {arrays['window']} steps)"
    panels["errors"].set(xlabel="step", ylabel=distance, yscale="log", title="All seeds")
    panels["rates"].set(xlabel="step", ylabel="effective rate (step / gradient)", yscale="log", title="Gradients shrink")
    for axes in panels.values():
        axes.legend(fontsize=8)
        axes.xaxis.set_major_locator(MaxNLocator(5))  # so that numbers of five digits do not touch
    return figure


@experiment("rmsprop", lecture="L0", notebook="05_adaptive", draw=draw, quick=QUICK, full=FULL)
def rmsprop(params: Params) -> Result:
    """RMSprop against Adagrad where the optimum moves."""
    device, steps = params.device.torch, params.steps
    optimum = drifting_optimum(steps, params.seeds, params.drift).to(device)
    noise = normal(steps, params.seeds, seed=5, device=device)
    noise[steps // 2 :] *= 0.1  # the gradients become smaller half-way: the stream is not stationary
    rates = torch.logspace(-3, 1, params.rates, dtype=FLOAT64, device=device)[:, None]
    rows, best = _sweep(rates, optimum, noise)

    result = Result([Table("Following a moving optimum", rows)])
    ratio = best[ADAGRAD].errors / best[RMSPROP].errors
    late = best[ADAGRAD].halves[1] / best[RMSPROP].halves[1]
    result.key_figure("Adagrad's tracking error / RMSprop's", ratio.mean().item())
    result.key_figure("Adagrad's tracking error / RMSprop's in the second half", late.mean().item())
    result.key_figure("RMSprop's default α", FORMULAS["rmsprop"].defaults["lr"], lecture="not given")

    lengths = _shrinking_gradients(result, device)
    _places_of_eps(result, noise[:200, :4])
    result.measured(
        "Each at its best rate, RMSprop (ρ = 0.99) follows the moving optimum more closely than Adagrad, for every seed",
        bool((ratio > 1).all()),
        f"Adagrad's error is {ratio.mean().item():.2f} times RMSprop's ({ratio.min().item():.2f} to "
        f"{ratio.max().item():.2f}); in the second half {late.mean().item():.2f} times",
        depends_on="the seeds",
    )
    result.check(
        "Each best rate lies inside the sweep",
        all(rates.min().item() < row.best_rate < rates.max().item() for row in rows),
        ", ".join(f"{row.best_rate:.3g}" for row in rows),
    )

    chosen = list(range(0, steps, max(1, steps // 400)))
    window = max(1, steps // 100)
    result.arrays = {
        "step": [index + 1 for index in chosen],
        "optimum": optimum[chosen, 0].tolist(),
        "paths": {name: run.path[chosen].tolist() for name, run in best.items()},
        "errors": {
            name: band(torch.stack([run.squared[max(0, t - window + 1) : t + 1].mean(0).sqrt() for t in chosen]))
            for name, run in best.items()
        },
        "window": window,
        "rates": {name: values[::RATE_EVERY].tolist() for name, values in lengths.items()},
    }
    return result


def _sweep(rates: torch.Tensor, optimum: torch.Tensor, noise: torch.Tensor) -> tuple[list[Tracking], dict[str, BestRun]]:
    """Run all rates and seeds of each rule together, θ is (rates, seeds), and keep the runs with the best rate."""
    rows, best = [], {}
    for name, (rule, hyper) in RULES.items():
        start = torch.zeros(len(rates), optimum.shape[1], dtype=FLOAT64, device=optimum.device)
        stream = progress(zip(optimum, noise, strict=True), f"{name} on a moving optimum", total=len(optimum))
        track = run_formula(rule, start, stream, _noisy_gradient, rates, **hyper)
        track = torch.cat([start[None], track[:-1]])  # where the rule is before each step
        squared = (track - optimum[:, None]) ** 2
        error = squared.mean(0).sqrt()
        index = int(error.mean(1).argmin())
        run = best[name] = BestRun(squared[:, index], track[:, index, 0])
        mean, deviation = error[index].mean().item(), error[index].std().item()
        rows.append(Tracking(name, rates[index].item(), mean, deviation, *(half.mean().item() for half in run.halves)))
    return rows, best


def _noisy_gradient(theta: torch.Tensor, item: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The gradient of ½ (θ - optimum)², with noise."""
    optimum, noise = item
    return theta - optimum + noise


def _shrinking_gradients(result: Result, device: torch.device) -> dict[str, torch.Tensor]:
    """Gradients of size 10 for 500 steps, then of size 0.1; ρ²⁵⁰⁰ = 10⁻¹¹ of the old squares is left at the end."""
    sizes = torch.full((3000, 1), 10.0, dtype=FLOAT64, device=device)
    sizes[LARGE_STEPS:] = 0.1
    zero = torch.zeros(1, dtype=FLOAT64, device=device)
    runs = {
        RMSPROP: run_class(optim.RMSprop, zero, sizes, lr=0.01, alpha=0.99),
        ADAGRAD: run_class(optim.Adagrad, zero, sizes, lr=0.01),
    }
    rates = {name: -steps_of(zero, run["theta"])[:, 0] / sizes[:, 0] for name, run in runs.items()}
    rms, ada = rates.values()
    before, end = LARGE_STEPS - 1, -1
    result.claim(
        "With gradients of size g that last, RMSprop's effective rate is α/g, whatever came before: it grows a hundredfold "
        "after the gradients have shrunk a hundredfold",
        abs(rms[before].item() * 10 / 0.01 - 1) < 0.01 and abs(rms[end].item() * 0.1 / 0.01 - 1) < 0.01,
        f"{rms[before].item():.4g} before, {rms[end].item():.4g} at the end",
    )
    result.claim(
        "Adagrad's effective rate never grows again",
        bool((torch.diff(ada) <= 1e-9 * ada[:-1]).all()),
        f"{ada[before].item():.4g} before, {ada[end].item():.4g} at the end",
    )
    return rates


def _places_of_eps(result: Result, gradients: torch.Tensor) -> None:
    """ε inside the root and outside."""
    start = torch.zeros_like(gradients[0])
    without, with_eps = (
        relative_difference(
            run_formula("ruder_rmsprop", start, gradients, lr=0.01, eps=eps),
            run_formula("rmsprop", start, gradients, alpha=0.9, eps=eps),
        )
        for eps in (0.0, 1e-2)
    )
    result.claim(
        "ε inside the root (Ruder's form) and outside it (torch's) give one rule for ε = 0, and two for ε = 0.01",
        without < 1e-12 < 1e-3 < with_eps,
        f"{without:.0e} and {with_eps:.0e}",
    )
