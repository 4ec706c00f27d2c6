"""The theory of convergence on quadratics, against matrices, closed forms and measured maps."""

import pytest
import torch

from hpml_lab.landscape import quadratic, run_grid
from hpml_lab.landscape.stability import (
    KINDS,
    best_settings,
    largest_stable_rate,
    spectral_radius,
    stability_map,
    update_matrix,
)

BOTH = pytest.mark.parametrize("kind", KINDS)


@BOTH
def test_the_matrix_takes_the_steps_of_the_formula(kind):
    lr, momentum, steps = 0.03125, 0.7, 12
    surface = quadratic(25)
    grid = run_grid(surface, kind, steps, (1.0, 1.0), lr=torch.tensor([lr]), momentum=momentum, dtype=torch.float64)
    for end, eigenvalue in ((grid.x, 1.0), (grid.y, 25.0)):
        state = torch.tensor([1.0, 0.0], dtype=torch.float64)
        for _ in range(steps):
            state = update_matrix(kind, lr, momentum, eigenvalue) @ state
        torch.testing.assert_close(end[0], state[0], rtol=1e-12, atol=1e-14)


@BOTH
def test_the_spectral_radius_is_the_matrix_largest_eigenvalue(kind):
    lr, momentum = torch.linspace(0.001, 0.2, 15, dtype=torch.float64)[None], torch.linspace(0, 0.98, 15)[:, None].double()
    radius = spectral_radius(kind, lr, momentum, (1.0, 25.0))
    assert radius.shape == (15, 15)
    for i in range(15):
        for j in range(15):
            a, m = lr[0, j].item(), momentum[i, 0].item()
            right = max(
                torch.linalg.eigvals(update_matrix(kind, a, m, eigenvalue)).abs().max().item() for eigenvalue in (1.0, 25.0)
            )
            assert radius[i, j].item() == pytest.approx(right, rel=1e-7)


@BOTH
def test_the_radius_is_one_exactly_at_the_largest_stable_rate(kind):
    for momentum in (0.0, 0.3, 0.9, 0.99):
        edge = largest_stable_rate(kind, momentum, 25.0)
        below, at, above = (spectral_radius(kind, edge * k, momentum, (1.0, 25.0)).item() for k in (0.999, 1, 1.001))
        assert below < 1 < above and at == pytest.approx(1, abs=1e-12)
    assert largest_stable_rate(kind, 0.0, 25.0) == 2 / 25


@pytest.mark.parametrize("condition", [4.0, 25.0, 1000.0])
def test_the_best_settings_reach_their_rates_and_no_other_setting_is_faster(condition):
    best = best_settings(1.0, condition)
    for setting in best.values():
        radius = spectral_radius(setting.kind, setting.lr, setting.momentum, (1.0, condition)).item()
        assert radius == pytest.approx(setting.rate, rel=1e-7), setting
    lr = torch.linspace(0, 4.1 / condition, 400, dtype=torch.float64)[None]
    momentum = torch.linspace(0, 0.999, 400, dtype=torch.float64)[:, None]
    for kind, name in (("momentum", "momentum"), ("nesterov", "Nesterov, tuned")):
        assert spectral_radius(kind, lr, momentum, (1.0, condition)).min() >= best[name].rate - 1e-9
    assert spectral_radius("momentum", lr, 0.0, (1.0, condition)).min() >= best["gradient descent"].rate - 1e-9
    rates = [best[name].rate for name in ("momentum", "Nesterov, tuned", "Nesterov, usual", "gradient descent")]
    assert rates == sorted(rates)


@BOTH
def test_measured_divergence_and_rate_are_the_theorys(kind):
    measured = stability_map(kind)
    assert measured.cells == 40_000 and measured.agreeing >= 39_990
    stable = (measured.measured < 1).float().mean()
    assert 0.2 < stable < 0.8, "both sides of the boundary are on the map"
    errors = measured.errors
    assert len(errors) > 39_000 and errors.median() < 1e-6 and errors.quantile(0.95) < 0.003


def test_what_converges_to_exactly_zero_does_not_diverge():
    measured = stability_map("momentum", condition=1.0, cells=20, lr_times_largest=4.0)  # one cell with lr 1, momentum 0
    assert measured.agreeing == 400 and measured.measured.min() == 0


def test_an_unknown_rule_is_refused():
    with pytest.raises(ValueError, match="momentum and nesterov"):
        spectral_radius("adam", 0.1, 0.9, (1.0,))
