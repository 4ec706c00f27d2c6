"""The experiments sparse-data and schedules-vs-adaptive hold what they claim, and their figures can be drawn from a file."""

from dataclasses import replace
from statistics import median

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


def test_the_table_of_sparse_data_tells_the_corpora(results):
    result = results["sparse_data"]
    for row in result.rows:
        one = result.arrays["corpora"][row["corpus"]][row["optimizer"]]
        assert row["test accuracy %, median (band)"] == experiments.band([100 * value for value in one["test"]])
        assert row["decided by rare words %, median (band)"] == experiments.band([100 * value for value in one["rare"]])
        assert row["at the first rate of its sweep %"] == 100 * median(one["first rate"])
        assert (row["best rate"], row["best rate at the sweep's edge"]) == (one["lr"], one["edge"])


def test_the_seconds_to_an_accuracy_are_iterations_times_an_iterations_own(monkeypatch):
    made = {"Momentum": 60.0, "Adam": 20.0}
    found = {}
    for name, schedule in experiments.scheduled.ENTRANTS:
        final = 0.91 if (name, schedule) == ("Momentum", "step") else 0.9
        curve = {"valid": (0.9, 0.0), "final": [final] * 5, "reached": [made.get(name, 40.0)] * 5, "curve": [[0.1, 0.9]] * 5}
        found[name, schedule] = {"lr": 0.1, "edge": False, **curve}
    seconds = {name: 0.001 * (place + 1) for place, name in enumerate(experiments.scheduled.PEAKS)}
    monkeypatch.setattr(experiments.scheduled, "run", lambda *_: experiments.scheduled.Curves([0, 40], *[None] * 3))
    monkeypatch.setattr(experiments.scheduled, "summarise", lambda *_: found)
    monkeypatch.setattr(experiments, "seconds_alone", lambda *_, **__: seconds)
    result = replace(experiments.schedules_vs_adaptive, quick=SMALL["schedules_vs_adaptive"])("quick", device="cpu")
    for row in result.rows:
        assert row["seconds to 60 %, alone"] == pytest.approx(made.get(row["optimizer"], 40) * seconds[row["optimizer"]])
    assert result.quantities["ends with the best accuracy"] == "Momentum, step"
    assert result.quantities["is there first"].startswith("Adam,")
    assert result.quantities["its final accuracy, %"] == 91


@pytest.mark.parametrize("name", SMALL)
def test_the_same_run_gives_the_same_numbers(results, name):
    again = replace(getattr(experiments, name), quick=SMALL[name])("quick", device="cpu")
    if name == "sparse_data":
        assert again.arrays["corpora"] == results[name].arrays["corpora"]
    else:
        assert again.arrays["entrants"] == results[name].arrays["entrants"]
