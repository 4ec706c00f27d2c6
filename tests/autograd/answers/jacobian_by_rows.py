"""Answers to `jacobian-by-rows`."""

import torch
from edited_source import wrong_answers


def solution(f, x):
    y = f(x)
    rows = [torch.autograd.grad(y, x, grad_outputs=v, retain_graph=True)[0] for v in torch.eye(len(y))]
    return torch.stack(rows)


def solution_in_any_type(f, x):
    y = f(x)
    return torch.stack([torch.autograd.grad(y, x, v, retain_graph=True)[0] for v in torch.eye(len(y), dtype=y.dtype)])


STACKED = "torch.stack(rows)"
BY_EDITS = wrong_answers(
    solution,
    [
        ("graph-freed", (", retain_graph=True", "")),
        ("vector-too-long", ("torch.eye(len(y))", "torch.eye(len(x))")),
        ("still-attached", ("retain_graph", "create_graph")),
        ("rows-in-tuples", (")[0]", ")")),
        ("history-cut", ("f(x)", "f(x.detach())")),
        ("wrong-value", (STACKED, "torch.stack(rows) * 1.001")),
    ],
)


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


def no_vector(f, x):
    f(x).backward()
    return x.grad


def first_only(f, x):
    y = f(x)
    v = torch.zeros_like(y)
    v[0] = 1
    y.backward(v)
    return x.grad


def as_many_rows_as_inputs(f, x):
    y, rows = f(x), []
    for i in range(len(x)):
        rows.append(torch.autograd.grad(y[i], x, retain_graph=True)[0])
    return torch.stack(rows)


def as_an_array(f, x):
    return solution(f, x).numpy()


ALSO_RIGHT = []
WRONG = [
    *BY_EDITS,
    ("sum-of-rows", all_at_once),
    ("accumulates", never_cleared),
    ("one-tensor-for-all", the_same_tensor),
    ("no-vector", no_vector),
    ("first-row-only", first_only),
    ("square-only", as_many_rows_as_inputs),
]


def by_the_library(f, x):
    return torch.autograd.functional.jacobian(f, x)


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


def last_one(f, x):
    for i in range(len(f(x))):
        row = torch.autograd.grad(f(x)[i], x)[0]
    return row


def cleared_before_the_loop(f, x):
    y, rows = f(x), []
    x.grad = None
    for i in range(len(y)):
        y[i].backward(retain_graph=True)
        rows.append(x.grad.clone())
    return torch.stack(rows)


def four_rows(f, x):
    return torch.stack([torch.autograd.grad(f(x)[i], x)[0] for i in range(4)])


def one_row_short(f, x):
    return torch.stack([torch.autograd.grad(f(x)[i], x)[0] for i in range(max(1, len(f(x)) - 1))])


def cleared(f, x):
    y, rows = f(x), []
    for i in range(len(y)):
        x.grad = None
        y[i].backward(retain_graph=True)
        rows.append(x.grad)
    return torch.stack(rows)


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


def nested_lists(f, x):
    return [torch.autograd.grad(f(x)[i], x)[0].tolist() for i in range(len(f(x)))]


def cleared_but_kept_by_reference(f, x):
    y, rows = f(x), []
    x.grad = torch.zeros_like(x)
    for output in y:
        x.grad.zero_()
        output.backward(retain_graph=True)
        rows.append(x.grad)
    return torch.stack(rows)


WRONG += [
    ("wrong-value", by_differences),
    ("other-passes", batched),
    ("a-pass-for-each-entry", entry_by_entry),
    ("last-row-only", last_one),
    ("accumulates", cleared_before_the_loop),
    ("square-only", four_rows),
    ("wrong-shape", one_row_short),
    ("diagonal-only", lambda f, x: torch.diag(torch.autograd.functional.jacobian(f, x).diagonal())),
    ("returns-nothing", lambda f, x: f(x).backward(torch.ones_like(f(x)))),
    ("one-tensor-for-all", cleared_but_kept_by_reference),
]
ALSO_RIGHT += [by_the_library, cleared, zeroed_after_each, filled, solution_in_any_type]


def turned_if_square(f, x):
    rows = torch.autograd.functional.jacobian(f, x)
    return rows.T if len(rows) == len(x) else rows


WRONG += [("wrong-value", turned_if_square)]


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


WRONG += [("accumulates", ones_stay_in_v), ("one-tensor-for-all", before_is_the_same_tensor)]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", as_an_array),
    ("wrong-type", nested_lists),
]
