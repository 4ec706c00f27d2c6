"""Exercise `fix-the-rmsprop`: v = ρ v + (1 − ρ) g², θ = θ − α g / (√v + ε). Here ρ is torch's `alpha`."""

from collections.abc import Callable

import torch

from hpml_lab.adaptive.exercises.write_adagrad import HINTS
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.update_rule import judge_rule


def rmsprop_step(params: list, grads: list, state: dict, lr: float, alpha: float, eps: float) -> None:
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        old = state.get(i, torch.zeros_like(p))
        v = state[i] = alpha * old + (1 - alpha) * g * g
        p -= lr * g / (v.sqrt() + eps)


RUBRIC = Rubric(
    rmsprop_step,
    """
lr * g / (v.sqrt() + eps)
    accumulated-after-use :: lr * g / (old.sqrt() + eps) :: v contains this step's g² before the step divides by it: otherwise
        the first step divides by √0 + ε. Update v first.
    eps-inside-root :: lr * g / (v + eps).sqrt() :: That is Ruder's form, √(v + ε). The exercise asks for torch's: ε is added to
        the root.
    eps-on-weights :: lr * g / v.sqrt() + eps :: $DRIFT
    eps-on-weights :: lr * (g / v.sqrt() + eps) :: $DRIFT
    eps-missing :: lr * g / v.sqrt() :: $ZERO
    root-missing :: lr * g / (v + eps) :: v is a mean of squares: take its root before you divide.
v = state[i] = alpha * old + (1 - alpha) * g * g
    corrected :: state[i] = alpha * old + (1 - alpha) * g * g; t = state["t"] = state.get("t", 0) + (i == 0); v = state[i] / (1
        - alpha**t) :: RMSprop does not correct v for its start at zero, as Adam does.
alpha * old + (1 - alpha) * g * g
    squares-not-accumulated :: g * g :: $SQUARES
    squares-not-accumulated :: (1 - alpha) * g * g :: $SQUARES
    averages-as-sums :: alpha * old + g * g :: v adds the whole square; a running average adds 1 - ρ of it.
    weights-swapped :: (1 - alpha) * old + alpha * g * g :: The old average is weighted with ρ and the new square with 1 - ρ; in
        yours it is the other way round.
    one-number-per-tensor :: alpha * old + (1 - alpha) * (g * g).mean() :: $WHOLE
    one-number-per-tensor :: alpha * old + (1 - alpha) * (g * g).sum() :: $WHOLE
    not-squared :: alpha * old + (1 - alpha) * abs(g) :: v averages squares of gradients, not their magnitudes.
    adagrad-instead :: old + g * g :: Your v only grows: that is Adagrad's sum.
torch.zeros_like(p)
    first-gradient-twice :: g * g :: $TWICE
    starts-elsewhere :: torch.ones_like(p) :: $START
""",
    SQUARES="v is a running average of all squares so far, not this step's g² alone.",
    **HINTS,
)


@exercise(
    "fix-the-rmsprop",
    notebook="05_adaptive",
    takes="params, grads, state, lr, alpha, eps",
    returns=None,
    changes="params, state",
)
def judge_fix_the_rmsprop(answer: Callable) -> None:
    """v = ρ v + (1 − ρ) g², θ = θ − α g / (√v + ε), for every parameter, in place."""
    judge_rule(answer, RUBRIC, lr=0.1, alpha=0.9, eps=0.01)
