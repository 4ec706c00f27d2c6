"""The experiments on regression targets and on bins, run once at a small size, and the slider over both."""

import numpy as np
import pytest
import torch

from hpml_lab import targets
from hpml_lab.core.experiment import Params, Result
from hpml_lab.core.experiment.registry import find, load_result
from hpml_lab.core.system import machine
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.errors import LabError
from hpml_lab.references import LARGEST_FILE
from hpml_lab.targets.experiments import discretized_targets as by_bins
from hpml_lab.targets.experiments import regression_targets as by_losses
from hpml_lab.targets.lessons.inverse_problem import everything, floors
from hpml_lab.targets.views.density_image import SHOWN_X
from hpml_lab.targets.views.density_slider import BINS, GAUSSIAN, MIXTURE, predicted_densities


def small(slug, **parameters):
    experiment = find(slug)
    result = experiment.function(Params(size="quick", device=choose_device("cpu"), **parameters))
    result.experiment, result.slug, result.size, result.device = experiment, slug, "quick", "cpu"
    result.machine = dict(machine.describe())
    return result


@pytest.fixture(scope="module")
def regression():
    return small("regression-targets", samples=200, steps=60, seeds=2, components=3)


@pytest.fixture(scope="module")
def discretized():
    return small("discretized-targets", samples=200, steps=40, seeds=2, counts=(3, 6, 12), components=2)


def exact_claims(result):
    return [claim for claim in result.claims if claim.exact]


def test_exact_claims_hold_after_any_training(regression, discretized):
    assert regression and discretized
    assert len(exact_claims(regression)) == 2 and len(exact_claims(discretized)) == 1


def test_rows_hold_a_number_for_each_seed_and_models_are_all_there(regression):
    rows = regression.rows(by_losses.DensityModel)
    assert [row.model for row in rows] == list(by_losses.MODELS)
    for row in rows:
        assert [len(values) for values in (row.nlls, row.mses, row.misses, row.shares)] == [2] * 4
        assert np.isfinite([*row.nlls, *row.mses]).all()
        assert min(row.nlls) > floors().nll and min(row.mses) > 0.999 * floors().mse, "no model is below a floor"


def test_both_starts_of_the_mixture_see_the_same_batches(regression):
    losses = regression.arrays["losses"]
    assert set(losses) == {by_losses.ALIKE, by_losses.APART}
    curves = [len(curve) for of_model in losses.values() for curve in of_model]
    assert set(curves) == {len(regression.arrays["loss_steps"])}


def test_smooth_is_the_mean_of_the_last_losses():
    values = torch.arange(1.0, 31.0)[:, None]
    found = by_losses.smooth(values, 10)[:, 0]
    assert found[0] == 1 and found[4] == 3 and found[29] == pytest.approx(25.5)


def test_bins_rows_cover_targets_kinds_and_counts(discretized):
    rows = {(row.target, row.kind, row.count): row for row in discretized.rows(by_bins.BinnedModel)}
    assert len(rows) == 2 * (2 * 3 + 1)
    for (target, kind, _), row in rows.items():
        assert (row.least is None) == (kind == by_bins.MIXTURE)
        assert len(row.nlls) == 2 and min(row.nlls) > discretized.arrays["floor"][target]
        assert all(nll > own - 0.002 for nll, own in zip(row.nlls, row.leasts, strict=True)), "no net is below its bins' least"
    for few, many in ((3, 6), (6, 12)):
        assert rows[by_bins.SKEWED, by_bins.CDF, few].least > rows[by_bins.SKEWED, by_bins.CDF, many].least


def test_one_net_serves_both_targets_of_the_empirical_cdf(discretized):
    """Its likelihoods differ by the change of the unit, nearly the same for all seeds."""
    rows = {(row.target, row.kind, row.count): np.array(row.nlls) for row in discretized.rows(by_bins.BinnedModel)}
    shift = rows[by_bins.SKEWED, by_bins.CDF, 12] - rows[by_bins.PLAIN, by_bins.CDF, 12]
    floor = discretized.arrays["floor"]
    assert shift == pytest.approx(floor[by_bins.SKEWED] - floor[by_bins.PLAIN], abs=0.15)


def test_results_are_saved_small_and_their_figures_drawn_from_the_file(regression, discretized, tmp_path):
    pictures = {"regression-targets": [targets.mixture_plateau], "discretized-targets": [targets.binned_densities]}
    for result in (regression, discretized):
        path = result.save(tmp_path)
        assert path.stat().st_size < LARGEST_FILE
        loaded = load_result(path)
        assert len(loaded.figure().axes) >= 2 and repr(loaded) == repr(result)
        for picture in pictures[result.slug]:
            assert len(picture(loaded).figure.axes) >= 1 and len(picture(loaded).caption) > 40


def models(**changed):
    """Rows as a good run gives them, but for those that are changed."""
    good = {
        "squared error": [[-0.2], [0.039], [20.0]],
        "one Gaussian": [[-0.6], [0.039], [15.0]],
        "mixture, default start": [[-0.5, -1.0], [0.039], [5.0]],
        "mixture, started apart": [[-1.1], [0.039], [0.1]],
    }
    good.update(changed)
    rows = [
        by_losses.DensityModel(name, "", "", "", "", nlls, mses, [0.05], shares) for name, (nlls, mses, shares) in good.items()
    ]
    result = Result([by_losses.Table("", rows)])
    by_losses.judge(result, everything()[0])
    return [claim.text for claim in result.claims if not claim.holds]


def test_each_claim_about_the_losses_can_fail():
    assert models() == []
    assert "impossible" in models(**{"squared error": [[-0.2], [0.039], [9.0]]})[0]
    assert "impossible" in models(**{"mixture, started apart": [[-1.1], [0.039], [2.0]]})[0]
    assert "gives up nothing" in models(**{"mixture, started apart": [[-1.1], [0.05], [0.1]]})[0]
    assert "below −1 nat" in models(**{"mixture, started apart": [[-1.1, -0.6], [0.039], [0.1]]})[0]
    assert "no better than a single Gaussian" in models(**{"mixture, default start": [[-1.0], [0.039], [5.0]]})[0]


def failing(**changed):
    """The claims about bins that fail, for likelihoods as a good run gives them but for those that are changed."""
    good = {
        "plain_cdf": [-0.6, -1.1, -0.9],
        "plain_equal": [-0.6, -1.1, -0.9],
        "skewed_cdf": [-0.1, -0.6, -0.4],
        "skewed_equal": [0.3, -0.3, -0.3],
        "mixtures": [-1.1, -0.4],
        "least": [-0.65, -1.15, -1.25],
    } | changed
    kinds = {"plain_cdf": (by_bins.PLAIN, by_bins.CDF), "plain_equal": (by_bins.PLAIN, by_bins.EQUAL)}
    kinds |= {"skewed_cdf": (by_bins.SKEWED, by_bins.CDF), "skewed_equal": (by_bins.SKEWED, by_bins.EQUAL)}
    rows = [
        by_bins.BinnedModel(target, kind, count, "", least if target == by_bins.PLAIN else least + 0.5, [value])
        for name, (target, kind) in kinds.items()
        for count, value, least in zip((5, 50, 200), good[name], good["least"], strict=True)
    ]
    rows += [
        by_bins.BinnedModel(target, by_bins.MIXTURE, 0, "", None, [value])
        for target, value in zip(by_bins.TARGETS, good["mixtures"], strict=True)
    ]
    for row in rows:  # equal widths lose more of the shape of the skewed target
        row.least = None if row.kind == by_bins.MIXTURE else row.least if row.kind == by_bins.CDF else -5.0
        row.leasts = [-5.0 if row.least is None else row.least]
    result = Result([by_bins.Table("", rows)], arrays={"floor": {by_bins.PLAIN: -1.28, by_bins.SKEWED: -0.77}})
    by_bins.judge(result, (5, 50, 200))
    return [claim.text for claim in result.claims if not claim.holds]


def test_each_claim_about_the_bins_can_fail():
    assert failing() == []
    assert "falls with each number" in failing(least=[-0.65, -1.15, -1.14])[0]
    assert "between the fewest and the most" in failing(plain_cdf=[-0.6, -1.1, -1.12])[0]
    assert "between the fewest and the most" in failing(skewed_cdf=[-0.1, -0.3, -0.4])[0]
    assert "better than equal widths" in failing(skewed_equal=[0.3, -0.61, -0.3])[0]
    assert "differ by less" in failing(plain_equal=[-0.6, -1.0, -0.9])[0]
    assert "better than the mixture" in failing(mixtures=[-1.1, -0.7])[0]


def test_slider_shows_three_densities_that_sum_to_one_and_moves(regression, discretized):
    densities = predicted_densities(regression, discretized)
    assert set(densities) == {GAUSSIAN, MIXTURE, BINS}
    for name, p in densities.items():
        assert p.shape == (len(SHOWN_X), 521)
        inside = p[20:-20].sum(1) * 1.3 / 520
        assert inside == pytest.approx(np.ones_like(inside), abs=0.35 if name == GAUSSIAN else 0.15)
    figure = targets.explore_density(regression, discretized)
    before, (control, *_) = figure.image.value, figure.children
    control.value = 0.31
    assert figure.image.value != before
    again = figure.image.value
    control.value = 0.6
    assert figure.image.value == before != again


def test_slider_says_which_results_it_needs(regression, discretized):
    with pytest.raises(LabError, match="Hand over the result of regression-targets"):
        targets.explore_density(discretized, regression)
