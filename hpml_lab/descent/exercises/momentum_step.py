"""Exercise `momentum-step`: torch's form of momentum, b = γ b + g, θ = θ − α b."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.update_rule import judge_rule


def momentum_step(params: list, grads: list, state: dict, lr: float, momentum: float) -> None:
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        old = state.get(i, torch.zeros_like(p))
        b = state[i] = momentum * old + g
        p -= lr * b


RUBRIC = Rubric(
    momentum_step,
    """
momentum * old + g
    velocity-as-running-average :: momentum * old + (1 - momentum) * g :: Your velocity is a running average: its
        gradients are weighted with 1 - γ. In momentum they are added whole.
b = state[i] = momentum * old + g
    rate-inside-velocity :: state[i] = momentum * old + lr * g; b = state[i] / lr :: Right until the learning rate changes. || A
        velocity that contains lr still holds the old rate: multiply by lr last.
    last-gradient-only :: b, state[i] = momentum * old + g, g.clone() :: Your velocity holds two gradients, the new one and the
        last: keep b itself, which holds them all.
lr * b
    nesterov-instead :: lr * (g + momentum * b) :: Classical momentum steps along b; g + γ b is Nesterov's step.
""",
)


@exercise(
    "momentum-step", notebook="04_descent", takes="params, grads, state, lr, momentum", returns=None, changes="params, state"
)
def judge_momentum_step(answer: Callable) -> None:
    """b = γ b + g, θ = θ − α b, for every parameter, in place."""
    judge_rule(answer, RUBRIC, lr=0.16, momentum=0.8)
