"""Exercise `look-ahead-step`: the lecture's form of Nesterov's momentum, v = γ v + α ∇J(θ − γ v), θ = θ − v."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.update_rule import judge_rule
from hpml_lab.descent.exercises.momentum_step import HINTS


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
    argument-ignored :: p - 0.9 * old for :: The γ of the look-ahead point is the argument, not always 0.9.
    nesterov-as-plain-momentum :: p for :: You take the gradient at θ: these are the steps of plain momentum. Where will θ be
        soon?
    look-ahead-wrong-way :: p + momentum * old for :: You take the gradient at θ + γ v. The step is θ - v: which side of θ is
        ahead?
    look-ahead-whole-velocity :: p - old for :: You look ahead by the whole velocity; only γ v of it will be left in the next
        step.
    look-ahead-scaled-by-rate :: p - lr * momentum * old for :: The velocity already contains the learning rate: the look-ahead
        point is θ - γ v, without another α.
    stays-at-look-ahead :: p.sub_(momentum * old) for :: You step from the look-ahead point. It is only where the gradient is
        taken; the step starts at θ.
momentum * v[i] + lr * g
    weights-swapped :: (1 - momentum) * v[i] + momentum * lr * g :: $SWAPPED
    zeros-skipped :: torch.where(g == 0, v[i], momentum * v[i] + lr * g) :: $SKIPPED
    velocity-not-decayed :: v[i] + lr * g :: $NOT_DECAYED
    velocity-as-running-average :: momentum * v[i] + (1 - momentum) * lr * g :: $AVERAGE
    velocity-damped-twice :: momentum * momentum * v[i] + lr * g :: γ multiplies the velocity twice in each step. Does the
        look-ahead change v itself, by an operation that ends in _?
    rate-missing :: momentum * v[i] + g :: The learning rate never enters: α multiplies the gradient.
    wrong-sign :: momentum * v[i] - lr * g :: Your steps climb: with v = γ v - α g, θ - v goes up the slope. Mind the sign of
        α g.
v = state.setdefault("v", [torch.zeros_like(p) for p in params])
    velocity-not-kept :: v = [torch.zeros_like(p) for p in params] :: $NOT_KEPT
    rate-outside-velocity :: v = state["v"] = [lr / state.get("lr", lr) * old for old in state.get("v", [0 * p for p in
        params])]; state["lr"] = lr :: Right until the learning rate changes. In the lecture's form α is inside the velocity.
p -= v[i]
    rate-twice :: p -= lr * v[i] :: lr enters once, into the velocity, and not into the step again.
    velocity-used-before-update :: p -= (v[i] - lr * g) / momentum :: Your step uses the velocity of the previous call: update v
        first, then step with it.
    velocity-not-in-the-step :: p -= lr * g :: Your step is α times the gradient alone: it goes along the whole velocity,
        θ = θ - v.
whole answer
    torchs-nesterov :: torchs_nesterov :: That is torch's form, with the gradient at θ and a step along g + γ b. The lecture's
        takes the gradient ahead of θ.
    one-after-another :: one_after_another :: When you take the second gradient, the first parameter has already moved: look
        ahead with all parameters first, then move them.
""",
    **HINTS,
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
