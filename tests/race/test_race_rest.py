"""The experiments sparse-data and schedules-vs-adaptive hold what they claim, and their figures can be drawn from a file."""

from dataclasses import replace

import pytest

from hpml_lab.race import experiments

SMALL = {
    "sparse_data": dict(
        vocabulary=200, texts=400, held_out=200, epochs=1, batch=32, seeds=5, vocabularies=(500, 5_000), samples=2
    ),
    "schedules_vs_adaptive": dict(
        data="digits", width=0.1, iterations=40, batch=32, seeds=5, valid=200, wrong=0.2, threshold=0.6, looks=5
    ),
}


@pytest.fixture(scope="module")
def results():
    return {name: replace(getattr(experiments, name), quick=how)("quick", device="cpu") for name, how in SMALL.items()}


@pytest.mark.parametrize("name", SMALL)
def test_every_row_is_sound(results, name, sound):
    sound(results[name])
    assert set(results[name].experiment.lecture_says) <= set(results[name].quantities)


def test_sparse_data_judges_both_corpora_and_answers_the_lecture(results):
    result = results["sparse_data"]
    assert [row["corpus"] for row in result.rows] == [where for where in experiments.CORPORA for _ in range(7)]
    assert result.quantities["leads on sparse data"] in ("Adagrad", "Adadelta", "Adam", "RMSprop")
    costs = result.arrays["costs"]
    assert [one["vocabulary"] for one in costs] == [500, 5_000]
    assert costs[1]["dense gradient KiB"] == 10 * costs[0]["dense gradient KiB"]
    assert costs[1]["sparse gradient KiB"] < 3 * costs[0]["sparse gradient KiB"]
    for found in result.arrays["corpora"].values():
        assert all(0 <= value <= 1 for one in found.values() for value in one["rare"] + one["test"])


def test_schedules_tell_every_entrant_and_say_who_was_first(results):
    result = results["schedules_vs_adaptive"]
    assert len(result.rows) == 13 and result.quantities["trainings"] == 59 * 5
    assert set(result.experiment.lecture_says) <= set(result.quantities)
    assert any("labels" in note for note in result.notes) and any("MNIST" in note for note in result.notes)


@pytest.mark.parametrize("name", SMALL)
def test_the_same_run_gives_the_same_numbers(results, name):
    again = replace(getattr(experiments, name), quick=SMALL[name])("quick", device="cpu")
    if name == "sparse_data":
        assert again.arrays["corpora"] == results[name].arrays["corpora"]
    else:
        assert again.arrays["entrants"] == results[name].arrays["entrants"]
