"""The experiments of notebook 05 hold what they claim, notice what is wrong, and their figures can be drawn from a file."""

import math
from dataclasses import replace

import pytest
import torch

from hpml_lab.adaptive import experiments, streams

NAMES = ["adagrad", "adadelta", "rmsprop", "adam", "adamax_nadam"]


@pytest.fixture(scope="module")
def results():
    return {name: getattr(experiments, name)("quick", device="cpu") for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_sound(results, name, sound):
    sound(results[name])
    assert set(results[name].experiment.lecture_says) <= set(results[name].quantities)


def test_adagrad_tells_the_lectures_eps_from_torchs(results):
    result = results["adagrad"]
    assert float(result.experiment.lecture_says["ε"]) == 1e-8 and result.quantities["ε"] == 1e-10
    rates = {(row["feature"], row["after step"]): row["rate / α"] for row in result.rows}
    assert rates["in every step", 2000] == pytest.approx(1 / math.sqrt(2000), rel=0.1)
    assert rates["in 1 step of 20", 2000] == pytest.approx(1 / math.sqrt(100), rel=0.2)


def test_adagrads_table_counts_the_gradients_and_tells_the_two_features_apart(results):
    result, seen = results["adagrad"], (streams.rare_and_frequent(2000, 16, 20) != 0).cumsum(0)
    for row in result.rows:
        place = ["in every step", "in 1 step of 20"].index(row["feature"])
        assert row["gradients seen, median"] == seen[row["after step"] - 1, :, place].median().item()
    end = {row["feature"]: row["rate / α"] for row in result.rows if row["after step"] == 2000}
    found = result.quantities
    assert found["rate of the frequent feature at the end / α"] == pytest.approx(end["in every step"])
    assert found["rate of the rare feature at the end / α"] == pytest.approx(end["in 1 step of 20"])


def test_a_band_is_the_median_and_the_quartiles():
    band = experiments._band(torch.arange(9.0, dtype=torch.float64).flip(0)[None])
    assert band == {"low": [2.0], "median": [4.0], "high": [6.0]}


def test_adadeltas_rates_are_steps_over_gradients(results):
    arrays, found = results["adadelta"].arrays, results["adadelta"].quantities
    assert found["Adagrad's rate at the end / at step 10"] == pytest.approx(math.sqrt(10 / 600))
    assert found["Adadelta's rate at the end / at step 10"] > 1
    for step, g, moved, rate in zip(
        arrays["step"],
        arrays["lines"]["g, line 3"],
        arrays["lines"]["Δ, line 5"],
        arrays["rates"]["Adadelta, noisy bowl"],
        strict=True,
    ):
        assert rate == pytest.approx(moved / g, rel=1e-9), step


def test_adadeltas_rows_are_the_one_eps_is_not_correct_in_units(results):
    [claim] = [claim for claim in results["adadelta"].claims if not claim.exact]
    assert not claim.holds and "whole way scales with the unit" in claim.text, "reported as it is"
    assert results["adadelta"].arrays["scales"]["Adadelta, each ε in its unit"] == experiments.UNIT


def test_adadeltas_rows_are_the_algorithms_lines(results):
    rows = results["adadelta"].rows
    assert [row["line"] for row in rows] == ["3", "4", "5", "6", "7"]
    assert rows[2]["formula"].startswith("Δ = √(E[Δ²] + ε)") and rows[2]["code"].startswith("s.delta = ")
    assert rows[2]["after step 1"] == pytest.approx(math.sqrt(1e-6 / (0.1 + 1e-6 / rows[0]["after step 1"] ** 2)), rel=1e-6)


def test_rmsprop_is_compared_at_each_rules_best_rate(results):
    result = results["rmsprop"]
    best = {row["rule"]: row["best rate of the sweep"] for row in result.rows}
    assert best["Adagrad"] > 10 * best["RMSprop, ρ = 0.99"]
    assert result.quantities["in the second half"] > 1.3
    assert all(claim.holds for claim in result.claims)


def test_rmsprops_halves_and_its_moving_error_are_those_of_the_paths(results):
    result = results["rmsprop"]
    rows = {row["rule"]: row for row in result.rows}
    for row in rows.values():  # mean squares add up: seeds differ little
        both = math.sqrt((row["first half"] ** 2 + row["second half"] ** 2) / 2)
        assert row["tracking error, mean over seeds"] == pytest.approx(both, rel=0.02)
    assert rows["RMSprop, ρ = 0.99"]["second half"] < 0.9 * rows["RMSprop, ρ = 0.99"]["first half"], "the noise became a tenth"
    window, errors = result.arrays["window"], result.arrays["errors"]["RMSprop, ρ = 0.99"]["median"]
    assert window == 40 and result.arrays["step"][-1] == 3991
    last = sum(errors[-100:]) / 100
    assert last == pytest.approx(rows["RMSprop, ρ = 0.99"]["second half"], rel=0.25)


def test_adam_has_the_known_first_steps(results):
    quantities = results["adam"].quantities
    assert quantities["first step without correction / α"] == pytest.approx(math.sqrt(10), rel=1e-6)
    assert quantities["longest step without correction / α"] == pytest.approx(
        max((1 - 0.9**t) / math.sqrt(1 - 0.999**t) for t in range(1, 51)), rel=1e-6
    )
    assert quantities["steady step of the study's Adam / α"] == pytest.approx(0.316, rel=0.01)


def test_adams_table_and_costs_are_the_closed_forms(results):
    result = results["adam"]
    for row in result.rows:
        t = row["step"]
        closed = (1 - 0.9**t) / math.sqrt(1 - 0.999**t)
        assert row["(1 − β₁ᵗ)/√(1 − β₂ᵗ)"] == pytest.approx(closed) == pytest.approx(row["without correction"], rel=1e-5)
        assert row["Adam, step / α"] == pytest.approx(1, abs=1e-6)
    # the first step from the bottom is α in each of ten coordinates, whatever the noise; ½ θ² of that
    assert result.arrays["costs"]["Adam"]["median"][0] == pytest.approx(0.5 * 10 * 1e-6, rel=1e-4)


def test_a_rule_turns_round_in_the_step_that_first_goes_back(results):
    result = results["adamax_nadam"]
    for row in result.rows:
        steps = result.arrays["turned"][row["rule"]]
        last = 29 + row["turns round in step"]  # place of that step: 30 went the other way before
        assert steps[last] < 0 and all(step >= 0 for step in steps[:last])


def test_the_conformance_table_keeps_its_three_kinds_of_inputs_apart(monkeypatch):
    def row(*_):
        [name] = _[-1]
        one = {"class": name, "suite inputs": 11, "suite same": 10, "own inputs": 13, "own same": 12, "lists inputs": 7}
        one |= {"lists same": 5, "largest difference, spacings": 2.0 * (name == "Adam"), "gradients overwritten": 0}
        return [one | {"errors alike": 8, "error inputs": 9}]

    monkeypatch.setattr(experiments.conformance, "conformance", row)
    result = experiments.optimizer_conformance("quick", device="cpu")
    count = len(experiments.conformance.CLASSES)
    assert [one["class"] for one in result.rows] == list(experiments.conformance.CLASSES)
    assert list(result.rows[0].values())[1:4] == ["10 of 11", "12 of 13", "5 of 7"]
    assert result.rows[0]["faulty inputs refused in torch's words"] == "8 of 9"
    assert list(result.quantities.values()) == [31 * count, 2.0, 8 * count]
    assert [claim.holds for claim in result.claims] == [False, True, False]


def test_the_labs_table_tells_each_optimizers_worst_surface_and_both_latencies(monkeypatch):
    from hpml_lab.adaptive import lab_checks

    made = [{"optimizer": "Adam", "surface": f"s{place}", "apart": apart} for place, apart in enumerate((1e-13, 3e-11, 2e-12))]
    monkeypatch.setattr(lab_checks, "compare_with_classes", lambda steps: made)
    monkeypatch.setattr(lab_checks, "steps_that_miss", lambda steps: 3)
    monkeypatch.setattr(lab_checks, "back_and_forth", lambda moves: True)
    monkeypatch.setattr(lab_checks, "drawn_afresh", lambda moves: False)
    monkeypatch.setattr(lab_checks, "OptimizerLab", lambda chosen: len(chosen.paths))
    seconds = {3: [k / 1000 for k in range(1, 101)], 6: [k / 500 for k in range(1, 101)]}
    monkeypatch.setattr(lab_checks, "slider_seconds", lambda shown, moves: seconds[shown])
    result = experiments.optimizer_lab("quick", device="cpu")
    [row] = result.rows
    assert (row["surfaces"], row["largest distance of formula and class / width of the window"], row["on"]) == (3, 3e-11, "s1")
    assert [claim.holds for claim in result.claims] == [False, False, True, False, False]
    # 95 of 100 moves take at most 95.95 ms (interpolated), and twice that
    assert list(result.quantities.values()) == pytest.approx([50.5, 95.95, 101, 191.9])


def failing(name, **changed):
    result = replace(getattr(experiments, name), quick=getattr(experiments, name).quick | changed)("quick", device="cpu")
    return [claim.text for claim in result.claims if claim.exact and not claim.holds]


class Forgetful(torch.optim.Adagrad):
    """Adagrad whose sum fades a little: a wrong class that its claims must notice."""

    def step(self, closure=None):
        super().step(closure)
        for state in self.state.values():
            state["sum"].mul_(0.99)


def test_the_claims_notice_a_wrong_class(monkeypatch):
    monkeypatch.setattr(experiments.optim, "Adagrad", Forgetful)
    wrong = failing("adagrad", steps=300)
    assert any("walk the same way" in text for text in wrong) and any("ever grows" in text for text in wrong)


def test_the_claims_notice_a_wrong_eps_in_adam(monkeypatch):
    class Wrong(torch.optim.Adam):
        def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8):
            super().__init__(params, lr=lr, betas=betas, eps=100 * eps)

    monkeypatch.setattr(experiments.optim, "Adam", Wrong)
    assert any("walk the same way" in text for text in failing("adam"))


def test_the_claims_notice_a_correction_where_there_is_none(monkeypatch):
    monkeypatch.setattr(experiments, "adam_uncorrected", experiments.FORMULAS["adam"].step)
    wrong = failing("adam")
    assert any("Without correction" in text for text in wrong) and any("climbs" in text for text in wrong)


def test_streams_are_as_told():
    gradients = streams.rare_and_frequent(4000, 4, 20)
    assert gradients.shape == (4000, 4, 2)
    assert (gradients[..., 0] != 0).all() and 0.03 < (gradients[..., 1] != 0).double().mean() < 0.07
    path = streams.drifting_optimum(4000, 50, 0.02)
    assert torch.diff(path, dim=0).std().item() == pytest.approx(0.02, rel=0.02)
    assert torch.equal(path, streams.drifting_optimum(4000, 50, 0.02)), "seeded"


def test_drive_keeps_every_state_tensor_of_every_step():
    start = torch.ones(3, dtype=torch.float64)
    run = streams.drive(torch.optim.Adam, start, lambda theta, t: theta + t, 5, lr=0.1)
    assert {"theta", "exp_avg", "exp_avg_sq", "step"} <= set(run)
    assert all(len(values) == 5 for values in run.values()) and run["step"].tolist() == [1, 2, 3, 4, 5]
    assert torch.allclose(streams.steps_of(start, run["theta"]).sum(0), run["theta"][-1] - start)
    assert torch.equal(start, torch.ones(3, dtype=torch.float64))


@pytest.mark.cuda
@pytest.mark.parametrize("name", NAMES)
def test_exact_claims_hold_on_a_gpu(results, name):
    result = getattr(experiments, name)("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
    assert repr(result) == repr(results[name]), "the same text on both"
