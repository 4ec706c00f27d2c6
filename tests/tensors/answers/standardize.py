"""Answers to `standardize`."""

import torch
import torch.nn.functional as F


def solution(x):
    return (x - x.mean(0)) / x.std(0, correction=0)


def in_place(x):
    x -= x.mean(0)
    x /= x.std(0, correction=0)
    return x


def column_by_column(x):
    return torch.stack([(column - column.mean()) / column.std(correction=0) for column in x.T], dim=1)


def in_four(x):
    d = x - x.mean(0)
    return d / ((d * d).sum(0) / 4).sqrt()


WRONG = [
    ("wrong-value", lambda x: ((x - x.mean(0)) / x.std(0, correction=0)).clamp(-3, 3)),
    ("no-keepdim", lambda x: (x - x.mean(1)) / x.std(1, correction=0)),
    ("inputs-changed", in_place),
    ("raises", lambda x: (x - x.men(0)) / x.std(0)),
    ("wrong-value", in_four),
    ("wrong-shape", lambda x: ((x - x.mean(0)) / x.std(0, correction=0)).T),
    ("wrong-value", lambda x: (x - x.median(0).values) / x.std(0, correction=0)),
    ("cancels", lambda x: (x - x.mean(0)) / ((x * x).mean(0) - x.mean(0) ** 2).sqrt()),
    ("eps-added", lambda x: F.batch_norm(x, None, None, training=True)),
    ("float32-on-the-way", lambda x: ((x.float() - x.float().mean(0)) / x.float().std(0, correction=0)).to(x.dtype)),
    ("wrong-value", lambda x: ((x.half() - x.half().mean(0)) / x.half().std(0, correction=0)).float()),
]
ALSO_RIGHT = [
    column_by_column,
    lambda x: F.batch_norm(x, None, None, training=True, eps=1e-12),
    lambda x: ((x.T - x.mean(0)[:, None]) / x.var(0, correction=0)[:, None] ** 0.5).T,
]
