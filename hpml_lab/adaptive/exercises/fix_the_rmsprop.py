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
v = state[i] = alpha * old + (1 - alpha) * g * g
    corrected :: state[i] = alpha * old + (1 - alpha) * g * g; t = state["t"] = state.get("t", 0) + (i == 0); v = state[i] / (1
        - alpha**t) :: RMSprop does not correct v for its start at zero, as Adam does.
alpha * old + (1 - alpha) * g * g
    weights-swapped :: (1 - alpha) * old + alpha * g * g :: The old average is weighted with ρ and the new square with 1 - ρ; in
        yours it is the other way round.
""",
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
