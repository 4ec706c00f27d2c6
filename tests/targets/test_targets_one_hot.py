"""One-hot vectors and embeddings: the same numbers, counted bytes, guarded memory, and what optimizers do to unseen rows."""

import dataclasses
import math
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

from hpml_lab import targets
from hpml_lab.core.experiment import Params, Result
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.targets.experiments import one_hot_vs_embedding as experiment
from hpml_lab.targets.experiments.one_hot_vs_embedding import lookup
from hpml_lab.targets.experiments.one_hot_vs_embedding.lookup import LookUp
from hpml_lab.targets.experiments.one_hot_vs_embedding.sparse_optimizers import (
    MOMENTUM,
    OPTIMIZERS,
    EmbeddingStep,
    EmbeddingTraining,
    UnseenRow,
    sparse_refusals,
    stored_bytes,
    unseen_rows,
)
from hpml_lab.targets.lessons import one_hot

SMALL = dict(
    vocabularies=(50, 1000, 4000), one_hot_to=1000, trained=(300,), gpu_trained=(), width=4, batch=16, samples=5, unseen_steps=8
)
GAIN = SpeedUp(0.1, 0.09, 0.11, 0.01)


@pytest.fixture(scope="module")
def result(on_digits):
    return on_digits("one-hot-vs-embedding", **SMALL)


@pytest.fixture
def little_memory(monkeypatch):
    """Only so many bytes are free."""
    return lambda free: monkeypatch.setattr(lookup, "free_memory_bytes", lambda: free)


def test_the_result_is_sound_and_its_further_figures_are_drawn(result, sound):
    sound(result)
    for picture in (targets.dense_and_sparse_steps, targets.way_of_an_unseen_row):
        assert picture(result).figure.axes[0].get_xlabel()


def test_bytes_are_those_of_the_formulas(result):
    rows = result.rows(LookUp)
    assert [row.one_hot_bytes for row in rows] == [16 * 12 * V for V in (50, 1000, 4000)]
    assert [row.counted_bytes for row in rows] == [16 * 12 * 50, 16 * 12 * 1000, None]
    assert {row.embedding_bytes for row in rows} == {16 * 4 * 4}
    assert rows[-1].not_run.startswith("needs 0.000768 GB") and rows[-1].one_hot_us is None is rows[-1].equal_rows
    table = 300 * 4 * 4
    state = {row.optimizer: (row.gradient_bytes, row.state_bytes) for row in result.rows(EmbeddingStep)}
    sparse = 16 * (4 * 4 + 8)
    assert state.pop("SGD with momentum, sparse")[0] == sparse
    assert state == {
        name: (sparse if is_sparse else table, copies * table)
        for name, (_, is_sparse, copies) in OPTIMIZERS.items()
        if copies is not None
    }


def test_times_are_compared_with_a_placebo(result):
    rows = {row.optimizer: row for row in result.rows(EmbeddingStep)}
    assert rows["Adam"].gain is None and rows["SparseAdam"].interval and rows["SparseAdam"].verdict
    assert rows["SGD with momentum, sparse"].step_ms is None, "its step depends on how many came before"
    assert all(row.interval for row in result.rows(LookUp) if row.counted_bytes)


def test_what_does_not_fit_is_not_run_and_says_what_it_needs(on_digits, little_memory, sound):
    little_memory(400_000)
    found = on_digits("one-hot-vs-embedding", **SMALL | dict(one_hot_to=10**9, trained=(300, 5000)))
    assert [row.counted_bytes for row in found.rows(LookUp)] == [16 * 12 * 50, 16 * 12 * 1000, None]
    assert found.rows(LookUp)[-1].not_run == "needs 0.000768 GB; 0.0004 GB are free"
    assert [row.vocabulary for row in found.rows(EmbeddingStep)] == [300] * len(OPTIMIZERS)
    assert len(found.notes) == 2 and "Training 5,000 words needs" in found.notes[1]
    sound(found)


@pytest.mark.parametrize("free, is_cuda, trained", [(10**7, True, [300, 5000]), (10**6, True, [300]), (10**7, False, [300])])
def test_a_gpu_trains_a_larger_table_where_it_fits(little_memory, free, is_cuda, trained):
    """The GPU is played by the CPU, with so many bytes free."""
    little_memory(free)
    device = SimpleNamespace(is_cuda=is_cuda, torch=torch.device("cpu"))
    size = SMALL | dict(vocabularies=(50, 1000), gpu_trained=(5000,), samples=1, unseen_steps=2)
    found = targets.one_hot_vs_embedding.function(Params(size="full", device=device, **size))
    assert [row.vocabulary for row in found.rows(EmbeddingStep)] == [n for n in trained for _ in OPTIMIZERS]
    assert any("Training 5,000 words needs" in note for note in found.notes) == (is_cuda and 5000 not in trained)
    assert any(f"At {trained[-1]:,} words a step of SparseAdam" in claim.text for claim in found.claims)


def test_both_sizes_have_the_same_key_figures_so_that_they_can_be_compared():
    """A label with the largest vocabulary would give each size a row of its own."""
    for size in (targets.one_hot_vs_embedding.quick, targets.one_hot_vs_embedding.full):
        assert experiment.COMPARED in size["vocabularies"] and experiment.COMPARED in size["trained"]
        assert experiment.COMPARED <= size["one_hot_to"]


def test_memory_that_torch_keeps_for_the_next_tensor_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (3_000, 80_000))
    monkeypatch.setattr(torch.cuda, "get_per_process_memory_fraction", lambda device: 1.0)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 100)
    assert lookup.free_bytes(torch.device("cuda:0")) == 3_400


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_one_hot_rows_are_those_of_an_embedding(dtype):
    weight, ids = torch.randn(7, 3, dtype=torch.float64), torch.tensor([[6, 0], [2, 2]])
    assert torch.equal(one_hot.product(ids.to(dtype), weight), F.embedding(ids, weight))


def test_unseen_rows_are_moved_by_momentum_and_by_decay_only():
    rows = {row.optimizer: row for row in unseen_rows(steps=3)}
    assert {name for name, row in rows.items() if row.moves} == {
        *("Adam", "AdamW", "SGD with momentum", "SGD with momentum, sparse")
    }
    assert {name for name, row in rows.items() if row.statistics} == {
        *("Adam", "AdamW", "RMSprop", "SGD with momentum", "SGD with momentum, sparse")
    }
    assert rows["SGD"].statistics is None and [name for name, row in rows.items() if row.never_seen_moves] == ["AdamW"]
    assert rows["SGD with momentum"].by_step == pytest.approx([1, 1.9, 2.71])
    assert rows["SparseAdam"].by_step == [1, 1, 1] and rows["Adam"].path == pytest.approx(experiment.adams_way(3), rel=1e-6)


def test_a_sparse_momentum_counts_its_indices_and_is_that_of_dense_steps():
    weight = torch.randn(30, 2, dtype=torch.float64)
    dense, sparse = (EmbeddingTraining(MOMENTUM, kind, weight) for kind in (False, True))
    for ids in torch.randint(30, (5, 4), generator=torch.Generator().manual_seed(0)):
        dense.step(ids)
        sparse.step(ids)
        torch.testing.assert_close(dense.layer.weight, sparse.layer.weight)
    [buffer] = sparse.statistics()
    assert stored_bytes(buffer) == buffer._nnz() * (2 * 8 + 8) and stored_bytes(weight) == 30 * 2 * 8


def test_refusals_carry_torchs_own_words():
    said = {(row.optimizer, row.gradient): row.outcome for row in sparse_refusals()}
    assert "please consider SparseAdam" in said["Adam", "sparse"]
    assert {name for (name, _), outcome in said.items() if outcome == "works"} == {
        *("SparseAdam", "Adagrad", "SGD with momentum", "SGD")
    }
    assert said["SparseAdam", "dense"] != "works" == said["SparseAdam", "sparse"]


def judged(result, look_ups=lambda row: row, unseen=lambda row: row):
    """The exact claims that fail with rows changed."""
    again, params = Result(list(result.tables)), Params(device=SimpleNamespace(is_cuda=False), **SMALL)
    rows = [look_ups(row) for row in result.rows(LookUp)]
    experiment.judge_look_ups(again, rows, [GAIN if row.counted_bytes else None for row in rows], params)
    rows = [unseen(row) for row in result.rows(UnseenRow)]
    experiment.judge_training(again, result.rows(EmbeddingStep), {"SparseAdam": GAIN}, rows)
    return [claim.text for claim in again.claims if claim.exact and not claim.holds]


def changed(name=None, **values):
    return lambda row: dataclasses.replace(row, **values) if name in (None, getattr(row, "optimizer", None)) else row


@pytest.mark.parametrize(
    "changes, start",
    [
        ({"look_ups": changed(equal_rows=False)}, "A one-hot product"),
        ({"look_ups": changed(equal_gradients=False)}, "A one-hot product"),
        ({"look_ups": lambda row: row if row.not_run else dataclasses.replace(row, counted_bytes=5)}, "One-hot vectors take"),
        ({"unseen": changed("SparseAdam", statistics=True)}, "Adam moves rows"),
        ({"unseen": changed("Adam", path=1.0)}, "In 8 steps"),
    ],
)
def test_every_exact_claim_can_fail(result, changes, start):
    assert judged(result) == []
    [failed] = judged(result, **changes)
    assert failed.startswith(start)


def test_adams_way_ends():
    assert experiment.adams_way(1) == 1 and experiment.adams_way(10**4) == pytest.approx(experiment.adams_way(10**3), rel=1e-6)
    assert math.isclose(experiment.momentums_way(10**3), 10)
