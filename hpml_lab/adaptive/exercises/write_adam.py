"""Exercise `write-adam`: both moments as running averages, corrected for their start at zero."""

from collections.abc import Callable

import torch

from hpml_lab.adaptive.exercises.write_adagrad import HINTS as SHARED
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.update_rule import judge_rule

# A large ε and low β, so that each of them matters within the judge's 60 steps.
MOMENTS = {"lr": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 0.01}


def adam_step(params: list, grads: list, state: dict, lr: float, beta1: float, beta2: float, eps: float) -> None:
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        m, v = state.get(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m, v = state[i] = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


# Mistakes in Adam's own lines, which AdamW has as well.
ROWS = """
m / (1 - beta1**t), v / (1 - beta2**t)
    no-bias-correction :: m, v :: The bias correction: m and v start at 0 and are too small at first. Divide each by 1 - βᵗ.
    bias-exponent-off-by-one :: m / (1 - beta1 ** (t + 1)), v / (1 - beta2 ** (t + 1)) :: $EXPONENT
    bias-exponent-off-by-one :: m / (1 - beta1 ** (t - 1)), v / (1 - beta2 ** (t - 1)) :: $EXPONENT
    bias-exponent-missing :: m / (1 - beta1), v / (1 - beta2) :: You divide by 1 - β in every step; the exponent t is missing.
    bias-exponent-outside :: m / (1 - beta1) ** t, v / (1 - beta2) ** t :: You raise 1 - β to the power t. In 1 - βᵗ the
        exponent belongs to β alone.
    bias-exponent-as-factor :: m / (1 - beta1 * t), v / (1 - beta2 * t) :: 1 - β t gets negative: t is an exponent, 1 - βᵗ.
    second-moment-not-corrected :: m / (1 - beta1**t), v :: m is corrected, v is not: both start at zero.
    first-moment-not-corrected :: m, v / (1 - beta2**t) :: v is corrected, m is not: both start at zero.
    squares-not-accumulated :: m / (1 - beta1**t), g * g :: $SQUARES
    momentum-missing :: g / (1 - beta1**t), v / (1 - beta2**t) :: $MOMENTUM
    momentum-missing :: g, v / (1 - beta2**t) :: $MOMENTUM
    one-beta-for-both :: m / (1 - beta1**t), v / (1 - beta1**t) :: $ONE_BETA
    one-beta-for-both :: m / (1 - beta2**t), v / (1 - beta2**t) :: $ONE_BETA
    one-beta-for-both :: m / (1 - beta2**t), v / (1 - beta1**t) :: $ONE_BETA
    nadam-instead :: (beta1 * m + (1 - beta1) * g) / (1 - beta1**t), v / (1 - beta2**t) :: The gradient enters your step once
        more, next to m: a look-ahead as in NAdam. Adam steps along m̂ alone.
m_hat, v_hat =
    corrected-moments-kept :: m_hat, v_hat = state[i] = :: The corrected m̂ and v̂ are for this step only, and do not become the
        moments of the next call. Keep m and v as they are.
t = state["t"] = state.get("t", 0) + 1
    betas-swapped :: t = state["t"] = state.get("t", 0) + 1; beta1, beta2 = beta2, beta1 :: β₁ belongs to m and β₂ to v: which
        of the moments forgets faster?
lr * m_hat / (v_hat.sqrt() + eps)
    eps-inside-root :: lr * m_hat / (v_hat + eps).sqrt() :: Adam adds ε to the root, not to v̂ under the root.
    eps-on-weights :: lr * m_hat / v_hat.sqrt() + eps :: $DRIFT
    eps-on-weights :: lr * (m_hat / v_hat.sqrt() + eps) :: $DRIFT
    eps-missing :: lr * m_hat / v_hat.sqrt() :: Where a gradient starts at exactly 0, your step is 0/0: which term keeps the
        denominator away from zero?
    eps-before-correction :: lr * m_hat / ((v.sqrt() + eps) / (1 - beta2**t) ** 0.5) :: You add ε to √v before v is corrected,
        so that ε counts for too much at first.
    correction-outside-root :: lr * m_hat / (v.sqrt() / (1 - beta2**t) + eps) :: You divide √v by 1 - β₂ᵗ; the correction
        belongs to v, under the root: √(v / (1 - β₂ᵗ)).
    root-missing :: lr * m_hat / (v_hat + eps) :: v̂ is a mean of squares: take its root before you divide.
m, v = state[i] =
    accumulated-after-use :: state[i] = :: The step uses m and v of this call, not of the previous one: update them first.
beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    averages-as-sums :: beta1 * m + g, beta2 * v + g * g :: A running average adds 1 - β of the gradient to each moment, not the
        whole gradient.
    weights-swapped :: (1 - beta1) * m + beta1 * g, (1 - beta2) * v + beta2 * g * g :: In both moments $SWAPPED
    weights-swapped :: (1 - beta1) * m + beta1 * g, beta2 * v + (1 - beta2) * g * g :: In m $SWAPPED
    weights-swapped :: beta1 * m + (1 - beta1) * g, (1 - beta2) * v + beta2 * g * g :: In v $SWAPPED
    moments-share-one-tensor :: 2 * (beta2 * (beta1 * m + (1 - beta1) * g) + (1 - beta2) * g * g,) :: m and v are the same
        tensor: each update of one changes the other. Make zeros for each of them.
beta2 * v + (1 - beta2) * g * g
    squares-not-accumulated :: g * g :: $SQUARES
    squares-not-accumulated :: (1 - beta2) * g * g :: $SQUARES
    square-of-the-average :: beta2 * v + (1 - beta2) * (beta1 * m + (1 - beta1) * g) ** 2 :: v averages the squares of the
        gradients, g², not those of m.
    not-squared :: beta2 * v + (1 - beta2) * abs(g) :: v averages g², not the magnitude of g.
    one-number-per-tensor :: beta2 * v + (1 - beta2) * (g * g).mean() :: $WHOLE
    one-number-per-tensor :: beta2 * v + (1 - beta2) * (g * g).sum() :: $WHOLE
(torch.zeros_like(p), torch.zeros_like(p))
    first-gradient-twice :: (g, g * g) :: $TWICE
"""
HINTS = SHARED | dict(
    EXPONENT="The exponent of the correction is off by one: at the first step t is 1, and m̂ = g. When do you count?",
    MOMENTUM="The numerator of your step is g, not m: the average over the past steps is missing.",
    SQUARES="v is a running average of all squares so far, not this step's g² alone.",
    SWAPPED="the old average is weighted with β and the new value with 1 - β; in yours it is the other way round.",
    ONE_BETA="Each moment is corrected with its own β: m with β₁, v with β₂.",
)
RUBRIC = Rubric(adam_step, ROWS, **HINTS)


@exercise(
    "write-adam",
    notebook="05_adaptive",
    takes="params, grads, state, lr, beta1, beta2, eps",
    returns=None,
    changes="params, state",
)
def judge_write_adam(answer: Callable) -> None:
    """Adam's five equations, for every parameter, in place."""
    judge_rule(answer, RUBRIC, **MOMENTS)
