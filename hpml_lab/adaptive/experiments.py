"""The experiments of notebook 05: Adagrad, Adadelta, RMSprop, Adam and its kin, and conformance with torch."""

import inspect
import math
from types import SimpleNamespace

import torch

from hpml_lab import optim
from hpml_lab.adaptive.figures import (
    draw_adadelta,
    draw_adagrad,
    draw_adam,
    draw_adamax_nadam,
    draw_optimizer_lab,
    draw_rmsprop,
)
from hpml_lab.adaptive.streams import adadelta_with_units, drifting_optimum, drive, rare_and_frequent, steps_of
from hpml_lab.core.experiment import Size, experiment
from hpml_lab.core.progress import progress
from hpml_lab.core.result import Claim, Result
from hpml_lab.optim import conformance
from hpml_lab.optim.formulas import FORMULAS

NOTEBOOK = "05_adaptive"
FLOAT64 = torch.float64


def _default(optimizer_class: type, name: str) -> float | tuple:
    return inspect.signature(optimizer_class).parameters[name].default


def _formula_track(name: str, start: torch.Tensor, gradients: torch.Tensor, lr=None, **hyper) -> torch.Tensor:
    """θ of a formula after each step; `lr` may be a function of the step t = 1, 2, …"""
    formula, theta, points = FORMULAS[name], start, []
    state = formula.start(theta)
    lr = formula.defaults["lr"] if lr is None else lr
    for t, g in enumerate(gradients, 1):
        theta = formula.step(theta, g, state, t, lr=lr(t) if callable(lr) else lr, **hyper)
        points.append(theta)
    return torch.stack(points)


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    """Largest difference, relative to the largest value."""
    return ((a - b).abs().max() / b.abs().max()).item()


def _band(values: torch.Tensor) -> dict[str, list[float]]:
    """Median and quartiles over the last axis."""
    low, middle, high = torch.quantile(
        values, torch.tensor([0.25, 0.5, 0.75], dtype=values.dtype, device=values.device), dim=-1
    )
    return {"low": low.tolist(), "median": middle.tolist(), "high": high.tolist()}


def _few(steps: int, count: int = 200) -> list[int]:
    """At most `count` of the indices 0 … steps - 1, evenly spread over their logarithms, first and last among them."""
    return sorted({min(steps - 1, round(steps ** (i / (count - 1))) - 1) for i in range(count)})


# ---- adagrad -----------------------------------------------------------------------------------------------


@experiment(
    "adagrad",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_adagrad,
    quick=dict(steps=2000, seeds=16, every=20),
    full=dict(steps=20_000, seeds=64, every=20),
    lecture_says={"learning rate α": "0.01", "ε": "1e-8"},
)
def adagrad(size: Size) -> Result:
    """Adagrad: a learning rate for each parameter, that only shrinks."""
    device, lr = size.device.torch, _default(optim.Adagrad, "lr")
    gradients = rare_and_frequent(size.steps, size.seeds, size.every).to(device)
    start = torch.zeros(size.seeds, 2, dtype=FLOAT64, device=device)
    run = drive(optim.Adagrad, start, gradients)
    total = run["sum"]
    seen = (gradients != 0).cumsum(0)
    rate = torch.where(total > 0, lr / total.sqrt(), torch.nan)  # none before the first gradient
    last = rate[-1].median(0).values.tolist()
    rows = []
    for place, feature in enumerate(("in every step", f"in 1 step of {size.every}")):
        for t in (size.every * 5, size.steps // 10, size.steps):
            rows.append(
                {
                    "feature": feature,
                    "after step": t,
                    "gradients seen, median": seen[t - 1, :, place].median().item(),
                    "effective rate α/√G, median": rate[t - 1, :, place].nanmedian().item(),
                    "rate / α": rate[t - 1, :, place].nanmedian().item() / lr,
                }
            )
    grows = (torch.diff(rate, dim=0) > 0).any().item()
    both = ~rate.isnan().any(-1)
    first_twenty = seen[..., 1] >= 20

    # Gradients of constant size: the rate and the way in closed form.
    ones = torch.ones(size.steps, 1, dtype=FLOAT64, device=device)
    constant = drive(optim.Adagrad, torch.zeros(1, dtype=FLOAT64, device=device), -ones)
    t = torch.arange(1, size.steps + 1, dtype=FLOAT64, device=device)
    constant_rate = lr / constant["sum"][:, 0].sqrt()
    way = constant["theta"][-1].item()
    closed = 2 * lr * math.sqrt(size.steps)

    # ε inside and outside the root: the length of the first step, by the size of the gradient.
    sizes = torch.logspace(-9, 0, 91, dtype=FLOAT64, device=device)
    forms = {
        "√(G + 10⁻⁸), the lecture's": ("lecture_adagrad", 1e-8),
        "√G + 10⁻⁸": ("adagrad", 1e-8),
        "√G + 10⁻¹⁰, torch's": ("adagrad", 1e-10),
    }
    first = {
        label: -_formula_track(name, torch.zeros_like(sizes), sizes[None], lr=1.0, eps=eps)[0]
        for label, (name, eps) in forms.items()
    }
    root = torch.tensor([1e-4], dtype=FLOAT64, device=device)
    inside, outside = (
        -_formula_track(name, torch.zeros_like(root), root[None], lr=1.0, eps=1e-8).item()
        for name in ("lecture_adagrad", "adagrad")
    )
    no_eps = _apart(*(_formula_track(name, start, gradients[:100] + 1, eps=0.0) for name in ("lecture_adagrad", "adagrad")))
    small = gradients[:100] * 1e-3
    with_eps = _apart(_formula_track("lecture_adagrad", start, small), _formula_track("adagrad", start, small))
    by_formula = _apart(_formula_track("adagrad", start, gradients), run["theta"])
    chosen = _few(size.steps)
    return Result(
        rows,
        claims=[
            Claim(
                "The class and the formula G = G + g², θ = θ − α g/(√G + ε) walk the same way",
                by_formula < 1e-12,
                f"{by_formula:.1e}",
            ),
            Claim("No parameter's effective rate α/√G ever grows", not grows),
            Claim(
                "From the rare feature's 20th gradient on, its rate stays above the frequent feature's",
                bool(first_twenty.any() and (rate[..., 1] > rate[..., 0])[both & first_twenty].all()),
                f"{last[1] / last[0]:.1f} times at the end; √{size.every} = {math.sqrt(size.every):.1f}",
            ),
            Claim(
                "With gradients of size 1 the rate is α/√t",
                _apart(constant_rate, lr / t.sqrt()) < 1e-12,
                f"{constant_rate[-1].item() / lr:.3g} α after {size.steps} steps",
            ),
            Claim(
                "… so T steps go 2α√T far, within 5 %: the way has no end, but it takes ever longer",
                abs(way / closed - 1) < 0.05,
                f"{way:.4g} and {closed:.4g}",
            ),
            Claim("For ε = 0 the lecture's √(G + ε) and torch's √G + ε are one rule", no_eps < 1e-12, f"{no_eps:.1e}"),
            Claim(
                "A gradient of 10⁻⁴ takes a first step of 0.707 α with ε = 10⁻⁸ inside the root, and of 0.9999 α outside it",
                abs(inside - 0.5**0.5) < 1e-9 and abs(outside - 1 / 1.0001) < 1e-9,
                f"{inside:.6f} and {outside:.6f}",
            ),
            Claim(
                "With gradients around 10⁻³ the two forms part by more than 0.01 % of the way, each with its own default ε",
                with_eps > 1e-4,
                f"{with_eps:.1e}",
            ),
        ],
        quantities={
            "learning rate α": lr,
            "ε": _default(optim.Adagrad, "eps"),
            "rate of the frequent feature at the end / α": last[0] / lr,
            "rate of the rare feature at the end / α": last[1] / lr,
        },
        arrays={
            "step": [t + 1 for t in chosen],
            "rates": {
                name: _band(rate[chosen][..., place].nan_to_num(nan=math.inf))
                for place, name in enumerate(("frequent", "rare"))
            },
            "constant": [constant_rate[t].item() for t in chosen],
            "lr": lr,
            "gradient": sizes.tolist(),
            "first step": {label: values.tolist() for label, values in first.items()},
        },
    )


# ---- adadelta ----------------------------------------------------------------------------------------------

ALGORITHM = (4, 5, 6, 7)  # the numbers that Algorithm 1 gives to the four lines of the formula
UNIT = 2.0**10  # about 1000, and exact in binary


def _unit_runs(steps: int, device: torch.device) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Each rule's steps on a curved valley, (steps, 2), in one unit and in a unit 1024 times smaller."""
    curvature = torch.tensor([1.0, 100.0], dtype=FLOAT64, device=device)
    noise = torch.randn(steps, 2, dtype=FLOAT64, generator=torch.Generator().manual_seed(3)).to(device)

    def run(step, state, unit: float) -> torch.Tensor:
        theta, moved = torch.ones(2, dtype=FLOAT64, device=device) * unit, []
        for t in range(steps):
            g = (curvature * (theta / unit) + noise[t]) / unit  # the chain rule: d/d(unit·θ) = d/dθ / unit
            new = step(theta, g, state, t + 1)
            moved.append(new - theta)
            theta = new
        return torch.stack(moved)

    def by_formula(name: str, **hyper):
        formula = FORMULAS[name]
        return lambda unit: run(
            lambda theta, g, s, t: formula.step(theta, g, s, t, **hyper),
            formula.start(torch.zeros(2, dtype=FLOAT64, device=device)),
            unit,
        )

    def with_units(unit: float) -> torch.Tensor:
        zeros = torch.zeros(2, dtype=FLOAT64, device=device)
        eps = 1e-6 * unit**2, 1e-6 / unit**2
        state = SimpleNamespace(E_g2=zeros, E_delta2=zeros)
        return run(lambda theta, g, s, t: adadelta_with_units(theta, g, s, 0.9, *eps), state, unit)

    rules = {
        "gradient descent, α = 0.005": by_formula("gradient_descent", lr=0.005),
        "Adagrad, α = 0.05": by_formula("adagrad", lr=0.05),
        "Adam, α = 0.01": by_formula("adam", lr=0.01),
        "Adadelta, ε = 10⁻⁶": by_formula("adadelta"),
        "Adadelta, each ε in its unit": with_units,
    }
    return {name: (rule(1.0), rule(UNIT)) for name, rule in rules.items()}


@experiment(
    "adadelta",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_adadelta,
    quick=dict(steps=600),
    full=dict(steps=6000),
    lecture_says={"ρ": "0.9", "ε": "1e-06", "learning rate": "1.0"},
)
def adadelta(size: Size) -> Result:
    """Adadelta: Algorithm 1 line by line, a rate that does not vanish, and the unit of a step."""
    device, steps = size.device.torch, size.steps
    formula = FORMULAS["adadelta"]
    rho, eps = formula.defaults["rho"], formula.defaults["eps"]

    # Line by line, in a noisy bowl: J(θ) = ½ θ² from θ = 1, beside the class.
    noise = torch.randn(steps, 1, dtype=FLOAT64, generator=torch.Generator().manual_seed(4)).to(device)
    start = torch.ones(1, dtype=FLOAT64, device=device)
    run = drive(optim.Adadelta, start, lambda theta, t: theta + 0.5 * noise[t], steps)
    theta, state, history = start, formula.start(start), []
    for t in range(steps):
        g = theta + 0.5 * noise[t]
        theta = formula.step(theta, g, state, t + 1)
        history.append(torch.cat([g, state.E_g2, state.delta, state.E_delta2, theta]))
    g, mean_g2, delta, mean_delta2, walked = torch.stack(history).T
    by_class = max(
        _apart(mean_g2, run["square_avg"][:, 0]),
        _apart(mean_delta2, run["acc_delta"][:, 0]),
        _apart(walked, run["theta"][:, 0]),
    )
    values = {"g": g, "s.E_g2": mean_g2, "s.delta": delta, "s.E_delta2": mean_delta2, "theta": walked}
    shown = (1, 10, 100, steps)
    lines = [("3", "g = ∇J(θ)", "g"), *((str(n), *pair) for n, pair in zip(ALGORITHM, formula.lines, strict=True))]
    rows = [
        {"line": number, "formula": written, "code": code}
        | {f"after step {t}": values[code.split(" = ")[0]][t - 1].item() for t in shown}
        for number, written, code in lines
    ]

    # The rate: gradients of constant size, then of random size.
    ones = torch.ones(steps, 1, dtype=FLOAT64, device=device)
    flat, flat_adagrad = (drive(one, 0 * start, ones) for one in (optim.Adadelta, optim.Adagrad))
    rate = -steps_of(0 * start, flat["theta"])[:, 0]
    rate_adagrad = -steps_of(0 * start, flat_adagrad["theta"])[:, 0]
    random_rate = ((torch.cat([0 * start, run["acc_delta"][:-1, 0]]) + eps) / (run["square_avg"][:, 0] + eps)).sqrt()
    tail = random_rate[steps // 2 :].median().item() / random_rate[: steps // 2].median().item()

    # Units: the same problem with θ in metres, and in a unit of which 1024 make a metre.
    units = _unit_runs(min(steps, 600), device)
    scales = {name: (b[:, 0] / a[:, 0]) for name, (a, b) in units.items()}
    first = {name: ratio[0].item() for name, ratio in scales.items()}
    exact = torch.equal(units["Adadelta, each ε in its unit"][1], UNIT * units["Adadelta, each ε in its unit"][0])
    whole = {name: (b.abs().sum() / a.abs().sum()).item() for name, (a, b) in units.items()}
    chosen = _few(steps)
    return Result(
        rows,
        claims=[
            Claim("Each line's state is the class's, step by step", by_class < 1e-12, f"{by_class:.1e}"),
            Claim(
                "With gradients of constant size Adagrad's steps shrink as 1/√t, and Adadelta's never shrink",
                _apart(rate_adagrad * torch.arange(1, steps + 1, dtype=FLOAT64, device=device).sqrt(), 0 * rate_adagrad + 0.01)
                < 1e-8
                and bool((torch.diff(rate[50:]) > 0).all()),
                f"at the end {rate[-1].item():.3g} and {rate_adagrad[-1].item():.3g}",
            ),
            Claim(
                "In the noisy bowl Adadelta's rate does not vanish: its median over the second half is no smaller than a "
                "third of the "
                "first half's",
                tail > 1 / 3,
                f"{tail:.2f} times",
            ),
            Claim(
                "The first step is √ε/√((1 − ρ) g² + ε) · g: it is ε that starts it",
                abs(rate[0].item() - math.sqrt(eps / (1 - rho + eps))) < 1e-15,
                f"{rate[0].item():.3e}",
            ),
            Claim(
                "θ in a unit 1024 times smaller: with each ε in its own unit, every step of Adadelta scales by 1024, to the "
                "bit",
                exact,
            ),
            Claim(
                "Gradient descent's first step scales by 1/1024 instead, Adagrad's and Adam's do not change, and Adadelta's "
                "with one ε "
                "for both units does not double",
                abs(first["gradient descent, α = 0.005"] * UNIT - 1) < 1e-6
                and all(abs(first[name] - 1) < 0.01 for name in ("Adagrad, α = 0.05", "Adam, α = 0.01"))
                and first["Adadelta, ε = 10⁻⁶"] < 2,
                ", ".join(f"{value:.4g}" for value in first.values()),
            ),
            Claim(
                "Adadelta's whole way scales with the unit, up to the effect of ε = 10⁻⁶ in both units (by more than half of "
                "1024)",
                whole["Adadelta, ε = 10⁻⁶"] > UNIT / 2,
                f"by {whole['Adadelta, ε = 10⁻⁶']:.3g}; √ε is a length, and another one in each unit",
                exact=False,
            ),
        ],
        quantities={
            "ρ": _default(optim.Adadelta, "rho"),
            "ε": _default(optim.Adadelta, "eps"),
            "learning rate": _default(optim.Adadelta, "lr"),
            **{f"way in a unit 1024 times smaller / way: {name}": value for name, value in whole.items()},
            "Adadelta's rate at the end / at step 10": (rate[-1] / rate[9]).item(),
            "Adagrad's rate at the end / at step 10": (rate_adagrad[-1] / rate_adagrad[9]).item(),
        },
        arrays={
            "step": [t + 1 for t in chosen],
            "lines": {
                "g, line 3": [g[t].item() for t in chosen],
                "E[g²], line 4": [mean_g2[t].item() for t in chosen],
                "Δ, line 5": [delta[t].item() for t in chosen],
                "E[Δ²], line 6": [mean_delta2[t].item() for t in chosen],
                "θ, line 7": [walked[t].item() for t in chosen],
            },
            "rates": {
                "Adadelta, constant gradient": [rate[t].item() for t in chosen],
                "Adadelta, noisy bowl": [random_rate[t].item() for t in chosen],
                "Adagrad, constant gradient": [rate_adagrad[t].item() for t in chosen],
            },
            "scales": whole,
            "unit": UNIT,
        },
    )


# ---- rmsprop -----------------------------------------------------------------------------------------------


@experiment(
    "rmsprop",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_rmsprop,
    quick=dict(steps=4000, seeds=16, drift=0.02, rates=13),
    full=dict(steps=20_000, seeds=64, drift=0.02, rates=25),
)
def rmsprop(size: Size) -> Result:
    """RMSprop against Adagrad where the optimum moves."""
    device, steps = size.device.torch, size.steps
    optimum = drifting_optimum(steps, size.seeds, size.drift).to(device)
    noise = torch.randn(steps, size.seeds, dtype=FLOAT64, generator=torch.Generator().manual_seed(5)).to(device)
    noise[steps // 2 :] *= 0.1  # the gradients become smaller half-way: the stream is not stationary

    # All rates and seeds of one rule walk together: θ is (rates, seeds). J(θ) = ½ (θ - optimum)², its gradient with noise.
    rates = torch.logspace(-3, 1, size.rates, dtype=FLOAT64, device=device)[:, None]
    rules = {
        "Adagrad": ("adagrad", {}),
        "RMSprop, ρ = 0.99": ("rmsprop", {"alpha": 0.99}),
        "RMSprop, ρ = 0.9": ("rmsprop", {"alpha": 0.9}),
    }
    errors, lates, tracks, best, rows = {}, {}, {}, {}, []
    for name, (rule, hyper) in rules.items():
        formula, theta = FORMULAS[rule], torch.zeros(size.rates, size.seeds, dtype=FLOAT64, device=device)
        state, walked = formula.start(theta), []
        for t in progress(range(steps), f"{name} on a moving optimum"):
            walked.append(theta)
            theta = formula.step(theta, theta - optimum[t] + noise[t], state, t + 1, lr=rates, **hyper)
        walked = torch.stack(walked)  # (steps, rates, seeds)
        squared = (walked - optimum[:, None]) ** 2
        error = squared.mean(0).sqrt()
        place = int(error.mean(1).argmin())
        best[name], errors[name] = rates[place].item(), error[place]
        early, lates[name] = squared[: steps // 2, place].mean(0).sqrt(), squared[steps // 2 :, place].mean(0).sqrt()
        tracks[name] = (squared[:, place], walked[:, place, 0])
        rows.append(
            {
                "rule": name,
                "best rate of the sweep": best[name],
                "tracking error, mean over seeds": error[place].mean().item(),
                "standard deviation": error[place].std().item(),
                "first half": early.mean().item(),
                "second half": lates[name].mean().item(),
            }
        )
    # One cell of the batch by the class itself.
    name, lr = "RMSprop, ρ = 0.99", best["RMSprop, ρ = 0.99"]
    alone = drive(
        optim.RMSprop,
        torch.zeros(1, dtype=FLOAT64, device=device),
        lambda theta, t: theta - optimum[t, :1] + noise[t, :1],
        steps,
        lr=lr,
        alpha=0.99,
    )
    cell = _apart(alone["theta"][:-1, 0], tracks[name][1][1:])

    # Gradients of size 10 for 500 steps, then of size 0.1; ρ²⁵⁰⁰ = 10⁻¹¹ of the old squares is left at the end.
    scale = torch.full((3000, 1), 10.0, dtype=FLOAT64, device=device)
    scale[500:] = 0.1
    zero = torch.zeros(1, dtype=FLOAT64, device=device)
    lengths = {
        "RMSprop, ρ = 0.99": -steps_of(zero, drive(optim.RMSprop, zero, scale, lr=0.01, alpha=0.99)["theta"])[:, 0]
        / scale[:, 0],
        "Adagrad": -steps_of(zero, drive(optim.Adagrad, zero, scale, lr=0.01)["theta"])[:, 0] / scale[:, 0],
    }
    rms, ada = lengths["RMSprop, ρ = 0.99"], lengths["Adagrad"]
    ratio, late = (one["Adagrad"] / one["RMSprop, ρ = 0.99"] for one in (errors, lates))
    gradients = noise[:200, :4]
    at = gradients.new_zeros(4)
    places = {
        eps: _apart(
            _formula_track("ruder_rmsprop", at, gradients, lr=0.01, eps=eps),
            _formula_track("rmsprop", at, gradients, alpha=0.9, eps=eps),
        )
        for eps in (0.0, 1e-2)
    }
    chosen = list(range(0, steps, max(1, steps // 400)))
    window = max(1, steps // 100)
    return Result(
        rows,
        claims=[
            Claim("A cell of the batch of all rates and seeds walks as the class does alone", cell < 1e-12, f"{cell:.1e}"),
            Claim(
                "With gradients of size g that last, RMSprop's effective rate is α/g, whatever came before: it grows a "
                "hundredfold "
                "where the gradients shrink a hundredfold",
                abs(rms[499].item() * 10 / 0.01 - 1) < 0.01 and abs(rms[-1].item() * 0.1 / 0.01 - 1) < 0.01,
                f"{rms[499].item():.4g} before, {rms[-1].item():.4g} at the end",
            ),
            Claim(
                "Adagrad's effective rate never grows again",
                bool((torch.diff(ada) <= 1e-9 * ada[:-1]).all()),
                f"{ada[499].item():.4g} before, {ada[-1].item():.4g} at the end",
            ),
            Claim(
                "ε inside the root (Ruder's form) and outside (torch's) are one rule for ε = 0, and two for ε = 0.01",
                places[0.0] < 1e-12 < 1e-3 < places[1e-2],
                f"{places[0.0]:.0e} and {places[1e-2]:.0e}",
            ),
            Claim(
                "Each at its best rate, RMSprop (ρ = 0.99) follows the moving optimum more closely than Adagrad, for every "
                "seed",
                bool((ratio > 1).all()),
                f"Adagrad's error is {ratio.mean().item():.2f} times RMSprop's ({ratio.min().item():.2f} to "
                f"{ratio.max().item():.2f}); "
                f"in the second half {late.mean().item():.2f} times",
                exact=False,
            ),
            Claim(
                "Each best rate lies inside the sweep",
                all(rates.min().item() < one < rates.max().item() for one in best.values()),
                ", ".join(f"{one:.3g}" for one in best.values()),
                exact=False,
            ),
        ],
        quantities={
            "Adagrad's tracking error / RMSprop's": ratio.mean().item(),
            "in the second half": late.mean().item(),
            "RMSprop's default α (the lecture gives none)": _default(optim.RMSprop, "lr"),
        },
        arrays={
            "step": [t + 1 for t in chosen],
            "optimum": optimum[chosen, 0].tolist(),
            "paths": {name: walked[chosen].tolist() for name, (_, walked) in tracks.items()},
            "errors": {
                name: _band(torch.stack([squared[max(0, t - window + 1) : t + 1].mean(0).sqrt() for t in chosen]))
                for name, (squared, _) in tracks.items()
            },
            "window": window,
            "rates": {name: values[::10].tolist() for name, values in lengths.items()},
            "rates every": 10,
        },
    )


# ---- adam --------------------------------------------------------------------------------------------------

GAPS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15)


def adam_uncorrected(theta, g, s, t, lr, beta1=0.9, beta2=0.999, eps=1e-8):
    """Adam without its bias correction.

    m = β₁ m + (1 − β₁) g
    v = β₂ v + (1 − β₂) g²
    θ = θ − α m / (√v + ε)
    """
    s.m = beta1 * s.m + (1 - beta1) * g
    s.v = beta2 * s.v + (1 - beta2) * g * g
    theta = theta - lr * s.m / (s.v**0.5 + eps)
    return theta


def adam_of_the_study(theta, g, s, t, lr, beta1=0.9, beta2=0.999, eps=1e-8):
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
    theta = theta - lr * m_hat / (v_hat**0.5 + eps)
    return theta


def _moments(like: torch.Tensor) -> SimpleNamespace:
    return SimpleNamespace(m=torch.zeros_like(like), v=torch.zeros_like(like))


def _adam_variants(start: torch.Tensor, gradient, steps: int, lr: float) -> dict[str, torch.Tensor]:
    """θ after each step of Adam, of Adam without correction, and of the study's Adam; `gradient(θ, t)` with t from 0."""
    rules = {"Adam": FORMULAS["adam"].step, "without correction": adam_uncorrected, "the study's": adam_of_the_study}
    tracks = {}
    for name, rule in rules.items():
        theta, state, points = start, _moments(start), []
        for t in range(steps):
            theta = rule(theta, gradient(theta, t), state, t + 1, lr=lr)
            points.append(theta)
        tracks[name] = torch.stack(points)
    return tracks


@experiment(
    "adam",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_adam,
    quick=dict(seeds=32, late=5000, special=300),
    full=dict(seeds=256, late=20_000, special=300),
    lecture_says={"β₁": "0.9", "β₂": "0.999", "ε": "1e-08", "learning rate α": "0.001"},
)
def adam(size: Size) -> Result:
    """Adam: its bias correction in the first 50 steps, and Adagrad as a special case."""
    device, first = size.device.torch, 50
    lr = _default(optim.Adam, "lr")
    beta1, beta2 = _default(optim.Adam, "betas")
    zero = torch.zeros(1, dtype=FLOAT64, device=device)

    # Step lengths with gradients of constant size: the closed form is (1 - β₁ᵗ)/√(1 - β₂ᵗ).
    tracks = _adam_variants(zero, lambda theta, t: torch.ones_like(theta), size.late, lr)
    lengths = {name: -steps_of(zero, points)[:, 0] / lr for name, points in tracks.items()}
    t = torch.arange(1, size.late + 1, dtype=FLOAT64, device=device)
    closed = (1 - beta1**t) / (1 - beta2**t).sqrt()
    off = lengths["without correction"]
    longest = int(off.argmax()) + 1
    steady = lengths["the study's"][-1].item()

    # A bowl with noise, started at its bottom: what the long first steps cost.
    noise = torch.randn(first, size.seeds, 10, dtype=FLOAT64, generator=torch.Generator().manual_seed(6)).to(device)
    bottom = torch.zeros(size.seeds, 10, dtype=FLOAT64, device=device)
    bowls = _adam_variants(bottom, lambda theta, t: theta + noise[t], first, lr)
    costs = {name: 0.5 * points.square().sum(-1) for name, points in bowls.items()}  # (first, seeds)
    worse = (costs["without correction"].max(0).values / costs["Adam"].max(0).values).median().item()

    by_class = _apart(drive(optim.Adam, bottom, noise)["theta"], _formula_track("adam", bottom, noise))

    # Adagrad as Adam: β₁ = 0, β₂ = 1 - gap, α/√t, ε = 0. Exact in the limit, until 1 - β₂ runs out of digits.
    stream = torch.randn(size.special, 8, dtype=FLOAT64, generator=torch.Generator().manual_seed(7)).to(device)
    special = {}
    for kind, dtype in (("float64", FLOAT64), ("float32", torch.float32)):
        start = torch.zeros(8, dtype=dtype, device=device)
        goal = _formula_track("adagrad", start.double(), stream, lr=0.01, eps=0.0)
        special[kind] = [
            _apart(
                _formula_track(
                    "adam", start, stream.to(dtype), lr=lambda t: 0.01 / math.sqrt(t), beta1=0.0, beta2=1 - gap, eps=0.0
                ).double(),
                goal,
            )
            for gap in GAPS
        ]
    exact, single = (dict(zip(GAPS, special[kind], strict=True)) for kind in ("float64", "float32"))
    at_one = _formula_track("adam", start.double(), stream[:1], lr=0.01, beta1=0.0, beta2=1.0, eps=0.0)
    rows = [
        {
            "step": step,
            "Adam, step / α": lengths["Adam"][step - 1].item(),
            "without correction": off[step - 1].item(),
            "(1 − β₁ᵗ)/√(1 − β₂ᵗ)": closed[step - 1].item(),
            "the study's": lengths["the study's"][step - 1].item(),
        }
        for step in (1, 2, 5, 10, longest, 20, 50, 500, size.late)
    ]
    return Result(
        rows,
        claims=[
            Claim("The class and the five equations walk the same way", by_class < 1e-12, f"{by_class:.1e}"),
            Claim(
                "With gradients of constant size every step of Adam has the length α, the first one included",
                (lengths["Adam"] - 1).abs().max().item() < 1e-7,
            ),
            Claim(
                "Without correction the step is (1 − β₁ᵗ)/√(1 − β₂ᵗ) times as long: 3.16 times at first, over 6.5 times "
                "within the first "
                "50 steps",
                _apart(off, closed) < 1e-6 and abs(off[0].item() - 10**0.5) < 1e-6 and off[:first].max().item() > 6.5,
                f"{off[0].item():.4f}; {off.max().item():.4f} at step {longest}",
            ),
            Claim(
                "… and the correction fades: after 5000 steps both lengths agree within 1 %",
                abs(off[4999].item() - 1) < 0.01,
                f"{off[4999].item():.4f}",
            ),
            Claim(
                "Started at the bottom of a noisy bowl, Adam without correction climbs more than twice as high within 50 steps",
                worse > 2,
                f"{worse:.1f} times, median over the seeds",
            ),
            Claim(
                "The study's Adam, whose corrections lack the exponent, starts right and ends with steps of √(1 − β₂)/(1 − "
                "β₁) = 0.316 α",
                abs(lengths["the study's"][0].item() - 1) < 1e-7
                and abs(steady / (math.sqrt(1 - beta2) / (1 - beta1)) - 1) < 0.01,
                f"{steady:.4f}",
            ),
            Claim(
                "Adagrad is Adam in the limit β₁ = 0, β₂ → 1, rate α/√t, ε = 0: at β₂ = 1 − 10⁻⁹ they differ by less than "
                "10⁻⁷ of the way",
                exact[1e-9] < 1e-7,
                f"{exact[1e-9]:.1e}",
            ),
            Claim(
                "In float64 the difference falls about tenfold with each tenth of 1 − β₂, from 10⁻² to 10⁻⁷",
                all(8 < exact[a] / exact[b] < 12 for a, b in zip(GAPS[:5], GAPS[1:6], strict=True)),
                f"{exact[1e-2]:.1e} to {exact[1e-7]:.1e}",
            ),
            Claim(
                "In float32 it stops at the digits of the state: never below 10⁻⁸",
                min(special["float32"]) > 1e-8,
                f"{min(special['float32']):.1e}",
            ),
            Claim("β₂ = 1 itself is no Adagrad: v stays 0 and v̂ is 0/0", bool(at_one.isnan().all())),
        ],
        quantities={
            "β₁": beta1,
            "β₂": beta2,
            "ε": _default(optim.Adam, "eps"),
            "learning rate α": lr,
            "Adagrad from Adam at 1 − β₂ = 1e-9, float64": exact[1e-9],
            "the same in float32": single[1e-9],
            "first step without correction / α": off[0].item(),
            "longest step without correction / α": off.max().item(),
            "steady step of the study's Adam / α": steady,
        },
        arrays={
            "lengths": {name: values[:first].tolist() for name, values in lengths.items()},
            "costs": {name: _band(values) for name, values in costs.items()},
            "gaps": list(GAPS),
            "special": special,
        },
    )


# ---- adamax-nadam ------------------------------------------------------------------------------------------


@experiment(
    "adamax-nadam",
    lecture="L0",
    notebook=NOTEBOOK,
    draw=draw_adamax_nadam,
    quick=dict(steps=300, seeds=16),
    full=dict(steps=3000, seeds=64),
)
def adamax_nadam(size: Size) -> Result:
    """Adamax and NAdam: Adam's two kin, line by line."""
    device, steps = size.device.torch, size.steps
    made = torch.Generator().manual_seed(8)
    gradients = torch.randn(steps, size.seeds, dtype=FLOAT64, generator=made).to(device)
    start = torch.zeros(size.seeds, dtype=FLOAT64, device=device)
    lr, beta1, beta2 = 0.002, 0.9, 0.999
    by_class = {
        name: _apart(_formula_track(rule, start, gradients, lr=lr), drive(one, start, gradients, lr=lr)["theta"])
        for name, rule, one in (("Adamax", "adamax", optim.Adamax), ("NAdam", "nadam", optim.NAdam))
    }

    # Adamax: u is Adam's second moment with the exponent p in place of 2, as p grows (section 7.1 of the paper).
    norms, p_norms = {}, (2, 4, 8, 16, 32, 64, 128, 256)
    stream = gradients[:100]
    u = torch.zeros_like(start)
    for g in stream:
        u = torch.maximum(beta2 * u, g.abs())
    for p in p_norms:
        v = torch.zeros_like(start)
        for g in stream:
            v = beta2**p * v + (1 - beta2**p) * g.abs() ** p
        norms[p] = ((v ** (1 / p)) / u).mean().item()
    # The longest step that Adamax can take: gradients that fade by β₂ a step, so that u = |g| throughout.
    fading = beta2 ** torch.arange(steps, dtype=FLOAT64, device=device)[:, None]
    zero = torch.zeros(1, dtype=FLOAT64, device=device)
    longest = steps_of(zero, _formula_track("paper_adamax", zero, fading, lr=lr)).abs().max().item() / lr
    bound = (1 - beta1) / (1 - beta1 / beta2)
    adamax_steps = steps_of(start, _formula_track("adamax", start, gradients, lr=lr)).abs().max().item() / lr
    late = gradients.clone()
    late[:5, 0] = 0.0
    paper = _formula_track("paper_adamax", start, late, lr=lr)
    torchs = _formula_track("adamax", start, late, lr=lr)
    same_without_eps = _apart(
        _formula_track("paper_adamax", start, gradients, lr=lr), _formula_track("adamax", start, gradients, lr=lr, eps=0.0)
    )

    # NAdam: the schedule of its momentum, and Ruder's form, which has none.
    t = torch.logspace(0, 5, 101, dtype=FLOAT64).round()
    mu = beta1 * (1 - 0.5 * 0.96 ** (t * 0.004))
    ruder = _apart(_formula_track("ruder_nadam", start, gradients, lr=lr), _formula_track("nadam", start, gradients, lr=lr))
    ones = torch.ones(steps, 1, dtype=FLOAT64, device=device)
    rules = {"Adam": "adam", "Adamax": "adamax", "NAdam": "nadam", "NAdam, Ruder's form": "ruder_nadam"}
    constant = {name: -steps_of(zero, _formula_track(rule, zero, ones, lr=lr))[:, 0] / lr for name, rule in rules.items()}
    # A gradient that turns round: how soon does the step follow?
    turning = torch.ones(60, 1, dtype=FLOAT64, device=device)
    turning[30:] = -1.0
    turned = {name: -steps_of(zero, _formula_track(rule, zero, turning, lr=lr))[:, 0] / lr for name, rule in rules.items()}
    delay = {name: int((values[30:] < 0).nonzero()[0]) + 1 for name, values in turned.items()}
    rows = [
        {
            "rule": name,
            "formula of the step": FORMULAS[rule].lines[-1][0],
            "first step / α": constant[name][0].item(),
            "step 10 / α": constant[name][9].item(),
            "last step / α": constant[name][-1].item(),
            "turns round in step": delay[name],
        }
        for name, rule in rules.items()
    ]
    return Result(
        rows,
        claims=[
            Claim("Adamax: class and formula walk the same way", by_class["Adamax"] < 1e-12, f"{by_class['Adamax']:.1e}"),
            Claim(
                "NAdam: class and formula walk the same way, to float32's digits, in which its product of momenta is kept",
                by_class["NAdam"] < 1e-7,
                f"{by_class['NAdam']:.1e}",
            ),
            Claim(
                "Adam's second moment with the exponent p tends to Adamax's u as p grows",
                all(abs(norms[b] - 1) < abs(norms[a] - 1) for a, b in zip(p_norms[2:], p_norms[3:], strict=False))
                and abs(norms[256] - 1) < 0.02,
                f"mean ratio {norms[2]:.3f} at p = 2, {norms[256]:.4f} at p = 256",
            ),
            Claim(
                "A step of Adamax is at most (1 − β₁)/(1 − β₁/β₂) = 1.009 α long; gradients that fade by β₂ exceed α, the "
                "paper's bound",
                1 < longest <= bound * (1 + 1e-9) and adamax_steps <= bound,
                f"{longest:.5f} α; {adamax_steps:.3f} α on the random stream",
            ),
            Claim(
                "A gradient that starts at 0 makes the paper's Adamax 0/0; with torch's |g| + ε all is finite",
                bool(paper[0].isnan()[0] and not paper[0, 1:].isnan().any() and torchs.isfinite().all()),
            ),
            Claim("For ε = 0 the two are one rule", same_without_eps < 1e-12, f"{same_without_eps:.1e}"),
            Claim(
                "NAdam's momentum starts near β₁/2 and rises towards β₁",
                abs(mu[0].item() / beta1 - 0.5) < 0.001
                and bool((torch.diff(mu) >= 0).all() and (mu < beta1).all() and mu[-1] > 0.99 * beta1),
                f"{mu[0].item():.4f} at step 1, {mu[60].item():.4f} at step 1000, {mu[-1].item():.4f} at step 100 000",
            ),
            Claim("Ruder's NAdam has no such schedule and is another rule", ruder > 1e-3, f"{ruder:.1e} of the way apart"),
            Claim(
                "When a constant gradient turns round, NAdam turns round sooner than Adam",
                delay["NAdam"] < delay["Adam"],
                f"in step {delay['NAdam']} and step {delay['Adam']} after the turn",
            ),
        ],
        quantities={
            "Adamax's default α (the lecture gives none)": _default(optim.Adamax, "lr"),
            "NAdam's default α (the lecture gives none)": _default(optim.NAdam, "lr"),
            "longest step of Adamax / α": longest,
        },
        arrays={
            "norms": {str(p): value for p, value in norms.items()},
            "mu": {"step": t.tolist(), "momentum": mu.tolist()},
            "beta1": beta1,
            "turned": {name: values.tolist() for name, values in turned.items()},
        },
    )


# ---- optimizer-conformance ---------------------------------------------------------------------------------


@experiment(
    "optimizer-conformance",
    lecture="card",
    notebook=NOTEBOOK,
    quick=dict(steps=25, draws=3, long_steps=150),
    full=dict(steps=25, draws=60, long_steps=1000),
    uses=("cuda",),
)
def optimizer_conformance(size: Size) -> Result:
    """Every class against torch.optim's plain loop, in spacings of floating-point numbers."""
    judged = []
    for name in progress(conformance.CLASSES, "classes against torch.optim"):
        judged += conformance.conformance(size.device.torch, size.steps, size.draws, size.long_steps, [name])
    rows = [
        {
            "class": row["class"],
            "PyTorch's inputs, same bits": f"{row['suite same']} of {row['suite inputs']}",
            "own inputs, same bits": f"{row['own same']} of {row['own inputs']}",
            "as lists (foreach), same bits": f"{row['lists same']} of {row['lists inputs']}" if row["lists inputs"] else None,
            "largest difference, spacings": row["largest difference, spacings"],
            "faulty inputs refused in torch's words": f"{row['errors alike']} of {row['error inputs']}",
        }
        for row in judged
    ]
    runs, same = (
        sum(row[f"{kind} {what}"] for row in judged for kind in ("suite", "own", "lists")) for what in ("inputs", "same")
    )
    refused, faulty = (sum(row[what] for row in judged) for what in ("errors alike", "error inputs"))
    worst = max(row["largest difference, spacings"] for row in judged)
    return Result(
        rows,
        claims=[
            Claim(
                "Every class walks as torch.optim's plain loop does, one by one and as lists, with every input of PyTorch's "
                "suite and with others: the same bits on a CPU, within 4 spacings on a GPU",
                worst <= 4 if size.device.is_cuda else same == runs,
                f"{same} of {runs} runs, largest difference {worst:g} spacings",
            ),
            Claim("No gradient is overwritten", sum(row["gradients overwritten"] for row in judged) == 0, f"{runs} runs"),
            Claim(
                "Every input that PyTorch's suite expects to be refused is refused with torch's own error or warning",
                refused == faulty > 60,
                f"{refused} of {faulty}",
            ),
        ],
        quantities={"runs compared": runs, "largest difference, spacings": worst, "faulty inputs refused": refused},
    )


# ---- optimizer-lab -----------------------------------------------------------------------------------------


@experiment(
    "optimizer-lab",
    lecture="card",
    notebook=NOTEBOOK,
    draw=draw_optimizer_lab,
    quick=dict(steps=30, moves=60),
    full=dict(steps=30, moves=400),
)
def optimizer_lab(size: Size) -> Result:
    """The optimizer lab: its paths, its single steps and its speed."""
    from hpml_lab.adaptive import lab_checks  # with its widgets

    compared = lab_checks.compare_with_classes(size.steps)
    apart = max(row["apart"] for row in compared)
    rows = []
    for name in dict.fromkeys(row["optimizer"] for row in compared):
        own = [row for row in compared if row["optimizer"] == name]
        worst = max(own, key=lambda row: row["apart"])
        rows.append(
            {
                "optimizer": name,
                "surfaces": len(own),
                "steps on each": size.steps,
                "largest distance of formula and class / width of the window": worst["apart"],
                "on": worst["surface"],
            }
        )
    missed = lab_checks.steps_that_miss(size.steps)
    found = lab_checks.latency(size.moves)
    slowest = max(value for name, value in found.items() if "p95" in name)
    return Result(
        rows,
        claims=[
            Claim(
                "On every surface the path of each formula is its class's own path, within 10⁻¹¹ of the window's width",
                apart <= 1e-11,
                f"{apart:.1e}",
            ),
            Claim(
                "In step mode the last line of every step gives the path's next point exactly", missed == 0, f"{missed} miss"
            ),
            Claim("Steps back and forth bring the same pictures and the same numbers", lab_checks.back_and_forth(8)),
            Claim("After any slider moves the picture is the one drawn afresh, byte by byte", lab_checks.drawn_afresh(6)),
            Claim(
                "From a slider's event to the new picture the kernel takes at most 20 ms in 95 of 100 moves",
                slowest <= 20,
                f"{slowest:.1f} ms",
                exact=False,
            ),
        ],
        quantities=found,
        arrays={"settings": {"surface": "beale", "step": 10}},
    )
