"""Softmax regression by hand: gradient, curvature, power iteration and minimum against autograd and dense linear algebra."""

import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.descent.lessons import softmax_regression as softmax
from hpml_lab.descent.lessons.minibatch_descent import evaluation_steps


@pytest.fixture
def problem():
    made = torch.Generator().manual_seed(0)
    x = torch.randn(40, 5, generator=made, dtype=torch.float64)
    y = torch.nn.functional.one_hot(torch.randint(3, (40,), generator=made), 3).double()
    return torch.randn(5, 3, generator=made, dtype=torch.float64), x, y


def test_gradient_and_curvature_are_autograds(problem):
    w, x, y = problem
    right = torch.func.grad(softmax.softmax_loss)(w, x, y, 0.1)
    torch.testing.assert_close(softmax.softmax_gradient(w, x, y, 0.1), right, rtol=1e-12, atol=1e-12)
    v = torch.randn(5, 3, dtype=torch.float64)
    _, along = torch.func.jvp(lambda w: torch.func.grad(softmax.softmax_loss)(w, x, y, 0.1), (w,), (v,))
    torch.testing.assert_close(softmax.curvature_along(w, v, x, y, 0.1), along, rtol=1e-12, atol=1e-12)


def test_leading_axes_are_separate_runs(problem):
    w, x, y = problem
    many = torch.stack([w, 2 * w, -w])
    for i in range(3):
        torch.testing.assert_close(softmax.softmax_gradient(many, x, y, 0.1)[i], softmax.softmax_gradient(many[i], x, y, 0.1))
        torch.testing.assert_close(softmax.softmax_loss(many, x, y, 0.1)[i], softmax.softmax_loss(many[i], x, y, 0.1))
    split = softmax.softmax_gradient(w, x.view(4, 10, 5), y.view(4, 10, 3))
    torch.testing.assert_close(split.mean(0), softmax.softmax_gradient(w, x, y), rtol=1e-12, atol=1e-13)


def test_power_iteration_finds_the_largest_eigenvalue_of_the_hessian(problem):
    w, x, y = problem
    hessian = torch.func.hessian(softmax.softmax_loss)(w, x, y, 0.1).reshape(15, 15)
    eigenvalue, direction, residual = softmax.largest_eigenvalue(w, x, y, 0.1)
    assert eigenvalue == pytest.approx(torch.linalg.eigvalsh(hessian)[-1].item(), rel=1e-8)
    assert residual < 1e-9 and direction.norm().item() == pytest.approx(1)


def test_the_gradient_at_the_minimum_is_zero(problem):
    _, x, y = problem
    best = softmax.softmax_minimum(x, y, 0.05)
    assert softmax.softmax_gradient(best, x, y, 0.05).norm() < 1e-10
    assert softmax.softmax_loss(best, x, y, 0.05) < softmax.softmax_loss(torch.zeros_like(best), x, y, 0.05)


def test_missing_mnist_is_reported_and_replaced(monkeypatch):
    def missing(name):
        if name == "mnist":
            raise LabError("no MNIST here.", "Fetch it.")
        return load(name)

    load = softmax.load
    monkeypatch.setattr(softmax, "load", missing)
    x, y, name, notes = softmax.real_data("mnist", torch.device("cpu"), most=100)
    assert name == "digits" and "no MNIST here" in notes[0]
    assert x.shape == (100, 65) and y.shape == (100, 10) and (x[:, -1] == 1).all() and (y.sum(1) == 1).all()
    assert softmax.real_data("digits", torch.device("cpu"))[3] == []


@pytest.mark.parametrize("updates", [1, 10, 1000, 3000])
def test_losses_are_evaluated_eight_times_a_decade_up_to_the_last_update(updates):
    steps = evaluation_steps(updates)
    assert steps[:2] == [0, 1] and steps[-1] == updates
    later = [step for step in steps if step >= 10]
    assert all(b / a <= 10 ** (1 / 8) * 1.06 for a, b in zip(later, later[1:], strict=False)), "without a gap before the end"
    assert sum(100 <= step < 1000 for step in steps) == (8 if updates >= 1000 else 0)
