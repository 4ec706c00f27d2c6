"""Answers to `outer-sum`."""

import torch


def solution(a, b):
    return a[:, None] + b


def row_by_row(a, b):
    return torch.stack([value + b for value in a])


def by_lists(a, b):
    return torch.tensor([[x + y for y in b.tolist()] for x in a.tolist()])


def cell_by_cell(a, b):
    table = torch.zeros(len(a), len(b))
    for i in range(len(a)):
        for j in range(len(b)):
            table[i, j] = a[i] + b[j]
    return table


WRONG = [
    ("float32-on-the-way", lambda a, b: a[:, None] + b.float().to(a.dtype)),
    ("no-new-axis", lambda a, b: a + b),
    ("inputs-changed", lambda a, b: a.unsqueeze_(1) + b),
    ("loops", row_by_row),
    ("loops", by_lists),
    ("wrong-dtype", cell_by_cell),
    ("raises", lambda a, b: a.view(3, 1) + b),
    ("no-new-axis", lambda a, b: a[:, None] + b[:, None]),
    ("wrong-shape", lambda a, b: (a[:, None] + b)[None]),
    ("wrong-shape", lambda a, b: (a[:, None] + b).sum(1)),
    ("wrong-value", lambda a, b: a.max() + a[:, None] * 0 + b),
    ("wrong-arguments", lambda a: a[:, None] + a),
]
ALSO_RIGHT = [
    lambda a, b: torch.outer(a, torch.ones_like(b)) + b,
    lambda a, b: sum(torch.meshgrid(a, b, indexing="ij")),
    lambda a, b: torch.cartesian_prod(a, b).sum(1).reshape(len(a), len(b)),
    torch.vmap(lambda value, b: value + b, in_dims=(0, None)),
]
