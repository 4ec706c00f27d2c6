"""The judges of notebook 05's exercises."""

import math
from collections.abc import Callable
from typing import Any

from hpml_lab.core.exercises import Mistake, exercise, same
from hpml_lab.optim.formulas import FORMULAS
from hpml_lab.optim.judging import as_rule, judge_rule
from hpml_lab.optim.mistakes import ADAGRAD_MISTAKES, ADAM_MISTAKES, ADAMW_MISTAKES, RMSPROP_MISTAKES

NOTEBOOK = "05_adaptive"

# A large ε and low β, so that each of them matters within the judge's 60 steps.
MOMENTS = {"lr": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 0.01}


def _number(answer: Any) -> float | None:
    """A number as a float, be it Python's, NumPy's or a tensor with one element; None for anything else."""
    if isinstance(answer, str | bool):
        return None
    try:
        return float(answer)
    except (TypeError, ValueError, RuntimeError):
        return None


# ---- update rules ------------------------------------------------------------------------------------------


@exercise("write-adagrad", notebook=NOTEBOOK)
def judge_write_adagrad(answer: Callable) -> None:
    judge_rule(answer, as_rule(FORMULAS["adagrad"]), ADAGRAD_MISTAKES, lr=0.1, eps=0.01)


@exercise("mend-the-rmsprop", notebook=NOTEBOOK)
def judge_mend_the_rmsprop(answer: Callable) -> None:
    judge_rule(answer, as_rule(FORMULAS["rmsprop"]), RMSPROP_MISTAKES, lr=0.1, alpha=0.9, eps=0.01)


@exercise("write-adam", notebook=NOTEBOOK)
def judge_write_adam(answer: Callable) -> None:
    judge_rule(answer, as_rule(FORMULAS["adam"]), ADAM_MISTAKES, **MOMENTS)


@exercise("write-adamw", notebook=NOTEBOOK)
def judge_write_adamw(answer: Callable) -> None:
    judge_rule(answer, as_rule(FORMULAS["adamw"]), ADAMW_MISTAKES, **MOMENTS, weight_decay=0.1)


# ---- first-steps -------------------------------------------------------------------------------------------

GRADIENT = 1000.0
RULES = ("adagrad", "adadelta", "rmsprop", "adam")


def _first_steps() -> list[float]:
    """Length of each rule's first step under the gradient 1000, with torch's defaults."""
    return [-FORMULAS[rule].step(0.0, GRADIENT, FORMULAS[rule].start(0.0), 1) for rule in RULES]


@exercise("first-steps", notebook=NOTEBOOK)
def judge_first_steps(answer: tuple) -> None:
    answer = answer.tolist() if hasattr(answer, "tolist") else answer  # of a tensor or an array
    answer = [_number(one) for one in answer] if isinstance(answer, tuple | list) else []
    if len(answer) != 4 or None in answer:
        raise Mistake("not-four-numbers", "Give four numbers: the first steps of Adagrad, Adadelta, RMSprop and Adam.")
    if all(one < 0 for one in answer):
        raise Mistake("signed", "Give the lengths, without a sign.")
    right = _first_steps()
    known = {
        "scales-with-gradient": (
            [FORMULAS[rule].defaults["lr"] * GRADIENT for rule in RULES],
            "That is α g, gradient descent's step. This rule divides g by a measure of its size: what is left of the 1000?",
        ),
        "average-taken-as-whole": (
            [None, None, FORMULAS["rmsprop"].defaults["lr"], None],
            "After one step RMSprop's v is not g², but (1 - ρ) g²: nothing corrects that.",
        ),
        "correction-forgotten": (
            [None, None, None, 0.001 * (1 - 0.9) / math.sqrt(1 - 0.999)],
            "That is Adam without its bias correction. With it, m̂ = g and v̂ = g² after one step.",
        ),
        "rate-as-length": (
            [None, FORMULAS["adadelta"].defaults["lr"], None, None],
            "Adadelta's α = 1 does not set the length: at the start the numerator RMS[Δ] is only √ε.",
        ),
        "average-taken-as-whole, Adadelta": (
            [None, math.sqrt(FORMULAS["adadelta"].defaults["eps"]), None, None],
            "Nearly: RMS[g] is the root of (1 - ρ) g², not of g².",
        ),
        "root-forgotten": (
            [1e-5, 1e-9, 1e-4, 1e-6],
            "Yours shrinks with the gradient: the square stands under a root, and g² over g leaves g.",
        ),
    }
    for rule, got, value, *known_values in zip(RULES, answer, right, *(values for values, _ in known.values()), strict=True):
        if same(got / value, 1.0, tolerance=0.01):
            continue
        for (name, (_, hint)), wrong in zip(known.items(), known_values, strict=True):
            if wrong is not None and same(got / wrong, 1.0, tolerance=0.01):
                raise Mistake(name.split(",")[0], f"{FORMULAS[rule].title}: {hint}")
        raise Mistake(
            "wrong-value",
            f"{FORMULAS[rule].title}: its first step is not {got:g}. Put g = 1000 and a state of zeros into the formula.",
        )


# ---- adagrad-way -------------------------------------------------------------------------------------------


@exercise("adagrad-way", notebook=NOTEBOOK)
def judge_adagrad_way(answer: float) -> None:
    if (answer := _number(answer)) is None:
        raise Mistake("not-a-number", "Give the number of steps as one number.")
    if 2450 <= answer <= 2650:  # (1 / 2α)² = 2500; the sum itself reaches 1 at step 2574
        return
    known = {
        "rate-does-not-shrink": (
            100,
            "With a constant step of α = 0.01 it were 100 steps. Which step does Adagrad take at t = 100?",
        ),
        "last-step-for-all": (
            10_000,
            "You took all steps as long as the last one, α/√T. The earlier ones are longer: add them up.",
        ),
        "sum-as-root": (5000, "A factor of 2 is missing: the sum of 1/√t up to T is about 2√T; solve 2α√T = 1 for T."),
        "way-not-squared": (50, "2√T = 100 is right; now solve for T."),
        "square-forgotten": (200, "The way grows with √T: to go twice as far takes four times as many steps."),
    }
    for name, (value, hint) in known.items():
        if same(answer / value, 1.0, tolerance=0.02):
            raise Mistake(name, hint)
    if answer > 1e6 or answer == math.inf:
        raise Mistake(
            "never-arrives",
            "The steps shrink, but as 1/√t: their sum has no limit, and it arrives. (Steps of 1/t would take e¹⁰⁰ of them.)",
        )
    raise Mistake("wrong-value", f"Not {answer:g}. With gradients of size 1, G after step t is t: add up α/√t until it is 1.")
