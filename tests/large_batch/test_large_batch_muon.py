"""Newton–Schulz, the matrix problem, hidden layers by Muon, and the experiment about them."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F

from hpml_lab import large_batch
from hpml_lab.core.experiment import Result
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.large_batch.experiments import muon as card
from hpml_lab.large_batch.experiments.batched_trainings import BatchedTrainings, ImageRows, ordinary_net
from hpml_lab.large_batch.experiments.muon import hidden_layers, matrix_problem, singular_values, step_costs
from hpml_lab.large_batch.experiments.muon.hidden_layers import ADAMW, MUON, HiddenByMuon, HiddenLayerTraining, LossRatio
from hpml_lab.large_batch.experiments.muon.matrix_problem import MatrixDescent, descend, descent, matrix_problems, stable_rank
from hpml_lab.large_batch.lessons import orthogonalization as ns
from hpml_lab.optim import SGD, AdamW, Muon

SHAPES = ((7, 4), (4, 7), (5, 5), (1, 6), (6, 1))


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


# ---- Newton–Schulz --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_classical_steps_end_at_the_polar_factor(shape):
    G = drawn(*shape)
    U, _, Vh = torch.linalg.svd(G, full_matrices=False)
    torch.testing.assert_close(ns.newton_schulz(G, 60, ns.CLASSICAL), U @ Vh, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_lesson_takes_torchs_steps(shape):
    """From W = 0, rate 1 leaves −O times the factor of the shape. Two steps: with five, bfloat16's rounding has grown."""
    G = drawn(*shape, seed=1)
    W = torch.zeros(shape, requires_grad=True)
    W.grad = G.float()
    torch.optim.Muon([W], lr=1.0, momentum=0.0, nesterov=False, weight_decay=0.0, ns_steps=2).step()
    orthogonal = -W.detach().double() / max(1, shape[0] / shape[1]) ** 0.5
    torch.testing.assert_close(ns.newton_schulz(G, steps=2), orthogonal, rtol=0, atol=0.05)


def test_zeros_and_tiny_gradients_stay_finite():
    assert torch.equal(ns.newton_schulz(torch.zeros(3, 2)), torch.zeros(3, 2))
    G = drawn(2, 3)
    first = ns.newton_schulz(G * 1e-12 / G.norm(), steps=0)
    torch.testing.assert_close(first, G / G.norm() * 1e-5)  # divided by ε = 1e-7


def test_the_band_is_that_of_the_polynomials_extrema():
    """p has its largest value at its first extremum and its least, inside the band, at the second: by calculus."""
    a, b, c = ns.MUON
    root = (9 * b * b - 20 * a * c) ** 0.5
    at = torch.tensor([((-3 * b - root) / (10 * c)) ** 0.5, ((-3 * b + root) / (10 * c)) ** 0.5], dtype=torch.float64)
    high, low = ns.polynomial(at, ns.MUON, 1).tolist()
    assert singular_values.BAND[0] < low < high < singular_values.BAND[1]
    kept = ns.polynomial(torch.linspace(low, high, 1001, dtype=torch.float64), ns.MUON, 1)
    assert low - 1e-9 <= kept.min() and kept.max() <= high, "what is in the band stays in it"
    five = singular_values.band_of_steps(5)
    assert five.least == pytest.approx(low, abs=1e-4) and five.largest == pytest.approx(high, abs=1e-4)


def test_the_claims_about_singular_values_fail_for_other_coefficients(monkeypatch):
    for wrong in ((3.4, -4.0, 1.5), (2.0, -1.5, 0.5)):
        monkeypatch.setattr(singular_values, "MUON", wrong)
        result = Result()
        card.judge_singular_values(result, [singular_values.band_of_steps(k) for k in range(1, singular_values.MOST + 1)])
        assert not result.claims[0].holds
    monkeypatch.setattr(singular_values, "newton_schulz", lambda G, steps, coefficients: G)
    result = Result()
    card.judge_singular_values(result, [singular_values.band_of_steps(k) for k in range(1, singular_values.MOST + 1)])
    assert not result.claims[1].holds


# ---- the matrix problem ---------------------------------------------------------------------------------------------


def test_the_gradient_is_autograds_and_the_solution_has_no_loss():
    problems = matrix_problems(5, 10.0, 3)
    W = drawn(3, 5, 5, seed=2).requires_grad_()
    half = (problems.A @ W @ problems.B - problems.C).square().sum() / 2
    torch.testing.assert_close(problems.gradient(W.detach()), torch.autograd.grad(half, W)[0])
    assert problems.loss(problems.solution).max() < 1e-20
    torch.testing.assert_close(problems.loss(torch.zeros_like(W)), torch.ones(3, dtype=torch.float64))
    for x in (problems.A, problems.B):
        S = torch.linalg.svdvals(x)
        torch.testing.assert_close(S[:, 0] / S[:, -1], torch.full((3,), 10.0, dtype=torch.float64))


def test_a_descent_takes_the_optimizers_steps_at_a_falling_rate():
    problems = matrix_problems(4, 3.0, 2)
    path = list(descent(problems, "momentum", 0.5, 4))
    W = torch.zeros(4, 4, dtype=torch.float64, requires_grad=True)
    optimizer = SGD([W], lr=0.5, momentum=0.9)
    for t in range(4):
        torch.testing.assert_close(path[t][1], W.detach())
        optimizer.param_groups[0]["lr"] = 0.5 * (4 - t) / 4
        W.grad = problems.A[1].T @ (problems.A[1] @ W.detach() @ problems.B[1] - problems.C[1]) @ problems.B[1].T
        optimizer.step()
    torch.testing.assert_close(path[4][1], W.detach())


def test_the_stable_rank_counts_equal_directions():
    assert stable_rank(torch.eye(6)).item() == pytest.approx(6)
    assert stable_rank(torch.outer(torch.arange(4.0), torch.ones(3))).item() == pytest.approx(1)
    assert stable_rank(torch.diag(torch.tensor([2.0, 1.0]))).item() == pytest.approx(1.25)


def test_the_best_of_the_rates_is_reported(monkeypatch):
    monkeypatch.setitem(matrix_problem.RATES, "momentum", (1e-6, 1.0, 1e9))
    row, path = descend(matrix_problems(6, 3.0, 2), "momentum", 40)
    assert row.rate == 1.0 and row.loss < row.half < 1
    assert len(path["losses"]) == 41 and path["losses"][0] == [1.0, 1.0]
    assert len(path["W"]) == len(path["updates"]) == len(path["steps"]) == matrix_problem.KEPT


# ---- hidden layers --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data():
    """100 small images in float64, and 40 test images."""
    return ImageRows("random", drawn(100, 6), torch.arange(100) % 10, drawn(40, 6, seed=1), torch.arange(40) % 10)


def test_muon_has_the_inner_matrices_and_adamw_the_rest(data):
    trainings = BatchedTrainings(data, [4], 20, HiddenByMuon, hidden=(9, 8, 7)).run(6, lambda t: 0.01)
    net = ordinary_net(6, (9, 8, 7), 4).double()
    hidden = [net[2].weight, net[4].weight]
    rest = [p for p in net.parameters() if not any(p is W for W in hidden)]
    optimizers = Muon(hidden, 0.01, 0.0, adjust_lr_fn="match_rms_adamw"), AdamW(rest, 0.01, weight_decay=0.0)
    for t in range(6):
        epoch, index = divmod(t, 5)
        chosen = trainings.order(4, epoch)[20 * index : 20 * index + 20]
        net.zero_grad()
        F.cross_entropy(net(data.x[chosen]), data.y[chosen]).backward()
        for optimizer in optimizers:
            optimizer.step()
    for batched, own in zip(trainings.parameters, net.parameters(), strict=True):
        torch.testing.assert_close(batched[0], own.detach(), rtol=0, atol=1e-3)  # bfloat16 may round what differs in rounding
    assert trainings.test_losses()[0] == pytest.approx(F.cross_entropy(net(data.test_x), data.test_y).item(), abs=0.02)


def test_losses_on_other_images_are_those_of_the_net(data):
    trainings = BatchedTrainings(data, [0, 3], 20, partial(SGD, lr=0.1), hidden=(5,)).run(3)
    kept, validation = hidden_layers.held_out(data)
    assert (len(kept.x), len(validation.test_x)) == (80, 20) and torch.equal(kept.test_x, data.test_x)
    assert torch.equal(torch.cat([kept.x, validation.test_x]), data.x), "no image is trained on and chosen by"
    for own, (W1, b1, W2, b2) in zip(trainings.test_losses(validation), zip(*trainings.parameters, strict=True), strict=True):
        logits = (validation.test_x @ W1.T + b1).relu() @ W2.T + b2
        assert own == pytest.approx(F.cross_entropy(logits, validation.test_y).item())


def test_the_rate_is_chosen_by_validation_and_the_seeds_are_compared_in_pairs():
    def row(name, rate, validation, losses):
        return HiddenLayerTraining(8, 1, name, rate, validation, "", "", losses, [])

    rows = [row(ADAMW, 0.1, 0.5, [1.0, 2.0, 4.0]), row(ADAMW, 0.2, 0.9, [0.1] * 3), row(MUON, 0.1, 0.7, [0.5, 2.0, 1.0])]
    ratio = hidden_layers.loss_ratio(rows, 8)
    assert ratio.by_seed == [2.0, 1.0, 4.0] and not ratio.certain and str(ratio) == "2.00 (1.00 to 4.00)"
    assert (ratio / LossRatio([1.0, 0.5, 1.0])).certain


def test_a_seed_is_enough_to_make_a_claim_fail():
    def holds(small, large):
        result = Result()
        card.judge_hidden_layers(result, {64: LossRatio(small), 256: LossRatio(large)})
        return [claim.holds for claim in result.claims]

    assert holds([1.0] * 5, [1.5] * 5) == [True, True]
    assert holds([1.0] * 5, [0.9, *[1.5] * 4]) == [False, False]
    assert holds([1.6, *[1.0] * 4], [1.5] * 5) == [True, False]


def test_a_problem_is_enough_to_make_the_claim_about_descents_fail():
    def holds(muon=(1e-6, 1e-6), rank=9.0):
        rows = [MatrixDescent(name, 1.0, 0.1, 0.0, 0.0, 2.0, 2.0, [1e-4, 1e-3]) for name in ("momentum", "AdamW")]
        result = Result()
        card.judge_descents(result, [*rows, MatrixDescent("Muon", 1.0, 0.1, 0.0, 0.0, rank, 9.0, list(muon))])
        return result.claims[0].holds

    assert holds() and not holds(muon=(2e-5, 1e-6)) and not holds(rank=5.9)


# ---- costs ----------------------------------------------------------------------------------------------------------


def test_the_flops_are_those_of_the_products_and_of_the_articles_examples():
    row = step_costs.flop_share("", 3, 5, 10)
    assert row.steps == 5 * (2 * 3 * 3 * 5 + 2 * 3 * 3 * 3 + 2 * 3 * 3 * 5) and row.training == 6 * 3 * 5 * 10
    assert row.steps == step_costs.flop_share("", 5, 3, 10).steps
    shares = {layer[0]: step_costs.flop_share(*layer).share for layer in step_costs.LAYERS}
    assert shares["NanoGPT speedrun"] == pytest.approx(0.7, abs=0.05)  # Jordan et al. give 0.7 and 0.5 %
    assert shares["Llama 405B"] == pytest.approx(0.5, abs=0.05)
    result = Result()
    card.judge_flops(result, [row])
    row.steps += 1
    card.judge_flops(result, [row])
    assert [claim.holds for claim in result.claims] == [True, False]


# ---- the experiment -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(on_digits):
    sizes = dict(matrix_size=12, condition=30.0, descent_steps=60, problems=2, images=256, side=28, seen=640, batches=(16, 64))
    return on_digits("muon", **sizes, rates=(0.01, 0.03), seeds=2, widths=(16,), step_batches=(8, 16), samples=3)


def test_it_is_sound_and_read_again(result, tmp_path):
    assert result and [claim.exact for claim in result.claims].count(True) == 3 and len(result.claims) == 6
    again = load_result(result.save(tmp_path))
    assert again.rows() == result.rows() and again.figure() is not None
    for picture in (large_batch.newton_schulz_polynomials, large_batch.hidden_layer_losses):
        assert picture(again).figure.axes


def test_every_training_is_in_the_table_and_all_have_seen_as_many_images(result):
    rows = result.rows(HiddenLayerTraining)
    plan = [(batch, name, rate) for batch in (16, 64) for name in (ADAMW, MUON) for rate in (0.01, 0.03)]
    assert [(row.batch, row.optimizer, row.rate) for row in rows] == plan
    assert {row.batch * row.steps for row in rows} == {640} and {len(row.by_seed) for row in rows} == {2}
