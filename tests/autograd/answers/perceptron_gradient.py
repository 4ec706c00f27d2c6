"""Answers to `perceptron-gradient`."""

import torch


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
