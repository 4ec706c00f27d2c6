"""Bishop's inverse problem with its floors, the mixture, the bins, and the nets that are trained together."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Categorical, MixtureSameFamily, Normal

from hpml_lab.core.system.errors import LabError
from hpml_lab.targets.experiments.tanh_networks import BATCH, Nets, climb_and_fall
from hpml_lab.targets.lessons import bins, mdn
from hpml_lab.targets.lessons.inverse_problem import (
    NOISE,
    bins_floor,
    draw,
    drawn,
    everything,
    exact,
    floors,
    forward,
    log_slope,
    possible,
    skewed,
    unskewed,
)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


# ---- The inverse problem ---------------------------------------------------------------------------------------------


def test_floors_are_those_of_a_sum_over_a_grid_ten_times_as_fine():
    least = floors()
    assert least.nll == pytest.approx(-1.28235, abs=2e-5)
    assert least.mse == pytest.approx(0.038305, abs=2e-6)
    assert least.one_width == pytest.approx(-0.21215, abs=2e-5)
    assert least.own_width == pytest.approx(-0.6554, abs=5e-4)


def test_samples_lie_in_the_band_and_the_grid_of_all_of_them_has_the_same_means():
    x, t = draw(50_000, seeded())
    assert ((x - forward(t)).abs() <= NOISE + 1e-6).all()
    every_x, every_t = everything()
    for drawn_values, grid in ((x, every_x), (t, every_t), (x * t, every_x * every_t)):
        assert drawn_values.mean().item() == pytest.approx(grid.mean().item(), abs=0.01)


def test_seeds_draw_samples_of_their_own():
    x, t = drawn([3, 4], 10)
    assert torch.equal(x[1], draw(10, seeded(4))[0]) and not torch.equal(t[0], t[1])


def test_exact_density_mean_and_variance_agree_with_samples_near_x():
    x, t = draw(400_000, seeded())
    for at in (0.1, 0.35, 0.6):
        near = t[(x - at).abs() < 0.004].double()
        known = exact(torch.tensor([at]))
        assert known.mean.item() == pytest.approx(near.mean().item(), abs=0.02)
        assert known.variance.item() == pytest.approx(near.var().item(), abs=0.01)
        grid = (torch.arange(20_000) + 0.5) / 20_000
        assert known.density(grid).mean().item() == pytest.approx(1, abs=1e-3)


def test_skewed_target_has_spread_one_its_inverse_and_its_slope():
    t = (torch.arange(100_000, dtype=torch.float64) + 0.5) / 100_000
    y = skewed(t)
    assert y.std().item() == pytest.approx(1, abs=1e-3) and y.median() < y.mean() / 2
    torch.testing.assert_close(unskewed(y), t)
    torch.testing.assert_close(log_slope(t)[1:], (y.diff() * len(t)).log(), atol=1e-3, rtol=1e-3)


def test_floor_of_bins_falls_to_the_exact_one_and_one_bin_knows_nothing():
    def of(count):
        edges = torch.linspace(0, 1, count + 1)
        return bins_floor(edges, edges.diff())

    assert of(1) == pytest.approx(0, abs=1e-9)
    assert of(1) > of(2) > of(10) > of(50) > of(500) > floors().nll
    assert of(500) == pytest.approx(floors().nll, abs=0.02)
    t = everything()[1]
    edges = torch.linspace(0, 1, 401)
    shift = bins_floor(edges, skewed(edges).diff()) - bins_floor(edges, edges.diff())
    assert shift == pytest.approx(log_slope(t).mean().item(), abs=0.01), "another unit shifts all likelihoods alike"


# ---- The mixture -----------------------------------------------------------------------------------------------------


@pytest.fixture
def outputs():
    return torch.randn(4, 6, 9, generator=seeded(1), dtype=torch.float64)


def torchs(outputs):
    log_pi, mu, sigma = mdn.mixture(outputs)
    return MixtureSameFamily(Categorical(logits=log_pi), Normal(mu, sigma))


def test_mixture_is_torchs(outputs):
    t = torch.randn(4, 6, generator=seeded(2), dtype=torch.float64)
    torch.testing.assert_close(mdn.log_likelihood(outputs, t), torchs(outputs).log_prob(t), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(mdn.mean(outputs), torchs(outputs).mean, rtol=1e-12, atol=1e-12)
    points = torch.linspace(-20, 20, 40_001, dtype=torch.float64)
    p = mdn.density(outputs, points)
    assert p.shape == (4, 6, 40_001)
    torch.testing.assert_close(p.sum(-1) * 0.001, torch.ones(4, 6, dtype=torch.float64), rtol=1e-6, atol=1e-6)


def test_likeliest_component_is_the_one_with_the_largest_weight():
    outputs = torch.tensor([[0.0, 2.0, 1.0, 10.0, 20.0, 30.0, 0, 0, 0], [3.0, 2.0, 1.0, 10.0, 20.0, 30.0, 0, 0, 0]])
    assert mdn.likeliest(outputs).tolist() == [20.0, 10.0]


def test_likelihood_and_its_gradient_stay_finite_far_away():
    outputs = torch.randn(9, generator=seeded(), requires_grad=True)
    value = mdn.log_likelihood(outputs, torch.tensor(1e4))
    value.backward()
    assert value.isfinite() and outputs.grad.isfinite().all()


def test_components_start_apart_at_the_quantiles_whatever_the_input():
    layer, t = nn.Linear(5, 9), torch.linspace(0, 1, 601)
    mdn.start_apart(layer.weight, layer.bias, t)
    first, second = layer(torch.randn(2, 5, generator=seeded()))
    assert torch.equal(first, second), "no input matters yet"
    log_pi, mu, sigma = mdn.mixture(first)
    torch.testing.assert_close(mu, torch.tensor([1 / 6, 1 / 2, 5 / 6]))
    torch.testing.assert_close(log_pi.exp(), torch.full((3,), 1 / 3))
    assert sigma.max() < (mu[1] - mu[0]) / 2


@pytest.mark.parametrize("count", (0, 4))
def test_outputs_that_make_no_mixture_are_refused(count):
    with pytest.raises(LabError, match=f"{count} outputs.*3 K"):
        mdn.mixture(torch.zeros(2, count))
    with pytest.raises(LabError, match=f"{count} outputs.*3 K"):
        mdn.start_apart(torch.zeros(count, 2), torch.zeros(count), torch.rand(5))


@pytest.mark.parametrize("targets", ([], [0.1, math.nan], [math.inf]))
def test_components_cannot_start_from_targets_without_quantiles(targets):
    with pytest.raises(LabError, match="quantiles"):
        mdn.start_apart(torch.zeros(3, 2), torch.zeros(3), torch.tensor(targets))


# ---- Bins ------------------------------------------------------------------------------------------------------------


def test_bins_of_the_empirical_cdf_hold_equal_shares_and_keep_them_under_any_increasing_change():
    t = torch.rand(2000, generator=seeded())
    edges = bins.cdf_edges(t, 8)
    classes = bins.bin_of(t, edges)
    assert torch.bincount(classes).tolist() == [250] * 8
    for change in (skewed, torch.log, lambda t: t**3):
        assert torch.equal(bins.bin_of(change(t), bins.cdf_edges(change(t), 8)), classes)
    equal = bins.equal_edges(skewed(t), 8)
    torch.testing.assert_close(equal.diff(), equal.diff().mean().expand(8))
    assert not torch.equal(bins.bin_of(skewed(t), equal), classes)


def test_a_target_on_an_edge_belongs_to_the_bin_above_and_the_last_to_the_last_bin():
    edges = torch.tensor([0.0, 1.0, 2.0])
    assert bins.bin_of(torch.tensor([0.0, 0.5, 1.0, 2.0]), edges).tolist() == [0, 0, 1, 1]


def test_density_sums_to_one_agrees_with_the_likelihood_and_is_zero_outside():
    edges = torch.tensor([-1.0, -0.5, 0.25, 2.0], dtype=torch.float64)
    logits = torch.randn(5, 3, generator=seeded(), dtype=torch.float64)
    points = torch.linspace(-1.5, 2.5, 4001, dtype=torch.float64)
    p = bins.density(logits, edges, points)
    torch.testing.assert_close(p.sum(1) * 0.001, torch.ones(5, dtype=torch.float64), atol=5e-3, rtol=0)
    assert (p[:, (points < -1) | (points > 2)] == 0).all()
    inside = points[(points >= -1) & (points <= 2)]
    given = bins.log_likelihood(logits[:1].expand(len(inside), 3), inside, edges)
    torch.testing.assert_close(given.exp(), p[0, (points >= -1) & (points <= 2)])


def test_likelihood_of_bins_is_cross_entropy_but_for_the_widths():
    edges, t = torch.tensor([0.0, 0.1, 0.6, 1.0]), torch.rand(20, generator=seeded())
    logits = torch.randn(20, 3, generator=seeded(), requires_grad=True)
    classes = bins.bin_of(t, edges)
    (one,) = torch.autograd.grad(-bins.log_likelihood(logits, t, edges).mean(), logits)
    (other,) = torch.autograd.grad(nn.functional.cross_entropy(logits, classes), logits)
    torch.testing.assert_close(one, other)


def test_edges_with_ties_are_merged_and_by_hand_refused():
    t = torch.tensor([0.0] * 60 + list(range(1, 41)))
    edges = bins.cdf_edges(t, 10)
    assert (edges.diff() > 0).all() and len(edges) < 11 and edges[0] == 0
    assert bins.bin_of(t, edges).max() == len(edges) - 2
    with pytest.raises(LabError, match="width 0.*torch.unique"):
        bins.log_likelihood(torch.zeros(100, 10), t, torch.quantile(t, torch.linspace(0, 1, 11)))
    with pytest.raises(LabError, match="10 logits do not fit .* fewer bins"):
        bins.log_likelihood(torch.zeros(100, 10), t, edges)


def test_targets_outside_the_edges_are_counted_and_widening_lets_them_in():
    t = torch.tensor([0.5, 1.5, -0.5])
    edges = torch.tensor([0.0, 0.7, 1.0])
    with pytest.raises(LabError, match="2 of 3 targets are outside the edges, 0 to 1.*widened"):
        bins.bin_of(t, edges)
    wide = bins.widened(edges, -0.5, 1.5)
    assert bins.bin_of(t, wide).tolist() == [0, 1, 0] and edges[0] == 0, "the given edges stay"
    torch.testing.assert_close(wide, torch.tensor([-0.5, 0.7, 1.5]))
    assert torch.equal(bins.widened(edges, 0.3, 0.4), edges), "they are never narrowed"


@pytest.mark.parametrize("make", (bins.cdf_edges, bins.equal_edges))
def test_what_has_no_bins_is_refused(make):
    for targets, count, problem in (
        ([0.1, 0.2], 0, "number of bins"),
        ([0.1, 0.2], -3, "number of bins"),
        ([0.1, 0.2], 2.5, "number of bins"),
        ([0.1, math.nan], 2, "NaN"),
        ([0.1, math.inf], 2, "infinite"),
        ([], 2, "no targets"),
        ([0.3, 0.3], 2, "all targets are 0.3"),
    ):
        with pytest.raises(LabError, match=problem):
            make(torch.tensor(targets), count)
    assert make(torch.tensor([1, 2, 3]), 1).tolist() == [1.0, 3.0], "whole numbers are targets too"


@pytest.mark.parametrize(
    ("edges", "problem"),
    [([0.0], "no bin"), ([[0.0, 1.0]], "no bin"), ([0.0, math.nan, 1.0], "finite"), ([0.0, 2.0, 1.0], "Sort")],
)
def test_edges_that_are_none_are_refused(edges, problem):
    with pytest.raises(LabError, match=problem):
        bins.bin_of(torch.tensor([0.5]), torch.tensor(edges))


def test_targets_that_are_not_numbers_are_refused():
    with pytest.raises(LabError, match="1 targets are NaN"):
        bins.bin_of(torch.tensor([0.5, math.nan]), torch.tensor([0.0, 1.0]))


# ---- The nets --------------------------------------------------------------------------------------------------------


def squared(outputs, t):
    return (outputs[..., 0] - t).square()


def test_each_net_trains_as_an_ordinary_loop_would_train_it_alone():
    seeds, steps = [5, 2], 7
    x, t = drawn(seeds, 50)
    nets = Nets(seeds, 1)
    alone = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    with torch.no_grad():
        for layer, W, b in zip(alone[::2], nets.weights, nets.biases, strict=True):
            layer.weight.copy_(W[1].T)
            layer.bias.copy_(b[1])
    assert 0.9 < nets.weights[1].abs().max() * 8 <= 1, "as nn.Linear draws them, in ±1/√inputs"
    nets.train(x, t, squared, steps, 0.01)
    optimizer, batches, losses = torch.optim.Adam(alone.parameters(), lr=0.01), seeded(7919 * 2 + 1), []
    for step in range(steps):
        chosen = torch.randint(50, (BATCH,), generator=batches)
        optimizer.param_groups[0]["lr"] = 0.01 * climb_and_fall(step / steps)
        loss = squared(alone((x[1, chosen, None] - 0.5) * 4), t[1, chosen]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    torch.testing.assert_close(nets.losses[:, 1], torch.tensor(losses), rtol=1e-4, atol=1e-6)
    shown = torch.linspace(0, 1, 9)
    torch.testing.assert_close(nets.outputs(shown)[1], alone((shown[:, None] - 0.5) * 4).detach(), rtol=1e-3, atol=1e-4)


def test_nets_refuse_targets_that_are_not_finite_and_no_outputs():
    x, t = drawn([0], 20)
    t[0, 3] = math.nan
    with pytest.raises(LabError, match="NaN or infinite"):
        Nets([0], 1).train(x, t, squared, 2, 0.01)
    with pytest.raises(LabError, match="0 outputs"):
        Nets([0], 0)


def test_rate_climbs_to_its_peak_and_falls_to_nothing():
    rates = [climb_and_fall(i / 1000) for i in range(1001)]
    assert max(rates) == pytest.approx(1, abs=0.05) and rates.index(max(rates)) in range(90, 110)
    assert rates[0] < 0.05 and rates[-1] == pytest.approx(0)


def test_what_is_possible_is_the_band():
    x = torch.tensor([0.5], dtype=torch.float64)
    t = torch.tensor([0.5, 0.1])
    assert possible(x, t).tolist() == [[True, False]]
