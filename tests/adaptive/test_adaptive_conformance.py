"""The comparison with torch.optim is the same bits, and it sees what is not."""

import pytest
import torch

from hpml_lab.adaptive import conformance, experiments

CPU = torch.device("cpu")


def test_every_class_has_torchs_bits_and_torchs_refusals():
    result = experiments.optimizer_conformance("quick", device="cpu")
    assert [claim.text for claim in result.claims if not claim.holds] == []
    assert [row["class"] for row in result.rows] == list(conformance.CLASSES)
    assert result.quantities["runs compared"] >= 100 and result.quantities["largest distance, spacings"] == 0


class FormulaAdam(torch.optim.Adam):
    """Adam spelled as the formula: the right numbers, other roundings."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in (p for p in group["params"] if p.grad is not None):
                state = self.state[p]
                t = state["t"] = state.get("t", 0) + 1
                b1, b2 = group["betas"]
                m = state["m"] = b1 * state.get("m", 0) + (1 - b1) * p.grad
                v = state["v"] = b2 * state.get("v", 0) + (1 - b2) * p.grad**2
                p.copy_(p - group["lr"] * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + group["eps"]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_another_spelling_is_some_spacings_apart_and_another_rule_very_many(monkeypatch, dtype):
    monkeypatch.setattr(conformance.optim, "Adam", FormulaAdam)
    assert 0 < conformance.spacings_apart("Adam", {"lr": 0.5}, dtype, CPU, 100) < 1000
    monkeypatch.setattr(conformance.optim, "Adam", torch.optim.AdamW)
    assert conformance.spacings_apart("Adam", {}, dtype, CPU, 25) > 1000


def test_a_class_that_refuses_nothing_is_seen(monkeypatch):
    class Careless(torch.optim.Optimizer):
        def __init__(self, params, **options):
            pass

    monkeypatch.setattr(conformance.optim, "Adam", Careless)
    assert conformance.refusals_alike("Adam", torch.float32)[0] == 0


@pytest.mark.parametrize("name", conformance.CLASSES)
def test_random_inputs_go_beyond_the_suites(name):
    made = conformance.random_inputs(name, 20)
    assert len({str(options) for options in made}) == 20
    assert made == conformance.random_inputs(name, 20), "seeded"


@pytest.mark.cuda
def test_within_four_spacings_on_a_gpu():
    assert experiments.optimizer_conformance("quick", device="cuda")
