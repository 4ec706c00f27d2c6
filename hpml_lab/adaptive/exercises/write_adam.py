"""Exercise `write-adam`: both moments as running averages, corrected for their start at zero."""

from collections.abc import Callable, Sequence

from hpml_lab.adaptive.exercises.fix_the_rmsprop import SQUARES_HINT
from hpml_lab.adaptive.exercises.write_adagrad import DRIFT_HINT, TWICE_HINT, WHOLE_TENSOR_HINT
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.optim_exercises.judge import judge_rule
from hpml_lab.optim_exercises.rules import WrongRules, altered, as_rule

# A large ε and low β, so that each of them matters within the judge's 60 steps.
MOMENTS = {"lr": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 0.01}

_EXPONENT_HINT = "The exponent of the correction is off by one: at the first step t is 1, and m̂ = g. When do you count?"
_MOMENTUM_HINT = "The numerator of your step is g, not m: the average over the past steps is missing."
_SWAPPED_M, _SWAPPED_V = "(1 - beta1) * s.m + beta1 * g", "(1 - beta2) * s.v + beta2 * g * g"
_SWAPPED_HINT = "the old average is weighted with β and the new value with 1 - β; in yours it is the other way round."
_ONE_BETA_HINT = "Each moment is corrected with its own β: m with β₁, v with β₂."


def adam_mistakes(first: Sequence[str] = ()) -> WrongRules:
    """The mistakes in Adam's own lines, with the lines `first` (a weight decay) before them."""

    def wrong(*lines: str, order: Sequence[str] = ()) -> Callable:
        return altered("adam", *lines, first=first, order=order)

    def wrong_step(step: str) -> Callable:
        return wrong(f"theta = theta - {step}")

    return {
        "no-bias-correction": (
            wrong("s.m_hat = s.m", "s.v_hat = s.v"),
            "Your steps equal Adam without bias correction: m and v start at 0 and are too small at first. "
            "Divide each by 1 - βᵗ.",
        ),
        "bias-exponent-off-by-one, late": (
            wrong("s.m_hat = s.m / (1 - beta1 ** (t + 1))", "s.v_hat = s.v / (1 - beta2 ** (t + 1))"),
            _EXPONENT_HINT,
        ),
        "bias-exponent-off-by-one, early": (
            wrong("s.m_hat = s.m / (1 - beta1 ** (t - 1))", "s.v_hat = s.v / (1 - beta2 ** (t - 1))"),
            _EXPONENT_HINT,
        ),
        "bias-exponent-missing": (
            wrong("s.m_hat = s.m / (1 - beta1)", "s.v_hat = s.v / (1 - beta2)"),
            "You divide by 1 - β in every step; the exponent t is missing.",
        ),
        "bias-exponent-outside": (
            wrong("s.m_hat = s.m / (1 - beta1) ** t", "s.v_hat = s.v / (1 - beta2) ** t"),
            "You raise 1 - β to the power t. In 1 - βᵗ the exponent belongs to β alone.",
        ),
        "second-moment-not-corrected": (wrong("s.v_hat = s.v"), "m is corrected, v is not: both start at zero."),
        "first-moment-not-corrected": (wrong("s.m_hat = s.m"), "v is corrected, m is not: both start at zero."),
        "betas-swapped": (
            altered("adam", first=["beta1, beta2 = beta2, beta1", *first]),
            "β₁ and β₂ have changed places: which of the moments forgets faster?",
        ),
        "eps-inside-root": (
            wrong_step("lr * s.m_hat / sqrt(s.v_hat + eps)"),
            "ε stands under the root in yours; Adam adds it to the root.",
        ),
        "eps-on-weights": (wrong_step("(lr * s.m_hat / sqrt(s.v_hat) + eps)"), DRIFT_HINT),
        "eps-on-weights, times α": (wrong_step("lr * (s.m_hat / sqrt(s.v_hat) + eps)"), DRIFT_HINT),
        "eps-missing": (
            wrong_step("lr * s.m_hat / sqrt(s.v_hat)"),
            "Where a gradient starts at exactly 0, your step is 0/0: which term keeps the denominator away from zero?",
        ),
        "eps-before-correction": (
            wrong_step("lr * s.m_hat / ((sqrt(s.v) + eps) / sqrt(1 - beta2**t))"),
            "You add ε to √v before v is corrected, so that ε counts for too much at first.",
        ),
        "squares-not-accumulated": (wrong("s.v = g * g", "s.v_hat = s.v"), SQUARES_HINT),
        "squares-not-accumulated, corrected": (wrong("s.v = g * g"), SQUARES_HINT),
        "squares-not-accumulated, weighted": (wrong("s.v = (1 - beta2) * g * g"), SQUARES_HINT),
        "accumulated-after-use": (
            wrong(order=("s.m_hat", "s.v_hat", "theta", "s.m", "s.v")),
            "Your step uses m and v of the previous call: update them first.",
        ),
        "momentum-missing": (wrong("s.m_hat = g / (1 - beta1**t)"), _MOMENTUM_HINT),
        "momentum-missing, uncorrected": (wrong("s.m_hat = g"), _MOMENTUM_HINT),
        "averages-as-sums": (
            wrong("s.m = beta1 * s.m + g", "s.v = beta2 * s.v + g * g"),
            "Your moments add the whole gradient; a running average adds 1 - β of it.",
        ),
        "correction-outside-root": (
            wrong_step("lr * s.m_hat / (sqrt(s.v) / (1 - beta2**t) + eps)"),
            "You divide √v by 1 - β₂ᵗ; the correction belongs to v, under the root: √(v / (1 - β₂ᵗ)).",
        ),
        "weights-swapped": (wrong(f"s.m = {_SWAPPED_M}", f"s.v = {_SWAPPED_V}"), _SWAPPED_HINT),
        "weights-swapped, of m": (wrong(f"s.m = {_SWAPPED_M}"), f"In m: {_SWAPPED_HINT}"),
        "weights-swapped, of v": (wrong(f"s.v = {_SWAPPED_V}"), f"In v: {_SWAPPED_HINT}"),
        "first-gradient-twice": (
            wrong(
                "s.m = beta1 * (g if t == 1 else s.m) + (1 - beta1) * g",
                "s.v = g * g if t == 1 else beta2 * s.v + (1 - beta2) * g * g",
            ),
            TWICE_HINT,
        ),
        "corrected-moments-kept": (
            wrong("s.m_hat = s.m = s.m / (1 - beta1**t)", "s.v_hat = s.v = s.v / (1 - beta2**t)"),
            "The corrected m̂ and v̂ become the moments of the next call. Keep m and v as they are; the corrected ones are for "
            "this step only.",
        ),
        "one-beta-for-both": (wrong("s.v_hat = s.v / (1 - beta1**t)"), _ONE_BETA_HINT),
        "one-beta-for-both, β₂": (wrong("s.m_hat = s.m / (1 - beta2**t)"), _ONE_BETA_HINT),
        "one-beta-for-both, swapped": (
            wrong("s.m_hat = s.m / (1 - beta2**t)", "s.v_hat = s.v / (1 - beta1**t)"),
            _ONE_BETA_HINT,
        ),
        "nadam-instead": (
            wrong("s.m_hat = (beta1 * s.m + (1 - beta1) * g) / (1 - beta1**t)"),
            "The gradient enters your step once more, beside m: a look-ahead as in NAdam. Adam steps along m̂ alone.",
        ),
        "square-of-the-average": (
            wrong("s.v = beta2 * s.v + (1 - beta2) * s.m * s.m"),
            "v averages the squares of the gradients, g², not those of m.",
        ),
        "moments-share-one-tensor": (
            wrong("s.m = beta1 * s.v + (1 - beta1) * g", "s.v = s.m = beta2 * s.m + (1 - beta2) * g * g"),
            "m and v are the same tensor: each update of one changes the other. Make zeros for each of them.",
        ),
        "bias-exponent-as-factor": (
            wrong("s.m_hat = s.m / (1 - beta1 * t)", "s.v_hat = s.v / (1 - beta2 * t)"),
            "1 - β t gets negative: t is an exponent, 1 - βᵗ.",
        ),
        "not-squared": (wrong("s.v = beta2 * s.v + (1 - beta2) * abs(g)"), "v averages g², not the magnitude of g."),
        "one-number-per-tensor": (wrong("s.v = beta2 * s.v + (1 - beta2) * (g * g).mean()"), WHOLE_TENSOR_HINT),
        "one-number-per-tensor, sum": (wrong("s.v = beta2 * s.v + (1 - beta2) * (g * g).sum()"), WHOLE_TENSOR_HINT),
        "root-missing": (
            wrong_step("lr * s.m_hat / (s.v_hat + eps)"),
            "v̂ is a mean of squares: take its root before you divide.",
        ),
    }


ADAM_MISTAKES: WrongRules = adam_mistakes()


@exercise("write-adam", notebook="05_adaptive")
def judge_write_adam(answer: Callable) -> None:
    """Adam's five equations, for every parameter, in place."""
    judge_rule(answer, as_rule("adam"), ADAM_MISTAKES, **MOMENTS)
