"""Answers to `write-adam`: count, both moments, both corrections, then the step."""

import torch

MEMORY = {}


def solution(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def uncorrected(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m
        v_hat = v
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def counts_late(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state.get("t", 0)
    state["t"] = t + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def counts_twice(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1 ** (t + 1))
        v_hat = v / (1 - beta2 ** (t + 1))
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def of_the_study(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1)
        v_hat = v / (1 - beta2)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def first_only(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def second_only(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def swapped(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta2 * m + (1 - beta2) * g
        v = beta1 * v + (1 - beta1) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta2**t)
        v_hat = v / (1 - beta1**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def eps_under_the_root(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat + eps).sqrt()


def eps_last(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / v_hat.sqrt() + eps


def eps_in_brackets(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * (m_hat / v_hat.sqrt() + eps)


def no_eps(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / v_hat.sqrt()


def eps_first(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        p -= lr * m_hat * (1 - beta2**t) ** 0.5 / (v.sqrt() + eps)


def this_square(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def this_square_corrected(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def this_square_weighted(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def no_momentum(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = g / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def plain_gradient(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = g
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def whole_gradients(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + g
        v = beta2 * v + g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def no_root(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat + eps)


def moments_last(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        p -= lr * m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)
        state[i] = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g


def uphill(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p += lr * m_hat / (v_hat.sqrt() + eps)


def new_name(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p = p - lr * m_hat / (v_hat.sqrt() + eps)


def one_pair(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault("moments", (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state["moments"] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def a_global(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = MEMORY.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        MEMORY[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def a_global_count(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = MEMORY["t"] = MEMORY.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def counts_in_the_loop(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        t = state["t"] = state.get("t", 0) + 1
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def squares_in_place(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g.mul_(g)
        state[i] = (m, v)
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def float32_moments(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        m, v = state.setdefault(i, (torch.zeros_like(p), torch.zeros_like(p)))
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        state[i] = (m.float(), v.float())
        m_hat = m / (1 - beta1**t)
        v_hat = v / (1 - beta2**t)
        p -= lr * m_hat / (v_hat.sqrt() + eps)


def keeps_the_gradient(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):
    t = state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        past = state.setdefault(i, [])
        past.append(g)
        m = sum((1 - beta1) * beta1 ** (t - 1 - k) * old for k, old in enumerate(past))
        v = sum((1 - beta2) * beta2 ** (t - 1 - k) * old**2 for k, old in enumerate(past))
        p -= lr * m / (1 - beta1**t) / ((v / (1 - beta2**t)).sqrt() + eps)


WRONG = [
    ("no-bias-correction", uncorrected),
    ("bias-exponent-off-by-one", counts_late),
    ("bias-exponent-off-by-one", counts_twice),
    ("bias-exponent-missing", of_the_study),
    ("second-moment-not-corrected", first_only),
    ("first-moment-not-corrected", second_only),
    ("betas-swapped", swapped),
    ("eps-inside-root", eps_under_the_root),
    ("eps-on-weights", eps_last),
    ("eps-on-weights", eps_in_brackets),
    ("eps-missing", no_eps),
    ("eps-before-correction", eps_first),
    ("squares-not-accumulated", this_square),
    ("squares-not-accumulated", this_square_corrected),
    ("squares-not-accumulated", this_square_weighted),
    ("momentum-missing", no_momentum),
    ("momentum-missing", plain_gradient),
    ("averages-as-sums", whole_gradients),
    ("root-missing", no_root),
    ("accumulated-after-use", moments_last),
    ("wrong-sign", uphill),
    ("rebinds", new_name),
    ("state-shared-between-parameters", one_pair),
    ("state-shared-between-optimizers", a_global),
    ("state-shared-between-optimizers", a_global_count),
    ("step-counted-per-parameter", counts_in_the_loop),
    ("gradient-edited-in-place", squares_in_place),
    ("float32-state-under-float64", float32_moments),
    ("gradient-kept-by-reference", keeps_the_gradient),
]
