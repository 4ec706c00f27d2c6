"""The tuner: right on planted cases, within its budget, with clear words for what it cannot tune."""

import time

import psutil
import pytest
import torch
from torch.utils.data import IterableDataset

from hpml_lab.core.errors import LabError
from hpml_lab.loading import tune as tuning
from hpml_lab.loading.planted_cases import CASES, Faulty, Planted
from hpml_lab.loading.tune import Trial, tune


@pytest.mark.parametrize("name", CASES)
def test_planted_cases_are_told_apart(name):
    dataset, step_seconds, workers_pay = CASES[name]
    before = set(psutil.Process().children(recursive=True))
    tuned = tune(dataset, 16, step_seconds=step_seconds, epochs=5, max_workers=4)
    assert (tuned.options["num_workers"] > 0) == workers_pay
    assert tuned.best.options == tuned.options and tuned.trials[0].options == {"num_workers": 0}
    if workers_pay:
        assert tuned.speed_up > 1.5, "sleeping samples overlap on any machine"
    else:
        assert tuned.speed_up == 1.0
    assert set(psutil.Process().children(recursive=True)) <= before


def test_the_options_are_those_of_a_data_loader():
    dataset = Planted(wait=0.002)
    tuned = tune(dataset, 8, step_seconds=0.001, max_workers=2, epochs=3)
    loader = torch.utils.data.DataLoader(dataset, 8, **tuned.options)
    assert loader.num_workers == tuned.options["num_workers"] == 2 and loader.persistent_workers
    assert "num_workers=2" in repr(tuned) and "start-up, s" in tuned._html()


def test_one_epoch_does_not_repay_a_dear_start():
    trial = Trial({"num_workers": 4, "persistent_workers": True}, start_up=10.0, steady=0.1)
    assert trial.epoch(batches=101, epochs=1) == pytest.approx(10 + 10)
    assert trial.epoch(batches=101, epochs=100) == pytest.approx(0.1 + 10.1, rel=0.02)
    again = Trial({"num_workers": 4, "persistent_workers": False}, start_up=10.0, steady=0.1)
    assert again.epoch(batches=101, epochs=100) == pytest.approx(20)


def test_the_speed_up_is_over_the_default_and_not_over_one_that_pins():
    default, pinned = {"num_workers": 0}, {"num_workers": 0, "pin_memory": True}
    tuned = tuning.Tuned(pinned, [Trial(default, 1.0, 1.0), Trial(pinned, 0.5, 0.5)], "", batches=10, epochs=1)
    assert tuned.speed_up == 2.0


def test_trials_do_not_begin_after_the_budget():
    start = time.monotonic()
    tuned = tune(Planted(wait=0.02), 16, budget=0.1, max_workers=8)
    assert tuned.reason == "the budget is spent" and len(tuned.trials) == 1
    assert time.monotonic() - start < 30


def test_trials_read_other_samples_as_long_as_there_are_any():
    run = tuning._Trials(Planted(64), 4, lambda _: None, 5.0, {}, time.monotonic() + 5)
    first, second = run._samples(24), run._samples(24)
    assert len(set(first) | set(second)) == 48
    assert len(set(run._samples(64))) == 64, "then they come round again"


def test_the_tuned_setting_must_win_again_in_turns(monkeypatch):
    """A setting that was lucky once loses against the default."""
    lucky = iter([1.0])

    def trial(self, options):
        self.steps.append(0.0)
        steady = 1.0 if options["num_workers"] == 0 else 0.1 * next(lucky, 20.0)
        return Trial(options, 0.0, steady)

    monkeypatch.setattr(tuning._Trials, "trial", trial)
    tuned = tune(Planted(), 16, max_workers=4)
    assert tuned.options == {"num_workers": 0} and "the default was as fast" in tuned.reason


def test_the_speed_up_is_that_of_whole_epochs_by_the_medians_of_their_trials():
    alone, two = {"num_workers": 0}, {"num_workers": 2, "persistent_workers": True}
    trials = [Trial(alone, 0.2, 0.2), *(Trial(two, start, steady) for start, steady in ((1.0, 0.1), (9.0, 0.9), (2.0, 0.05)))]
    tuned = tuning.Tuned(two, trials, "", batches=10, epochs=4)
    assert (tuned.best.start_up, tuned.best.steady) == (2.0, 0.1)
    assert tuned.speed_up == pytest.approx((10 * 0.2) / (2.0 / 4 + 0.1 * (10 - 1 / 4)))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(batch_size=0), "batch_size=0, epochs=10"),
        (dict(batch_size=8, epochs=0), "batch_size=8, epochs=0"),
        (dict(batch_size=8, persistent_workers=True), "persistent_workers: the tuner chooses it"),
        (dict(batch_size=8, sampler=range(64), num_workers=2), "num_workers, sampler: the tuner chooses it"),
    ],
)
def test_options_that_make_no_trial_are_refused(options, text):
    with pytest.raises(LabError, match=text):
        tune(Planted(64), **options)


@pytest.mark.parametrize("dataset, text", [(Stream(), "no length"), (Planted(0), "is empty")])
def test_what_cannot_be_tuned_is_told(dataset, text):
    with pytest.raises(LabError, match=text):
        tune(dataset, 4)


def test_a_data_set_that_hangs_is_told_within_the_deadline():
    start = time.monotonic()
    with pytest.raises(LabError, match="gave no"):
        tune(Faulty("hangs"), 8, deadline=0.3)
    assert time.monotonic() - start < 30


def test_a_data_set_that_raises_is_told():
    with pytest.raises(LabError, match="no label for sample 5"):
        tune(Faulty("raises"), 16)


def test_a_small_data_set_is_tuned_too():
    assert tune(Planted(3), 2).options["num_workers"] == 0


def test_workers_that_start_anew_can_be_tuned():
    tuned = tune(Planted(64, wait=0.001), 8, max_workers=1, multiprocessing_context="spawn", budget=20)
    assert [one.workers for one in tuned.trials][:2] == [0, 1]
