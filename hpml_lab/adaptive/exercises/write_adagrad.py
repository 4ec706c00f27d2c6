"""Exercise `write-adagrad`: G = G + g², θ = θ − α g / (√G + ε)."""

from collections.abc import Callable

from hpml_lab.core.exercises import exercise
from hpml_lab.optim_exercises.judge import judge_rule
from hpml_lab.optim_exercises.rules import WrongRules, altered, as_rule

DRIFT_HINT = "ε is added to the step itself, so every weight drifts by ε in each step. It belongs to the denominator."
ZERO_HINT = "A gradient that starts at exactly 0 gives 0/0: which term keeps the denominator away from zero?"


def _wrong_step(step: str, hint: str) -> tuple:
    return altered("adagrad", f"theta = theta - {step}"), hint


def _wrong_sum(total: str, hint: str) -> tuple:
    return altered("adagrad", f"s.G = {total}"), hint


ADAGRAD_MISTAKES: WrongRules = {
    "eps-inside-root": (
        as_rule("lecture_adagrad"),
        "That is the lecture's form, √(G + ε). The exercise asks for torch's: where does ε stand there?",
    ),
    "eps-on-weights": _wrong_step("(lr * g / sqrt(s.G) + eps)", DRIFT_HINT),
    "eps-on-weights, times α": _wrong_step("lr * (g / sqrt(s.G) + eps)", DRIFT_HINT),
    "eps-missing": _wrong_step("lr * g / sqrt(s.G)", ZERO_HINT),
    "squares-not-accumulated": _wrong_sum(
        "g * g", "Your G holds only this step's g²: each step is then about as long as α. G is the sum of all of them."
    ),
    "accumulated-after-use": (
        altered("adagrad", order=("theta", "s.G")),
        "Your first step divides by √0 + ε and is huge: g² must be in G before G is used.",
    ),
    "root-missing": _wrong_step("lr * g / (s.G + eps)", "G is a sum of squares: take its root before you divide."),
    "not-squared": _wrong_sum("s.G + abs(g)", "G adds up squares of gradients, not their magnitudes."),
    "signs-cancel": (
        altered("adagrad", "s.G = s.G + g", "theta = theta - lr * g / (abs(s.G) + eps)"),
        "In your sum, gradients of opposite sign cancel. Square each one first.",
    ),
    "mean-instead-of-sum": _wrong_step(
        "lr * g / (sqrt(s.G / t) + eps)", "You divide G by t: Adagrad's G is the sum, which only grows."
    ),
}

# Asked for: the lecture's form, θ = θ − α g / √(G + ε).
LECTURE_ADAGRAD_MISTAKES: WrongRules = {
    **{name: mistake for name, mistake in ADAGRAD_MISTAKES.items() if name != "eps-inside-root"},
    "eps-outside-root": (as_rule("adagrad"), "That is torch's form, √G + ε. In the lecture's form ε stands under the root."),
}


@exercise("write-adagrad", notebook="05_adaptive")
def judge_write_adagrad(answer: Callable) -> None:
    """G = G + g², θ = θ − α g / (√G + ε), for every parameter, in place."""
    judge_rule(answer, as_rule("adagrad"), ADAGRAD_MISTAKES, lr=0.1, eps=0.01)
