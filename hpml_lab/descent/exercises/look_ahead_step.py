"""Exercise `look-ahead-step`: the lecture's form of Nesterov's momentum, v = γ v + α ∇J(θ − γ v), θ = θ − v."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.update_rule import judge_rule


def look_ahead_step(params: list, gradient: Callable, state: dict, lr: float, momentum: float) -> None:
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    grads = gradient([p - momentum * old for p, old in zip(params, v, strict=True)])
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        v[i] = momentum * v[i] + lr * g
        p -= v[i]


def one_after_another(params: list, gradient: Callable, state: dict, lr: float, momentum: float) -> None:
    v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    for i, p in enumerate(params):
        g = gradient([p - momentum * old for p, old in zip(params, v, strict=True)])[i]
        v[i] = momentum * v[i] + lr * g
        p -= v[i]


def torchs_nesterov(params: list, gradient: Callable, state: dict, lr: float, momentum: float) -> None:
    for i, (p, g) in enumerate(zip(params, gradient(params), strict=True)):
        state[i] = momentum * state.get(i, 0) + g
        p -= lr * (g + momentum * state[i])


RUBRIC = Rubric(
    look_ahead_step,
    """
p - momentum * old for
    nesterov-as-plain-momentum :: p for :: You take the gradient at θ: these are the steps of plain momentum. Where will θ be
        soon?
    stays-at-look-ahead :: p.sub_(momentum * old) for :: You step from the look-ahead point. It is only where the gradient is
        taken; the step starts at θ.
whole answer
    torchs-nesterov :: torchs_nesterov :: That is torch's form, with the gradient at θ and a step along g + γ b. The lecture's
        takes the gradient ahead of θ.
    one-after-another :: one_after_another :: When you take the second gradient, the first parameter has already moved: look
        ahead with all parameters first, then move them.
""",
)


@exercise(
    "look-ahead-step",
    notebook="04_descent",
    takes="params, gradient, state, lr, momentum",
    returns=None,
    changes="params, state",
)
def judge_look_ahead_step(answer: Callable) -> None:
    """v = γ v + α ∇J(θ − γ v), θ = θ − v, for every parameter, in place."""
    judge_rule(answer, RUBRIC, look_ahead=True, lr=0.16, momentum=0.8)
