"""Which tensors autograd tracks, where it keeps gradients, and how `.grad` accumulates.

The lecture's example, with the lines of its slides that do nothing or fail run as they are written.
"""

import warnings
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.graph import draw_graph, make_graph
from hpml_lab.core.show.picture import picture
from hpml_lab.core.system.attempt import attempt


@dataclass
class TensorState(Row):
    """One tensor, as autograd sees it."""

    expression: str = column("expression")
    requires_grad: bool = column("requires_grad")
    is_leaf: bool = column("leaf")
    grad_fn: str | None = column("grad_fn")
    meaning: str = column("what this means")


@dataclass
class LineOutcome(Row):
    """What one line of code does."""

    line: str = column("line")
    outcome: str = column("what happens")


@dataclass
class GradAfterCall(Row):
    """The mean of z.grad after one call; None while z has no gradient."""

    call: str = column("call")
    mean: float | None = column("mean of z.grad")


# ---- drawing -----------------------------------------------------------------------------------------------

GRAPH = make_graph(
    [
        ("x", "x (5, 5)\nnot tracked", "plain"),
        ("y", "y (5, 5)\nnot tracked", "plain"),
        ("a", "a = x + y\nnot tracked", "plain"),
        ("z", "z (5, 5)\nleaf, requires_grad", "leaf"),
        ("b", "b = a + z\nAddBackward0", "operation"),
        ("s", "s = (b·b).sum()\nSumBackward0", "output"),
    ],
    [("x", "a"), ("y", "a"), ("a", "b"), ("z", "b"), ("b", "s")],
)


def draw(result: Result):
    """How s = (b·b).sum() with b = (x + y) + z is computed. Gray tensors are not tracked, because nothing that they are
    computed from requires a gradient; the colored ones are in autograd's graph, and only the blue leaf z gets a gradient."""
    figure = style.new_figure(9, 3.4)
    draw_graph(figure.subplots(), GRAPH, font_size=10)
    return figure


@picture
def accumulation(result: Result):
    """The mean of z.grad after each call: `backward` adds to it, and None stands for no gradient."""
    rows = result.rows(GradAfterCall)
    figure = style.new_figure(8, 3.2)
    axes = figure.subplots()
    heights = [row.mean or 0 for row in rows]
    bars = axes.bar(range(len(rows)), heights, color=style.BLUE, width=0.6)
    axes.bar_label(bars, ["None" if row.mean is None else f"{row.mean:g}" for row in rows], padding=2)
    axes.set_xticks(range(len(rows)), [row.call for row in rows])
    axes.set(ylabel="mean of z.grad", title="backward adds to .grad")
    axes.margins(y=0.15)
    axes.grid(axis="x", visible=False)
    axes.set_axisbelow(True)
    return figure


# ---- measuring ---------------------------------------------------------------------------------------------


@experiment("requires-grad", lecture="L0", notebook="02_autograd", draw=draw, same_picture=True)
def requires_grad(params: Params) -> Result:
    """Which tensors are tracked, and where gradients are kept."""
    device = params.device.torch
    x, y = torch.randn(5, 5, device=device), torch.randn(5, 5, device=device)
    z = torch.randn((5, 5), device=device, requires_grad=True)
    a = x + y
    b = a + z
    s = (b * b).sum()
    states = tensor_states(x, z, a, b, s)
    lines = [LineOutcome("s.grad_fn, followed back to the leaf", " → ".join(grad_fn_names(s)))]

    def run(line: str, outcome: str) -> str:
        lines.append(LineOutcome(line, outcome))
        return outcome

    # The slide's last line, without a call and with one.
    b.backward  # noqa: B018
    idle = z.grad is None
    run("b.backward", f"names a {type(b.backward).__name__} and does not call it: z.grad is {z.grad}")
    non_scalar = run("b.backward()", attempt(b.backward))
    run("s.backwards()", attempt(lambda: s.backwards()))

    s.backward()
    first = z.grad.clone()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        grad_of_b = b.grad
    warned = bool(caught) and "not a leaf" in str(caught[0].message)
    run("b.grad", f"{grad_of_b}, and a {caught[0].category.__name__}" if caught else f"{grad_of_b}")
    again = run("s.backward() a second time", attempt(s.backward))

    b = a + z
    b.retain_grad()
    s = (b * b).sum()
    s.backward(retain_graph=True)
    s.backward()
    run("s.backward(retain_graph=True), then s.backward()", "works; z.grad is now the sum of three passes")
    three_passes = torch.allclose(z.grad, 3 * first)
    kept = b.grad is not None
    run("z += 1", attempt(lambda: z.add_(1)))
    run("torch.arange(3, requires_grad=True)", attempt(lambda: torch.arange(3, requires_grad=True)))
    accumulated = grad_after_calls(x + y, z)
    z.grad = None
    (z.detach() * z).sum().backward()  # of z² only the second factor is differentiated
    half = torch.equal(z.grad, z.detach())
    cut = {row.expression: row.requires_grad for row in states if "detach" in row.expression or "no_grad" in row.expression}

    result = Result(
        [
            Table("Tensors, as autograd sees them", states),
            Table("Lines of code, and what they do", lines),
            Table("z.grad after each call, for the sum of x + y + z", accumulated),
        ]
    )
    result.key_figure("a.requires_grad", str(a.requires_grad), lecture="False")
    result.key_figure("b.requires_grad", str(b.requires_grad), lecture="True")
    result.claim(
        "a = x + y is not tracked and has no grad_fn; b = a + z is tracked because z is",
        not a.requires_grad and a.grad_fn is None and b.requires_grad and b.grad_fn is not None,
    )
    result.claim(
        "Gradients are kept for the leaf z, and for b only after b.retain_grad()",
        grad_of_b is None and warned and kept and z.is_leaf and not b.is_leaf,
    )
    result.claim(
        "b.backward without parentheses does nothing; with them it raises, because b is not a scalar",
        idle and non_scalar.startswith("RuntimeError: grad can be implicitly created only for scalar outputs"),
    )
    result.claim("backward adds to .grad: after three passes it is three times the gradient", three_passes)
    result.claim(
        "A second pass over the same graph raises, unless the first one keeps it with retain_graph=True",
        again.startswith("RuntimeError: Trying to backward through the graph a second time") and three_passes,
    )
    result.claim(
        "detach and no_grad cut the graph: no gradient flows back through them",
        half and not any(cut.values()) and b.detach().data_ptr() == b.data_ptr(),
    )
    return result


def tensor_states(x, z, a, b, s) -> list[TensorState]:
    """The tensors of the lecture's example, and three ways to get one that is not tracked."""
    with torch.no_grad():
        not_recorded = z * 2

    def state(expression: str, tensor: torch.Tensor, meaning: str) -> TensorState:
        grad_fn = type(tensor.grad_fn).__name__ if tensor.grad_fn is not None else None
        return TensorState(expression, tensor.requires_grad, tensor.is_leaf, grad_fn, meaning)

    return [
        state("x = torch.randn(5, 5)", x, "a constant to autograd"),
        state("z = torch.randn((5, 5), requires_grad=True)", z, "a leaf: its gradient is kept"),
        state("a = x + y", a, "neither operand is tracked"),
        state("b = a + z", b, "one tracked operand is enough"),
        state("s = (b * b).sum()", s, "a scalar: backward can start here"),
        state("b.detach()", b.detach(), "the same memory without a history"),
        state("with torch.no_grad(): z * 2", not_recorded, "nothing is recorded in this block"),
        state("z > 0", z > 0, "True or False has no derivative"),
    ]


def grad_fn_names(root: torch.Tensor) -> list[str]:
    """The names of grad_fn from `root` along the first tracked operand to a leaf."""
    names, function = [], root.grad_fn
    while function is not None:
        names.append(type(function).__name__)
        function = next((parent for parent, _ in function.next_functions if parent is not None), None)
    return names


def grad_after_calls(constant: torch.Tensor, z: torch.Tensor) -> list[GradAfterCall]:
    """How z.grad changes, call by call, for the sum of constant + z, whose gradient is all ones."""
    z.grad = None
    rows = [GradAfterCall("start", None)]

    def backward() -> None:
        (constant + z).sum().backward()
        rows.append(GradAfterCall("backward()", z.grad.mean().item()))

    for _ in range(3):
        backward()
    z.grad = None
    rows.append(GradAfterCall("z.grad = None", z.grad))
    backward()
    return rows
