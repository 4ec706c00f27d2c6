"""Answers to `mend-the-rmsprop`: an entry of the parameter's type for each parameter, the average first, g left alone."""

import torch


def solution(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= lr * g / (v.sqrt() + eps)


def as_it_was(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for p, g in zip(params, grads):
        v = state.setdefault("v", torch.zeros(p.shape))
        step = lr * g / (v.sqrt() + eps)
        v.mul_(alpha).add_(g.pow_(2), alpha=1 - alpha)
        p -= step


def shared_entry_left(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for p, g in zip(params, grads):
        v = state.setdefault("v", torch.zeros_like(p))
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= lr * g / (v.sqrt() + eps)


def float32_left(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros(p.shape))
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= lr * g / (v.sqrt() + eps)


def order_left(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        step = lr * g / (v.sqrt() + eps)
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= step


def square_in_place_left(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        direction = g.clone()
        v.mul_(alpha).add_(g.pow_(2), alpha=1 - alpha)
        p -= lr * direction / (v.sqrt() + eps)


def forgets(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for p, g in zip(params, grads):
        v = torch.zeros_like(p)
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= lr * g / (v.sqrt() + eps)


def square_itself(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for p, g in zip(params, grads):
        p -= lr * g / ((g**2).sqrt() + eps)


def whole_square(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(alpha).add_(g**2)
        p -= lr * g / (v.sqrt() + eps)


def swapped_weights(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(1 - alpha).add_(g**2, alpha=alpha)
        p -= lr * g / (v.sqrt() + eps)


def adagrad(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.add_(g**2)
        p -= lr * g / (v.sqrt() + eps)


def ruder(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= lr * g / (v + eps).sqrt()


def no_root(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= lr * g / (v + eps)


def eps_last(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= lr * g / v.sqrt() + eps


def no_eps(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p -= lr * g / v.sqrt()


def uphill(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        v = state.setdefault(i, torch.zeros_like(p))
        v.mul_(alpha).add_(g**2, alpha=1 - alpha)
        p += lr * g / (v.sqrt() + eps)


def kept_gradient(params, grads, state, lr=0.01, alpha=0.99, eps=1e-8):
    for i, (p, g) in enumerate(zip(params, grads)):
        history = state.setdefault(i, [])
        history.append(g)
        v = sum((1 - alpha) * alpha ** (len(history) - 1 - k) * old**2 for k, old in enumerate(history))
        p -= lr * g / (v.sqrt() + eps)


WRONG = [
    ("state-shared-between-parameters", as_it_was),
    ("state-shared-between-parameters", shared_entry_left),
    ("float32-state-under-float64", float32_left),
    ("accumulated-after-use", order_left),
    ("gradient-edited-in-place", square_in_place_left),
    ("squares-not-accumulated", forgets),
    ("squares-not-accumulated", square_itself),
    ("averages-as-sums", whole_square),
    ("weights-swapped", swapped_weights),
    ("adagrad-instead", adagrad),
    ("eps-inside-root", ruder),
    ("root-missing", no_root),
    ("eps-on-weights", eps_last),
    ("eps-missing", no_eps),
    ("wrong-sign", uphill),
    ("gradient-kept-by-reference", kept_gradient),
]
