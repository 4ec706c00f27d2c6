"""Answers to `standardize`."""

import torch
import torch.nn.functional as F


def solution(x):
    return (x - x.mean(0)) / x.std(0, correction=0)


def no_keepdim(x):
    return (x - x.mean(1)) / x.std(1, correction=0)


def by_rows(x):
    return (x - x.mean(1, keepdim=True)) / x.std(1, correction=0, keepdim=True)


def variance(x):
    return (x - x.mean(0)) / x.var(0, correction=0)


def not_scaled(x):
    return x - x.mean(0)


def in_place(x):
    x -= x.mean(0)
    x /= x.std(0, correction=0)
    return x


def misspelt(x):
    return (x - x.men(0)) / x.std(0)


WRONG = [
    ("no-keepdim", no_keepdim),
    ("rows-instead-of-columns", by_rows),
    ("not-scaled", not_scaled),
    ("inputs-changed", in_place),
    ("raises", misspelt),
]


def row_by_row(x):
    return torch.stack([(row - row.mean()) / row.std(correction=0) for row in x])


def column_by_column(x):
    return torch.stack([(column - column.mean()) / column.std(correction=0) for column in x.T], dim=1)


def by_numpy(x):
    x = x.numpy()
    return (x - x.mean(axis=0)) / x.std(axis=0)


def in_four(x):
    d = x - x.mean(0)
    return d / ((d * d).sum(0) / 4).sqrt()


def through_a_view(x):
    view = x.numpy()
    view -= view.mean(0)
    return view / view.std(0)


WRONG += [
    ("rows-instead-of-columns", row_by_row),
    ("variance-instead-of-deviation", lambda x: (x - x.mean(0)) / x.var(0)),
    ("norm-instead-of-deviation", lambda x: (x - x.mean(0)) / (x - x.mean(0)).square().sum(0).sqrt()),
    ("root-mean-square", lambda x: (x - x.mean(0)) / x.square().mean(0).sqrt()),
    ("scaled-to-the-range", lambda x: (x - x.min(0).values) / (x.max(0).values - x.min(0).values)),
    ("mean-distance", lambda x: (x - x.mean(0)) / (x - x.mean(0)).abs().mean(0)),
    ("wrong-sign", lambda x: (x.mean(0) - x) / x.std(0, correction=0)),
    ("untouched", lambda x: x),
    ("wrong-type", through_a_view),
    ("wrong-value", in_four),
    ("wrong-shape", lambda x: ((x - x.mean(0)) / x.std(0, correction=0)).T),
    ("wrong-value", lambda x: (x - x.median(0).values) / x.std(0, correction=0)),
    ("returns-nothing", lambda x: print(end="")),
    ("eps-added", lambda x: (x - x.mean(0)) / (x.var(0, correction=0) + 1e-3).sqrt()),
]
ALSO_RIGHT = [
    column_by_column,
    lambda x: F.batch_norm(x, None, None, training=True, eps=1e-12),
    lambda x: ((x.T - x.mean(0)[:, None]) / x.var(0, correction=0)[:, None] ** 0.5).T,
]

WRONG += [
    ("cancels", lambda x: (x - x.mean(0)) / ((x * x).mean(0) - x.mean(0) ** 2).sqrt()),
    ("eps-added", lambda x: F.batch_norm(x, None, None, training=True)),
    ("wrong-value", lambda x: ((x.half() - x.half().mean(0)) / x.half().std(0, correction=0)).float()),
]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", by_numpy)
]
