"""Answers to `outer-sum`."""

import torch


def solution(a, b):
    return a[:, None] + b


def no_new_axis(a, b):
    return a + b


def transposed(a, b):
    return a + b[:, None]


def flattened(a, b):
    return torch.stack([x + y for x in a for y in b])


def product(a, b):
    return torch.outer(a, b)


def difference(a, b):
    return a[:, None] - b


def in_place(a, b):
    table = a[:, None] + b
    a += 1
    return table


def forgot_return(a, b):
    a[:, None] + b


def only_three_by_two(a, b):
    return torch.tensor([[11.0, 21.0], [12.0, 22.0], [13.0, 23.0]])


def new_axis_in_place(a, b):
    return a.unsqueeze_(1) + b


WRONG = [
    ("no-new-axis", no_new_axis),
    ("transposed", transposed),
    ("flattened", flattened),
    ("product", product),
    ("swapped-sign", difference),
    ("inputs-changed", in_place),
    ("inputs-changed", new_axis_in_place),
    ("returns-nothing", forgot_return),
    ("wrong-shape", only_three_by_two),
]
