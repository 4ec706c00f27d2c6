"""Exercise `write-adagrad`: G = G + g², θ = θ − α g / (√G + ε)."""

from collections.abc import Callable

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.optim_exercises.judge import judge_rule
from hpml_lab.optim_exercises.rules import WrongRules, altered, as_rule

DRIFT_HINT = "ε is added to the step itself, so every weight drifts by ε in each step. It belongs to the denominator."
ZERO_HINT = "A gradient that starts at exactly 0 gives 0/0: which term keeps the denominator away from zero?"

TWICE_HINT = (
    "The first gradient counts twice: the state starts from it, and then it is added as any other. With which value does the "
    "state start?"
)
WHOLE_TENSOR_HINT = (
    "All numbers of a tensor share one measure of size; each number of θ has its own: add nothing up over the tensor."
)
START_HINT = "The state does not start at zero: what does torch.zeros_like(p) give, and what do you start from?"


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
    "first-gradient-twice": _wrong_sum("s.G + g * g * (2 if t == 1 else 1)", TWICE_HINT),
    "average-instead-of-sum": _wrong_sum(
        "0.9 * s.G + 0.1 * g * g", "Your sum forgets: that is a running average, as in RMSprop. Adagrad's G only grows."
    ),
    "one-number-per-tensor": _wrong_sum("s.G + (g * g).sum()", WHOLE_TENSOR_HINT),
    "one-number-per-tensor, mean": _wrong_sum("s.G + (g * g).mean()", WHOLE_TENSOR_HINT),
    "starts-elsewhere": _wrong_sum("s.G + g * g + (t == 1)", START_HINT),
    "starts-elsewhere, 0.1": _wrong_sum("s.G + g * g + 0.1 * (t == 1)", START_HINT),
    "multiplied": _wrong_step("lr * g * (sqrt(s.G) + eps)", "You multiply by √G + ε: a large G should make the step short."),
    "squared-step": _wrong_step(
        "lr * g * g / (sqrt(s.G) + eps)", "The square belongs into G alone: the step itself has g, with its sign."
    ),
    "eps-on-rate": _wrong_step("(lr / sqrt(s.G) + eps) * g", ZERO_HINT),
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
