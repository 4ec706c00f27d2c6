"""The storage model and the data sets behind it: times by the lecture's figures, real files, the same samples everywhere."""

import pickle
import statistics
from pathlib import Path

import pytest
import torch

from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.loading.experiments.slow_clips import READ, TRANSFORM, Clips, StorageModel, make_clips
from hpml_lab.loading.lessons.whole_batches import BatchedImages, CheapImages


def test_reads_and_transforms_lie_in_the_lectures_ranges_and_reach_both_ends():
    model = StorageModel()
    reads = [model.read(index) for index in range(2000)]
    transforms = [model.transform(index) for index in range(2000)]
    assert min(reads) == READ[0] and max(reads) == READ[1]  # cut there
    assert TRANSFORM[0] <= min(transforms) < 0.0135 and 0.0265 < max(transforms) <= TRANSFORM[1]
    assert 0.09 < statistics.median(reads) < 0.12 < statistics.mean(reads)  # skewed to the right, as log-normal times are


def test_a_batch_of_32_takes_several_seconds():
    model = StorageModel()
    batches = [model.load(range(32 * b, 32 * b + 32)) for b in range(21)]
    assert all(3 < seconds < 9 for seconds in batches)


def test_an_index_has_one_time_and_scale_and_seed_do_what_they_say():
    model = StorageModel()
    assert [model.read(3), model.transform(3)] == [StorageModel().read(3), StorageModel().transform(3)]
    assert StorageModel(scale=0.1).load([3]) == pytest.approx(0.1 * model.load([3]))
    assert StorageModel(seed=1).read(3) != model.read(3) != model.read(4)
    assert StorageModel(scale=0.0).load(range(10)) == 0


def test_a_sample_takes_at_least_its_time(tmp_path):
    model = StorageModel(scale=0.1)
    clips = Clips(make_clips(tmp_path, 3), model)
    for index in range(3):
        start = CLOCK()
        clips[index]
        assert CLOCK() - start >= model.load([index])


def test_clips_are_read_from_the_files(tmp_path):
    clips = Clips(make_clips(tmp_path, 12, frames=3, side=8))
    clip, label = clips[11]
    assert len(clips) == 12 and clip.shape == (3, 3, 8, 8) and clip.dtype == torch.float32 and label == 1
    assert clip.max() == 2 and (clip[:, 0] != clip[:, 1]).any()  # the square is white, and it moves
    frame = sorted(Path(clips.clips[11]).iterdir())[0]
    frame.write_bytes(b"P6 8 8 255\n" + bytes(8 * 8 * 3))
    assert (clips[11][0][:, 0] == -2).all()


def test_two_folders_hold_the_same_clips(tmp_path):
    first, second = (Clips(make_clips(tmp_path / name, 3)) for name in "ab")
    assert all(torch.equal(first[i][0], second[i][0]) for i in range(3))


def test_data_sets_travel_to_a_spawned_worker(tmp_path):
    make_clips(tmp_path / "clips", 2)
    for dataset in (Clips(tmp_path / "clips"), CheapImages(2)):
        again = pickle.loads(pickle.dumps(dataset))
        assert len(again) == 2 and torch.equal(again[1][0], dataset[1][0])


def test_a_whole_batch_of_cheap_images_is_the_same_as_its_images_one_by_one():
    one_by_one, whole = CheapImages(50), BatchedImages(50)
    indices = [3, 49, 0, 3]
    images, labels = whole.__getitems__(indices)
    assert torch.equal(images, torch.stack([one_by_one[index][0] for index in indices]))
    assert torch.equal(labels, torch.stack([one_by_one[index][1] for index in indices]))
