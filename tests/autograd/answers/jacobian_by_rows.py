"""Answers to `jacobian-by-rows`."""

import torch
from edited_source import wrong_answers


def solution(f, x):
    y = f(x)
    rows = [torch.autograd.grad(y, x, grad_outputs=v, retain_graph=True)[0] for v in torch.eye(len(y))]
    return torch.stack(rows)


def the_same_tensor(f, x):
    y, rows = f(x), []
    for v in torch.eye(len(y)):
        y.backward(v, retain_graph=True)
        rows.append(x.grad)
    return torch.stack(rows)


def all_at_once(f, x):
    y = f(x)
    y.backward(torch.ones_like(y))
    return x.grad


def as_many_rows_as_inputs(f, x):
    y = f(x)
    return torch.stack([torch.autograd.grad(y[i], x, retain_graph=True)[0] for i in range(len(x))])


def by_differences(f, x):
    columns = []
    for j in range(len(x)):
        step = torch.zeros_like(x)
        step[j] = 1e-3
        columns.append((f(x.detach() + step).double() - f(x.detach() - step).double()) / 2e-3)
    return torch.stack(columns, dim=1)


def entry_by_entry(f, x):
    m, n = len(f(x)), len(x)
    J = torch.zeros(m, n, dtype=x.dtype)
    for i in range(m):
        for j in range(n):
            J[i, j] = torch.autograd.grad(f(x)[i], x)[0][j]
    return J


def batched(f, x):
    y = f(x)
    return torch.autograd.grad(y, x, torch.eye(len(y), dtype=y.dtype), is_grads_batched=True)[0]


def cleared_before_the_loop(f, x):
    y, rows = f(x), []
    x.grad = None
    for i in range(len(y)):
        y[i].backward(retain_graph=True)
        rows.append(x.grad.clone())
    return torch.stack(rows)


def one_row_short(f, x):
    return torch.stack([torch.autograd.grad(f(x)[i], x)[0] for i in range(max(1, len(f(x)) - 1))])


def zeroed_after_each(f, x):
    rows = []
    for i in range(len(f(x))):
        f(x)[i].backward()
        rows.append(x.grad.clone())
        x.grad.zero_()
    return torch.stack(rows)


def filled(f, x):
    y = f(x)
    J = torch.empty(len(y), len(x), dtype=x.dtype)
    for i, value in enumerate(y):
        (J[i],) = torch.autograd.grad(value, x, retain_graph=True)
    return J


def cleared_but_kept_by_reference(f, x):
    y, rows = f(x), []
    x.grad = torch.zeros_like(x)
    for output in y:
        x.grad.zero_()
        output.backward(retain_graph=True)
        rows.append(x.grad)
    return torch.stack(rows)


def turned_if_square(f, x):
    rows = torch.autograd.functional.jacobian(f, x)
    return rows.T if len(rows) == len(x) else rows


def ones_stay_in_v(f, x):
    y = f(x)
    v, rows = torch.zeros_like(y), []
    for i in range(len(y)):
        v[i] = 1
        rows.append(torch.autograd.grad(y, x, v, retain_graph=True)[0])
    return torch.stack(rows)


def before_is_the_same_tensor(f, x):
    y, rows, before = f(x), [], torch.zeros_like(x)
    for i in range(len(y)):
        y[i].backward(retain_graph=True)
        rows.append(x.grad - before)
        before = x.grad
    return torch.stack(rows)


WRONG = wrong_answers(
    solution,
    [
        ("graph-freed", (", retain_graph=True", "")),
        ("vector-too-long", ("torch.eye(len(y))", "torch.eye(len(x))")),
        ("still-attached", ("retain_graph", "create_graph")),
        ("rows-in-tuples", (")[0]", ")")),
        ("history-cut", ("f(x)", "f(x.detach())")),
        ("same-factor-off", ("torch.stack(rows)", "torch.stack(rows) * 1.001")),
    ],
)
WRONG += [
    ("sum-of-rows", all_at_once),
    ("accumulates", cleared_before_the_loop),
    ("accumulates", ones_stay_in_v),
    ("one-tensor-for-all", the_same_tensor),
    ("one-tensor-for-all", cleared_but_kept_by_reference),
    ("one-tensor-for-all", before_is_the_same_tensor),
    ("no-vector", lambda f, x: f(x).backward() or x.grad),
    ("square-only", as_many_rows_as_inputs),
    ("wrong-value", by_differences),
    ("wrong-value", turned_if_square),
    ("other-passes", batched),
    ("a-pass-for-each-entry", entry_by_entry),
    ("wrong-shape", one_row_short),
]
ALSO_RIGHT = [lambda f, x: torch.autograd.functional.jacobian(f, x), zeroed_after_each, filled]


def one_v_for_all_rows(f, x):
    """Where f hands v itself on, as x + 1 does, all rows are the same tensor."""
    y = f(x)
    v, rows = torch.zeros_like(y), []
    for i in range(len(y)):
        v.zero_()
        v[i] = 1
        rows.append(torch.autograd.grad(y, x, v, retain_graph=True)[0])
    return torch.stack(rows)


WRONG += [("one-tensor-for-all", one_v_for_all_rows)]
