"""io-vs-compute: the parts of a batch's time, the passes of a step, and photographs whose stages are timed."""

import pickle
from dataclasses import replace

import torch

from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import child_pids
from hpml_lab.storage import io_vs_compute
from hpml_lab.storage.experiments import io_vs_compute as experiment
from hpml_lab.storage.experiments.io_vs_compute import timed_epochs
from hpml_lab.storage.experiments.io_vs_compute.timed_epochs import Photos, make_photos

SMALL = dict(rounds=1, batches=4, batch_size=4, side=64, crop=32, width=4, gpu_width=4)


def small(device="cpu"):
    return replace(io_vs_compute, quick=SMALL)("quick", device=device)


def test_a_saved_result_draws_its_figure_and_no_worker_is_left(tmp_path):
    before = child_pids()
    result = small()
    assert child_pids() <= before
    left, right = load_result(result.save(tmp_path)).figure().axes
    assert left.get_xlabel() and right.get_ylabel()
    assert [figure.label for figure in result.key_figures if figure.lecture is not None and figure.here is None] == []


def test_photos_are_decoded_and_their_stages_are_timed(tmp_path):
    photos = Photos(make_photos(tmp_path, 3, side=64), crop=32)
    before = CLOCK()
    photo, label, times = photos[2]
    assert photo.shape == (3, 32, 32) and label == 2 and not torch.equal(photo, photos[1][0])
    assert torch.equal(pickle.loads(pickle.dumps(photos))[2][0], photo), "it travels to a spawned worker"
    assert before <= times[0] and bool((times.diff() > 0).all()) and times[-1] <= CLOCK()


def test_a_step_has_as_many_passes_as_take_about_as_long_as_loading():
    def epoch(load, *steps):
        zeros = dict.fromkeys((*timed_epochs.LOAD_PARTS, *timed_epochs.STEP_PARTS), 0.0)
        return timed_epochs.TimedEpoch(1.0, [zeros | {"decode": load, "forward": step} for step in steps])

    assert timed_epochs.enough_passes(epoch(0.2, 9.0, 0.05, 0.05)) == 4, "the first step also chooses kernels"
    assert timed_epochs.enough_passes(epoch(0.1, 0.7, 0.7)) == 1
    assert timed_epochs.enough_passes(epoch(1.0, 1e-4, 1e-4)) == timed_epochs.MOST_PASSES


def test_a_step_s_parts_are_those_of_all_its_passes(monkeypatch):
    moments = iter([0, 1, 2, 4, 8, 10, 14, 22])  # copy 1; forward 1 and 2, backward 2 and 4, step 4 and 8
    monkeypatch.setattr(timed_epochs, "CLOCK", lambda: next(moments))
    trainer = timed_epochs.PhotoTrainer(torch.device("cpu"), 2)
    parts = trainer(torch.zeros(1, 3, 16, 16), torch.tensor([0]), passes=2)
    assert parts == {"copy": 1, "forward": 3, "backward": 6, "step": 12}


def test_the_slow_accelerator_has_twice_the_passes_that_were_chosen(monkeypatch):
    timed, passes = experiment.timed_epoch, []

    def noted(loader, trainer, count=1):
        passes.append((loader.num_workers, count))
        return timed(loader, trainer, count)

    monkeypatch.setattr(experiment, "timed_epoch", noted)
    monkeypatch.setattr(experiment, "enough_passes", lambda epoch: 3)
    result = small()
    assert passes == [(0, 1), (1, 1), (0, 6), (0, 3), (1, 3), (0, 6), (0, 3), (0, 6)]
    assert result.here("passes of a step") == 3
