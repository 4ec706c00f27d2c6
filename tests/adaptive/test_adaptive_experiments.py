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


def test_adadelta_reports_that_one_eps_is_not_correct_in_units(results):
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


def test_adam_has_the_known_first_steps(results):
    quantities = results["adam"].quantities
    assert quantities["first step without correction / α"] == pytest.approx(math.sqrt(10), rel=1e-6)
    assert quantities["longest step without correction / α"] == pytest.approx(
        max((1 - 0.9**t) / math.sqrt(1 - 0.999**t) for t in range(1, 51)), rel=1e-6
    )
    assert quantities["steady step of the study's Adam / α"] == pytest.approx(0.316, rel=0.01)


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
