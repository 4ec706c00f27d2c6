"""Answers to `write-adagrad`: each parameter has its own sum of squares, and the sum comes before the step."""

import torch

SUMS = {}


def solution(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        if i not in state:
            state[i] = torch.zeros_like(p)
        state[i] += g * g
        p -= lr * g / (state[i].sqrt() + eps)


def the_lectures_form(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        G = state.setdefault(i, torch.zeros_like(p))
        G += g**2
        p -= lr * g / torch.sqrt(G + eps)


def precedence(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        G = state.setdefault(i, torch.zeros_like(p))
        G += g**2
        p -= lr * g / torch.sqrt(G) + eps


def precedence_in_brackets(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        G = state.setdefault(i, torch.zeros_like(p))
        G += g**2
        p -= lr * (g / torch.sqrt(G) + eps)


def without_eps(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        G = state.setdefault(i, torch.zeros_like(p))
        G += g**2
        p -= lr * g / torch.sqrt(G)


def only_this_square(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        state[i] = g**2
        p -= lr * g / (state[i].sqrt() + eps)


def step_before_sum(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        G = state.setdefault(i, torch.zeros_like(p))
        p -= lr * g / (G.sqrt() + eps)
        G += g**2


def no_root(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        state[i] = state.get(i, 0) + g**2
        p -= lr * g / (state[i] + eps)


def magnitudes(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        state[i] = state.get(i, 0) + g.abs()
        p -= lr * g / (state[i].sqrt() + eps)


def square_of_the_sum(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        state[i] = state.get(i, 0) + g
        p -= lr * g / ((state[i] ** 2).sqrt() + eps)


def mean_square(params, grads, state, lr=0.01, eps=1e-10):
    state["t"] = state.get("t", 0) + 1
    for i, (p, g) in enumerate(zip(params, grads)):
        state[i] = state.get(i, 0) + g**2
        p -= lr * g / ((state[i] / state["t"]).sqrt() + eps)


def uphill(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        state[i] = state.get(i, 0) + g**2
        p += lr * g / (state[i].sqrt() + eps)


def new_name(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        state[i] = state.get(i, 0) + g**2
        p = p - lr * g / (state[i].sqrt() + eps)


def into_the_list(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        state[i] = state.get(i, 0) + g**2
        params[i] = p - lr * g / (state[i].sqrt() + eps)


def one_sum(params, grads, state, lr=0.01, eps=1e-10):
    for p, g in zip(params, grads):
        state["G"] = state.get("G", 0) + g**2
        p -= lr * g / (state["G"].sqrt() + eps)


def a_global(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        SUMS[i] = SUMS.get(i, 0) + g**2
        p -= lr * g / (SUMS[i].sqrt() + eps)


def a_mutable_default(params, grads, state, lr=0.01, eps=1e-10, sums={}):
    for i, (p, g) in enumerate(zip(params, grads)):
        sums[i] = sums.get(i, 0) + g**2
        p -= lr * g / (sums[i].sqrt() + eps)


def by_identity(params, grads, state, lr=0.01, eps=1e-10, sums={}):
    for p, g in zip(params, grads):
        sums[p] = sums.get(p, 0) + g**2
        p -= lr * g / (sums[p].sqrt() + eps)


def squares_in_place(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        direction = g.clone()
        state[i] = state.get(i, 0) + g.pow_(2)
        p -= lr * direction / (state[i].sqrt() + eps)


def float32_sum(params, grads, state, lr=0.01, eps=1e-10):
    for i, (p, g) in enumerate(zip(params, grads)):
        G = state.setdefault(i, torch.zeros(p.shape))
        G += g**2
        p -= lr * g / (G.sqrt() + eps)


def something_else(params, grads, state, lr=0.01, eps=1e-10):
    for p, g in zip(params, grads):
        p -= lr * torch.tanh(g)


WRONG = [
    ("eps-inside-root", the_lectures_form),
    ("eps-on-weights", precedence),
    ("eps-on-weights", precedence_in_brackets),
    ("eps-missing", without_eps),
    ("squares-not-accumulated", only_this_square),
    ("accumulated-after-use", step_before_sum),
    ("root-missing", no_root),
    ("not-squared", magnitudes),
    ("signs-cancel", square_of_the_sum),
    ("mean-instead-of-sum", mean_square),
    ("wrong-sign", uphill),
    ("rebinds", new_name),
    ("replaces-the-tensors", into_the_list),
    ("state-shared-between-parameters", one_sum),
    ("state-shared-between-optimizers", a_global),
    ("state-shared-between-optimizers", a_mutable_default),
    ("state-shared-between-optimizers", by_identity),
    ("gradient-edited-in-place", squares_in_place),
    ("float32-state-under-float64", float32_sum),
    ("wrong-value", something_else),
]
