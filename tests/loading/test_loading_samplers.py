"""Samplers, what workers' seeds do, and the experiment on both."""

import pytest
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.system.workers import child_pids
from hpml_lab.data.lengths import LengthBuckets, padding
from hpml_lab.loading.experiments.samplers import SamplerDraws, WorkerNumbers, lengths_in_batches
from hpml_lab.loading.lessons import sampling
from hpml_lab.loading.lessons.sampling import RARE, SAMPLERS, drawn_indices, imbalanced, make_sampler


def in_batches(order, size):
    return [order[at : at + size] for at in range(0, len(order), size)]


@pytest.mark.parametrize("count, batch, pool", [(64, 8, 4), (61, 8, 4), (7, 8, 2), (20, 3, 1), (33, 4, 100), (0, 4, 2)])
def test_length_buckets_draw_each_index_once_in_a_new_order(count, batch, pool):
    lengths = [(37 * i) % 101 + 1 for i in range(count)]
    sampler = LengthBuckets(lengths, batch, pool, torch.Generator().manual_seed(0))
    first, second = list(sampler), list(sampler)
    assert sorted(first) == sorted(second) == list(range(count)) and len(sampler) == count
    assert first != second or count <= batch, "one batch alone is sorted: it has one order"


def test_a_pool_of_all_batches_sorts_and_a_pool_of_one_does_not():
    lengths = [(37 * i) % 101 + 1 for i in range(96)]

    def padded(pool):
        return padding(lengths, list(LengthBuckets(lengths, 8, pool, torch.Generator().manual_seed(1))), 8)

    assert padded(100) < padded(4) < padded(1)
    sort = LengthBuckets(lengths, 8, 100, torch.Generator().manual_seed(1))
    batches = sorted((min(lengths[i] for i in b), max(lengths[i] for i in b)) for b in in_batches(list(sort), 8))
    assert all(high <= low for (_, high), (low, _) in zip(batches, batches[1:], strict=False))
    shortest = [min(lengths[i] for i in b) for b in in_batches(list(sort), 8)]
    assert shortest != sorted(shortest), "an epoch does not go from the short ones to the long ones"


def test_padding_counts_what_is_filled_up():
    assert padding([4, 4, 4, 4], [0, 1, 2, 3], 2) == 0
    assert padding([1, 3, 2, 2], [0, 1, 2, 3], 2) == pytest.approx(1 - 8 / 10)
    assert padding([1, 3, 2], [0, 1, 2], 2) == pytest.approx(1 - 6 / 8)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_loader_hands_out_what_its_sampler_draws(name):
    labels, lengths = imbalanced(50)
    seen = drawn_indices(make_sampler(name, labels, lengths, 8), 50, 8, 2)
    twin = make_sampler(name, labels, lengths, 8)
    assert seen[0] == list(twin) and seen[0]
    assert len(seen[0]) == len(twin)


def test_one_sample_in_ten_is_rare():
    labels, lengths = imbalanced(400)
    assert labels.double().mean().item() == pytest.approx(RARE) and len(lengths) == 400 and min(lengths) >= 10


def test_repeats_tells_both_kinds_apart():
    assert sampling.repeats([[[1, 2], [3, 4]], [[5, 6], [7, 8]]]) == {"across workers": False, "across epochs": False}
    assert sampling.repeats([[[1, 2], [1, 2]], [[5, 6], [5, 6]]]) == {"across workers": True, "across epochs": False}
    assert sampling.repeats([[[1, 2], [3, 4]], [[5, 6], [3, 4]]]) == {"across workers": False, "across epochs": True}


def test_both_workers_draw_and_no_process_is_left():
    before = child_pids()
    draws = sampling.draw_numbers("own", 8, 2, sampling.seed_own)
    assert [[len(worker) for worker in epoch] for epoch in draws] == [[4, 4], [4, 4]]
    assert child_pids() <= before


def test_without_workers_the_worker_is_minus_one():
    for kind in ("numpy", "own", "torch"):
        workers, numbers = next(iter(DataLoader(sampling.Draws(4, kind), batch_size=4)))
        assert workers.tolist() == [-1] * 4 and all(0 <= number < sampling.BIG for number in numbers.tolist())


def test_the_experiment_is_sound(sound, ran):
    result = ran("samplers")
    sound(result)
    rows = {row.sampler: row for row in result.rows(SamplerDraws)}
    assert list(rows) == list(SAMPLERS)
    assert rows["weighted"].rare > 4 * rows["random"].rare
    assert rows["weighted"].different < rows["weighted"].draws == 120
    assert rows["random"].rare == result.here("rare class in random order") == 10
    assert 45 < rows["weighted"].rare == result.here("rare class with weights") < 55
    _, lengths = imbalanced(120)
    for name, epochs in result.arrays["epochs"].items():
        longest = sum(max(lengths[i] for i in b) * len(b) for b in in_batches(epochs[0], 8))
        assert rows[name].padding == pytest.approx(100 - 100 * sum(lengths[i] for i in epochs[0]) / longest)
    seeds = result.rows(WorkerNumbers)
    assert len(seeds) == 6 and sum(row.across_epochs for row in seeds) == 3
    *panels, _ = result.figure().axes
    assert [axes.get_title() for axes in panels] == list(SAMPLERS), "a raster for each, the sampler of our own too"
    filled_up = [axes.collections for axes in lengths_in_batches(result).figure.axes]
    assert [len(batches) for batches in filled_up] == [120 / 8, 120 / 8]
