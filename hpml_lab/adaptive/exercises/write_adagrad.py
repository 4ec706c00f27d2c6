"""Exercise `write-adagrad`: G = G + g², θ = θ − α g / (√G + ε)."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.update_rule import judge_rule


def adagrad_step(params: list, grads: list, state: dict, lr: float, eps: float) -> None:
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        old = state.get(i, torch.zeros_like(p))
        G = state[i] = old + g * g
        p -= lr * g / (G.sqrt() + eps)


# Hints that fit every rule of this notebook.
HINTS = dict(
    DRIFT="ε is added to the step itself, so every weight drifts by ε in each step. It belongs to the denominator.",
    ZERO="A gradient that starts at exactly 0 gives 0/0: which term keeps the denominator away from zero?",
    TWICE=(
        "A state that starts from the first gradient, which is then added as any other, counts it twice. With which value "
        "does the state start?"
    ),
    WHOLE="All numbers of a tensor share one measure of size; each number of θ has its own: add nothing up over the tensor.",
    START="The state does not start at zero: what does torch.zeros_like(p) give, and what do you start from?",
)
RUBRIC = Rubric(
    adagrad_step,
    """
lr * g / (G.sqrt() + eps)
    eps-inside-root :: lr * g / (G + eps).sqrt() :: √(G + ε) is the lecture's form. The exercise asks for torch's: where does ε
        stand there?
    accumulated-after-use :: lr * g / (old.sqrt() + eps) :: Your first step divides by √0 + ε and is huge: g² must be in G
        before G is used.
G = state[i] = old + g * g
    mean-instead-of-sum :: state[i] = old + g * g; t = state["t"] = state.get("t", 0) + (i == 0); G = state[i] / t :: You
        divide G by t: Adagrad's G is the sum, which only grows.
old + g * g
    one-number-per-tensor :: old + (g * g).sum() :: $WHOLE
    one-number-per-tensor :: old + (g * g).mean() :: $WHOLE
""",
    **HINTS,
)


@exercise("write-adagrad", notebook="05_adaptive", takes="params, grads, state, lr, eps", returns=None, changes="params, state")
def judge_write_adagrad(answer: Callable) -> None:
    """G = G + g², θ = θ − α g / (√G + ε), for every parameter, in place."""
    judge_rule(answer, RUBRIC, lr=0.1, eps=0.01)
