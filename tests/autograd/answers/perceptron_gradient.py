"""Answers to `perceptron-gradient`."""

import math  # noqa: F401  in an edit

import torch
import torch.nn.functional as F
from edited_source import wrong_answers


def solution(w, X, y):
    p = torch.sigmoid(X @ w)
    return X.T @ (p - y) / len(y)


def as_written(w, X, y):
    p = torch.sigmoid(X @ w)
    dp = -(y / p - (1 - y) / (1 - p))
    return X.T @ (dp * p * (1 - p)) / len(y)


def with_autograd(w, X, y):
    w = w.clone().requires_grad_()
    F.binary_cross_entropy_with_logits(X @ w, y).backward()
    return w.grad


def own_sigmoid_as_a_ratio(w, X, y):
    z = X @ w
    return X.T @ (torch.exp(z) / (1 + torch.exp(z)) - y) / len(y)


def clamped(w, X, y):
    p = torch.sigmoid(X @ w).clamp(1e-3, 1 - 1e-3)
    return X.T @ ((p - y) / (p * (1 - p)) * p * (1 - p)) / len(y)


def by_a_loop(w, X, y):
    total = torch.zeros_like(w)
    for x, label in zip(X, y, strict=True):
        total += (torch.sigmoid(x @ w) - label) * x
    return total / len(y)


DZ, GRADIENT = "(p - y)", "X.T @ (p - y) / len(y)"


def in_float32(w, X, y):
    return solution(w.float(), X.float(), y.float()).to(w.dtype)


WRONG = wrong_answers(
    solution,
    [
        ("shapes", ("X.T", "X")),
        ("wrong-value", (DZ, "(torch.tanh(p) - y)")),
        ("wrong-shape", (GRADIENT, f"({GRADIENT})[:, None]")),
        ("raises", (DZ, "(math.exp(X @ w) - y)")),
    ],
)
WRONG += [
    ("uses-autograd", with_autograd),
    (
        "uses-autograd",
        lambda w, X, y: torch.autograd.functional.jacobian(lambda w: F.binary_cross_entropy_with_logits(X @ w, y), w),
    ),
    ("off-by-a-size", lambda w, X, y: X.T @ (torch.sigmoid(X @ w) - y)),
    ("opposite-sign", lambda w, X, y: X.T @ (y - torch.sigmoid(X @ w)) / len(y)),
    (
        "float32-on-the-way",
        lambda w, X, y: (X.float().T @ (torch.sigmoid(X.float() @ w.float()) - y.float()) / len(y)).to(w.dtype),
    ),
    ("breaks-at-saturation", as_written),
    ("breaks-at-saturation", own_sigmoid_as_a_ratio),
    ("clamped", clamped),
    ("clamped", lambda w, X, y: torch.nan_to_num(as_written(w, X, y))),
]
ALSO_RIGHT = [
    by_a_loop,
    lambda w, X, y: ((torch.sigmoid(X @ w) - y)[:, None] * X).mean(0),
    lambda w, X, y: (1 / (1 + torch.exp(-(X @ w))) - y) @ X / X.shape[0],
    lambda w, X, y: torch.einsum("n,ni->i", torch.sigmoid(X @ w) - y, X) / len(y),
]
