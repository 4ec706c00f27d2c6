"""Answers to `jacobian-by-rows`."""

import torch


def solution(f, x):
    y = f(x)
    rows = [torch.autograd.grad(y, x, grad_outputs=v, retain_graph=True)[0] for v in torch.eye(len(y))]
    return torch.stack(rows)


def transposed(f, x):
    y = f(x)
    return torch.stack([torch.autograd.grad(y, x, v, retain_graph=True)[0] for v in torch.eye(len(y))], dim=1)


def all_at_once(f, x):
    y = f(x)
    y.backward(torch.ones_like(y))
    return x.grad


def never_cleared(f, x):
    y, rows = f(x), []
    for v in torch.eye(len(y)):
        y.backward(v, retain_graph=True)
        rows.append(x.grad.clone())
    return torch.stack(rows)


def the_same_tensor(f, x):
    y, rows = f(x), []
    for v in torch.eye(len(y)):
        y.backward(v, retain_graph=True)
        rows.append(x.grad)
    return torch.stack(rows)


def graph_not_kept(f, x):
    y = f(x)
    return torch.stack([torch.autograd.grad(y, x, v)[0] for v in torch.eye(len(y))])


def no_vector(f, x):
    f(x).backward()
    return x.grad


def first_only(f, x):
    y = f(x)
    v = torch.zeros_like(y)
    v[0] = 1
    y.backward(v)
    return x.grad


def vectors_of_the_inputs(f, x):
    y = f(x)
    return torch.stack([torch.autograd.grad(y, x, v, retain_graph=True)[0] for v in torch.eye(len(x))])


def as_many_rows_as_inputs(f, x):
    y, rows = f(x), []
    for i in range(len(x)):
        rows.append(torch.autograd.grad(y[i], x, retain_graph=True)[0])
    return torch.stack(rows)


def not_stacked(f, x):
    y = f(x)
    return [torch.autograd.grad(y, x, v, retain_graph=True)[0] for v in torch.eye(len(y))]


def attached(f, x):
    y = f(x)
    return torch.stack([torch.autograd.grad(y, x, v, create_graph=True)[0] for v in torch.eye(len(y))])


def as_an_array(f, x):
    return solution(f, x).numpy()


ALSO_RIGHT = [as_an_array]
WRONG = [
    ("transposed", transposed),
    ("sum-of-rows", all_at_once),
    ("accumulates", never_cleared),
    ("one-tensor-for-all", the_same_tensor),
    ("graph-freed", graph_not_kept),
    ("no-vector", no_vector),
    ("first-row-only", first_only),
    ("vector-too-long", vectors_of_the_inputs),
    ("square-only", as_many_rows_as_inputs),
    ("list-of-rows", not_stacked),
    ("still-attached", attached),
]
