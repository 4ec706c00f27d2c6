"""The experiment muon: TODO: what these tests know that the experiment does not."""

import pytest


@pytest.fixture
def result(ran):
    """What the notebook found in this run of the tests; run here where it did not."""
    return ran("muon")


def test_it_is_sound(result, sound):
    sound(result)


def test_the_sums_are_those_counted_by_hand(result):
    """TODO: a number that you know from elsewhere, or the definition written out in another way."""
    assert [row.total for row in result.rows()] == [1, 3, 10]
