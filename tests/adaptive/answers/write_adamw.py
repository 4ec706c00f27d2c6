"""Answers to `write-adamw`: the decay acts on the parameter, the moments see the gradient alone."""

import torch

MEMORY = {}


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


def decay_in_the_gradient(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        g = g + weight_decay * p
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def no_decay(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def decay_by_lambda(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def plus_lambda(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p += lr * weight_decay * p
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def decays_last(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)
        p -= lr * weight_decay * p


def decay_over_root(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * (m_hat + weight_decay * p) / (v_hat.sqrt() + eps)


def uncorrected(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m
        v_hat = v
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def counts_late(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state.get("t", 0)
    state["t"] = t + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def counts_twice(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1 ** (t + 1))
        v_hat = v / (1 - beta2 ** (t + 1))
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def swapped(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta2 * m + (1 - beta2) * g
        v = beta1 * v + (1 - beta1) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta2**t)
        v_hat = v / (1 - beta1**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def eps_under_the_root(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat + eps).sqrt()


def eps_last(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / v_hat.sqrt() + eps


def this_square(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def moments_last(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        p -= lr * m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)
        state[i] = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g


def uphill(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 + lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p += lr * m_hat / (v_hat.sqrt() + eps)


def decays_and_climbs(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p += lr * m_hat / (v_hat.sqrt() + eps)


def new_name(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p = p * (1 - lr * weight_decay)
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p = p - lr * m_hat / (v_hat.sqrt() + eps)


def one_pair(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault("moments", (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state["moments"] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def a_global(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = MEMORY.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        MEMORY[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def squares_in_place(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g.mul_(g)
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def decays_the_gradient(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        g += weight_decay * p
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def float32_moments(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0.01):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        p *= 1 - lr * weight_decay
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m.float(), v.float())
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


WRONG = [
    ("coupled-decay", decay_in_the_gradient),
    ("decay-missing", no_decay),
    ("decay-without-rate", decay_by_lambda),
    ("decay-grows", plus_lambda),
    ("decay-after-step", decays_last),
    ("decay-scaled", decay_over_root),
    ("no-bias-correction", uncorrected),
    ("bias-exponent-off-by-one", counts_late),
    ("bias-exponent-off-by-one", counts_twice),
    ("betas-swapped", swapped),
    ("eps-inside-root", eps_under_the_root),
    ("eps-on-weights", eps_last),
    ("squares-not-accumulated", this_square),
    ("accumulated-after-use", moments_last),
    ("wrong-sign", uphill),
    ("wrong-sign", decays_and_climbs),
    ("rebinds", new_name),
    ("state-shared-between-parameters", one_pair),
    ("state-shared-between-optimizers", a_global),
    ("gradient-edited-in-place", squares_in_place),
    ("gradient-edited-in-place", decays_the_gradient),
    ("float32-state-under-float64", float32_moments),
]
