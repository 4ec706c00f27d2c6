"""Exercise `fix-the-rmsprop`: v = ρ v + (1 − ρ) g², θ = θ − α g / (√v + ε). Here ρ is torch's `alpha`."""

from collections.abc import Callable

from hpml_lab.adaptive.exercises.write_adagrad import DRIFT_HINT, START_HINT, TWICE_HINT, WHOLE_TENSOR_HINT, ZERO_HINT
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.optim_exercises.judge import judge_rule
from hpml_lab.optim_exercises.rules import WrongRules, altered, as_rule

SQUARES_HINT = "Your v holds only this step's g²; it is a running average of all squares so far."


def _wrong_step(step: str, hint: str) -> tuple:
    return altered("rmsprop", f"theta = theta - {step}"), hint


def _wrong_average(average: str, hint: str) -> tuple:
    return altered("rmsprop", f"s.v = {average}"), hint


RMSPROP_MISTAKES: WrongRules = {
    "accumulated-after-use": (
        altered("rmsprop", order=("theta", "s.v")),
        "Your step divides by v as it was before this gradient: the first step by √0 + ε. Update v first.",
    ),
    "eps-inside-root": (
        as_rule("ruder_rmsprop"),
        "That is Ruder's form, √(v + ε). The exercise asks for torch's: ε is added to the root.",
    ),
    "eps-on-weights": _wrong_step("(lr * g / sqrt(s.v) + eps)", DRIFT_HINT),
    "eps-on-weights, times α": _wrong_step("lr * (g / sqrt(s.v) + eps)", DRIFT_HINT),
    "eps-missing": _wrong_step("lr * g / sqrt(s.v)", ZERO_HINT),
    "squares-not-accumulated": _wrong_average("g * g", SQUARES_HINT),
    "squares-not-accumulated, weighted": _wrong_average("(1 - alpha) * g * g", SQUARES_HINT),
    "averages-as-sums": _wrong_average("alpha * s.v + g * g", "v adds the whole square; a running average adds 1 - ρ of it."),
    "weights-swapped": _wrong_average(
        "(1 - alpha) * s.v + alpha * g * g",
        "The old average is weighted with ρ and the new square with 1 - ρ; in yours it is the other way round.",
    ),
    "first-gradient-twice": _wrong_average("g * g if t == 1 else alpha * s.v + (1 - alpha) * g * g", TWICE_HINT),
    "corrected": _wrong_step(
        "lr * g / (sqrt(s.v / (1 - alpha**t)) + eps)", "You correct v for its start at zero, as Adam does; RMSprop does not."
    ),
    "one-number-per-tensor": _wrong_average("alpha * s.v + (1 - alpha) * (g * g).mean()", WHOLE_TENSOR_HINT),
    "one-number-per-tensor, sum": _wrong_average("alpha * s.v + (1 - alpha) * (g * g).sum()", WHOLE_TENSOR_HINT),
    "not-squared": _wrong_average(
        "alpha * s.v + (1 - alpha) * abs(g)", "v averages squares of gradients, not their magnitudes."
    ),
    "starts-elsewhere": _wrong_average("alpha * (s.v + (t == 1)) + (1 - alpha) * g * g", START_HINT),
    "adagrad-instead": _wrong_average("s.v + g * g", "Your v only grows: that is Adagrad's sum."),
    "root-missing": _wrong_step("lr * g / (s.v + eps)", "v is a mean of squares: take its root before you divide."),
}


@exercise("fix-the-rmsprop", notebook="05_adaptive")
def judge_fix_the_rmsprop(answer: Callable) -> None:
    """v = ρ v + (1 − ρ) g², θ = θ − α g / (√v + ε), for every parameter, in place."""
    judge_rule(answer, as_rule("rmsprop"), RMSPROP_MISTAKES, lr=0.1, alpha=0.9, eps=0.01)
