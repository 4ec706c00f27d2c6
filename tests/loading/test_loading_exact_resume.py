"""resuming.py and exact-resume: the order of an epoch, what is left of it on any ranks, and runs that are really killed."""

import importlib.util
import itertools
import signal
import warnings

import pytest
import torch
from torch import distributed as dist
from torch.utils.data import DataLoader, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

from hpml_lab.core.experiment import Params
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.errors import LabError
from hpml_lab.loading import exact_resume
from hpml_lab.loading.experiments.exact_resume import ResumedEpoch, on_other_ranks, twice
from hpml_lab.loading.experiments.exact_resume import killed_runs as runs
from hpml_lab.loading.experiments.exact_resume.killed_runs import HANDED_OUT, LESSON, REDRAWN, RESTARTED, STEPS, TORCHDATA
from hpml_lab.loading.lessons.resuming import ResumableSampler, batches_from, epoch_order, sample_generator
from hpml_lab.loading.lessons.sampling import Indices
from hpml_lab.sharding.lessons import train


def test_an_epochs_order_is_that_of_torchs_distributed_sampler():
    torchs = DistributedSampler(range(20), num_replicas=1, rank=0, seed=3)
    for epoch in (0, 1, 5):
        torchs.set_epoch(epoch)
        assert epoch_order(20, 3, epoch) == list(torchs)


@pytest.mark.parametrize("position, ranks", [*itertools.product((0, 1, 8, 16, 17), (1, 2, 3, 5))])
def test_the_ranks_share_what_is_left_and_a_state_fits_any_number_of_them(position, ranks):
    before = ResumableSampler(17, seed=4)
    before.epoch, before.position = 2, position
    shares = []
    for rank in range(ranks):
        sampler = ResumableSampler(17, seed=0, rank=rank, ranks=ranks)
        sampler.load_state_dict(before.state_dict())
        shares.append(list(sampler))
        assert len(sampler) == len(shares[-1]) == len(DataLoader(Indices(17), 1, sampler=sampler))
    together = [index for row in itertools.zip_longest(*shares) for index in row if index is not None]
    assert together == epoch_order(17, 4, 2)[position:], "step by step the ranks together take what one rank would"


def test_a_batch_is_counted_where_it_is_taken_and_an_epoch_begins_at_0():
    sampler = ResumableSampler(10)
    loader = iter(DataLoader(Indices(10), 3, sampler=sampler))
    next(loader), next(loader)
    assert sampler.position == 0, "the loader counts nothing"
    sampler.took(6)
    assert sampler.state_dict() == {"size": 10, "seed": 0, "epoch": 0, "position": 6}
    sampler.next_epoch()
    assert list(sampler) == epoch_order(10, 0, 1) != epoch_order(10, 0, 0)
    with pytest.raises(LabError, match="This state is of 10 samples, and there are 11. Resume with the same data set"):
        ResumableSampler(11).load_state_dict(sampler.state_dict())


@pytest.mark.parametrize("step, ranks", [*itertools.product((0, 3, 4, 9), (1, 2))])
def test_batches_after_a_step_are_those_of_train_py(monkeypatch, step, ranks):
    for rank in range(ranks):
        monkeypatch.setattr(dist, "get_rank", lambda rank=rank: rank)
        monkeypatch.setattr(dist, "get_world_size", lambda: ranks)
        own = itertools.islice(batches_from(step, 18, 4, 0, rank, ranks), 7)
        assert [*own] == [*train.batches(18, 4, step, step + 7)]


def test_a_batch_that_no_samples_fill_is_refused():
    for batch in (0, 19):
        with pytest.raises(LabError, match=f"18 samples give no batch of {batch}. Use a batch of 1 to 18"):
            next(batches_from(0, 18, batch))


def test_a_samples_random_numbers_depend_on_seed_epoch_and_index_alone():
    names = [*itertools.product((0, 1), (0, 1), (0, 1))]
    drawn = [int(sample_generator(*name).integers(2**40)) for name in names]
    assert len(set(drawn)) == 8 and drawn == [int(sample_generator(*name).integers(2**40)) for name in names]


def test_a_killed_run_goes_on_from_its_last_snapshot_and_leaves_no_process(tmp_path, nothing_left):
    plan = runs.KillPlan(batches=14, batch=2, kills=(3, 2), every=2)
    found, codes = runs.killed_run(tmp_path, plan, 2, [LESSON, HANDED_OUT])
    assert codes == [-signal.SIGKILL] * 2
    right, wrong = found[LESSON], found[HANDED_OUT]
    assert [sample.process for sample in right.taken] == 4 * [0] + 4 * [1] + 20 * [2], "of 3 batches 2 were in the snapshot"
    assert [sample.index for sample in right.taken] == epoch_order(28, 0, 0) and right.following == epoch_order(28, 0, 1)
    order = epoch_order(28, 0, 0)
    assert [sample.index for sample in wrong.taken] == order[:4] + order[12:16] + order[24:], "2 workers are 4 batches ahead"


def test_an_error_in_a_process_is_no_kill(tmp_path):
    with pytest.raises(RuntimeError, match="process 0 raised, 0: KeyError: 'no way'"):
        runs.killed_run(tmp_path, runs.KillPlan(4, 2, (), 2), 0, ["no way"])


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")
def test_torchdatas_loader_draws_another_next_epoch_if_order_and_seed_share_a_generator():
    def loader():
        generator = torch.Generator().manual_seed(0)
        return StatefulDataLoader(Indices(40), 4, shuffle=True, generator=generator)

    def epoch(given):
        return [index for batch in given for index in batch.tolist()]

    whole = loader()
    first, second = epoch(whole), epoch(whole)
    begun, resumed = loader(), loader()
    next(iter(begun))
    resumed.load_state_dict(begun.state_dict())
    assert epoch(resumed) == first[4:] and epoch(resumed) != second, "fixed: `ByTorchdata` may shuffle as everybody does"


def test_without_torchdata_its_rows_are_missing_and_a_note_says_so(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "torchdata" else find(name, *more))
    small = dict(batches=20, batch=2, kills=(3, 4, 3), every=2, workers=(0,))
    result = exact_resume.function(Params(size="quick", device=choose_device("cpu"), **small))
    assert result and {row.way for row in result.rows()} == {LESSON, STEPS, REDRAWN, RESTARTED, HANDED_OUT}
    assert result.notes == [
        "torchdata is not installed, so the rows of StatefulDataLoader are missing: `pip install torchdata`."
    ]


def test_a_batch_of_ranks_may_be_cut_short_at_the_end():
    assert sorted(on_other_ranks(23, 3, (1, 2, 1))) == list(range(23))
    taken = [runs.Taken(process, index, 0, 0) for process, index in ((0, 1), (0, 2), (1, 3), (2, 1), (2, 3))]
    assert (twice(taken, 2), twice(taken, 3)) == (0, 2)


def test_the_experiment_is_sound(sound, ran):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = ran("exact-resume")
    sound(result)
    rows = {(row.way, row.workers): row for row in result.rows(ResumedEpoch)}
    assert len(rows) == 18 and {row.once for (way, _), row in rows.items() if way in (LESSON, STEPS, TORCHDATA)} == {240}
    assert [rows[HANDED_OUT, workers].lost for workers in (0, 2, 4)] == [0, 3 * 2 * 2 * 4, 3 * 4 * 2 * 4]
    # Places 0-23, 24-47, 24-35 and 12-239: 12 to 47 come more than once.
    assert [(rows[RESTARTED, workers].doubled, rows[RESTARTED, workers].lost) for workers in (0, 2, 4)] == 3 * [(36, 0)]
    # The three processes that resume begin with the first one's numbers: 24, 12 and 24 of them.
    assert rows[LESSON, 4].repeated == 24 + 12 + 24
    assert rows[STEPS, 4].state_bytes < rows[LESSON, 4].state_bytes < 100 < rows[TORCHDATA, 4].state_bytes
    assert [axes.get_title().rpartition(": ")[2] for axes in result.figure().axes][1::2] == [
        "0 lost, 36 doubled",
        "0 lost, 0 doubled",
    ]
