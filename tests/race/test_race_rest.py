"""The experiments sparse-data and schedules-vs-adaptive hold what they claim, and their figures can be drawn from a file."""

from dataclasses import replace
from statistics import median

import pytest

from hpml_lab import race
from hpml_lab.race.experiments import schedules_vs_adaptive as schedules_module
from hpml_lab.race.experiments.schedules_vs_adaptive import ContestEntry
from hpml_lab.race.experiments.schedules_vs_adaptive.contest import ENTRANTS, PEAKS, ContestCurves
from hpml_lab.race.experiments.sparse_data import ADAPTIVE, CORPORA, WordScore
from hpml_lab.race.experiments.sparse_data.sparse_steps import SparseStepCost
from hpml_lab.race.lessons.seed_by_seed import median_and_range

SMALL = {
    "sparse_data": dict(
        vocabulary=200, texts=400, held_out=200, epochs=1, batch=32, seeds=5, vocabularies=(500, 5_000), samples=5
    ),
    "schedules_vs_adaptive": dict(
        data="digits", width=0.1, iterations=40, batch=32, seeds=5, valid=200, wrong=0.2, threshold=0.6, looks=5
    ),
}


def run(name):
    return replace(getattr(race, name), quick=SMALL[name])("quick", device="cpu")


@pytest.fixture(scope="module")
def results():
    return {name: run(name) for name in SMALL}


@pytest.mark.parametrize("name", SMALL)
def test_every_result_is_sound(results, name, sound):
    sound(results[name])
    assert any(figure.lecture for figure in results[name].key_figures)


def test_sparse_data_judges_both_corpora_and_answers_the_lecture(results):
    result = results["sparse_data"]
    rows, costs = result.rows(WordScore), result.rows(SparseStepCost)
    assert [row.corpus for row in rows] == [corpus for corpus in CORPORA for _ in range(7)]
    assert result.here("leads on sparse data") in ADAPTIVE
    assert [row.vocabulary for row in costs] == [500, 5_000]
    assert costs[1].dense_bytes == 10 * costs[0].dense_bytes and costs[1].sparse_bytes < 3 * costs[0].sparse_bytes
    assert all(0 <= value <= 1 for row in rows for value in row.rare + row.test)
    lines = {line.get_label(): line for line in race.sparse_step_costs(result).figure.axes[0].get_lines()}
    assert list(lines["Adam"].get_ydata()) == [row.adam_us / 1000 for row in costs]


def test_the_table_of_sparse_data_shows_what_each_row_holds(results):
    for row in results["sparse_data"].rows(WordScore):
        assert row.accuracy == median_and_range([100 * value for value in row.test])
        assert row.on_rare == median_and_range([100 * value for value in row.rare])
        assert row.at_first_rate == 100 * median(row.first)


def test_schedules_list_every_entrant_and_say_who_was_first(results):
    result = results["schedules_vs_adaptive"]
    assert len(result.rows(ContestEntry)) == 13 and result.here("trainings") == 63 * 5
    assert {figure.label for figure in result.key_figures if figure.lecture} == {
        "ends with the best accuracy",
        "is there first",
    }
    assert any("labels" in note for note in result.notes) and any("MNIST" in note for note in result.notes)


def test_the_key_figures_name_who_ends_best_and_who_is_there_first(monkeypatch):
    reached = {"Momentum": 60.0, "Adam": 20.0}
    entries = {}
    for name, schedule in ENTRANTS:
        final = 0.91 if (name, schedule) == ("Momentum", "step") else 0.9
        lists = dict(final_by_seed=[final] * 5, reached_by_seed=[reached.get(name, 40.0)] * 5, curve=[[0.1, 0.9]] * 5)
        entries[name, schedule] = ContestEntry(name, schedule, 0.1, "", "", 1.0, False, valid=0.9, **lists)
    monkeypatch.setattr(schedules_module, "train_contest", lambda *_: ContestCurves([0, 40], *[None] * 3))
    monkeypatch.setattr(schedules_module, "contest_entries", lambda *_: entries)
    monkeypatch.setattr(schedules_module, "seconds_alone", lambda *_, **__: dict.fromkeys(PEAKS, 0.001))
    result = run("schedules_vs_adaptive")
    assert result.here("ends with the best accuracy") == "Momentum, step"
    assert result.here("is there first").startswith("Adam,")
    assert result.here("best final accuracy") == 91


@pytest.mark.parametrize("name", SMALL)
def test_the_same_run_gives_the_same_numbers(results, name):
    again = run(name)
    if name == "sparse_data":
        assert again.rows(WordScore) == results[name].rows(WordScore)
    else:
        curves = [[row.curve for row in result.rows(ContestEntry)] for result in (again, results[name])]
        assert curves[0] == curves[1]
