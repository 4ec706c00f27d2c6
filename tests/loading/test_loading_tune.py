"""The tuner: right for data sets of known cost, within its budget, with clear words for what it cannot tune."""

import collections
import copy
import functools
import itertools
import os
import random
import re
import signal
import sys
import threading
import time
import tracemalloc

import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import allow_oversubscription, child_pids
from hpml_lab.loading.tools.known_datasets import FaultyData, KnownCost
from hpml_lab.loading.tools.search import loader_options
from hpml_lab.loading.tools.training_state import trained_by
from hpml_lab.loading.tools.trials import LoaderTrial, Trials, shuffled
from hpml_lab.loading.tools.tuner import Tuned, tune


class UnevenCost(KnownCost):
    """Waits of very uneven length: one sample in sixteen takes twelve times as long."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 16 == 0:
            time.sleep(11 * self.wait)
        return super().__getitem__(index)


CASES = {  # name: (data set, seconds of a step, whether workers pay)
    "waiting for storage": (KnownCost(wait=0.004), 0.002, True),
    "uneven waiting": (UnevenCost(wait=0.002), 0.002, True),
    "cheap samples": (KnownCost(size=2048), 0.0, False),
    "next to nothing beside the steps": (KnownCost(), 0.02, False),
    "an expensive first sample": (KnownCost(first=0.15), 0.0, False),
}


@pytest.mark.parametrize("name", CASES)
def test_known_costs_are_recognized(name, monkeypatch):
    """Trials take as long as the data set's and the step's own times say: no clock is asked."""
    dataset, step_seconds, workers_pay = CASES[name]
    opened = iter([dataset.first])  # by this process, once; each new worker opens it anew

    def trial(self, options):
        self.steps.append(step_seconds)
        workers, load = options["num_workers"], 16 * cost(dataset)
        if workers:
            return LoaderTrial(options, 0.05 + dataset.first + load, max(step_seconds, load / workers) + 1e-3)
        return LoaderTrial(options, next(opened, 0.0) + load, load + step_seconds + 1e-4)

    monkeypatch.setattr(Trials, "trial", trial)
    tuned = tune(dataset, 16, step_seconds=step_seconds, epochs=5, max_workers=4)
    assert (tuned.options["num_workers"] > 0) == workers_pay
    assert tuned.best.options == tuned.options and tuned.trials[0].options == {"num_workers": 0}
    assert tuned.speed_up > 1.5 if workers_pay else tuned.speed_up == 1.0
    if name == "next to nothing beside the steps":
        assert tuned.reason == "loading makes the steps less than 10% longer", "without workers nothing is hidden"


def cost(dataset):
    """Seconds that a sample waits, on average."""
    return dataset.wait * (1 + 11 / 16 if isinstance(dataset, UnevenCost) else 1)


class Waits(torch.utils.data.Dataset):
    """Each sample waits and tells which worker waited, from when to when."""

    def __len__(self):
        return 32

    def __getitem__(self, index):
        start = time.monotonic()
        time.sleep(0.05)
        worker = torch.utils.data.get_worker_info().id
        return torch.tensor([worker, start, time.monotonic()], dtype=torch.float64)


def test_samples_that_wait_overlap_on_any_machine():
    """A wait needs no core: on a busy machine, too, one worker waits while the other does."""
    with allow_oversubscription():
        waits = torch.cat(list(torch.utils.data.DataLoader(Waits(), 4, num_workers=2))).tolist()
    first, second = ([wait[1:] for wait in waits if wait[0] == worker] for worker in (0, 1))
    assert any(a < d and c < b for a, b in first for c, d in second)


@pytest.mark.parametrize("name", [name for name, (*_, workers_pay) in CASES.items() if workers_pay])
def test_real_trials_try_workers_and_leave_none(name):
    dataset, step_seconds, _ = CASES[name]
    before = child_pids()
    tuned = tune(dataset, 16, step_seconds=step_seconds, epochs=5, max_workers=2, deadline_seconds=120)
    assert tuned.trials[0].options == {"num_workers": 0} and len(tuned.trials) > 1
    assert max(trial.options["num_workers"] for trial in tuned.trials) > 0
    assert tuned.options in [trial.options for trial in tuned.trials]
    assert child_pids() <= before


def test_the_options_are_those_of_a_data_loader():
    options = loader_options(2, 2, 3)
    tuned = Tuned(options, [LoaderTrial({"num_workers": 0}, 0.5, 0.2), LoaderTrial(options, 1.0, 0.1)], "why", 10, 3)
    loader = torch.utils.data.DataLoader(KnownCost(), 8, **tuned.options)
    assert loader.num_workers == tuned.options["num_workers"] == 2 and loader.persistent_workers
    assert "num_workers=2" in repr(tuned) and "start-up, s" in tuned._html()


def test_one_epoch_does_not_repay_an_expensive_start():
    trial = LoaderTrial({"num_workers": 4, "persistent_workers": True}, start_up=10.0, steady=0.1)
    assert trial.epoch(batches=101, epochs=1) == pytest.approx(10 + 10)
    assert trial.epoch(batches=101, epochs=100) == pytest.approx(0.1 + 10.1, rel=0.02)
    again = LoaderTrial({"num_workers": 4, "persistent_workers": False}, start_up=10.0, steady=0.1)
    assert again.epoch(batches=101, epochs=100) == pytest.approx(20)


def test_the_speed_up_is_over_the_default_and_not_over_one_that_pins():
    default, pinned = {"num_workers": 0}, {"num_workers": 0, "pin_memory": True}
    tuned = Tuned(pinned, [LoaderTrial(default, 1.0, 1.0), LoaderTrial(pinned, 0.5, 0.5)], "", batches=10, epochs=1)
    assert tuned.speed_up == 2.0


def test_trials_do_not_begin_after_the_budget():
    start = time.monotonic()
    tuned = tune(KnownCost(wait=0.02), 16, budget_seconds=0.1, max_workers=8)
    assert tuned.reason == "the budget is spent" and len(tuned.trials) == 1
    assert time.monotonic() - start < 300


def test_trials_read_other_samples_as_long_as_there_are_any():
    seen = []

    class Seen(KnownCost):
        def __getitem__(self, index):
            seen.append(index)
            return super().__getitem__(index)

    run = Trials(Seen(64), 4, lambda _: None, 5.0, {}, time.monotonic() + 5)
    for _ in range(2):
        run.trial({"num_workers": 0})
    assert len(seen) == len(set(seen)) == 56
    run.trial({"num_workers": 0})
    assert set(seen) == set(range(64)), "then they come round again"


def test_the_tuned_setting_must_win_again_in_turns(monkeypatch):
    """A setting that was lucky once loses against the default."""
    lucky = iter([1.0])

    def trial(self, options):
        self.steps.append(0.0)
        steady = 1.0 if options["num_workers"] == 0 else 0.1 * next(lucky, 20.0)
        return LoaderTrial(options, 0.0, steady)

    monkeypatch.setattr(Trials, "trial", trial)
    tuned = tune(KnownCost(), 16, max_workers=4)
    assert tuned.options == {"num_workers": 0} and "the default was as fast" in tuned.reason


def tuned_by(monkeypatch, steady, **options):
    """What is tuned if a batch takes steady(options, number of trials of this setting before) seconds."""
    seen = []

    def trial(self, given):
        self.steps.append(0.0)
        seen.append(given)
        seconds = steady(given, seen.count(given) - 1)
        return LoaderTrial(given, seconds, seconds)

    monkeypatch.setattr(Trials, "trial", trial)
    return tune(KnownCost(), 16, **options)


@pytest.mark.parametrize("one_worker, chosen", [(0.97, 0), (0.94, 1)])
def test_a_setting_must_be_five_percent_better_than_a_simpler_one(monkeypatch, one_worker, chosen):
    tuned = tuned_by(monkeypatch, lambda options, _: one_worker if options["num_workers"] else 1.0, max_workers=1)
    assert tuned.options["num_workers"] == chosen
    # What is not 5 % better in its first trial takes no turns.
    assert (len(tuned.trials) == 2) == (not chosen)


def test_what_was_lucky_once_loses_against_the_simpler_setting_that_it_replaced(monkeypatch):
    """In its first trial loading further ahead looks 20 % better, in turns it gains 2 %: the simpler setting stays."""
    seconds = {0: lambda _: 1.0, 2: lambda _: 0.5, 4: lambda before: 0.49 if before else 0.4}
    tuned = tuned_by(monkeypatch, lambda options, before: seconds[options.get("prefetch_factor", 0)](before), max_workers=2)
    assert (tuned.options["num_workers"], tuned.options["prefetch_factor"]) == (1, 2)
    assert "in turns with num_workers=1, prefetch_factor=4" in tuned.reason and "was as fast" in tuned.reason
    assert tuned.gain.startswith("2× faster"), "it took turns with the default, too"


def test_a_gain_over_a_simpler_setting_within_the_noise_is_not_kept(monkeypatch):
    """Loading further ahead is 10 % faster in the median, but the simpler setting differs from itself by 60 %."""

    def steady(options, before):
        return {0: 2.0, 2: (0.7, 1.0)[before % 2], 4: 0.6 if not before else 0.65}[options.get("prefetch_factor", 0)]

    tuned = tuned_by(monkeypatch, steady, max_workers=1)
    assert tuned.options["prefetch_factor"] == 2 and "was within the noise" in tuned.reason


def test_a_gain_within_the_noise_is_not_kept(monkeypatch):
    """Workers are 30 % faster in the median, but the default differs from itself by as much."""
    alone = iter([1.0, 1.6, 1.0, 1.6, 1.0])

    def trial(self, options):
        self.steps.append(0.0)
        return LoaderTrial(options, 0.0, next(alone) if options["num_workers"] == 0 else 0.7)

    monkeypatch.setattr(Trials, "trial", trial)
    tuned = tune(KnownCost(), 16, max_workers=1)
    assert tuned.options == {"num_workers": 0} and "within the noise" in tuned.reason


def test_the_gain_is_given_with_its_interval_where_both_settings_took_turns():
    alone, two = {"num_workers": 0}, {"num_workers": 2}
    trials = [LoaderTrial(options, 0.0, steady) for options, steady in ((alone, 1.0), (two, 0.5)) * 5]
    assert Tuned(two, trials, "", 10, 1).gain == "2× faster (2 to 2; noise ±0 %) compared with no workers"
    assert Tuned(alone, trials, "", 10, 1).gain == "the default"


def test_the_speed_up_is_that_of_whole_epochs_by_the_medians_of_their_trials():
    alone, two = {"num_workers": 0}, {"num_workers": 2, "persistent_workers": True}
    trials = [
        LoaderTrial(alone, 0.2, 0.2),
        *(LoaderTrial(two, start, steady) for start, steady in ((1.0, 0.1), (9.0, 0.9), (2.0, 0.05))),
    ]
    tuned = Tuned(two, trials, "", batches=10, epochs=4)
    assert (tuned.best.start_up, tuned.best.steady) == (2.0, 0.1)
    assert tuned.speed_up == pytest.approx((10 * 0.2) / (2.0 / 4 + 0.1 * (10 - 1 / 4)))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(10))


class Lengthless(KnownCost):
    """Its length is what was asked for: an error, or no length at all."""

    def __init__(self, length):
        super().__init__(8)
        self.length = length

    def __len__(self):
        if isinstance(self.length, Exception):
            raise self.length
        return self.length


@pytest.mark.parametrize(
    "options, text",
    [
        (dict(batch_size=0), "batch_size=0 is not valid. Give a whole number from 1 on"),
        (dict(batch_size="8"), "batch_size='8' is not valid"),
        (dict(batch_size=8, epochs=0), "epochs=0 is not valid"),
        (dict(batch_size=8, epochs=2.5), "epochs=2.5 is not valid"),
        (dict(batch_size=8, max_workers=-1), "max_workers=-1 is not valid. Give a whole number from 0 on"),
        (dict(batch_size=8, budget_seconds="30"), "budget_seconds='30' is not valid. Give seconds"),
        (dict(batch_size=8, step_seconds=float("nan")), "step_seconds=nan is not valid"),
        (dict(batch_size=8, step_seconds=float("inf")), "step_seconds=inf is not valid"),
        (dict(batch_size=True), "batch_size=True is not valid"),
        (dict(batch_size=8, deadline_seconds=0), "deadline_seconds=0 is not a time"),
        (dict(batch_size=8, timeout=-1), r"DataLoader does not take these options \(timeout"),
        (dict(batch_size=65, drop_last=True), "drop_last drops the only batch: 64 samples, batch_size=65"),
        (dict(batch_size=8, step=3), "step: 3 is not a function"),
        (dict(batch_size=8, persistent_workers=True), "persistent_workers: the tuner chooses it"),
        (dict(batch_size=8, sampler=range(64), num_workers=2), "num_workers, sampler: the tuner chooses it"),
        (dict(batch_size=8, shuffle=True), "shuffle: the tuner chooses it"),
        (dict(batch_size=8, timeout="2"), r"DataLoader does not take these options \('>' not supported"),
    ],
)
def test_options_that_make_no_trial_are_refused(options, text):
    with pytest.raises(LabError, match=text):
        tune(KnownCost(64), **options)


@pytest.mark.parametrize(
    "dataset, text",
    [
        (Stream(), "no length"),
        (KnownCost(0), "is empty"),
        (Lengthless(NotImplementedError()), r"length of this data set cannot be had \(NotImplementedError"),
        (Lengthless(TypeError("of a stream")), r"cannot be had \(TypeError: of a stream"),
        (Lengthless(2.5), r"cannot be had \(TypeError"),
        (Lengthless(-1), r"cannot be had \(ValueError"),
        (Lengthless(1 << 70), r"cannot be had \(OverflowError"),
        ("a text", "data: a str is not a data set"),
        (3, "a int is not a data set"),
    ],
)
def test_what_cannot_be_tuned_is_refused(dataset, text):
    with pytest.raises(LabError, match=text):
        tune(dataset, 4)


@pytest.mark.parametrize("batches, text", [([], "gives no batch"), ([[]], "gives no batch"), ([3], "no list of indices")])
def test_a_batch_sampler_without_batches_is_refused(batches, text):
    with pytest.raises(LabError, match=f"Its batch_sampler .*{text}"):
        tune(torch.utils.data.DataLoader(KnownCost(8), batch_sampler=batches))


@pytest.mark.parametrize("own", ["sampler", "batch_sampler"])
def test_a_result_says_that_the_loaders_own_order_was_not_used(own):
    order = torch.utils.data.SubsetRandomSampler(range(16))
    given = torch.utils.data.BatchSampler(order, 4, drop_last=False) if own == "batch_sampler" else order
    tuned = tune(torch.utils.data.DataLoader(KnownCost(64), **{own: given}), max_workers=0)
    assert f"the loader's own {own} ({type(given).__name__}) was not used" in str(tuned)
    assert "not used" not in str(tune(torch.utils.data.DataLoader(KnownCost(64), 4, shuffle=True), max_workers=0))


def test_a_data_set_without_whole_numbers_is_not_blamed_for_them():
    named = {f"image {number}": torch.zeros(1) for number in range(16)}
    with pytest.raises(LabError, match=r"ask for whole numbers, data\[0\] to data\[15\]"):
        tune(named, 4, max_workers=0)


class NoSuchLabel(KnownCost):
    """Labels are looked up by a dictionary, which lacks one; or by code that raises a KeyError without a key."""

    def __init__(self, key):
        super().__init__(16)
        self.key = key

    def __getitem__(self, index):
        raise KeyError(*self.key)


@pytest.mark.parametrize("key", [(9,), ()])
def test_a_key_that_the_labels_lack_is_not_taken_for_an_index(key):
    with pytest.raises(LabError, match="The data set raised KeyError") as raised:
        tune(NoSuchLabel(key), 4, max_workers=0)
    assert "whole numbers" not in str(raised.value)


def test_a_timeout_is_for_workers():
    tuned = tune(KnownCost(32), 4, timeout=300, max_workers=1)
    assert [trial.failure for trial in tuned.trials] == [""] * len(tuned.trials) and len(tuned.trials) > 1


def test_a_data_set_that_hangs_is_reported_within_the_deadline():
    start = time.monotonic()
    with pytest.raises(LabError, match=r"No batch came within 0.3 s at batch \d: the data set hangs"):
        tune(FaultyData("hangs"), 8, deadline_seconds=0.3)
    assert time.monotonic() - start < 300


def test_a_data_set_that_raises_is_reported():
    with pytest.raises(LabError, match="no label for sample 5"):
        tune(FaultyData("raises"), 16)


def test_a_small_data_set_is_tuned_too():
    assert tune(KnownCost(3), 2).options["num_workers"] == 0


def test_integers_of_numpy_are_whole_numbers_too(monkeypatch):
    tuned = tuned_by(monkeypatch, lambda *_: 1.0, epochs=np.int64(2), max_workers=np.int64(4))
    assert [trial.options["num_workers"] for trial in tuned.trials] == [0, 1, 2]
    assert tune(KnownCost(16), np.int64(4), max_workers=0).batches == 4


def test_the_most_workers_are_those_of_the_cores_that_this_process_may_use(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 12)
    seconds = {1 << power: 0.5**power for power in range(4)} | {12: 0.01}
    tuned = tuned_by(monkeypatch, lambda options, _: seconds.get(options["num_workers"], 2.0))
    assert tuned.options["num_workers"] == 12


def test_workers_that_start_anew_can_be_tuned():
    tuned = tune(KnownCost(64, wait=0.001), 8, max_workers=1, multiprocessing_context="spawn", budget_seconds=20)
    assert [trial.workers for trial in tuned.trials][:2] == [0, 1]


def test_printing_shows_the_gain_and_every_trial():
    tuned = Tuned(
        {"num_workers": 2}, [LoaderTrial({"num_workers": 0}, 0.5, 0.2), LoaderTrial({"num_workers": 2}, 1.0, 0.1)], "why", 10, 1
    )
    first, title, headings, *rows = str(tuned).splitlines()
    assert first == "num_workers=2: 1.21× faster compared with no workers; why."
    assert title.startswith("Trials") and headings.split() == ["setting", "start-up,", "s", "batch,", "ms", "epoch,", "s"]
    assert [row.split() for row in rows] == [["num_workers=0", "0.5", "200", "2.3"], ["num_workers=2", "1", "100", "1.9"]]


def test_trials_are_counted_on_a_progress_line(monkeypatch):
    seen = []
    monkeypatch.setattr("hpml_lab.loading.tools.tuner.progress", lambda items, description: seen.append(description) or items)
    tune(KnownCost(16), 4, max_workers=0)
    assert seen == ["tune: trials"]


def test_trials_keep_the_callers_thread_gradient_mode_and_autocast():
    seen = []

    class Looks(KnownCost):
        def __getitem__(self, index):
            seen.append((threading.current_thread(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
            return super().__getitem__(index)

    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        tune(Looks(32), 4, max_workers=0, step=lambda batch: seen.append(seen[-1]))
    assert set(seen) == {(threading.main_thread(), False, True)}


def training(device="cpu"):
    """A model with dropout and batch norm, its optimizer and scheduler, and a step that trains them."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)

    def step(batch):
        optimizer.zero_grad()
        net(batch).square().mean().backward()
        optimizer.step()
        schedule.step()

    return net, optimizer, schedule, step


def state(net, optimizer, schedule):
    grads = [None if p.grad is None else p.grad.clone() for p in net.parameters()]
    return copy.deepcopy(
        (net.state_dict(), optimizer.state_dict(), schedule.state_dict(), grads, torch.get_rng_state(), random.getstate())
    )


@pytest.mark.parametrize("trained_before", [False, True])
@pytest.mark.parametrize("how", ["closure", "partial", "method", "list", "object"])
def test_the_step_is_run_and_trains_nothing(trained_before, how):
    net, optimizer, schedule, step = training()
    if trained_before:
        step(torch.randn(4, 16))
    calls = []

    class Trainer:
        def __init__(self):
            self.parts = {"net": [net]}
            self.optimizers = (optimizer,)
            self.schedule = schedule

        def one(self, batch):
            calls.append(1)
            self.parts["net"][0](batch).sum().backward()
            self.optimizers[0].step()
            self.schedule.step()

    def counted(batch, step):
        calls.append(1)
        step(batch)

    class Step:
        def __call__(self, batch):
            counted(batch, step)

    steps = {
        "closure": lambda batch: (calls.append(1), step(batch)),
        "partial": functools.partial(counted, step=step),
        "method": Trainer().one,
        "list": lambda batch: [inner(batch) for inner in (counted_step,)],
        "object": Step(),
    }

    def counted_step(batch):
        counted(batch, step)

    before = state(net, optimizer, schedule)
    held = [p.grad for p in net.parameters()]
    tune(KnownCost(64), 4, step=steps[how], max_workers=1)
    assert calls, "the step did run"
    after = state(net, optimizer, schedule)
    assert torch.equal(before[4], after[4]) and before[5] == after[5]
    assert all(torch.equal(before[0][name], after[0][name]) for name in before[0])
    assert repr(before[1:4]) == repr(after[1:4])
    assert all(p.grad is grad for p, grad in zip(net.parameters(), held, strict=True))


class Learner(torch.nn.Module):
    """As the nets of many tutorials on reinforcement learning: its optimizer is an attribute."""

    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(16, 1)
        self.optimizer = torch.optim.Adam(self.parameters(), lr=0.1)

    def learn(self, batch):
        self.optimizer.zero_grad()
        self.net(batch).square().mean().backward()
        self.optimizer.step()


@pytest.mark.parametrize("batches_before", [0, 2])
def test_an_optimizer_that_is_an_attribute_of_a_model_is_put_back(batches_before):
    learner = Learner()
    for _ in range(batches_before):
        learner.learn(torch.randn(4, 16))
    before = copy.deepcopy((learner.state_dict(), learner.optimizer.state_dict()))
    tune(KnownCost(64), 4, step=learner.learn, max_workers=0)
    assert repr((learner.state_dict(), learner.optimizer.state_dict())) == repr(before)


def test_parameters_that_are_plain_tensors_are_put_back():
    w, b = torch.zeros(16, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([{"params": [w]}, {"params": [b], "lr": 0.1}], lr=1e-4)

    def step(batch):
        (batch @ w + b - 1.0).square().mean().backward()
        optimizer.step()
        steps.append(b.item())

    steps: list[float] = []
    tune(KnownCost(64), 4, step=step, max_workers=0)
    assert any(steps) and not w.any() and not b.any() and w.grad is None and b.grad is None


class Trainer:
    """It has its loader as an attribute, and everybody looks at a first batch."""

    def __init__(self):
        self.net = torch.nn.Linear(16, 1)
        self.loader = StatefulDataLoader(KnownCost(20), 4)

    def step(self, batch):
        self.net(batch).sum().backward()


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata calls it
def test_a_loader_that_has_a_state_is_not_resumed():
    trainer = Trainer()
    next(iter(trainer.loader))
    tune(KnownCost(64), 4, step=trainer.step, max_workers=0)
    assert [int(batch[0, 0]) for batch in trainer.loader] == [0, 4, 8, 12, 16]


def test_what_the_step_trains_can_be_named():
    net, *_ = training()
    step = {"run": lambda batch: net(batch).sum().backward()}
    tune(KnownCost(32), 4, step=lambda batch: step["run"](batch), restore=[net], max_workers=0)
    assert all(p.grad is None for p in net.parameters())
    tune(KnownCost(32), 4, step=lambda batch: step["run"](batch), restore=[], max_workers=0)
    assert all(p.grad is not None for p in net.parameters()), "nothing was asked to be put back"


def test_weights_are_back_after_an_error_of_the_step():
    net, optimizer, schedule, step = training()
    before = state(net, optimizer, schedule)

    def breaks(batch):
        step(batch)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        tune(KnownCost(32), 4, step=breaks)
    assert all(torch.equal(a, b) for a, b in zip(before[0].values(), net.state_dict().values(), strict=True))


def test_a_model_inside_another_is_put_back_once():
    net, optimizer, _, step = training()
    first = net[0]
    found = trained_by(lambda batch: (first, net, optimizer, step))
    assert {id(value) for value in found if isinstance(value, torch.nn.Module)} == {id(net)}


class Settings(dict):
    """Settings whose names are attributes, as many trainings have them: another name is a KeyError."""

    __getattr__ = dict.__getitem__


def test_settings_that_the_step_uses_are_looked_through_for_models():
    net, *_ = training()
    settings = Settings(scale=2.0, parts=Settings(net=net))
    tune(KnownCost(32), 4, step=lambda batch: settings.parts.net(batch * settings.scale).sum().backward(), max_workers=0)
    assert all(p.grad is None for p in net.parameters())


def test_a_lazy_layer_is_refused():
    net = torch.nn.LazyLinear(3)
    with pytest.raises(LabError, match="without a shape yet"):
        tune(KnownCost(32), 4, step=lambda batch: net(batch))


def test_a_loader_is_tuned_with_its_own_batch_size_and_collate():
    sizes = set()

    def collate(samples):
        sizes.add(len(samples))
        return torch.stack(samples)

    loader = torch.utils.data.DataLoader(KnownCost(64), 4, collate_fn=collate, shuffle=True)
    assert tune(loader, max_workers=0).batches == 16 and sizes == {4}
    batch_sampler = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(range(64)), 8, drop_last=False)
    before = torch.get_rng_state()
    assert tune(torch.utils.data.DataLoader(KnownCost(64), batch_sampler=batch_sampler), max_workers=0).batches == 8
    assert torch.equal(torch.get_rng_state(), before), "the sampler draws its seed when it is asked for a batch"
    with pytest.raises(LabError, match="makes no batches"):
        tune(torch.utils.data.DataLoader(KnownCost(64), batch_size=None))
    with pytest.raises(LabError, match="needs a batch size"):
        tune(KnownCost(64))


# --- settings that do not fit, lengths of any size, and what a choice changes -----------------------------------------


class OnlyAlone(KnownCost):
    """Fails in a worker: by an error, or killed as by a system without memory."""

    def __init__(self, fault):
        super().__init__(64)
        self.fault = fault

    def __getitem__(self, index):
        if torch.utils.data.get_worker_info() is not None:
            self.fault()
        return super().__getitem__(index)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def no_memory():
    raise MemoryError


@pytest.mark.parametrize("fault, why", [(killed, r"A worker \(process \d+\) .*"), (no_memory, "Worker 0 raised MemoryError")])
def test_a_setting_that_does_not_fit_is_a_row_and_what_worked_is_kept(fault, why):
    tuned = tune(OnlyAlone(fault), 4, max_workers=4, budget_seconds=300, deadline_seconds=120)
    assert tuned.options == {"num_workers": 0} and [trial.workers for trial in tuned.trials] == [0, 1]
    assert re.fullmatch(rf"num_workers=1 did not fit: {why} at batch 0", tuned.reason), tuned
    assert re.search(r"^num_workers=1, \S+ \S+ did not fit +– +– +–$", str(tuned), re.MULTILINE), "no figures"
    assert re.search(rf"^num_workers=1.* did not fit: {why} at batch 0\.\Z", str(tuned), re.MULTILINE), "once, below the table"


def test_below_a_setting_that_does_not_fit_the_search_goes_on(monkeypatch):
    def steady(options, before):
        if options["num_workers"] > 5:
            raise LabError("No shared memory was left.", "Give it more.")
        return 1.0 / (options["num_workers"] + 1)

    tuned = tuned_by(monkeypatch, steady, max_workers=32)
    assert tuned.options["num_workers"] == 5 and tuned.speed_up == pytest.approx(6.0)
    assert list(dict.fromkeys(trial.workers for trial in tuned.trials)) == [0, 1, 2, 4, 8, 6, 5]
    assert [trial.workers for trial in tuned.trials if trial.failure] == [8, 6]


def test_a_setting_that_fails_in_its_turns_is_given_up(monkeypatch):
    def steady(options, before):
        if options["num_workers"] == 2 and before:
            raise LabError("No shared memory was left.", "Give it more.")
        return {0: 1.0, 1: 0.6, 2: 0.3}[options["num_workers"]]

    tuned = tuned_by(monkeypatch, steady, max_workers=2)
    assert tuned.options["num_workers"] == 1 and "prefetch_factor=2, persistent_workers=True did not fit: No sh" in tuned.reason
    assert tuned.gain.startswith("1.67×")


def test_the_default_must_work(monkeypatch):
    def steady(options, before):
        if not options["num_workers"] and before:
            raise LabError("The data set raised OSError at batch 1.", "")
        return 0.1 if options["num_workers"] else 1.0

    with pytest.raises(LabError, match="raised OSError"):
        tuned_by(monkeypatch, steady, max_workers=1)


class Endless(KnownCost):
    def __len__(self):
        return sys.maxsize


def test_memory_and_time_do_not_grow_with_the_length():
    tracemalloc.start()
    try:
        tuned = tune(Endless(), 32, max_workers=0)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert tuned.batches == -(-sys.maxsize // 32)


def test_an_order_that_is_drawn_as_needed_is_a_permutation_and_each_is_as_likely():
    assert sorted(itertools.islice(shuffled(50), 50)) == list(range(50))
    order = list(itertools.islice(shuffled(3), 3 * 6000))
    found = collections.Counter(tuple(order[i : i + 3]) for i in range(0, len(order), 3))
    assert sorted(found) == sorted(itertools.permutations(range(3)))
    assert all(abs(count - 1000) < 150 for count in found.values()), "five standard deviations"


class Opened(KnownCost):
    """Opened in each worker by its worker_init_fn, as torch's documentation shows it."""

    opened = False

    def __getitem__(self, index):
        assert self.opened or torch.utils.data.get_worker_info() is None
        return super().__getitem__(index)


def open_it(_):
    torch.utils.data.get_worker_info().dataset.opened = True


def test_a_worker_init_fn_finds_the_data_set_itself():
    tuned = tune(Opened(64), 4, max_workers=1, worker_init_fn=open_it)
    assert [trial.failure for trial in tuned.trials if trial.workers]
    assert not any(trial.failure for trial in tuned.trials), tuned


def orders(epochs=3, **options):
    """The order of samples in each epoch of a loader that shuffles, at the same seed."""
    torch.manual_seed(0)
    own = options.pop("own", False)
    if own:
        options["sampler"] = torch.utils.data.RandomSampler(range(64), generator=torch.Generator().manual_seed(1))
    else:
        options["shuffle"] = True
    loader = torch.utils.data.DataLoader(range(64), 8, **options)
    try:
        return [torch.cat(list(loader)).tolist() for _ in range(epochs)]
    finally:
        if options.get("persistent_workers"):
            loader._iterator._shutdown_workers()


def test_persistent_workers_change_the_order_from_the_second_epoch_on_and_the_tuner_says_so():
    """torch draws a seed for the workers from the generator that the sampler uses, and persistent ones get it only once."""
    none, workers, persistent = orders(), orders(num_workers=1), orders(num_workers=1, persistent_workers=True)
    assert none == workers and persistent[0] == workers[0]
    assert persistent[1] != workers[1] and persistent[2] != workers[2]
    kept = orders(own=True)
    assert kept == orders(own=True, num_workers=1) == orders(own=True, num_workers=1, persistent_workers=True)

    alone, chosen = {"num_workers": 0}, loader_options(1, 2, 3)
    tuned = Tuned(chosen, [LoaderTrial(alone, 1.0, 1.0), LoaderTrial(chosen, 0.5, 0.5)], "why", 10, 3)
    said = "another order from the second epoch on, at the same seed; a RandomSampler with a generator of its own keeps it"
    assert said in str(tuned) and said in tuned._html()
    once = loader_options(1, 2, 1)
    assert "order from" not in str(Tuned(once, [LoaderTrial(alone, 1.0, 1.0), LoaderTrial(once, 0.5, 0.5)], "why", 10, 1))
