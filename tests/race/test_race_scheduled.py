"""The contest between schedules and adaptive methods can end either way."""

import math

import pytest
import torch

from hpml_lab.core.experiment import Result
from hpml_lab.data import load
from hpml_lab.race.experiments import checkpoints
from hpml_lab.race.experiments.schedules_vs_adaptive import (
    ContestEntry,
    contest,
    contest_entries,
    judge_contest,
    schedules_vs_adaptive,
)
from hpml_lab.race.tools.program import NETS, flat_inputs


def test_wrong_labels_are_as_many_as_asked_for_and_the_data_sets_own_stay():
    y = torch.arange(10_000) % 10
    changed = contest.with_wrong_labels(y, 0.2)
    assert 0.16 < (changed != y).double().mean().item() < 0.20  # a tenth of those drawn anew are right by chance
    assert torch.equal(y, torch.arange(10_000) % 10) and torch.equal(changed, contest.with_wrong_labels(y, 0.2))
    assert torch.equal(contest.with_wrong_labels(y, 0.0), y)


@pytest.fixture(scope="module")
def parts():
    data = load("digits")
    x, test_x = flat_inputs(data)
    return (x[:1000], data.train_y[:1000]), (x[1000:], data.train_y[1000:]), (test_x, data.test_y)


def run(parts, folder, iterations=24, workers=1):
    return contest.train_contest(NETS["net 2"].scaled(0.1), (0, 1), *parts, iterations, 32, 6, workers, folder)


def same(a, b):
    return all(
        torch.equal(getattr(a, name).nan_to_num(9), getattr(b, name).nan_to_num(9)) for name in ("valid", "loss", "test")
    )


def test_a_run_that_was_killed_resumes_bitwise_identical(parts, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    right = run(parts, tmp_path / "a")
    assert not list((tmp_path / "a").glob("*"))
    monkeypatch.setattr(checkpoints.Checkpoint, "due", lambda self: True)
    evaluate, calls = contest.Program.evaluate, []

    def dies(self, *what):
        calls.append(self.iteration)
        if len(calls) == 8 * contest.SHARES:
            raise MemoryError("killed")
        return evaluate(self, *what)

    monkeypatch.setattr(contest.Program, "evaluate", dies)
    with pytest.raises(MemoryError):
        run(parts, tmp_path / "b")
    assert len(list((tmp_path / "b").glob("*"))) == 1
    again = run(parts, tmp_path / "b")
    assert same(again, right) and calls[8 * contest.SHARES] == calls[6 * contest.SHARES], "it continued where it was killed"
    assert not list((tmp_path / "b").glob("*"))


def test_workers_take_the_same_programs_however_many_they_are_and_give_bitwise_the_same_numbers(parts, tmp_path, monkeypatch):
    torch.set_num_threads(1)
    made, make = [], contest.Program

    def noted(net, settings, seeds, *rest):
        made.append((settings, seeds))
        return make(net, settings, seeds, *rest)

    monkeypatch.setattr(contest, "Program", noted)
    alone = run(parts, tmp_path)
    programs = made.copy()
    assert sum(len(settings) for settings, _ in programs) == len(contest.PLAN)
    for workers in (3, len(contest.PLAN) + 1):
        made.clear()
        assert same(run(parts, tmp_path, workers=workers), alone)
        assert made == programs, "a program of another size may take other kernels"


def test_another_contests_checkpoint_is_not_used(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoints.Checkpoint, "due", lambda self: True)
    monkeypatch.setattr(checkpoints.Checkpoint, "remove", lambda self: None)
    run(parts, tmp_path)
    run(parts, tmp_path, iterations=30)
    (x, y), *rest = parts
    run(((x, y.flip(0)), *rest), tmp_path)
    assert len(list(tmp_path.glob("*.pt"))) == 3


def made_entry(optimizer, schedule, final=0.9, reached=100.0):
    values = dict(final_by_seed=[final] * 8, reached_by_seed=[reached] * 8, valid=final)
    return ContestEntry(optimizer, schedule, 0.1, final="", reached="", seconds=0.0, at_edge=False, **values)


def entrants(**finals):
    """Finished entrants, all with the same accuracy except for these."""
    return {
        (name, schedule): made_entry(name, schedule, finals.get(name if schedule == "constant" else f"{name}_scheduled", 0.9))
        for name, schedule in contest.ENTRANTS
    }


def judged(entries):
    result = Result()
    judge_contest(result, entries, 0.9)
    assert not any(claim.exact for claim in result.claims)
    return [claim.holds for claim in result.claims]


def test_the_contest_can_end_either_way():
    assert judged(entrants(Momentum_scheduled=0.95, Adam_scheduled=0.93))[:3] == [True] * 3
    assert judged(entrants(Adam=0.97, Momentum=0.96))[:3] == [False] * 3


@pytest.mark.parametrize(
    ("first", "others", "holds"),
    [
        (60.0, 100.0, True),
        (math.inf, 100.0, False),  # who never arrives is not first
        (math.inf, math.inf, False),
    ],
)
def test_who_is_there_first_is_counted_by_seed(first, others, holds):
    entries = {key: made_entry(*key, reached=others) for key in contest.ENTRANTS}
    entries["Adam", "constant"] = made_entry("Adam", "constant", reached=first)
    assert judged(entries)[3:] == [holds]


def test_the_best_peak_rate_is_chosen_on_validation_images_alone():
    planned = [k for k, row in enumerate(contest.PLAN) if row[:2] == ("Adam", "cosine")]
    valid, test = torch.zeros(2, len(contest.PLAN), 4), torch.zeros(2, len(contest.PLAN), 4)
    valid[1, planned[2]] = 0.8
    test[1, planned[0]] = 0.99  # better on the test images, which must not count
    curves = contest.ContestCurves([0, 10], valid.double(), torch.ones_like(valid).double(), test.double())
    chosen = contest_entries(curves, 0.5, dict.fromkeys(contest.PEAKS, 0.001))["Adam", "cosine"]
    assert chosen.lr == contest.PEAKS["Adam"][2] and chosen.final_by_seed == [0.0] * 4 and not chosen.at_edge
    assert chosen.reached_by_seed == [10.0] * 4 and chosen.seconds == 0.01


def test_the_best_of_each_optimizer_is_over_its_schedules_and_rates():
    accuracy = torch.zeros(len(contest.PLAN), 3)
    accuracy[contest.PLAN.index(("Adam", "cosine", 0.01))] = torch.tensor([0.5, 0.7, 0.9])
    best = contest.best_of_each(accuracy)
    assert best["Adam"] == pytest.approx(0.7) and best["SGD"] == 0 and set(best) == set(contest.PEAKS)


def test_the_figure_has_one_row_an_entrant_the_best_on_top():
    figure = schedules_vs_adaptive.reference().figure()
    final, reached = figure.axes
    names = [label.get_text() for label in final.get_yticklabels()]
    assert sorted(names) == sorted(f"{optimizer}, {schedule}" for optimizer, schedule in contest.ENTRANTS)
    medians = [line.get_xdata()[0] for line in final.get_lines() if len(line.get_xdata()) == 1]
    assert medians == sorted(medians) and len(medians) == len(reached.get_lines()) / 2 == len(names)
