"""Exercise jacobian-by-rows: a whole Jacobian, one backward pass per row."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.watch import torch_calls


def mixing(x: torch.Tensor) -> torch.Tensor:
    """From 3 numbers to 4."""
    return torch.stack([x[0] * x[1], x[1] * x[2], x[0] ** 2, torch.sin(x[2])])


def products(x: torch.Tensor) -> torch.Tensor:
    """From 4 numbers to 2."""
    return torch.stack([x[0] * x[1] * x[2], x[3] / x[0]])


def square(x: torch.Tensor) -> torch.Tensor:
    """From 2 numbers to 2."""
    return torch.stack([x[0] * x[1], x[0] + 3 * x[1]])


def sum_of_squares(x: torch.Tensor) -> torch.Tensor:
    """From n numbers to 1."""
    return (x * x).sum().reshape(1)


def jacobian(f: Callable, x: torch.Tensor) -> torch.Tensor:
    """The right answer, by torch."""
    return torch.autograd.functional.jacobian(f, x.detach())


MISTAKES = {
    "transposed": (lambda f, x: jacobian(f, x).T, "Row i belongs to output i: (m, n), outputs first."),
    "list-of-rows": (lambda f, x: list(jacobian(f, x)), "These are the rows; stack them into one tensor of shape (m, n)."),
    "sum-of-rows": (
        lambda f, x: jacobian(f, x).sum(0),
        "With v = ones you get the sum of all rows. Choose v so that it picks a single row.",
    ),
    "accumulates": (
        lambda f, x: jacobian(f, x).cumsum(0),
        "Each row contains all rows before it: what was not cleared between the passes, x.grad or the last 1 in v?",
    ),
    "one-tensor-for-all": (
        lambda f, x: jacobian(f, x).sum(0).expand(len(f(x)), len(x)),
        "All rows are the same: you stored x.grad itself each time, and backward kept adding to it. "
        "Clear it between the passes, or use torch.autograd.grad.",
    ),
    "one-tensor-for-all, cleared": (
        lambda f, x: jacobian(f, x)[-1].expand(len(f(x)), len(x)),
        "All rows are the last one: you stored x.grad itself each time, and the next pass changed it. Store a copy.",
    ),
    "rows-in-reverse": (lambda f, x: jacobian(f, x).flip(0), "The rows are right, but the last output comes first."),
    "rows-in-tuples": (
        lambda f, x: [(row,) for row in jacobian(f, x)],
        "torch.autograd.grad returns a tuple, with one gradient for each input: take its element.",
    ),
    "all-elements-in-one-line": (
        lambda f, x: jacobian(f, x).flatten(),
        "The numbers are right, but in one line: stack the rows, so that J is (m, n).",
    ),
    "accumulates, from the last row": (
        lambda f, x: jacobian(f, x).flip(0).cumsum(0).flip(0),
        "Each row contains others: what was not cleared between the passes, x.grad or the last 1 in v?",
    ),
    "one-tensor-for-all, subtracted": (
        lambda f, x: torch.cat([jacobian(f, x)[:1], torch.zeros_like(jacobian(f, x)[1:])]),
        "Only the first row is there. If you subtract the x.grad of the pass before: that is the same tensor, not a copy.",
    ),
    "diagonal-only": (
        lambda f, x: torch.diag(jacobian(f, x).diagonal()),
        "Only the entries i = j are there: each output may depend on every input.",
    ),
    "last-row-only": (lambda f, x: jacobian(f, x)[-1], "That is the last row. Collect the rows in a list, and stack them."),
    "first-row-only": (lambda f, x: jacobian(f, x)[0], "That is the first row. Each other row needs its own v."),
}
ERRORS = {
    "second time": (
        "graph-freed",
        "The first backward freed the graph. Ask it to keep the graph, or call f again for each row.",
    ),
    "implicitly created": ("no-vector", "f(x) has several elements: backward needs a v that says which of them count."),
    "Mismatch in shape": ("vector-too-long", "v has one element for each output of f, not for each input."),
    "but got tuple": ("rows-in-tuples", "torch.autograd.grad returns a tuple, with one gradient for each input."),
    "does not require grad": (
        "history-cut",
        "Nothing leads back from f(x) to x: a detached copy needs requires_grad_() of its own.",
    ),
    "out of bounds": ("square-only", "f has fewer outputs than inputs here. Count the rows by f(x), not by x."),
}


@exercise("jacobian-by-rows", notebook="02_autograd")
def judge_jacobian_by_rows(answer: Callable) -> None:
    """J (m, n) of f at x, one backward pass for each row."""
    cases = {
        "an f from 3 numbers to 4": (mixing, torch.tensor([2.0, -1.0, 0.5], requires_grad=True)),
        "an f from 2 numbers to 2": (square, torch.tensor([2.0, 5.0], requires_grad=True)),
        "an f with one output": (sum_of_squares, torch.tensor([1.0, 3.0], requires_grad=True)),
        "an f from 4 numbers to 2, in float64": (
            products,
            torch.tensor([2.0, -1.0, 0.5, 3.0], dtype=torch.float64, requires_grad=True),
        ),
    }
    expect_function(answer, jacobian, cases, mistakes=MISTAKES, errors=ERRORS, tolerance=1e-5)
    for f, x in cases.values():
        x, f = x.detach().clone().requires_grad_(), f
        got, outputs = answer(f, x), len(f(x))
        if getattr(got, "requires_grad", False):  # a NumPy array is right, too
            raise Mistake(
                "still-attached", "The numbers are right, but J is still part of a graph: create_graph is not needed here."
            )
        names = torch_calls(lambda f=f, x=x: answer(f, x))
        passes = sum(name.split(".")[-1] in ("backward", "grad") for name in names)
        if not passes or passes < outputs:
            raise Mistake(
                "other-passes",
                f"The numbers are right, but you ran {passes} backward passes for {outputs} outputs, instead of one for each.",
            )
        if passes > outputs:
            raise Mistake(
                "a-pass-for-each-entry",
                f"The numbers are right, but you ran {passes} backward passes for {outputs} outputs. One gives a whole row.",
            )
