"""Workers on a virtual clock: the order of their updates, what is thrown away, and when old gradients diverge."""

import itertools
import math
from dataclasses import replace
from statistics import mean

import numpy as np
import pytest
import torch

from hpml_lab.distributed import waiting_sliders
from hpml_lab.distributed.experiments import asynchronous_sgd as module
from hpml_lab.distributed.lessons import parameter_server
from hpml_lab.distributed.lessons.parameter_server import (
    ASYNCHRONOUS,
    K_BATCH,
    K_SYNCHRONOUS,
    SYNCHRONOUS,
    harmonic,
    largest_rate,
    seconds_of_k,
    updates,
)
from hpml_lab.distributed.views.waiting_sliders import rate_percent, used_percent

TIMES = [[1.0, 1.0, 1.0, 1.0, 1.0], [2.5, 2.5, 2.5]]  # a fast worker and a slow one


def first(count, policy, wait, times=TIMES, rate=1.0):
    """The first updates of workers whose gradient is 1 plus ten times the worker's number, for any weights."""
    found = updates(
        policy,
        lambda weights, worker, number: torch.tensor(1.0 + 10 * worker),
        torch.tensor(0.0),
        lambda worker, number: times[worker][number],
        len(times),
        wait,
        rate,
    )
    return list(itertools.islice(found, count))


def test_synchronous_updates_wait_for_the_slow_worker():
    found = first(3, SYNCHRONOUS, 2)
    assert [update.clock for update in found] == [2.5, 5.0, 7.5]
    assert [update.weights.item() for update in found] == [-6.0, -12.0, -18.0], "the mean of 1 and 11"
    assert all(not update.cancelled for update in found)


def test_one_of_two_stops_the_other():
    found = first(3, K_SYNCHRONOUS, 1)
    assert [update.clock for update in found] == [1.0, 2.0, 3.0]
    assert [[work.worker for work in update.cancelled] for update in found] == [[1], [1], [1]]
    assert {work.end - work.begin for update in found for work in update.cancelled} == {1.0}


def test_a_batch_may_come_from_one_worker():
    [update] = first(1, K_BATCH, 2)
    assert update.clock == 2.0 and [work.worker for work in update.used] == [0, 0]
    assert update.weights.item() == -1.0
    [update] = first(1, K_SYNCHRONOUS, 2)
    assert update.clock == 2.5 and [work.worker for work in update.used] == [0, 1]


def test_asynchronous_gradients_are_as_old_as_counted_by_hand():
    found = first(6, ASYNCHRONOUS, 1)
    assert [(update.clock, update.used[0].worker, update.used[0].age) for update in found] == [
        (1.0, 0, 0),
        (2.0, 0, 0),
        (2.5, 1, 2),
        (3.0, 0, 1),
        (4.0, 0, 0),
        (5.0, 0, 0),
    ]
    assert all(not update.cancelled for update in found)


def test_a_stale_gradient_is_that_of_the_weights_that_were_read():
    """w²/2 with two equal workers: w₁ = w₀ − η w₀, then w₂ = w₁ − η w₀, then w₃ = w₂ − η w₁."""
    found = updates(ASYNCHRONOUS, lambda w, worker, number: w, torch.tensor(1.0), lambda worker, number: 1.0, 2, 1, 0.25)
    values = [update.weights.item() for update in itertools.islice(found, 4)]
    assert values == [0.75, 0.5, 0.5 - 0.25 * 0.75, 0.5 - 0.25 * 0.75 - 0.25 * 0.5]


def test_equal_workers_make_gradients_of_one_age():
    ages = [update.used[0].age for update in first(12, ASYNCHRONOUS, 1, [[1.0] * 4] * 4)]
    assert ages == [0, 1, 2] + [3] * 9


def test_the_formula_for_k_is_the_mean_of_order_statistics():
    times = 1 + 2 * np.random.default_rng(0).exponential(size=(200_000, 8))
    for wait in (1, 4, 8):
        assert seconds_of_k(8, wait, 2.0) == pytest.approx(np.sort(times, 1)[:, wait - 1].mean(), rel=0.01)
    assert harmonic(3) == pytest.approx(1 + 1 / 2 + 1 / 3) and harmonic(0) == 0


@pytest.mark.parametrize("age", [0, 1, 2, 5])
def test_the_largest_rate_is_where_a_root_leaves_the_unit_circle(age):
    """wₜ₊₁ = wₜ − η wₜ₋ₐ has the roots of zᵃ⁺¹ − zᵃ + η."""

    def largest_root(rate):
        return abs(np.roots([1, -1, *[0] * (age - 1), rate] if age else [1, rate - 1])).max()

    assert largest_root(0.999 * largest_rate(age)) < 1 < largest_root(1.001 * largest_rate(age))


# ---- the experiment --------------------------------------------------------------------------------------------------


@pytest.fixture
def result(ran):
    """What the notebook found in this run of the tests; run here where it did not."""
    return ran("asynchronous-sgd")


def test_it_is_sound(result, sound):
    sound(result)


def test_a_synchronous_update_waits_for_the_longest_of_the_draws():
    """The times are drawn here, and no loop of events is run."""
    rounds = np.reshape([module.takes(1, 1.0)(worker, number) for number in range(400) for worker in range(8)], (400, 8))
    assert rounds.min() >= 1 and rounds.max(1).mean() == pytest.approx(seconds_of_k(8, 8, 1.0), rel=0.05)


def test_who_waits_for_all_throws_nothing_away_and_uses_nothing_old(result):
    by_policy = {row.policy: row for row in result.rows()}
    assert by_policy[SYNCHRONOUS].cancelled == by_policy[ASYNCHRONOUS].cancelled == 0
    assert by_policy[K_SYNCHRONOUS].cancelled == pytest.approx(50), "four of eight"
    assert by_policy[K_BATCH].cancelled > 50 and by_policy[K_BATCH].oldest == 0


def test_the_loss_at_a_second_is_that_of_the_last_update_before_it():
    digits = module.DigitsRegression()
    found = [parameter_server.Update(clock, digits.start() + clock, [], []) for clock in (0.5, 2.0, 2.5)]
    losses = module.each_second(digits, found, 4.0)
    assert losses[0] == digits.loss(digits.start() + 0.5) and losses[1] == digits.loss(digits.start() + 2.0)
    assert losses[2] == losses[3] == digits.loss(digits.start() + 2.5)
    assert module.each_second(digits, [], 2.0) == pytest.approx([math.log(10)] * 2)


def test_its_claims_can_fail(monkeypatch):
    monkeypatch.setattr(module, "seconds_of_one", lambda workers, straggle: 9.0)
    monkeypatch.setattr(module, "largest_rate", lambda age: 2.0)
    small = replace(module.asynchronous_sgd, quick={**module.QUICK, "until": 20.0, "seeds": 1})
    assert [claim.holds for claim in small("quick", device="cpu").claims][1::2] == [False, False]


# ---- the sliders -----------------------------------------------------------------------------------------------------


def test_nobody_who_waits_for_nobody_loses_time():
    assert used_percent(2, 64, 2, 8.0) == pytest.approx(100)
    assert used_percent(0, 8, 2, 0.0) == used_percent(2, 8, 2, 0.0) == pytest.approx(100), "equal workers need not wait"
    assert used_percent(1, 8, 2, 0.0) == pytest.approx(50), "half of the gradients are thrown away"
    assert rate_percent(0, 8, 2, 1.0) == 100 and rate_percent(2, 8, 2, 1.0) == pytest.approx(50 * 2 * math.sin(math.pi / 30))


def test_the_sliders_start_at_the_experiments_workers():
    bars = waiting_sliders().values(waiting_sliders().panels[1])
    assert [round(value) for [value] in bars] == [100, 100, 10]
    assert mean(value for [value] in bars) < 100
