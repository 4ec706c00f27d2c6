"""What notebook 08's checks stand on; their answers are judged in tests/test_exercises.py."""

import time

import pytest
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.judge.exercises import check
from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.loading.exercises import predict_speed_up
from hpml_lab.loading.lessons.sampling import Draws, repeats, seed_own


def test_the_plan_of_the_prediction_has_the_bounds_of_a_pipeline():
    load, compute, batches = predict_speed_up.LOAD, predict_speed_up.COMPUTE, predict_speed_up.BATCHES
    speed_ups = predict_speed_up.speed_ups(load, compute, batches, predict_speed_up.WORKERS)
    for workers, speed_up in zip(predict_speed_up.WORKERS, speed_ups, strict=True):
        ready, done = [load / batches * (batch // workers + 1) for batch in range(batches)], 0.0
        for moment in ready:  # batch by batch: computed when it is there and the one before is done
            done = max(done, moment) + compute / batches
        assert (load + compute) / speed_up == pytest.approx(done, rel=0.12)


def test_the_played_workers_are_like_real_ones():
    """The solution of seed-the-workers in a real loader: nothing repeats; and torch tells a worker what the check plays."""

    def epoch():
        loader = DataLoader(
            Draws(8, "own"), batch_size=2, num_workers=2, worker_init_fn=seed_own, multiprocessing_context="fork", timeout=300
        )
        with allow_oversubscription():
            pairs = [p for workers, numbers in loader for p in zip(workers.tolist(), numbers.tolist(), strict=True)]
        return [[number for worker, number in pairs if worker == wanted] for wanted in range(2)]

    assert repeats([epoch(), epoch()]) == {"across workers": False, "across epochs": False}
    assert check("seed-the-workers", seed_own)


def test_a_judged_worker_leaves_no_worker_behind():
    def looks(worker_id):
        seen.append((worker_id, torch.utils.data.get_worker_info().seed, torch.initial_seed()))
        raise RuntimeError("stop")

    seen = []
    assert check("seed-the-workers", looks).mistake == "raises"
    assert [(number, seed == initial) for number, seed, initial in seen] == [(0, True)]
    assert torch.utils.data.get_worker_info() is None
    assert abs(time.time() - time.time()) < 60, "the clocks are the system's again"
