"""Exercise `first-steps`: the length of the first step of Adagrad, Adadelta, RMSprop and Adam under a gradient of 1000."""

import math

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import same
from hpml_lab.optim.formulas.by_name import FORMULAS

GRADIENT = 1000.0
RULES = ("adagrad", "adadelta", "rmsprop", "adam")


def right_steps() -> list[float]:
    """The length of each rule's first step, with torch's defaults."""
    return [-FORMULAS[rule].step(0.0, GRADIENT, FORMULAS[rule].start(0.0), 1) for rule in RULES]


def _mistakes() -> dict[str, tuple[dict[str, float], str]]:
    """{name: ({rule: the length that this mistake gives}, hint)}"""
    rates = {rule: FORMULAS[rule].defaults["lr"] for rule in RULES}
    return {
        "scales-with-gradient": (
            {rule: rate * GRADIENT for rule, rate in rates.items()},
            "That is α g, gradient descent's step. This rule divides g by a measure of its size: what is left of the 1000?",
        ),
        "average-taken-as-whole": (
            {"rmsprop": rates["rmsprop"]},
            "After one step RMSprop's v is not g², but (1 - ρ) g²: nothing corrects that.",
        ),
        "correction-forgotten": (
            {"adam": rates["adam"] * (1 - 0.9) / math.sqrt(1 - 0.999)},
            "That is Adam without its bias correction. With it, m̂ = g and v̂ = g² after one step.",
        ),
        "rate-as-length": (
            {"adadelta": rates["adadelta"]},
            "Adadelta's α = 1 does not set the length: at the start the numerator RMS[Δ] is only √ε.",
        ),
        "average-taken-as-whole, Adadelta": (
            {"adadelta": math.sqrt(FORMULAS["adadelta"].defaults["eps"])},
            "Nearly: RMS[g] is the root of (1 - ρ) g², not of g².",
        ),
        "average-multiplied": (
            {"rmsprop": rates["rmsprop"] * 0.1, "adadelta": math.sqrt(1e-6 * 0.1)},
            "v = (1 - ρ) g² makes the divisor smaller than g, so the step gets longer: divide by √(1 - ρ).",
        ),
        "root-of-average-forgotten": (
            {"rmsprop": rates["rmsprop"] / 0.01, "adadelta": math.sqrt(1e-6) / 0.1},
            "1 - ρ stands under the root, with g².",
        ),
        "half-corrected": ({"adam": rates["adam"] * (1 - 0.9)}, "v is corrected there, m is not: both averages start at zero."),
        "half-corrected, m": (
            {"adam": rates["adam"] / math.sqrt(1 - 0.999)},
            "m is corrected there, v is not: both averages start at zero.",
        ),
        "scales-with-gradient, Adadelta": (
            {"rmsprop": rates["rmsprop"] * GRADIENT / 10, "adadelta": math.sqrt(1e-6 / 0.1) * GRADIENT},
            "Nearly: g stands over RMS[g], which is about as large. What is left of the 1000?",
        ),
        "numerator-without-root": ({"adadelta": 1e-6 / math.sqrt(0.1)}, "The numerator is RMS[Δ] = √ε at the start, not ε."),
        "decay-of-another-rule": (
            {"rmsprop": rates["rmsprop"] / math.sqrt(0.1)},
            "Look at ρ in the table again: it is not the same in both rules.",
        ),
        "root-forgotten": (
            {"adagrad": 1e-5, "adadelta": 1e-9, "rmsprop": 1e-4, "adam": 1e-6},
            "Yours shrinks with the gradient: the square stands under a root, and g² over g leaves g.",
        ),
    }


@exercise("first-steps", notebook="05_adaptive", returns=(float, float, float, float))
def judge_first_steps(answer: tuple) -> None:
    """0.01, √(ε/(1 − ρ)), α/√(1 − ρ) and 0.001, each within 1 %."""
    lengths = [float(value) for value in answer]
    if any(length < 0 for length in lengths):
        raise Mistake("signed", "Give the lengths, without a sign.")
    mistakes = _mistakes()
    for rule, length, right in zip(RULES, lengths, right_steps(), strict=True):
        if same(length / right, 1.0, tolerance=0.01):
            continue
        for name, (wrong, hint) in mistakes.items():
            if rule in wrong and same(length / wrong[rule], 1.0, tolerance=0.01):
                raise Mistake(name.split(",")[0], f"{FORMULAS[rule].title}: {hint}")
        raise Mistake(
            "wrong-value",
            f"{FORMULAS[rule].title}: its first step is not {length:g}. Put g = 1000 and a state of zeros into the formula.",
        )
