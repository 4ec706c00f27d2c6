"""The class of a change: bitwise, within rounding, at a lower precision, in another order, or not the same."""

import math
import random

import pytest

from hpml_lab.referee.sameness import BITWISE, DIFFERENT, PRECISION, REORDERED, ROUNDING, apart, sameness

STEPS = 40
BEFORE = [2.0 * 0.97**t + 0.1 * math.sin(7 * t) for t in range(STEPS)]


def drifting(start, seed, rate=1.1):
    """Losses that part from BEFORE by `start`, growing with each step as a chaotic training does."""
    generator = random.Random(seed)
    return [x * (1 + start * rate**t * generator.uniform(0.3, 1)) for t, x in enumerate(BEFORE)]


NUDGED = [drifting(1e-7, seed) for seed in range(3)]


def kind(after, again=BEFORE, nudged=NUDGED, **options):
    return sameness(BEFORE, after, again, nudged, **options).kind


def test_equal_losses_and_parameters_are_bitwise_and_equal_losses_alone_are_not():
    assert kind(BEFORE) == BITWISE
    assert kind(BEFORE, digests=("a", "b")) == ROUNDING


def test_what_drifts_as_nudged_copies_do_is_rounding_also_where_each_operator_rounds_anew():
    assert kind(drifting(1e-7, 9)) == kind(drifting(1.5e-6, 9)) == ROUNDING


def test_a_lower_precision_shows_in_the_first_loss_and_keeps_the_level():
    assert kind(drifting(2e-3, 9, rate=1.0)) == PRECISION


def test_of_a_change_that_lowers_the_precision_the_first_loss_need_not_tell():
    """As where all outputs are 0.5 at first, whatever their bits; of any other change that is another update."""
    after = [BEFORE[0], *drifting(2e-3, 9, rate=1.0)[1:]]
    assert kind(after) == DIFFERENT and kind(after, lowers=True) == PRECISION
    assert kind([x * (1 - 0.02 * t) for t, x in enumerate(BEFORE)], lowers=True) == DIFFERENT


def test_a_change_that_draws_other_random_numbers_is_not_taken_for_a_lower_precision():
    after = drifting(2e-3, 9, rate=1.0)
    assert kind(after, reorders=True) == REORDERED and kind(after, reorders=True, lowers=True) == PRECISION


def test_losses_that_are_no_numbers_are_named_where_they_agree():
    lost = [math.nan] * STEPS
    assert (
        "finite" in sameness(lost, lost, lost, [lost]).detail
        and "finite" not in sameness(BEFORE, BEFORE, BEFORE, NUDGED).detail
    )


def test_another_update_that_begins_with_the_same_loss_is_another_training():
    """As a learning rate that is a tenth higher: the first loss does not know of it."""
    assert kind([x * (1 - 0.002 * t) for t, x in enumerate(BEFORE)]) == DIFFERENT


@pytest.mark.parametrize("seed", range(20))
def test_half_of_each_batch_is_another_training_though_its_losses_have_the_same_level(seed):
    """Of 64 samples with a scatter of 0.6: their mean, and that of the first 32; and next to it the first in 8 bits."""
    generator = random.Random(seed)
    batches = [[level + generator.gauss(0, 0.6) for _ in range(64)] for level in BEFORE]
    whole, half = ([sum(batch[:size]) / size for batch in batches] for size in (64, 32))
    in_8_bits = [x * (1 + 2**-9 * generator.uniform(-1, 1)) for x in whole]
    nudged = [[x * (1 + 1e-7) for x in whole]]
    assert sameness(whole, half, whole, nudged).kind == DIFFERENT
    assert sameness(whole, in_8_bits, whole, nudged).kind == PRECISION


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_no_number_is_another_training(bad):
    assert kind([*BEFORE[:5], *[bad] * (STEPS - 5)]) == DIFFERENT


def test_both_without_a_number_agree():
    assert apart([math.nan, math.inf, 1.0], [math.nan, math.inf, 1.0]) == [0.0, 0.0, 0.0]


def test_other_samples_of_the_same_distribution_are_named_only_for_a_change_that_reorders():
    generator = random.Random(4)
    noisy = [[x + generator.gauss(0, 0.3) for x in BEFORE] for _ in range(2)]
    found = [sameness(noisy[0], noisy[1], noisy[0], [noisy[0]], reorders=reorders).kind for reorders in (False, True)]
    assert found == [DIFFERENT, REORDERED]
    assert sameness(noisy[0], [x + 2 for x in noisy[1]], noisy[0], [noisy[0]], reorders=True).kind == DIFFERENT


def test_a_script_that_differs_from_itself_sets_its_own_yardstick_and_nothing_is_bitwise():
    found = sameness(BEFORE, drifting(1e-3, 1), drifting(1e-3, 2), NUDGED)
    assert found.kind == ROUNDING and "two copies as they are" in found.detail
    assert sameness(BEFORE, BEFORE, drifting(1e-3, 2), NUDGED, digests=("a", "b")).kind == ROUNDING


def test_too_few_losses_say_nothing():
    assert "only 1 losses" in sameness([1.0], [1.0], [1.0], [[1.0]]).detail


def seeded(seed):
    """Losses of the same training with other random numbers."""
    generator = random.Random(seed)
    return [x * (1 + 0.05 * generator.gauss(0, 1)) for x in BEFORE]


def test_a_script_without_a_seed_is_the_same_training_only_as_a_distribution():
    """Else its spread is the yardstick, and any other training is within it."""
    again, nudged = seeded(1), [seeded(seed) for seed in (2, 3, 4)]
    for after in (seeded(5), [x * (1 - 0.01 * t) for t, x in enumerate(BEFORE)]):
        found = sameness(BEFORE, after, again, nudged)
        assert found.kind == DIFFERENT and "sets its seeds" in found.detail
        assert sameness(BEFORE, after, again, nudged, lowers=True).kind == DIFFERENT
    assert kind(seeded(5), again, nudged, reorders=True) == REORDERED


@pytest.mark.parametrize("lengths", [(0, 0, 0), (1, 1, 1), (STEPS - 1, 1, 0), (20, 20, 20)])
def test_nudged_copies_that_did_not_come_far_take_nothing_from_what_is_equal(lengths):
    nudged = [one[:length] for one, length in zip(NUDGED, lengths, strict=True)]
    assert kind(BEFORE, nudged=nudged, digests=("a", "a")) == BITWISE
    found = sameness(BEFORE, [x * (1 - 0.02 * t) for t, x in enumerate(BEFORE)], BEFORE, nudged)
    assert found.kind == DIFFERENT and ("no copy that differs by rounding" in found.detail) == (max(lengths) < 2)
