"""Exercise jacobian-by-rows: a whole Jacobian, one backward pass per row."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import tensor
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.same import same
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


def shifted(x: torch.Tensor) -> torch.Tensor:
    """From n numbers to n; its backward pass hands v itself on."""
    return x + 1


def sum_of_squares(x: torch.Tensor) -> torch.Tensor:
    """From n numbers to 1."""
    return (x * x).sum().reshape(1)


def jacobian(f: Callable, x: torch.Tensor) -> torch.Tensor:
    y = f(x)
    rows = [torch.autograd.grad(y, x, v, retain_graph=True)[0] for v in torch.eye(len(y), dtype=y.dtype)]
    return torch.stack(rows)


RUBRIC = Rubric(
    jacobian,
    """
torch.stack(rows)
    transposed :: torch.stack(rows, 1) :: Row i belongs to output i: (m, n), outputs first.
    sum-of-rows :: sum(rows) :: With v = ones you get the sum of all rows. Choose v so that it picks a single row.
    accumulates :: torch.stack(rows).cumsum(0) :: Each row contains all rows before it: $NOT_CLEARED
    one-tensor-for-all :: torch.stack([sum(rows)] * len(rows)) :: All rows are the same: you stored x.grad itself each time, and
        backward kept adding to it. Clear it between the passes, or use torch.autograd.grad.
    one-tensor-for-all :: torch.stack([rows[-1]] * len(rows)) :: All rows are the last one: you stored x.grad itself each time,
        and the next pass changed it. Store a copy.
    one-tensor-for-all :: torch.stack([rows[0], *(0 * row for row in rows[1:])]) :: Only the first row is there. If you subtract
        the x.grad of the pass before: that is the same tensor, not a copy.
    diagonal-only :: torch.diag(torch.stack(rows).diagonal()) :: Only the entries i = j are there: each output may depend on
        every input.
    last-row-only :: rows[-1] :: That is the last row. Collect the rows in a list, and stack them.
    first-row-only :: rows[0] :: That is the first row. Each other row needs its own v.
error
    graph-freed :: second time :: The first backward freed the graph. Ask it to keep the graph, or call f again for each row.
    no-vector :: implicitly created :: f(x) has several elements: backward needs a v that says which of them count.
    vector-too-long :: Mismatch in shape :: v has one element for each output of f, not for each input.
    rows-in-tuples :: but got tuple :: torch.autograd.grad returns a tuple, with one gradient for each input.
    history-cut :: does not require grad :: Nothing leads back from f(x) to x: a detached copy needs requires_grad_() of its
        own.
    square-only :: out of bounds :: f has fewer outputs than inputs here. Count the rows by f(x), not by x.
""",
    NOT_CLEARED="what was not cleared between the passes, x.grad or the last 1 in v?",
)


@exercise("jacobian-by-rows", notebook="02_autograd", takes="f, x", returns=tensor())
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
    RUBRIC.expect(answer, cases, tolerance=1e-5, but=("grad",))
    if not same(answer(shifted, torch.tensor([2.0, -1.0, 5.0], requires_grad=True)), torch.eye(3)):
        hint = (
            "For f(x) = x + 1, whose backward pass hands v itself on, all rows of J are one tensor, that v: make one for each."
        )
        raise Mistake("one-tensor-for-all", hint)
    for f, x in cases.values():
        x = x.detach().clone().requires_grad_()
        got, outputs = answer(f, x), len(f(x))
        if got.requires_grad:
            raise Mistake(
                "still-attached", "The numbers are right, but J is still part of a graph: create_graph is not needed here."
            )
        names = torch_calls(lambda f=f, x=x: answer(f, x))
        passes = sum(name.split(".")[-1] in ("backward", "grad") for name in names)
        ran = f"The numbers are right, but you ran {passes} backward passes for {outputs} outputs"
        if passes < outputs:
            raise Mistake("other-passes", f"{ran}, instead of one for each.")
        if passes > outputs:
            raise Mistake("a-pass-for-each-entry", f"{ran}. One gives a whole row.")
