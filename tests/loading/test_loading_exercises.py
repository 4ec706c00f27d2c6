"""What notebook 08's checks stand on; their answers are judged in tests/test_exercises.py."""

import time

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.judge.exercises import check
from hpml_lab.core.system.workers import allow_oversubscription
from hpml_lab.loading import picture_store
from hpml_lab.loading.exercises import predict_speed_up
from hpml_lab.loading.picture_store import PictureStore, SlowPictures
from hpml_lab.loading.sampling import Draws, repeats, seed_own


def test_the_slow_data_set_is_right_and_its_table_is_parsed_for_each_sample():
    store = PictureStore(30, side=8)
    dataset, twin = SlowPictures(store), PictureStore(30, side=8)
    labels = twin.table()
    for index in (0, 29, 7):
        image, label = dataset[index]
        right = picture_store.decode(twin.read(index))
        assert label == labels[index]
        assert torch.equal(image, right) or torch.equal(image, right.flip(-1))
    assert store.tables == 3 and store.reads == [0, 29, 7]
    with pytest.raises(IndexError):
        dataset[30]


def test_a_loader_takes_the_slow_data_set():
    images, labels = next(iter(DataLoader(SlowPictures(PictureStore(10)), batch_size=4)))
    assert images.shape == (4, 1, 48, 48) and labels.shape == (4,) and 0 <= images.min() <= images.max() <= 1


def test_the_bars_have_one_stage_each_and_add_up():
    dataset = SlowPictures(PictureStore(200))
    [axes] = picture_store.stage_times(dataset, 10).figure.axes
    bars = [patch.get_width() for patch in axes.patches]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(picture_store.STAGES)
    assert sum(bars) * 10 / 1e3 == pytest.approx(sum(dataset.seconds.values())) and all(bar > 0 for bar in bars)


def test_the_plan_of_the_prediction_has_the_bounds_of_a_pipeline():
    load, compute, batches = predict_speed_up.LOAD, predict_speed_up.COMPUTE, predict_speed_up.BATCHES
    for workers in predict_speed_up.WORKERS:
        ready, done = [load / batches * (batch // workers + 1) for batch in range(batches)], 0.0
        for moment in ready:  # batch by batch: computed when it is there and the one before is done
            done = max(done, moment) + compute / batches
        assert predict_speed_up._epoch(workers) == pytest.approx(done, rel=0.12)


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


def test_numpys_generator_seeded_by_torch_is_a_right_source():
    def from_numpy(worker_id):
        dataset = torch.utils.data.get_worker_info().dataset
        dataset.rng = np.random.default_rng(np.random.randint(2**31))

    assert check("seed-the-workers", from_numpy)


@pytest.mark.parametrize("rounded", [(2.3, 4.4, 6.4, 6.4), [2.26, 4.38, 6.36, 6.36]])
def test_a_prediction_may_be_rounded(rounded):
    assert check("predict-speed-up", rounded)


def test_other_right_samplers_and_data_sets_are_taken():
    def plain(size, block):  # no Sampler of torch's, whole epochs as lists, indices as tensors
        class Plain:
            def __len__(self):
                return size

            def __iter__(self):
                parts = list(torch.arange(size).split(block))
                return iter([i for n in np.random.permutation(len(parts)) for i in parts[n][torch.randperm(len(parts[n]))]])

        return Plain()

    def lazy(store):  # each worker parses its own table at its first sample
        class Lazy(SlowPictures):
            labels = None

            def __getitem__(self, index):
                if self.labels is None:
                    self.labels = self.store.table()
                return picture_store.augment(picture_store.decode(self.store.read(index))), self.labels[index]

        return Lazy(store)

    def by_gather(image, points, pairs):
        order = torch.arange(len(points))
        for left, right in pairs:
            order[left], order[right] = right, left
        return torch.flip(image, [2]), (points * torch.tensor([-1.0, 1.0]) + torch.tensor([image.shape[2] - 1.0, 0.0]))[order]

    assert check("block-sampler", plain) and check("find-the-bottleneck", lazy) and check("flip-together", by_gather)
