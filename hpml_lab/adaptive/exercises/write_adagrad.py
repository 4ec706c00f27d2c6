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
    eps-on-weights :: lr * g / G.sqrt() + eps :: $DRIFT
    eps-on-weights :: lr * (g / G.sqrt() + eps) :: $DRIFT
    eps-missing :: lr * g / G.sqrt() :: $ZERO
    eps-on-rate :: (lr / G.sqrt() + eps) * g :: $ZERO
    root-missing :: lr * g / (G + eps) :: G is a sum of squares: take its root before you divide.
    accumulated-after-use :: lr * g / (old.sqrt() + eps) :: Your first step divides by √0 + ε and is huge: g² must be in G
        before G is used.
    multiplied :: lr * g * (G.sqrt() + eps) :: You multiply by √G + ε: a large G should make the step short.
    squared-step :: lr * g * g / (G.sqrt() + eps) :: The square belongs into G alone: the step itself has g, with its sign.
G = state[i] = old + g * g
    signs-cancel :: state[i] = old + g; G = state[i] ** 2 :: In a sum of gradients those of opposite sign cancel. Square each
        one first.
    mean-instead-of-sum :: state[i] = old + g * g; t = state["t"] = state.get("t", 0) + (i == 0); G = state[i] / t :: You
        divide G by t: Adagrad's G is the sum, which only grows.
old + g * g
    squares-not-accumulated :: g * g :: G is the sum of all squares so far: with this step's g² alone, each step is about as
        long as α.
    not-squared :: old + abs(g) :: G adds up squares of gradients, not their magnitudes.
    average-instead-of-sum :: 0.9 * old + 0.1 * g * g :: Your sum forgets: that is a running average, as in RMSprop. Adagrad's
        G only grows.
    one-number-per-tensor :: old + (g * g).sum() :: $WHOLE
    one-number-per-tensor :: old + (g * g).mean() :: $WHOLE
torch.zeros_like(p)
    first-gradient-twice :: g * g :: $TWICE
    starts-elsewhere :: torch.ones_like(p) :: $START
    starts-elsewhere :: torch.full_like(p, 0.1) :: $START
""",
    **HINTS,
)


@exercise("write-adagrad", notebook="05_adaptive", takes="params, grads, state, lr, eps", returns=None, changes="params, state")
def judge_write_adagrad(answer: Callable) -> None:
    """G = G + g², θ = θ − α g / (√G + ε), for every parameter, in place."""
    judge_rule(answer, RUBRIC, lr=0.1, eps=0.01)
