"""Surfaces: gradients checked in two ways, floats and tensors alike, minima in the right positions, seeded noise."""

import math

import pytest
import torch

from hpml_lab.landscape import SURFACES, quadratic
from hpml_lab.landscape.surfaces import unit_noise

NAMES = ("quadratic", "rosenbrock", "beale", "himmelblau", "saddle", "rastrigin", "noisy-valley")
EVERY = pytest.mark.parametrize("surface", [*SURFACES.values(), quadratic(1000)], ids=lambda s: f"{s.name}-{s.formula[10:25]}")


def points(surface, count=2000):
    x0, x1, y0, y1 = surface.window
    made = torch.Generator().manual_seed(0)
    u = torch.rand(2, count, dtype=torch.float64, generator=made)
    return x0 + (x1 - x0) * u[0], y0 + (y1 - y0) * u[1]


def test_the_surfaces_have_the_names_that_the_lab_offers():
    assert tuple(SURFACES) == NAMES
    assert all(surface.name == name for name, surface in SURFACES.items())


@EVERY
def test_the_gradient_is_autograds_to_1e_12(surface):
    x, y = (coordinate.requires_grad_() for coordinate in points(surface))
    right = torch.stack(torch.autograd.grad(surface.value(x, y).sum(), (x, y)))
    with torch.no_grad():
        got = torch.stack(surface.gradient(x, y))
    assert got.dtype == torch.float64 and right.abs().max() > 1
    assert ((got - right).abs() <= 1e-12 * (1 + right.abs())).all()


@EVERY
def test_the_gradient_is_that_of_finite_differences(surface):
    x, y = points(surface)
    h = 1e-6
    gx, gy = surface.gradient(x, y)
    nx = (surface.value(x + h, y) - surface.value(x - h, y)) / (2 * h)
    ny = (surface.value(x, y + h) - surface.value(x, y - h)) / (2 * h)
    size = 1 + surface.value(x, y).abs() + torch.hypot(gx, gy)
    assert ((gx - nx).abs() / size).max() < 1e-7 and ((gy - ny).abs() / size).max() < 1e-7


@EVERY
def test_floats_and_tensors_give_the_same(surface):
    x, y = points(surface, 50)
    values, gradients = surface.value(x, y), torch.stack(surface.gradient(x, y))
    for i in range(50):
        fx, fy = x[i].item(), y[i].item()
        value, gradient = surface.value(fx, fy), surface.gradient(fx, fy)
        assert isinstance(value, float) and all(isinstance(slope, float) for slope in gradient)
        assert math.isclose(value, values[i].item(), rel_tol=1e-13, abs_tol=1e-13)
        torch.testing.assert_close(torch.tensor(gradient, dtype=torch.float64), gradients[:, i], rtol=1e-12, atol=1e-12)


@EVERY
def test_a_float_that_ran_away_gives_inf_or_nan_and_no_error(surface):
    for x in (1e200, -1e308, math.inf, math.nan):
        value, gradient = surface.value(x, x), surface.gradient(x, x)
        assert not math.isfinite(value)
        assert isinstance(gradient[0], float) and isinstance(gradient[1], float)


@EVERY
def test_each_minimum_is_one_and_the_lowest_in_the_window(surface):
    x, y = points(surface, 20_000)
    lowest = surface.value(x, y).min().item()
    values = [surface.value(*minimum) for minimum in surface.minima]
    for minimum, value in zip(surface.minima, values, strict=True):
        assert max(map(abs, surface.gradient(*minimum))) < 1e-12
        assert value <= lowest and math.isclose(value, values[0], abs_tol=1e-20)
        x0, x1, y0, y1 = surface.window
        assert x0 < minimum[0] < x1 and y0 < minimum[1] < y1
    x0, x1, y0, y1 = surface.window
    assert x0 <= surface.start[0] <= x1 and y0 <= surface.start[1] <= y1


@pytest.mark.parametrize("surface", [quadratic(1), quadratic(40), SURFACES["noisy-valley"]], ids=["1", "40", "valley"])
def test_the_eigenvalues_are_those_of_the_hessian(surface):
    hessian = torch.func.hessian(lambda p: surface.value(p[0], p[1]))(torch.tensor([0.3, -0.7], dtype=torch.float64))
    torch.testing.assert_close(torch.linalg.eigvalsh(hessian), torch.tensor(surface.eigenvalues, dtype=torch.float64))


def test_a_condition_number_below_one_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        quadratic(0.5)


def test_noise_belongs_to_its_step_and_seed():
    first = [unit_noise(t) for t in range(1, 2001)]
    unit_noise.cache_clear()
    assert [unit_noise(t) for t in range(2000, 0, -1)][::-1] == first, "in whatever order it is asked"
    assert unit_noise(1, seed=1) != first[0] and len(set(first)) == 2000
    numbers = torch.tensor(first, dtype=torch.float64)
    assert numbers.mean(0).abs().max() < 0.08 and (numbers.std(0) - 1).abs().max() < 0.05
    assert torch.corrcoef(numbers.T)[0, 1].abs() < 0.08


def test_the_noise_is_seen_by_floats_and_tensors_alike_at_the_level_asked():
    valley = SURFACES["noisy-valley"]
    x, y = points(valley, 10)
    for step in (1, 2, 500):
        clean, seen = valley.gradient(x, y), valley.seen_gradient(x, y, step)
        nx, ny = unit_noise(step)
        assert torch.allclose(seen[0] - clean[0], torch.full_like(x, 0.5 * nx))
        assert valley.seen_gradient(x[3].item(), y[3].item(), step) == pytest.approx((seen[0][3].item(), seen[1][3].item()))
        assert valley.seen_gradient(1.0, 1.0, step, noise=2.0)[1] == pytest.approx(4.0 + 2 * ny)
        assert valley.seen_gradient(1.0, 1.0, step, noise=0.0) == valley.gradient(1.0, 1.0)
        assert valley.seen_gradient(1.0, 1.0, step, seed=7) != valley.seen_gradient(1.0, 1.0, step)
    assert SURFACES["beale"].seen_gradient(1.0, 1.0, 3) == SURFACES["beale"].gradient(1.0, 1.0), "others are free of noise"
