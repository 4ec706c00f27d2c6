"""What notebook 09's checks stand on; their answers are judged in tests/test_exercises.py."""

import pytest
import torch
from torch.utils.data import DataLoader

from hpml_lab.storage.lessons import slow_pictures
from hpml_lab.storage.lessons.slow_pictures import PictureStore, SlowPictures
from hpml_lab.storage.views import stage_bars


def test_the_slow_data_set_is_right_and_its_table_is_parsed_for_each_sample():
    store = PictureStore(30, side=8)
    dataset, twin = SlowPictures(store), PictureStore(30, side=8)
    labels = twin.table()
    for index in (0, 29, 7):
        image, label = dataset[index]
        right = slow_pictures.decode(twin.read(index))
        assert label == labels[index]
        assert torch.equal(image, right) or torch.equal(image, right.flip(-1))
    assert store.tables == 3 and store.reads == [0, 29, 7]
    with pytest.raises(IndexError):
        dataset[30]


def test_a_loader_takes_the_slow_data_set():
    images, labels = next(iter(DataLoader(SlowPictures(PictureStore(10)), batch_size=4)))
    assert images.shape == (4, 1, 48, 48) and labels.shape == (4,) and 0 <= images.min() <= images.max() <= 1


def test_the_bars_have_one_stage_each():
    store = PictureStore(200)
    [axes] = stage_bars.stage_times(store, 10).figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == list(stage_bars.STAGES)
    assert all(patch.get_width() > 0 for patch in axes.patches) and store.reads == list(range(10))
