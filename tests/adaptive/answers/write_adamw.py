"""Answers to `write-adamw`: the decay acts on the parameter, the moments see the gradient alone."""

import torch
from edited_source import wrong_answers
from torch.nn.utils import parameters_to_vector


def solution(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


WRONG = wrong_answers(
    solution,
    [
        ("wrong-sign", ("1 - lr * weight_decay", "1 + lr * weight_decay"), ("p -= lr", "p += lr")),
        ("argument-ignored", ("lr * weight_decay", "lr * 0.01")),
        ("gradient-edited-in-place", ("p *= 1 - lr * weight_decay", "g += weight_decay * p")),
    ],
)


def decay_in_one_line(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    state["t"] = t = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.get(i, (0, 0))
        state[i] = m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g**2
        p.copy_(p - lr * weight_decay * p - lr * m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps))


def step_then_decay_of_the_old(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    old = [p.clone() for p in params]
    solution(params, grads, state, lr, beta1, beta2, eps, weight_decay=0.0)
    for p, before in zip(params, old):
        p.sub_(before, alpha=lr * weight_decay)


def with_torchs_optimizer(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    if "optimizer" not in state:
        state["optimizer"] = torch.optim.AdamW(params, lr=lr, betas=(beta1, beta2), eps=eps, weight_decay=weight_decay)
    state["optimizer"].param_groups[0]["lr"] = lr
    for p, g in zip(params, grads):
        p.grad = g
    state["optimizer"].step()


def backwards(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    for p in params:
        p.mul_(1 - lr * weight_decay)
    solution(params[::-1], grads[::-1], state, lr=lr, beta1=beta1, beta2=beta2, eps=eps, weight_decay=0)


def from_default_dict(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    memory = state.setdefault("all", {})
    for key, (p, g) in enumerate(zip(params, grads)):
        own = memory.setdefault(key, dict(t=0, m=torch.zeros_like(p), v=torch.zeros_like(p)))
        own["t"] += 1
        own["m"].mul_(beta1).add_(g, alpha=1 - beta1)
        own["v"].mul_(beta2).add_(g.square(), alpha=1 - beta2)
        p.add_(p, alpha=-lr * weight_decay)
        p -= lr * (own["m"] / (1 - beta1 ** own["t"])) / (torch.sqrt(own["v"] / (1 - beta2 ** own["t"])) + eps)


def as_one_vector(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    flat, g = parameters_to_vector(params), parameters_to_vector(grads)
    t, m, v = state.get("all", (0, torch.zeros_like(g), torch.zeros_like(g)))
    t, m, v = state["all"] = t + 1, beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    step = lr * m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)
    for p, own in zip(params, (flat * (1 - lr * weight_decay) - step).split([p.numel() for p in params])):
        p.copy_(own.view_as(p))


ALSO_RIGHT = [decay_in_one_line, step_then_decay_of_the_old, with_torchs_optimizer, backwards, from_default_dict]
ALSO_RIGHT += [as_one_vector]


def a_default_for_0(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    solution(params, grads, state, lr, beta1, beta2, eps, weight_decay=weight_decay or 0.01)


WRONG += [("zero-taken-for-none", a_default_for_0)]
