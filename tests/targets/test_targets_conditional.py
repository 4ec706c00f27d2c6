"""The autoregressive net over pixels, its heads, and the experiment on four conditional distributions."""

import pytest
import torch
from torch.distributions import Normal

from hpml_lab import targets
from hpml_lab.core.experiment import Result
from hpml_lab.targets.experiments import conditional_densities as module
from hpml_lab.targets.experiments.conditional_densities import (
    ALONE,
    GAUSSIAN,
    HISTOGRAM,
    LEVELS,
    MIXTURE,
    SQUARED,
    Conditional,
    PixelHead,
)
from hpml_lab.targets.lessons.autoregressive import PixelNet, draw_images, mixture_levels, normal_levels

SIZE = dict(steps=4, batch=8, channels=8, seeds=2, components=2)


@pytest.fixture(scope="module")
def result(on_digits):
    return on_digits("conditional-densities", **SIZE)


# ---- the lesson ------------------------------------------------------------------------------------------------------


def test_a_prediction_reads_the_pixels_before_it_and_no_others():
    torch.manual_seed(0)
    net, images = PixelNet(4, 3, 8), torch.rand(5, 1, 4, 4)
    outputs = net(images)
    for i in range(16):
        changed = images.clone()
        changed.view(5, 16)[:, i] += 0.5
        same = torch.isclose(net(changed), outputs, atol=1e-7).all(2).all(0)
        assert same[: i + 1].all() and not same[i + 1 : i + 3].any()
    assert outputs.shape == (5, 16, 3)


@pytest.mark.parametrize("mu, sigma", [(8.0, 1.6), (-4.8, 0.3), (20.4, 0.8), (0.3, 50.0)])
def test_the_levels_have_the_probabilities_of_a_gaussian(mu, sigma):
    edges = torch.arange(-0.5, LEVELS, dtype=torch.float64)
    wanted = Normal(torch.tensor(mu, dtype=torch.float64), sigma).cdf(edges).diff()
    found = normal_levels(torch.tensor(mu), torch.tensor(sigma), LEVELS).exp()
    torch.testing.assert_close(found.double(), wanted, rtol=1e-3, atol=1e-6)


def test_logarithms_and_gradients_are_finite_far_from_the_mean():
    mu, sigma = torch.tensor([-50.0, 0.0, 90.0], requires_grad=True), torch.full((3,), 0.08, requires_grad=True)
    log_p = normal_levels(mu, sigma, LEVELS)
    log_p.sum().backward()
    assert log_p.isfinite().all() and mu.grad.isfinite().all() and sigma.grad.isfinite().all()
    assert log_p.min() < -10_000


def test_a_mixture_adds_the_levels_of_its_gaussians():
    log_pi, mu, sigma = torch.tensor([0.3, 0.7]).log(), torch.tensor([0.4, 3.0]), torch.tensor([0.2, 0.8])
    wanted = 0.3 * normal_levels(mu[0], sigma[0], 5).exp() + 0.7 * normal_levels(mu[1], sigma[1], 5).exp()
    torch.testing.assert_close(mixture_levels(log_pi, mu, sigma, 5).exp(), wanted)


def test_images_are_drawn_pixel_by_pixel_from_what_was_drawn_before():
    """A pixel repeats the one before it, and the first is 0 or 3 of 3."""

    def repeats(images):
        first = torch.tensor([0.5, 0, 0, 0.5]).expand(len(images), 1, 4)
        return torch.cat([first, torch.eye(4)[(3 * images.flatten(1)[:, :-1]).round().long()]], 1).log()

    images = draw_images(repeats, lambda outputs: outputs, 40, 3, torch.Generator().manual_seed(0)).flatten(1)
    assert images.shape == (40, 9) and (images == images[:, :1]).all() and set(images[:, 0].tolist()) == {0, 1}


# ---- the experiment --------------------------------------------------------------------------------------------------


def test_the_experiment_is_sound_and_its_pictures_are_drawn(result, sound):
    sound(result)
    rows = result.rows(PixelHead)
    assert [row.head for row in rows] == [HISTOGRAM, MIXTURE, GAUSSIAN, SQUARED, ALONE]
    assert [len(row.nlls) for row in rows] == [2, 2, 2, 2, 1]
    assert [row.outside is None for row in rows] == [True, False, False, False, True]
    assert len(result.rows(Conditional)) == 4 and len(result.claims) == 6
    assert len(targets.drawn_digits(result).figure.axes) == 5
    for shown in result.arrays["shown"].values():
        assert all(sum(shown[name]) == pytest.approx(1, abs=0.01) for name in (HISTOGRAM, "pixels"))
        assert 0 < sum(shown[SQUARED]) < 1, "the rest is on values that no pixel has"


def test_the_same_seed_gives_the_same_net_whatever_was_drawn_before(result, on_digits):
    torch.rand(3)
    again = on_digits("conditional-densities", **SIZE | dict(seeds=1))
    assert [row.nlls[0] for row in again.rows(PixelHead)] == [row.nlls[0] for row in result.rows(PixelHead)]


def peaked(*levels):
    p = torch.full((LEVELS,), 1e-3)
    p[list(levels)] += 1
    return p / p.sum()


def test_the_four_shapes_are_found():
    k = torch.arange(LEVELS)
    p = torch.stack(
        [
            peaked(0),
            peaked(0, 16),
            torch.ones(LEVELS) / LEVELS,
            normal_levels(torch.tensor(8.0), torch.tensor(2.4), LEVELS).exp(),
        ]
        + [0.5 * peaked(0) + 0.5 * (k < 12) / 12]
    )
    assert module.four_shapes(p) == {"two peaks": 1, "a long tail": 4, "one peak": 3, "nearly flat": 2}


def test_what_the_pixels_are_is_counted_where_the_predictions_are_most_similar():
    p = torch.stack([peaked(0, 16)] * 200 + [peaked(8)] * 200)
    levels = torch.tensor([0, 16] * 100 + [8] * 200)
    row, found = module.compared("two", {HISTOGRAM: p, GAUSSIAN: p, SQUARED: p.flip(0)}, 0, levels)
    assert found["pixels"].tolist() == [0.5] + [0] * 15 + [0.5] and torch.allclose(found[SQUARED], peaked(8))
    assert row.histogram == row.gaussian == pytest.approx(100 * 15 * 1e-3 / 2.017, abs=0.1) and row.squared > 95
    assert row.mean == pytest.approx(8, abs=0.01) and 0 < row.chance < 10


def failing(outside=20.0, around_mean=40.0, histogram=5.0, gaussian=(30.0, 40.0, 5.0), **nlls):
    """The claims that fail, for numbers as a good run gives them but for those that are changed."""
    good = {HISTOGRAM: [1.0, 1.1], MIXTURE: [1.2, 1.2], GAUSSIAN: [1.5, 1.5], SQUARED: [1.9, 1.9], ALONE: [1.4]}
    rows = [PixelHead(head, "", outside, nlls.get(head.split()[0], values)) for head, values in good.items()]
    shapes = zip(("two peaks", "a long tail", "one peak"), gaussian, strict=True)
    kinds = [Conditional(name, "", 8.0, histogram, gap, around_mean, 4.0) for name, gap in shapes]
    result = Result([module.Table("", rows), module.Table("", kinds)])
    module.judge(result)
    return [number for number, claim in enumerate(result.claims) if not claim.holds]


@pytest.mark.parametrize(
    "changes, fails",
    [
        ({}, []),
        ({"histogram": 9.0}, [2]),
        ({"one": [1.5, 1.25]}, [1]),
        ({"squared": [1.9, 1.6]}, [1]),
        ({"no": [1.25]}, [0]),
        ({"gaussian": (7.0, 40.0, 5.0)}, [3]),
        ({"gaussian": (30.0, 40.0, 9.0)}, [3]),
        ({"around_mean": 20.0}, [4]),
        ({"outside": 9.0}, [5]),
    ],
)
def test_each_claim_can_fail(changes, fails):
    assert failing(**changes) == fails
