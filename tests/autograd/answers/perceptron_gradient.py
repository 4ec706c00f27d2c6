"""Answers to `perceptron-gradient`."""

import math

import numpy as np
import torch
import torch.nn.functional as F


def solution(w, X, y):
    p = torch.sigmoid(X @ w)
    return X.T @ (p - y) / len(y)


def label_minus_p(w, X, y):
    return X.T @ (y - torch.sigmoid(X @ w)) / len(y)


def summed(w, X, y):
    return X.T @ (torch.sigmoid(X @ w) - y)


def divided_twice(w, X, y):
    return (X * (torch.sigmoid(X @ w) - y)[:, None]).mean(0) / len(y)


def per_sample(w, X, y):
    return X * (torch.sigmoid(X @ w) - y)[:, None]


def over_the_inputs(w, X, y):
    return (X * (torch.sigmoid(X @ w) - y)[:, None]).mean(1)


def over_everything(w, X, y):
    return (X * (torch.sigmoid(X @ w) - y)[:, None]).mean()


def without_x(w, X, y):
    return (torch.sigmoid(X @ w) - y).mean()


def as_for_squares(w, X, y):
    p = torch.sigmoid(X @ w)
    return X.T @ ((p - y) * p * (1 - p)) / len(y)


def stops_at_p(w, X, y):
    p = torch.sigmoid(X @ w)
    return X.T @ -(y / p - (1 - y) / (1 - p)) / len(y)


def linear(w, X, y):
    return X.T @ (X @ w - y) / len(y)


def as_written(w, X, y):
    p = torch.sigmoid(X @ w)
    dp = -(y / p - (1 - y) / (1 - p))
    return X.T @ (dp * p * (1 - p)) / len(y)


def not_transposed(w, X, y):
    return X @ (torch.sigmoid(X @ w) - y) / len(y)


WRONG = [
    ("flipped", label_minus_p),
    ("summed", summed),
    ("divided-twice", divided_twice),
    ("not-reduced", per_sample),
    ("wrong-axis", over_the_inputs),
    ("all-averaged", over_everything),
    ("input-missing", without_x),
    ("slope-twice", as_for_squares),
    ("slope-missing", stops_at_p),
    ("logit-for-probability", linear),
    ("breaks-at-saturation", as_written),
    ("shapes", not_transposed),
]


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


def small_number_below(w, X, y):
    p = torch.sigmoid(X @ w)
    return X.T @ (-(y / (p + 1e-7) - (1 - y) / (1 - p + 1e-7)) * p * (1 - p)) / len(y)


def nan_to_zero(w, X, y):
    return torch.nan_to_num(as_written(w, X, y))


def logits_cut(w, X, y):
    return X.T @ (torch.sigmoid((X @ w).clamp(-5, 5)) - y) / len(y)


def in_place(w, X, y):
    p = torch.sigmoid(X @ w)
    y -= p
    return -X.T @ y / len(y)


def slope(dz):
    return lambda w, X, y: X.T @ dz(torch.sigmoid(X @ w), y) / len(y)


def by_a_loop(w, X, y):
    total = torch.zeros_like(w)
    for x, label in zip(X, y, strict=True):
        total += (torch.sigmoid(x @ w) - label) * x
    return total / len(y)


def with_numpy(w, X, y):
    w, X, y = w.double().numpy(), X.double().numpy(), y.double().numpy()
    p = 0.5 * (1 + np.tanh(X @ w / 2))
    return ((p - y)[:, None] * X).mean(axis=0)


WRONG += [
    ("uses-autograd", with_autograd),
    (
        "uses-autograd",
        lambda w, X, y: torch.autograd.functional.jacobian(lambda w: F.binary_cross_entropy_with_logits(X @ w, y), w),
    ),
    ("breaks-at-saturation", own_sigmoid_as_a_ratio),
    ("clamped", clamped),
    ("clamped", nan_to_zero),
    ("clamped", small_number_below),
    ("clamped", logits_cut),
    ("inputs-changed", in_place),
    ("divided-by-inputs", lambda w, X, y: X.T @ (torch.sigmoid(X @ w) - y) / X.shape[1]),
    ("sigmoid-reversed", slope(lambda p, y: 1 - p - y)),
    ("labels-flipped", slope(lambda p, y: p - 1 + y)),
    ("label-missing", slope(lambda p, y: p)),
    ("decided", slope(lambda p, y: (p > 0.5).float() - y)),
    ("loss-itself", lambda w, X, y: F.binary_cross_entropy_with_logits(X @ w, y)),
    ("wrong-value", slope(lambda p, y: torch.tanh(p) - y)),
    ("wrong-shape", lambda w, X, y: (X.T @ (torch.sigmoid(X @ w) - y) / len(y))[:, None]),
    ("raises", lambda w, X, y: X.T @ (math.exp(X @ w) - y)),
    ("means-multiplied", lambda w, X, y: (torch.sigmoid(X @ w) - y).mean() * X.mean(0)),
    ("doubled", lambda w, X, y: 2 * solution(w, X, y)),
]
ALSO_RIGHT = [
    by_a_loop,
    with_numpy,
    lambda w, X, y: ((torch.sigmoid(X @ w) - y)[:, None] * X).mean(0),
    lambda w, X, y: (1 / (1 + torch.exp(-(X @ w))) - y) @ X / X.shape[0],
    lambda w, X, y: torch.einsum("n,ni->i", torch.sigmoid(X @ w) - y, X) / len(y),
    lambda w, X, y: with_numpy(w, X, y).tolist(),
]
WRONG += [("labels-as-signs", lambda w, X, y: -(X.T @ (y * torch.sigmoid(-y * (X @ w)))) / len(y))]
