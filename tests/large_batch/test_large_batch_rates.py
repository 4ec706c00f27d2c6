"""The rules for the rate, the range test and one-cycle, and the two experiments about them."""

import math
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from torch.optim import lr_scheduler

from hpml_lab import large_batch
from hpml_lab.core.experiment import Params, Result
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.large_batch.experiments import large_batch_gap as gap
from hpml_lab.large_batch.experiments import lr_finder_one_cycle as finder
from hpml_lab.large_batch.experiments.accuracy_gains import gain, median_range, points
from hpml_lab.large_batch.experiments.batched_trainings import BatchedTrainings, ImageRows
from hpml_lab.large_batch.experiments.large_batch_gap.small_steps import small_against_large
from hpml_lab.large_batch.lessons.range_test import choose, growing_rates, smoothed
from hpml_lab.large_batch.lessons.rate_scaling import KEPT, LINEAR, ROOT, RULES, WARM, schedule
from hpml_lab.large_batch.lessons.rate_scaling import scaled_rate as scaled
from hpml_lab.optim import SGD
from hpml_lab.optim.schedules import one_cycle, one_cycle_momentum


@pytest.fixture(scope="module")
def data():
    """64 small images in float64."""
    made = torch.Generator().manual_seed(0)
    x, test_x = torch.randn(64, 6, generator=made).double(), torch.randn(20, 6, generator=made).double()
    return ImageRows("random", x, torch.randint(10, (64,), generator=made), test_x, torch.randint(10, (20,), generator=made))


# ---- seeds and rules ------------------------------------------------------------------------------------------------


def test_accuracies_are_compared_seed_by_seed():
    found = gain([0.91, 0.92, 0.93, 0.94, 0.95], [0.90, 0.90, 0.90, 0.96, 0.90])
    assert (found.median, found.wins, found.seeds) == (pytest.approx(2), 4, 5)
    assert (found.low, found.high) == (pytest.approx(-2), pytest.approx(5)) and not found.certain
    assert gain([0.9] * 8, [0.8] * 8).certain and not gain([0.9] * 8, [0.9] * 8).certain
    assert points([0.5], [0.75]) == [-25] and median_range([0.9, 0.8, 0.95]) == "90.0 (80.0–95.0)"
    assert str(found) == "+2.00 (-2.00 to +5.00), 4 of 5 seeds gain"


def test_the_rules_scale_the_rate():
    assert {rule: scaled(rule, 0.1, 16) for rule in RULES} == pytest.approx({KEPT: 0.1, ROOT: 0.4, LINEAR: 1.6, WARM: 1.6})
    assert [schedule(WARM, 0.1, 4, 8)(t) for t in range(6)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert [schedule(LINEAR, 0.1, 4, 8)(t) for t in (0, 7)] == pytest.approx([0.4, 0.4])


def test_small_steps_and_a_large_one_part_in_proportion_to_the_rate(data):
    """The definition, written out with autograd on softmax regression; and the limit of a tiny rate."""
    first = BatchedTrainings(data, [0], 8, partial(SGD, lr=1.0), ())
    start, order = [p[0].clone() for p in first.parameters], first.order(0, 0)

    def gradients(parameters, chosen):
        W, b = (p.clone().requires_grad_() for p in parameters)
        loss = torch.nn.functional.cross_entropy(data.x[chosen] @ W.T + b, data.y[chosen])
        return torch.autograd.grad(loss, (W, b))

    small = list(start)
    for j in range(4):
        found = gradients(small, order[8 * j : 8 * j + 8])
        small = [p - 0.01 * g for p, g in zip(small, found, strict=True)]
    step = [0.04 * g for g in gradients(start, order[:32])]
    distance = math.sqrt(sum(((p - (w - d)) ** 2).sum() for p, w, d in zip(small, start, step, strict=True)))
    assert small_against_large(data, 8, 4, 0.01, ()) == pytest.approx(
        distance / math.sqrt(sum((d**2).sum() for d in step)), rel=1e-9
    )
    tiny = [small_against_large(data, 8, 4, rate, ()) for rate in (1e-6, 2e-6)]
    assert tiny[1] / tiny[0] == pytest.approx(2, rel=1e-3)


def test_a_sharp_start_has_larger_weights_and_the_same_biases(data):
    plain, sharp = (BatchedTrainings(data, range(2), 8, partial(SGD, lr=0.1), (5,)) for _ in range(2))
    gap.sharpen(sharp)
    for i, (a, b) in enumerate(zip(plain.parameters, sharp.parameters, strict=True)):
        torch.testing.assert_close(b, a * gap.SHARP if i % 2 == 0 else a)


# ---- the range test -------------------------------------------------------------------------------------------------


def test_rates_grow_by_a_constant_factor_and_each_is_used_for_one_step(data):
    rates = growing_rates(1e-3, 1.0, 7)
    assert rates[0] == 1e-3 and rates[-1] == pytest.approx(1.0)
    assert {round(b / a, 9) for a, b in zip(rates, rates[1:], strict=False)} == {round(1000 ** (1 / 6), 9)}
    used = []
    trainings = BatchedTrainings(data, range(2), 16, lambda p: Recorded(p, used), (5,))
    losses = finder.range_test(trainings, rates)
    assert losses.shape == (7, 2) and used == [rate for rate in rates for _ in range(2)]


class Recorded(torch.optim.SGD):
    """SGD that keeps the rate of each step."""

    def __init__(self, params, used):
        super().__init__(params, lr=1.0)
        self.used = used

    def step(self, closure=None):
        self.used.append(self.param_groups[0]["lr"])
        super().step(closure)


def test_the_smoothing_is_a_weighted_mean_of_the_losses_so_far():
    losses = np.random.default_rng(0).uniform(0, 3, 40)
    for beta in (0.0, 0.5, 0.98):
        wanted = pd.Series(losses).ewm(alpha=1 - beta, adjust=True).mean()
        assert smoothed(losses.tolist(), beta) == pytest.approx(wanted.tolist(), rel=1e-9)
    assert smoothed([2.0] * 5) == pytest.approx([2.0] * 5)


def test_the_choice_reads_where_the_loss_falls_is_least_and_diverges():
    rates = growing_rates(1e-4, 1.0, 41)
    losses = [2.0] * 20 + [2.0 - 0.1 * t for t in range(1, 6)] + [1.0, 0.9, 0.85, 0.84, 0.86, 1.0, 3.0, 9.0] + [0.1] * 8
    found = choose(rates, losses, beta=0.0)
    assert (found.least, found.diverged) == (rates[28], rates[32]), "what comes after the divergence is not read"
    assert found.tenth == pytest.approx(rates[28] / 10)
    assert found.steepest == rates[25], "a fall of 0.5, from 1.5 to 1.0"
    assert choose(rates, [*losses[:27], math.nan, *[0.0] * 13], beta=0.0).least == rates[26]
    assert choose(rates[:2], [1.0, 2.0]).least == rates[0] == choose(rates[:2], [1.0, 2.0]).steepest


@pytest.mark.parametrize("T", [9, 61, 400])
def test_one_cycle_has_the_rates_and_the_momenta_of_torchs(T):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.3, momentum=0.9)
    scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.3, total_steps=T)
    for t in range(T):
        group = optimizer.param_groups[0]
        wanted = 0.3 * one_cycle(t, T), one_cycle_momentum(t, T)
        assert (group["lr"], group["momentum"]) == pytest.approx(wanted, rel=0, abs=1e-12)
        optimizer.step()
        if t + 1 < T:
            scheduler.step()
    momenta = [one_cycle_momentum(t, T) for t in range(T)]
    assert momenta[0] == momenta[-1] == 0.95 and 0.85 <= min(momenta) < 0.87


def test_one_cycle_moves_the_momentum_of_every_step(data, monkeypatch):
    seen = []

    class Seen(SGD):
        def step(self, closure=None):
            seen.append((self.param_groups[0]["lr"], self.param_groups[0]["momentum"]))
            return super().step(closure)

    monkeypatch.setattr(finder, "SGD", Seen)
    finder.train(data, Params(seeds=1, steps=10), 16, finder.ONE_CYCLE, 0.2)
    assert seen == [(0.2 * one_cycle(t, 10), one_cycle_momentum(t, 10)) for t in range(10)]
    seen.clear()
    finder.train(data, Params(seeds=1, steps=3), 16, finder.CONSTANT, 0.2)
    assert seen == [(0.2, 0.9)] * 3


# ---- the experiments ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gap_result(on_digits):
    return on_digits("large-batch-gap", images=256, side=28, seen=1024, small=8, factors=(2, 4, 8), seeds=2)


@pytest.fixture(scope="module")
def finder_result(on_digits):
    size = dict(images=256, batches=(16, 32), steps=20, seeds=2)
    return on_digits("lr-finder-one-cycle", **size, low=1e-3, high=3.0, test_steps=20)


def test_the_exact_claims_hold_with_few_seeds_and_the_results_are_read_again(gap_result, finder_result, tmp_path):
    for result, exact, pictures in (
        (gap_result, 1, (large_batch.large_batch_losses, large_batch.why_linear)),
        (finder_result, 0, (large_batch.one_cycle_gains,)),
    ):
        assert result and sum(claim.exact for claim in result.claims) == exact < len(result.claims)
        assert "digits stand in" in result.notes[0]
        again = load_result(result.save(tmp_path))
        assert again.rows() == result.rows() and again.figure() is not None
        for picture in pictures:
            assert picture(again).figure.axes


def test_all_batch_sizes_have_seen_as_many_images(gap_result):
    rows = gap_result.rows(gap.ScaledTraining)
    assert {row.batch * row.steps for row in rows} == {1024} and {len(row.by_seed) for row in rows} == {2}
    plan = [(KEPT, 1), *((rule, k) for k in (2, 4, 8) for rule in RULES), (LINEAR, 4), (WARM, 4)]
    assert [(row.rule, row.k) for row in rows] == plan and rows[-1].lost is None
    assert [row.rate for row in rows if row.k == 4][:4] == pytest.approx([0.005, 0.01, 0.02, 0.02])


def test_the_rate_that_the_range_test_finds_is_trained_with(finder_result):
    rows = {row.where: row for row in finder_result.rows(finder.RateReading)}
    [found] = finder.trained(finder_result, 16, finder.FOUND)
    assert found.rate == rows[finder.TENTH].middle and len(found.by_seed) == 2
    assert finder_result.here("accuracy with the rate that the range test finds") == found.accuracy
    heading = finder_result.comparison()[0]
    assert heading[1].endswith("digits)") and "mnist): " in heading[2], heading


def judged(**changes):
    """The claims about accuracies that would make all of them hold, with some changed: those that still hold."""
    base, found = [0.95] * 5, {}
    for k in (8, 32):
        found |= {(KEPT, k): [0.6] * 5, (ROOT, k): [0.9] * 5, (LINEAR, k): [0.94] * 5, (WARM, k): [0.93] * 5}
    found |= {(LINEAR, 32): [0.8] * 5, (LINEAR, 8, "sharp"): [0.1] * 5, (WARM, 8, "sharp"): [0.9] * 5}
    for name, value in changes.items():
        rule, k, *sharp = name.split("_")
        key = ({"kept": KEPT, "root": ROOT, "linear": LINEAR, "warm": WARM}[rule], int(k), *sharp)
        found[key] = [value, *found[key][1:]] if sharp or rule != "warm" else [value] * 5
    result = Result()
    gap.judge(result, base, found, (8, 32))
    return [claim.holds for claim in result.claims]


@pytest.mark.parametrize(
    "change, fails",
    [({}, None), ({"kept_32": 0.75}, 0), ({"linear_8": 0.915}, 1), ({"linear_32": 0.945}, 1), ({"root_8": 0.945}, 2),
     ({"warm_8": 0.95}, 3), ({"warm_8_sharp": 0.8}, 4)],
)  # fmt: skip
def test_one_seed_is_enough_to_make_a_claim_fail(change, fails):
    assert judged(**change) == [number != fails for number in range(5)]


def test_the_slider_draws_what_the_choice_reads(finder_result):
    widget = large_batch.explore_smoothing(finder_result)
    before = bytes(widget.image.value)
    beta, seed, _ = widget.children
    beta.value, seed.value = 0.5, 1
    after = bytes(widget.image.value)
    assert after != before and after.startswith(b"\x89PNG")
