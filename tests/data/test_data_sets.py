"""Digits and batches, which the other notebooks build on."""

import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.data import batches, load


def test_digits_need_no_network_and_are_always_split_in_the_same_way():
    first, second = load("digits"), load()
    assert first.train_x.shape == (1300, 1, 8, 8) and first.test_x.shape == (497, 1, 8, 8)
    assert torch.equal(first.train_x, second.train_x) and torch.equal(first.test_y, second.test_y)
    assert (first.train_x.min(), first.train_x.max()) == (0.0, 1.0)
    assert (first.train_x.dtype, first.train_y.dtype) == (torch.float32, torch.int64)
    together = torch.cat([first.train_x, first.test_x]).flatten(1)
    assert len(together) == 1797 and len(together.unique(dim=0)) == 1797, "no image is in both halves"


def test_an_unknown_data_set_names_the_known_ones():
    with pytest.raises(LabError, match="digits or mnist"):
        load("mnits")


def test_an_epoch_gives_every_sample_once_with_its_label():
    x, y = torch.arange(10.0).reshape(10, 1), torch.arange(10)
    seen = list(batches(x, y, 4, torch.Generator().manual_seed(0)))
    assert [len(a) for a, _ in seen] == [4, 4, 2]
    assert all(torch.equal(a.flatten().long(), b) for a, b in seen)
    assert sorted(torch.cat([b for _, b in seen]).tolist()) == list(range(10))


def test_the_generator_fixes_the_order():
    x = y = torch.arange(100)

    def order(seed):
        return torch.cat([b for _, b in batches(x, y, 7, torch.Generator().manual_seed(seed))]).tolist()

    assert order(1) == order(1) != order(2)
    assert order(1) != list(range(100))
