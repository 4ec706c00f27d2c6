"""Exercise `write-adamw`: θ = θ − α λ θ, then Adam's step."""

from collections.abc import Callable

import torch

from hpml_lab.adaptive.exercises.write_adam import HINTS, MOMENTS, ROWS
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.update_rule import judge_rule


def adamw_step(
    params: list, grads: list, state: dict, lr: float, beta1: float, beta2: float, eps: float, weight_decay: float
) -> None:
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads, strict=True)):
        p -= lr * weight_decay * p
        m, v = state.get(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m, v = state[i] = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


DECAY_ROWS = """
p -= lr * weight_decay * p
    coupled-decay :: g = g + weight_decay * p :: In the gradient, λθ would be divided by √v̂ like the rest: that is torch's
        Adam(weight_decay=λ). AdamW takes it from the parameter itself.
    decay-missing :: pass :: Your steps equal Adam without any decay.
    decay-without-rate :: p -= weight_decay * p :: You shrink θ by λ; AdamW shrinks it by α λ, so that a schedule slows the
        decay, too.
    decay-grows :: p += lr * weight_decay * p :: Your decay makes the parameters larger: mind its sign.
    argument-ignored :: p -= 0.001 * weight_decay * p :: Your decay is α λ for α = 0.001 alone: use the argument `lr`, so that a
        schedule slows the decay, too.
    decay-of-some :: p -= lr * weight_decay * p * (p.dim() > 1) :: Only the matrices shrink. Many trainings spare the biases,
        but by parameter groups: the rule decays what it gets.
    decay-twice :: p -= lr * weight_decay * p; p -= lr * weight_decay * p :: You shrink θ twice in each step.
    decay-twice :: p -= lr * weight_decay * p; g = g + weight_decay * p :: You shrink θ and also add λθ to the gradient: that
        decays twice. Decoupled means that the gradient stays as it is.
    decay-by-sign :: p -= lr * weight_decay * p.sign() :: Your decay takes the same from every number: that is L1. Decay takes a
        share of each, α λ θ.
    decay-halved :: p -= lr * weight_decay * p / 2 :: Your decay is half of α λ θ: the derivative of ½ λ θ² has no ½ left.
    rate-twice :: p -= lr * lr * weight_decay * p :: The rate enters your decay twice: it is α λ θ.
    decay-of-fixed-length :: p -= lr * weight_decay * p / p.norm() :: You divide the decay by the norm of θ, so that it is as
        long for small weights as for large ones: it is α λ θ.
p -= lr * m_hat / (v_hat.sqrt() + eps)
    wrong-sign :: p += lr * m_hat / (v_hat.sqrt() + eps) :: Adam's step has its own sign, whatever that of the decay: it goes
        down, against m̂.
    argument-ignored :: p -= 0.001 * m_hat / (v_hat.sqrt() + eps) :: Your decay follows `lr`, but Adam's step has the rate 0.001
        whatever the caller passes.
    decay-after-step :: p -= (1 - lr * weight_decay) * lr * m_hat / (v_hat.sqrt() + eps) :: You decay the parameter after its
        step; AdamW decays it as it was before.
    decay-scaled :: p /= 1 - lr * weight_decay; p -= lr * (m_hat + weight_decay * p) / (v_hat.sqrt() + eps) :: You divide the
        decay by √v̂ + ε, too. Decoupled means: only the gradient is scaled.
whole answer
    decay-of-the-step :: lambda *given, lr, weight_decay, **moments: adamw_step(*given, lr * (1 - lr * weight_decay),
        weight_decay=0, **moments) :: You shrink the step, not the parameter: where is the factor 1 - α λ applied?
"""
RUBRIC = Rubric(adamw_step, ROWS + DECAY_ROWS.lstrip(), **HINTS)


@exercise(
    "write-adamw",
    notebook="05_adaptive",
    takes="params, grads, state, lr, beta1, beta2, eps, weight_decay",
    returns=None,
    changes="params, state",
)
def judge_write_adamw(answer: Callable) -> None:
    """θ = θ − α λ θ, then Adam's step with the gradient as it came, for every parameter, in place."""
    judge_rule(answer, RUBRIC, **MOMENTS, weight_decay=0.1)
