"""Adagrad: the effective rate of a frequent and of a rare feature, and what ε does inside and outside the root."""

import math
from dataclasses import dataclass

import torch

from hpml_lab import optim
from hpml_lab.adaptive.experiments.gradient_streams import (
    FLOAT64,
    band,
    plot_band,
    rare_and_frequent,
    relative_difference,
    run_class,
    run_formula,
    spread_indices,
)
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.optim.formulas.by_name import FORMULAS

QUICK = dict(steps=2000, seeds=16, every=20)
FULL = dict(steps=20_000, seeds=64, every=20)

# The divisor of the first step: formula and ε
FORMS = {
    "√(G + 10⁻⁸), the lecture's": ("lecture_adagrad", 1e-8),
    "√G + 10⁻⁸": ("adagrad", 1e-8),
    "√G + 10⁻¹⁰, torch's": ("adagrad", 1e-10),
}


@dataclass
class FeatureRate(Row):
    """The effective rate of one feature after some steps."""

    feature: str = column("feature")
    step: int = column("after step")
    gradients_seen: int = column("gradients so far, median")
    rate: float = column("effective rate α/√G, median")
    relative_rate: float = column("rate / α")


def draw(result: Result):
    """Left: the effective rate of Adagrad for a feature that occurs in every step and for a rare one, median and quartiles
    over the seeds. Both fall; the frequent feature's falls further. The dotted line is the rate under gradients of size 1.
    Right: the length of the first step by the size of the gradient. With ε inside the root, small gradients take far shorter
    steps."""
    figure = style.new_figure(9, 3.8)
    left, right = figure.subplots(1, 2)
    arrays = result.arrays
    for i, (name, rates) in enumerate(arrays["rates"].items()):
        plot_band(left, arrays["step"], rates, {"color": style.CYCLE[i], "linestyle": style.LINES[i]}, f"{name} feature")
    left.plot(arrays["step"], arrays["constant"], ":", color=style.GREY, label="gradients of size 1: α/√t")
    left.axhline(arrays["lr"], color=style.GREY, linewidth=1)
    left.text(arrays["step"][-1], arrays["lr"] * 1.06, "α", ha="right", va="bottom")
    left.set(xscale="log", yscale="log", xlabel="step", ylabel="effective rate α/√G", title="A rate for each parameter")
    left.legend(fontsize=8, loc="lower left")
    for i, (label, lengths) in enumerate(arrays["first_step"].items()):
        right.plot(arrays["gradient"], lengths, color=style.CYCLE[i], linestyle=style.LINES[i], label=label)
    right.set(xscale="log", xlabel="size of the first gradient", ylabel="length of the first step / α")
    right.set_title("ε inside and outside the root")
    right.legend(fontsize=8, title="divided by", loc="upper left", title_fontsize=8)
    right.set_ylim(-0.05, 1.45)
    return figure


@experiment("adagrad", lecture="L0", notebook="05_adaptive", draw=draw, quick=QUICK, full=FULL)
def adagrad(params: Params) -> Result:
    """Adagrad: a learning rate for each parameter, that only shrinks."""
    device = params.device.torch
    lr, eps = (FORMULAS["adagrad"].defaults[name] for name in ("lr", "eps"))
    gradients = rare_and_frequent(params.steps, params.seeds, params.every).to(device)
    start = torch.zeros(params.seeds, 2, dtype=FLOAT64, device=device)
    run = run_class(optim.Adagrad, start, gradients)
    total = run["sum"]
    rate = torch.where(total > 0, lr / total.sqrt(), torch.nan)  # none before the first gradient
    rows = _rows(gradients, rate, params, lr)
    frequent, rare = rate[-1].median(0).values.tolist()

    result = Result([Table("Effective rates", rows)])
    result.key_figure("learning rate α", lr, lecture=0.01)
    result.key_figure("ε", eps, lecture=1e-8)
    result.key_figure("rate of the frequent feature at the end / α", frequent / lr)
    result.key_figure("rate of the rare feature at the end / α", rare / lr)

    result.claim("No parameter's effective rate α/√G ever grows", not (torch.diff(rate, dim=0) > 0).any().item())
    seen_twenty = (gradients != 0).cumsum(0)[..., 1] >= 20
    both = ~rate.isnan().any(-1)
    result.claim(
        "From the rare feature's 20th gradient on, its rate stays above that of the frequent feature",
        bool(seen_twenty.any() and (rate[..., 1] > rate[..., 0])[both & seen_twenty].all()),
        f"{rare / frequent:.1f} times at the end; √{params.every} = {math.sqrt(params.every):.1f}",
    )
    constant_rate = _constant_gradients(result, params.steps, lr, device)
    first_step = _forms_of_eps(result, start, gradients, device)

    chosen = spread_indices(params.steps)
    result.arrays = {
        "step": [index + 1 for index in chosen],
        "rates": {name: band(rate[chosen][..., i].nan_to_num(nan=math.inf)) for i, name in enumerate(("frequent", "rare"))},
        "constant": constant_rate[chosen].tolist(),
        "lr": lr,
        **first_step,
    }
    return result


def _rows(gradients: torch.Tensor, rate: torch.Tensor, params: Params, lr: float) -> list[FeatureRate]:
    seen = (gradients != 0).cumsum(0)
    rows = []
    for i, feature in enumerate(("in every step", f"in 1 step of {params.every}")):
        for step in (params.every * 5, params.steps // 10, params.steps):
            median = rate[step - 1, :, i].nanmedian().item()
            rows.append(FeatureRate(feature, step, seen[step - 1, :, i].median().item(), median, median / lr))
    return rows


def _constant_gradients(result: Result, steps: int, lr: float, device: torch.device) -> torch.Tensor:
    """Gradients of constant size: the rate and the distance in closed form. Returns the rates."""
    ones = torch.ones(steps, 1, dtype=FLOAT64, device=device)
    run = run_class(optim.Adagrad, torch.zeros(1, dtype=FLOAT64, device=device), -ones)
    t = torch.arange(1, steps + 1, dtype=FLOAT64, device=device)
    rate = lr / run["sum"][:, 0].sqrt()
    result.claim(
        "With gradients of size 1 the rate is α/√t",
        relative_difference(rate, lr / t.sqrt()) < 1e-12,
        f"{rate[-1].item() / lr:.3g} α after {steps} steps",
    )
    distance, closed = run["theta"][-1].item(), 2 * lr * math.sqrt(steps)
    result.claim(
        "T such steps cover a distance of 2α√T, within 5 %: it has no limit, but it takes ever longer",
        abs(distance / closed - 1) < 0.05,
        f"{distance:.4g} and {closed:.4g}",
    )
    return rate


def _forms_of_eps(result: Result, start: torch.Tensor, gradients: torch.Tensor, device: torch.device) -> dict:
    """ε inside and outside the root. Returns the length of the first step by the size of the gradient."""

    def first_steps(name: str, sizes: torch.Tensor, eps: float) -> torch.Tensor:
        return -run_formula(name, torch.zeros_like(sizes), sizes[None], lr=1.0, eps=eps)[0]

    sizes = torch.logspace(-9, 0, 91, dtype=FLOAT64, device=device)
    small = torch.tensor([1e-4], dtype=FLOAT64, device=device)
    inside, outside = (first_steps(name, small, 1e-8).item() for name in ("lecture_adagrad", "adagrad"))
    result.claim(
        "A gradient of 10⁻⁴ takes a first step of 0.707 α with ε = 10⁻⁸ inside the root, and of 0.9999 α outside it",
        abs(inside - 0.5**0.5) < 1e-9 and abs(outside - 1 / 1.0001) < 1e-9,
        f"{inside:.6f} and {outside:.6f}",
    )
    stream = gradients[:100] * 1e-3
    with_eps = relative_difference(*(run_formula(name, start, stream) for name in ("lecture_adagrad", "adagrad")))
    result.claim(
        "With gradients around 10⁻³ the two forms, each with its default ε, differ by more than 0.01 % of the distance",
        with_eps > 1e-4,
        f"{with_eps:.1e}",
    )
    lengths = {label: first_steps(name, sizes, eps).tolist() for label, (name, eps) in FORMS.items()}
    return {"gradient": sizes.tolist(), "first_step": lengths}
