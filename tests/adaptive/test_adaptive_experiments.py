"""The experiments of notebook 05 hold what they claim, notice what is wrong, and their figures can be drawn from a file."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from hpml_lab import adaptive, optim
from hpml_lab.adaptive.experiments import (
    adadelta,
    adam,
    adamax_nadam,
    gradient_streams,
    optimizer_conformance,
    optimizer_lab,
    rmsprop,
)
from hpml_lab.adaptive.experiments.optimizer_conformance.torch_inputs import CLASSES
from hpml_lab.core import Result, Table, load_result
from hpml_lab.core.system import machine
from hpml_lab.landscape.optimizer_lab.lab_paths import run_path, settings
from hpml_lab.landscape.surfaces import SURFACES
from hpml_lab.optim.formulas.by_name import FORMULAS

NAMES = ["adagrad", "adadelta", "rmsprop", "adam", "adamax_nadam"]


@pytest.fixture(scope="module")
def results(ran):
    return {name: ran(name.replace("_", "-")) for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_is_sound(results, name, sound):
    sound(results[name])


def test_adagrad_distinguishes_the_lectures_eps_from_torchs(results):
    result = results["adagrad"]
    [eps] = [figure for figure in result.key_figures if figure.label == "ε"]
    assert (eps.lecture, eps.here) == (1e-8, 1e-10)
    rates = {(row.feature, row.step): row.relative_rate for row in result.rows()}
    assert rates["in every step", 2000] == pytest.approx(1 / math.sqrt(2000), rel=0.1)
    assert rates["in 1 step of 20", 2000] == pytest.approx(1 / math.sqrt(100), rel=0.2)


def test_adagrads_table_counts_the_gradients_of_each_feature(results):
    result, seen = results["adagrad"], (gradient_streams.rare_and_frequent(2000, 16, 20) != 0).cumsum(0)
    for row in result.rows():
        index = ["in every step", "in 1 step of 20"].index(row.feature)
        assert row.gradients_seen == seen[row.step - 1, :, index].median().item()
    end = {row.feature: row.relative_rate for row in result.rows() if row.step == 2000}
    assert result.here("rate of the frequent feature at the end / α") == pytest.approx(end["in every step"])
    assert result.here("rate of the rare feature at the end / α") == pytest.approx(end["in 1 step of 20"])


@pytest.mark.parametrize(
    "rule, hyper, steps, end",
    [
        ("momentum", dict(lr=0.05, momentum=0.5), 13, "diverges at 2"),
        ("nesterov", dict(lr=0.022, momentum=0.8), 13, "diverges at 2"),
        ("adam", dict(lr=0.95, beta1=0.7), 16, ""),
    ],
)
def test_the_notebooks_answer_about_beales_function_is_what_the_lab_shows(rule, hyper, steps, end):
    """Steps to a thousandth of the first loss, and how the path ends at three times the rate."""
    surface = SURFACES["beale"]
    hyper = settings("beale", [rule]).hyper[rule] | hyper
    path = run_path(surface, rule, hyper, surface.start, steps=60)
    losses = [surface.value(*point) for point in zip(path.x, path.y, strict=True)]
    assert next(step for step, loss in enumerate(losses) if loss < losses[0] / 1000) == steps
    assert run_path(surface, rule, hyper | {"lr": 3 * hyper["lr"]}, surface.start, steps=60).end == end


def test_a_band_is_the_median_and_the_quartiles():
    band = gradient_streams.band(torch.arange(9.0, dtype=torch.float64).flip(0)[None])
    assert band == {"low": [2.0], "median": [4.0], "high": [6.0]}


def test_adadeltas_rates_are_steps_over_gradients(results):
    arrays, result = results["adadelta"].arrays, results["adadelta"]
    assert result.here("Adagrad's rate at the end / at step 10") == pytest.approx(math.sqrt(10 / 600))
    assert result.here("Adadelta's rate at the end / at step 10") > 1
    columns = arrays["step"], arrays["lines"]["g"], arrays["lines"]["s.delta"], arrays["rates"]["Adadelta, noisy bowl"]
    for step, g, moved, rate in zip(*columns, strict=True):
        assert rate == pytest.approx(moved / g, rel=1e-9), step


def test_adadelta_with_one_eps_is_not_correct_in_units(results):
    assert results["adadelta"].arrays["scales"][adadelta.ONE_EPS] < adadelta.UNIT / 100
    assert results["adadelta"].arrays["scales"][adadelta.TWO_EPS] == adadelta.UNIT


def test_adadeltas_rows_are_the_algorithms_lines(results):
    rows = results["adadelta"].rows()
    assert [row.number for row in rows] == ["3", "4", "5", "6", "7"]
    assert rows[2].formula.startswith("Δ = √(E[Δ²] + ε)") and rows[2].code.startswith("s.delta = ")
    assert rows[2].after_1 == pytest.approx(math.sqrt(1e-6 / (0.1 + 1e-6 / rows[0].after_1 ** 2)), rel=1e-6)


def test_further_figures_are_drawn_with_their_captions(results):
    lines, limit = adaptive.adadelta_lines(results["adadelta"]), adaptive.adagrad_from_adam(results["adam"])
    assert len(lines.figure.axes) == 4 and "line 6" in lines.caption
    assert [len(axes.lines) for axes in limit.figure.axes] == [2] and "float32" in limit.caption


def test_rmsprop_is_compared_at_each_rules_best_rate(results):
    result = results["rmsprop"]
    best = {row.rule: row.best_rate for row in result.rows()}
    assert best["Adagrad"] > 10 * best["RMSprop, ρ = 0.99"]
    assert result.here("Adagrad's tracking error / RMSprop's in the second half") > 1.3
    assert all(claim.holds for claim in result.claims)


def test_rmsprops_halves_and_its_moving_error_are_those_of_the_paths(results):
    result = results["rmsprop"]
    rows = {row.rule: row for row in result.rows()}
    for row in rows.values():  # mean squares add up: seeds differ little
        both = math.sqrt((row.first_half**2 + row.second_half**2) / 2)
        assert row.error == pytest.approx(both, rel=0.02)
    rmsprop = rows["RMSprop, ρ = 0.99"]
    assert rmsprop.second_half < 0.9 * rmsprop.first_half, "the noise became a tenth"
    window, errors = result.arrays["window"], result.arrays["errors"]["RMSprop, ρ = 0.99"]["median"]
    assert window == 40 and result.arrays["step"][-1] == 3991
    assert sum(errors[-100:]) / 100 == pytest.approx(rmsprop.second_half, rel=0.25)


def test_adam_has_the_known_first_steps(results):
    result = results["adam"]
    assert result.here("first step without correction / α") == pytest.approx(math.sqrt(10), rel=1e-6)
    assert result.here("longest step without correction / α") == pytest.approx(
        max((1 - 0.9**t) / math.sqrt(1 - 0.999**t) for t in range(1, 51)), rel=1e-6
    )
    assert result.here("steady step of the study's Adam / α") == pytest.approx(0.316, rel=0.01)


def test_adams_table_and_costs_are_the_closed_forms(results):
    result = results["adam"]
    for row in result.rows():
        closed = (1 - 0.9**row.step) / math.sqrt(1 - 0.999**row.step)
        assert row.closed_form == pytest.approx(closed) == pytest.approx(row.uncorrected, rel=1e-5)
        assert row.adam == pytest.approx(1, abs=1e-6)
    # the first step from the bottom is α in each of ten coordinates, whatever the noise; ½ θ² of that
    assert result.arrays["costs"]["Adam"]["median"][0] == pytest.approx(0.5 * 10 * 1e-6, rel=1e-4)


def test_a_run_of_the_batch_is_the_run_of_the_class_alone():
    optimum, noise = gradient_streams.drifting_optimum(200, 3, 0.02), gradient_streams.normal(200, 3, seed=5)
    rates = torch.tensor([[0.01], [0.1]], dtype=torch.float64)
    rows, best = rmsprop._sweep(rates, optimum, noise)
    [row] = [row for row in rows if row.rule == rmsprop.RMSPROP]
    stream = zip(optimum[:, :1], noise[:, :1], strict=True)
    start = torch.zeros(1, dtype=torch.float64)
    alone = gradient_streams.run_class(optim.RMSprop, start, stream, rmsprop._noisy_gradient, lr=row.best_rate, alpha=0.99)
    assert gradient_streams.relative_difference(alone["theta"][:-1, 0], best[rmsprop.RMSPROP].path[1:]) < 1e-12


def test_a_rule_changes_sign_in_the_step_that_first_goes_back(results):
    result = results["adamax_nadam"]
    for row in result.rows():
        for turn, delay in (("30", row.early_delay), ("20000", row.late_delay)):
            after = result.arrays["turned"][turn][row.rule][adamax_nadam.BEFORE :]
            assert after[delay - 1] < 0 and all(step >= 0 for step in after[: delay - 1])


def test_nadam_turns_early_only_while_its_momentum_is_low():
    rule = FORMULAS["nadam"]
    for psi, sooner in ((rule.defaults["momentum_decay"], True), (1e4, False)):  # 10⁴: the momentum is β₁ from the start
        gradients = [1.0] * 30 + [-1.0] * 10
        thetas = [theta for theta, _, _ in rule.run(0.0, gradients, lr=0.002, momentum_decay=psi)]
        went_back = [after > before for before, after in pairwise(thetas[29:])]
        assert (went_back.index(True) + 1 == 1) == sooner


def test_the_labs_result_is_sound_and_has_no_further_copy_of_its_picture(ran):
    result = ran("optimizer-lab")
    assert result and result.figure() is None


def test_the_conformance_table_is_saved_with_its_counts(tmp_path):
    rows = optimizer_conformance.conformance(steps=2, draws=1, long_steps=2, classes=["SGD"])
    result = Result([Table("SGD", rows)], slug="optimizer-conformance", machine=dict(machine.describe()))
    assert load_result(result.save(tmp_path)).tables == result.tables


def test_the_conformance_table_separates_its_three_kinds_of_inputs(monkeypatch):
    def rows(device, steps, draws, long_steps, names):
        counts = dict(suite_inputs=11, suite_identical=10, own_inputs=13, own_identical=12, list_inputs=7, list_identical=5)
        counts |= dict(overwritten=0, faulty_inputs=9, same_errors=8)
        row = optimizer_conformance.ClassConformance
        return [row(name=name, spacings=2.0 * (name == "Adam"), **counts) for name in names]

    monkeypatch.setattr(optimizer_conformance, "conformance", rows)
    result = adaptive.optimizer_conformance("quick", device="cpu")
    count = len(CLASSES)
    assert [row.name for row in result.rows()] == list(CLASSES)
    assert result.tables[0].cells()[0] == ["SGD", "10 of 11", "12 of 13", "5 of 7", 0.0, "8 of 9"]
    assert [figure.here for figure in result.key_figures] == [31 * count, 2.0, 8 * count]
    assert [claim.holds for claim in result.claims] == [False, True, False]


def test_the_labs_table_has_each_optimizers_worst_surface(monkeypatch):
    far = {"Beale's function": 3e-11, "Quadratic bowl": 2e-12}
    monkeypatch.setattr(optimizer_lab, "distance", lambda surface, optimizer, steps: far.get(surface.title, 1e-13))
    result = adaptive.optimizer_lab("quick", device="cpu")
    assert {(row.surfaces, row.distance, row.worst_surface) for row in result.rows()} == {(7, 3e-11, "Beale's function")}
    assert [claim.holds for claim in result.claims] == [False]


def failing(name, **changed):
    experiment = getattr(adaptive, name)
    result = replace(experiment, quick=experiment.quick | changed)("quick", device="cpu")
    return [claim.text for claim in result.claims if claim.exact and not claim.holds]


class Forgetful(torch.optim.Adagrad):
    """Adagrad whose sum fades a little: a wrong class that its claims must notice."""

    def step(self, closure=None):
        super().step(closure)
        for state in self.state.values():
            state["sum"].mul_(0.99)


def test_the_claims_notice_a_wrong_class(monkeypatch):
    monkeypatch.setattr(optim, "Adagrad", Forgetful)
    assert any("ever grows" in text for text in failing("adagrad", steps=300))


def test_the_claims_notice_a_correction_where_there_is_none(monkeypatch):
    monkeypatch.setitem(adam.VARIANTS, adam.UNCORRECTED, adam.VARIANTS[adam.ADAM])
    wrong = failing("adam")
    assert any("Without correction" in text for text in wrong) and any("climbs" in text for text in wrong)


def test_streams_have_the_properties_that_they_claim():
    gradients = gradient_streams.rare_and_frequent(4000, 4, 20)
    assert gradients.shape == (4000, 4, 2)
    assert (gradients[..., 0] != 0).all() and 0.03 < (gradients[..., 1] != 0).double().mean() < 0.07
    path = gradient_streams.drifting_optimum(4000, 50, 0.02)
    assert torch.diff(path, dim=0).std().item() == pytest.approx(0.02, rel=0.02)
    assert torch.equal(path, gradient_streams.drifting_optimum(4000, 50, 0.02)), "seeded"


def test_running_a_class_keeps_every_state_tensor_of_every_step():
    start = torch.ones(3, dtype=torch.float64)
    run = gradient_streams.run_class(torch.optim.Adam, start, range(5), lambda theta, t: theta + t, lr=0.1)
    assert {"theta", "exp_avg", "exp_avg_sq", "step"} <= set(run)
    assert all(len(values) == 5 for values in run.values()) and run["step"].tolist() == [1, 2, 3, 4, 5]
    assert torch.allclose(gradient_streams.steps_of(start, run["theta"]).sum(0), run["theta"][-1] - start)
    assert torch.equal(start, torch.ones(3, dtype=torch.float64))


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_exact_claims_hold_on_a_gpu(results, name):
    result = getattr(adaptive, name)("quick", device="cuda")
    assert [claim.text for claim in [*result.claims, *result.checks] if claim.exact and not claim.holds] == []
    assert repr(result) == repr(results[name]), "the same text on both"
