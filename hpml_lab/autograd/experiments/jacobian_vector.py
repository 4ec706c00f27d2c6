"""backward(v) computes the product vᵀJ and never builds the Jacobian J.

The lecture's example z = 2x² + 5x, with the vector of its text (ones) and the vector of its code (twos), and a function whose
Jacobian is not diagonal.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch

from hpml_lab.autograd.lessons import engine
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style


@dataclass
class VectorProduct(Row):
    """One vector v, and what backward(v) leaves in x.grad."""

    name: str = column("v")
    grad: str = column("x.grad after backward(v)")
    by_jacobian: str = column("vᵀJ, with J written out")
    vector: list[float] = field(default_factory=list)
    product: list[float] = field(default_factory=list)


# ---- drawing -----------------------------------------------------------------------------------------------


def draw(result: Result):
    """The product vᵀJ for z = 2x² + 5x at x = 2, with the four elements of x and of z in a row. On the left is one vector v per
    row, in the middle the Jacobian, on the right what backward(v) leaves in x.grad. Ones give 13, the slide's twos give 26, and
    a single 1 picks one row of J."""
    rows = result.rows(VectorProduct)
    figure = style.new_figure(9, 3.4)
    left, middle, right = figure.subplots(1, 3, width_ratios=(1, 1, 1))
    vectors, products = (np.array([getattr(row, name) for row in rows], dtype=float) for name in ("vector", "product"))
    jacobian = np.array(result.arrays["jacobian"])
    largest = max(np.abs(values).max() for values in (vectors, products, jacobian))
    for axes, title, values in ((left, "v", vectors), (middle, "J = ∂z/∂x", jacobian), (right, "x.grad = vᵀJ", products)):
        _draw_matrix(axes, values, largest)
        axes.set_title(title)
    left.set_yticks(range(len(rows)), [row.name.replace(" (", "\n(") for row in rows], fontsize=9)
    left.tick_params(length=0)
    return figure


def _draw_matrix(axes, values: np.ndarray, largest: float) -> None:
    """A matrix as shaded cells with their numbers in them."""
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1.8 * largest)
    for (i, j), value in np.ndenumerate(values):
        axes.text(j, i, f"{value:g}", ha="center", va="center", color=style.DARK)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
    axes.grid(False)


# ---- measuring ---------------------------------------------------------------------------------------------


def lecture_function(x: torch.Tensor) -> torch.Tensor:
    """z = 2x² + 5x, element by element: dz/dx = 4x + 5."""
    return 2 * (x * x) + 5 * x


def grad_after_backward(function: Callable, x: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """What function(x).backward(v) leaves in x.grad."""
    x = x.detach().clone().requires_grad_()
    function(x).backward(v)
    return x.grad


@experiment("jacobian-vector", lecture="L0", notebook="02_autograd", draw=draw, same_picture=True)
def jacobian_vector(params: Params) -> Result:
    """backward(v) gives vᵀJ, not J: the slide's 13 is 26."""
    device = params.device.torch
    x = torch.full((2, 2), 2.0, device=device)
    jacobian = torch.autograd.functional.jacobian(lecture_function, x).reshape(4, 4)
    ones = torch.ones(2, 2, device=device)
    single = torch.zeros(2, 2, device=device)
    single[0, 0] = 1.0
    vectors = {"ones (slide's text)": ones, "ones * 2 (slide's code)": ones * 2, "a single 1": single}
    products = [grad_after_backward(lecture_function, x, v) for v in vectors.values()]
    expected = [v.flatten() @ jacobian for v in vectors.values()]
    rows = [
        VectorProduct(name, str(got.flatten().tolist()), str(right.tolist()), v.flatten().tolist(), got.flatten().tolist())
        for (name, v), got, right in zip(vectors.items(), products, expected, strict=True)
    ]
    from_ones, from_twos, from_single = products

    # A function whose outputs mix their inputs: J is full, and every v gives a mixture of its rows.
    A, t, v = (torch.randn(n, device=device, dtype=torch.float64) for n in ((5, 3), (3,), (5,)))

    def mixing(t: torch.Tensor) -> torch.Tensor:
        return A @ t**2

    full = torch.autograd.functional.jacobian(mixing, t)
    basis = torch.eye(5, device=device, dtype=torch.float64)
    row_by_row = torch.stack([grad_after_backward(mixing, t, unit) for unit in basis])
    product = grad_after_backward(mixing, t, v)
    engine_t = engine.Tensor(t.cpu().numpy(), requires_grad=True)
    engine.matmul(A.cpu().numpy(), engine_t**2).backward(v.cpu().numpy())

    result = Result([Table("z = 2x² + 5x at x = 2: what backward(v) leaves in x.grad", rows)])
    result.arrays["jacobian"] = jacobian.tolist()
    result.key_figure("dz/dx with v = ones", from_ones[0, 0].item(), lecture=13)
    result.key_figure("dz/dx with v = 2·ones, the slide's line", from_twos[0, 0].item(), lecture="13 (an erratum: it gives 26)")
    result.claim(
        "With v = ones every element of x.grad is 13; with the slide's v = 2·ones it is 26",
        torch.equal(from_ones, torch.full_like(x, 13.0)) and torch.equal(from_twos, torch.full_like(x, 26.0)),
    )
    result.claim(
        "backward(v) leaves vᵀJ in x.grad, for every v",
        all(torch.equal(got.flatten(), right) for got, right in zip(products, expected, strict=True))
        and torch.allclose(product, v @ full, rtol=0, atol=1e-12),
    )
    result.claim(
        "A v with a single 1 picks one row of J; one backward pass per row gives all of J",
        torch.equal(from_single.flatten(), jacobian[0]) and torch.allclose(row_by_row, full, rtol=0, atol=1e-12),
    )
    result.claim(
        "Our engine computes the same vᵀJ to 1e-12", np.allclose(engine_t.grad, product.cpu().numpy(), rtol=0, atol=1e-12)
    )
    result.claim("torch.tensor(a tensor) makes the right x, with a warning that advises against it", slides_tensor_warns())
    return result


def slides_tensor_warns() -> bool:
    """True if the slide's way to make x works and warns."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        x = torch.tensor(torch.ones(2, 2) * 2, requires_grad=True)
    warned = bool(caught) and "To copy construct from a tensor" in str(caught[0].message)
    return warned and torch.equal(x.detach(), torch.full((2, 2), 2.0))
