"""Adamax and NAdam: a maximum in place of the second moment, and a momentum with a schedule and a look-ahead."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, pairwise, repeat

import torch

from hpml_lab.adaptive.experiments.gradient_streams import FLOAT64, normal, run_formula, steps_of
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.optim.formulas.arithmetic import largest
from hpml_lab.optim.formulas.by_name import FORMULAS
from hpml_lab.optim.formulas.colors import optimizer_style

QUICK = dict(steps=300, seeds=16)
FULL = dict(steps=3000, seeds=64)

LR, BETA1, BETA2 = 0.002, 0.9, 0.999
EXPONENTS = (2, 4, 8, 16, 32, 64, 128, 256)
RULES = {"Adam": "adam", "Adamax": "adamax", "NAdam": "nadam", "NAdam, Ruder's form": "ruder_nadam"}
EARLY, LATE = 30, 20_000  # the gradient changes its sign after this step: NAdam's momentum is still low, or has warmed up
BEFORE, AFTER = 15, 30  # steps drawn before and after the change of sign


@dataclass
class RuleSteps(Row):
    """The steps of one rule under a constant gradient, and how many they take to change their sign once the gradient has."""

    rule: str = column("rule")
    formula: str = column("formula of the step")
    first: float = column("first step / α")
    tenth: float = column("step 10 / α")
    last: float = column("last step / α")
    early_delay: int = column(f"changes sign after step {EARLY}", "steps later")
    late_delay: int = column(f"changes sign after step {LATE}", "steps later")


def draw(result: Result):
    """Top left: Adam's second moment with an exponent p in place of 2, divided by Adamax's u; it tends to 1 as p grows. Top
    right: the momentum of NAdam, which rises from half of β₁ towards β₁. Bottom: the steps of four rules when a constant
    gradient changes its sign, after step 30 and after step 20 000. Compare when NAdam crosses zero on the left, where its
    momentum is still low, and on the right."""
    figure = style.new_figure(9, 6.4)
    panels = figure.subplot_mosaic([["norms", "momentum"], [str(EARLY), str(LATE)]])
    arrays = result.arrays
    norms, momentum = panels["norms"], panels["momentum"]
    norms.plot([int(p) for p in arrays["norms"]], list(arrays["norms"].values()), "o-", color=style.BLUE)
    norms.axhline(1, color=style.GREY, linestyle=":")
    norms.set(xlabel="exponent p", ylabel="v^(1/p) / u, mean over the seeds", title="Adamax is the limit p → ∞")
    norms.set_xscale("log", base=2)
    momentum.plot(arrays["mu"]["step"], arrays["mu"]["momentum"], **optimizer_style("NAdam"))
    momentum.axhline(BETA1, color=style.GREY, linestyle=":")
    momentum.text(1, BETA1 - 0.008, "β₁", va="top")
    momentum.set(xscale="log", xlabel="step", ylabel="momentum μ", title="NAdam's momentum", ylim=(0.4, 0.95))
    for turn, curves in arrays["turned"].items():
        turned = panels[turn]
        for name, steps in curves.items():
            look = optimizer_style(name) | ({"linestyle": ":"} if "Ruder" in name else {})
            turned.plot(range(1 - BEFORE, AFTER + 1), steps, label=name, **look)
        turned.axhline(0, color=style.GREY, linewidth=1)
        turned.axvline(0.5, color=style.GREY, linestyle=":")
        turned.set(xlabel="steps after the change", ylabel="step / α", title=f"Sign change after step {int(turn):,}")
    panels[str(EARLY)].legend(fontsize=9, loc="lower left")
    return figure


@experiment("adamax-nadam", lecture="L0", notebook="05_adaptive", draw=draw, quick=QUICK, full=FULL)
def adamax_nadam(params: Params) -> Result:
    """Adamax and NAdam: two relatives of Adam, line by line."""
    gradients = normal(params.steps, params.seeds, seed=8, device=params.device.torch)
    turned = {turn: {name: _around_turn(rule, turn) for name, rule in RULES.items()} for turn in (EARLY, LATE)}
    rows = [_row(name, params.steps, *(curves[name] for curves in turned.values())) for name in RULES]
    result = Result([Table("Steps under a constant gradient", rows)])
    for name, rule in (("Adamax", "adamax"), ("NAdam", "nadam")):
        result.key_figure(f"{name}'s default α", FORMULAS[rule].defaults["lr"], lecture="not given")
    norms = _adamax(result, gradients)
    mu = _nadam(result)
    result.arrays = {
        "norms": {str(p): value for p, value in norms.items()},
        "mu": mu,
        "turned": {str(turn): curves for turn, curves in turned.items()},
    }
    return result


def _relative_steps(rule: str, gradients: Iterable[float]) -> list[float]:
    """The steps of a rule along a stream of gradients, in α: positive against a positive gradient."""
    thetas = [0.0, *(theta for theta, _, _ in FORMULAS[rule].run(0.0, gradients, lr=LR))]
    return [(before - after) / LR for before, after in pairwise(thetas)]


def _around_turn(rule: str, turn: int) -> list[float]:
    """The last steps before a constant gradient changes its sign, and the first ones after it."""
    return _relative_steps(rule, chain(repeat(1.0, turn), repeat(-1.0, AFTER)))[-BEFORE - AFTER :]


def _row(name: str, steps: int, early: list[float], late: list[float]) -> RuleSteps:
    constant = _relative_steps(RULES[name], repeat(1.0, steps))
    delays = [next(i for i, step in enumerate(around[BEFORE:], 1) if step < 0) for around in (early, late)]
    return RuleSteps(name, FORMULAS[RULES[name]].lines[-1][0], constant[0], constant[9], constant[-1], *delays)


def _adamax(result: Result, gradients: torch.Tensor) -> dict[int, float]:
    """Adamax: u is Adam's second moment with the exponent p in place of 2, as p grows (section 7.1 of the paper)."""
    start = torch.zeros_like(gradients[0])
    track = run_formula("adamax", start, gradients, lr=LR)
    norms = _norms(gradients[:100])
    result.claim(
        "Adam's second moment with the exponent p tends to Adamax's u as p grows",
        all(abs(norms[b] - 1) < abs(norms[a] - 1) for a, b in zip(EXPONENTS[2:], EXPONENTS[3:], strict=False))
        and abs(norms[256] - 1) < 0.02,
        f"mean ratio {norms[2]:.3f} at p = 2, {norms[256]:.4f} at p = 256",
    )
    # The longest step that Adamax can take: gradients that fade by β₂ a step, so that u = |g| throughout.
    fading = BETA2 ** torch.arange(len(gradients), dtype=FLOAT64, device=start.device)[:, None]
    zero = torch.zeros_like(fading[0])
    longest = steps_of(zero, run_formula("paper_adamax", zero, fading, lr=LR)).abs().max().item() / LR
    on_random = steps_of(start, track).abs().max().item() / LR
    bound = (1 - BETA1) / (1 - BETA1 / BETA2)
    result.claim(
        "A step of Adamax is at most (1 − β₁)/(1 − β₁/β₂) = 1.009 α long; with gradients that fade by β₂ it exceeds α, the "
        "paper's bound",
        1 < longest <= bound * (1 + 1e-9) and on_random <= bound,
        f"{longest:.5f} α; {on_random:.3f} α on the random stream",
    )
    result.key_figure("longest step of Adamax / α", longest)
    late = gradients.clone()
    late[:5, 0] = 0.0
    paper, torchs = (run_formula(name, start, late, lr=LR) for name in ("paper_adamax", "adamax"))
    result.claim(
        "A gradient that starts at 0 makes the paper's Adamax 0/0; with torch's |g| + ε all is finite",
        bool(paper[0].isnan()[0] and not paper[0, 1:].isnan().any() and torchs.isfinite().all()),
    )
    return norms


def _norms(stream: torch.Tensor) -> dict[int, float]:
    """For each exponent p, the p-th root of the second moment with that exponent, divided by Adamax's u."""
    u = torch.zeros_like(stream[0])
    for g in stream:
        u = largest(BETA2 * u, g.abs())
    ratios = {}
    for p in EXPONENTS:
        v = torch.zeros_like(u)
        for g in stream:
            v = BETA2**p * v + (1 - BETA2**p) * g.abs() ** p
        ratios[p] = ((v ** (1 / p)) / u).mean().item()
    return ratios


def _nadam(result: Result) -> dict[str, list[float]]:
    """NAdam: the schedule of its momentum, and Ruder's form, which has none."""
    t = torch.logspace(0, 5, 101, dtype=FLOAT64).round()
    mu = BETA1 * (1 - 0.5 * 0.96 ** (t * FORMULAS["nadam"].defaults["momentum_decay"]))
    result.claim(
        "NAdam's momentum starts near β₁/2 and rises towards β₁",
        abs(mu[0].item() / BETA1 - 0.5) < 0.001
        and bool((torch.diff(mu) >= 0).all() and (mu < BETA1).all() and mu[-1] > 0.99 * BETA1),
        f"{mu[0].item():.4f} at step 1, {mu[60].item():.4f} at step 1000, {mu[-1].item():.4f} at step 100 000",
    )
    early = {row.rule: row.early_delay for row in result.rows(RuleSteps)}
    late = {row.rule: row.late_delay for row in result.rows(RuleSteps)}
    names = ("Adam", "NAdam", "NAdam, Ruder's form")
    adam, nadam, without_schedule = names
    result.claim(
        f"When a constant gradient changes sign after step {EARLY}, NAdam changes sign at least five steps sooner than Adam",
        early[adam] - early[nadam] >= 5,
        ", ".join(f"{name} {early[name]}" for name in names),
    )
    result.claim(
        f"That is the low momentum at the start: after step {LATE} NAdam is as late as Ruder's form, which has the look-ahead "
        "but no schedule, and one step ahead of Adam",
        late[adam] - 1 == late[nadam] == late[without_schedule] == early[without_schedule],
        ", ".join(f"{name} {late[name]}" for name in names),
    )
    return {"step": t.tolist(), "momentum": mu.tolist()}
