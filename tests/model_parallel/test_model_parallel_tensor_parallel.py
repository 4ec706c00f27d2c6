"""column_and_row.py, vocabulary_loss.py, Traffic and tensor-parallel: slices on ranks that give what one process gives."""

import math

import pytest
import torch
from torch import distributed as dist

from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.rank_errors import RankError
from hpml_lab.model_parallel.experiments.tensor_parallel import BlockWay, VocabularyLoss
from hpml_lab.model_parallel.lessons.column_and_row import GatedMLP, HeadAttention, slice_of
from hpml_lab.model_parallel.lessons.vocabulary_loss import vocabulary_parallel_loss
from hpml_lab.model_parallel.tools.communication import Traffic


@pytest.mark.parametrize("layer, number", [(HeadAttention(12, 3), 3), (GatedMLP(4, 7), 7)], ids=["heads", "hidden"])
def test_heads_and_hidden_units_that_do_not_divide_are_refused(layer, number):
    with pytest.raises(RankError, match=f"{number} heads or hidden units do not divide among 2 ranks. Use a multiple of 2"):
        launch(slice_of, layer)


def loss_on_rank(scores, target):
    own = scores.chunk(dist.get_world_size(), -1)[dist.get_rank()].clone().requires_grad_()
    loss = vocabulary_parallel_loss(own, target)
    loss.sum().backward()
    return loss.detach(), own.grad


def test_the_loss_of_cut_scores_is_the_definition_and_stands_large_scores():
    scores = torch.tensor([[[0.0, math.log(3), 0.0, 0.0], [2000.0, 2000.0, -2000.0, 1000.0]]], dtype=torch.float64)
    (loss, first), (other, second) = launch(loss_on_rank, scores, torch.tensor([[1, 3]]))
    assert torch.equal(loss, other)
    assert torch.allclose(loss, torch.tensor([[math.log(2), 1000 + math.log(2)]], dtype=torch.float64), rtol=1e-14)
    shares = torch.tensor([[[1 / 6, -0.5, 1 / 6, 1 / 6], [0.5, 0.5, 0.0, -1.0]]], dtype=torch.float64)
    assert torch.allclose(torch.cat([first, second], -1), shares, atol=1e-15)


def traffic_on_rank():
    x, ranks = torch.zeros(8, 3), dist.get_world_size()
    with Traffic() as traffic:
        dist.all_reduce(x)
        dist.all_gather([torch.empty_like(x) for _ in range(ranks)], x)
        dist.all_gather_into_tensor(x.new_empty(8 * ranks, 3), x)
        dist.reduce_scatter_tensor(x.new_empty(8 // ranks, 3), x)
        dist.all_to_all_single(torch.empty_like(x), x)
        sending = dist.isend(x, (dist.get_rank() + 1) % ranks)
        dist.recv(torch.empty_like(x), (dist.get_rank() - 1) % ranks)
        sending.wait()
    dist.all_reduce(x)  # outside
    return [(one.kind, one.sent) for one in traffic.sendings], traffic.counts(), traffic.sent


def test_traffic_counts_what_a_ring_sends():
    for found, counts, sent in launch(traffic_on_rank, ranks=4):
        bytes_by_hand = [96 * 2 * 3 // 4, 96 * 3, 96 * 3, 96 * 3 // 4, 96 * 3 // 4, 96]
        kinds = ["all-reduce", "all-gather", "all-gather", "reduce-scatter", "all-to-all", "send"]
        assert found == list(zip(kinds, bytes_by_hand, strict=True))
        assert counts["all-gather"] == 2 and sent == sum(bytes_by_hand)


def test_the_experiment_is_sound(sound, ran):
    result = ran("tensor-parallel")
    sound(result)
    sizes = result.experiment.quick
    by_way = {row.way: row for row in result.rows(BlockWay)}
    assert len(by_way) == 6 and by_way["one process"].sent_kb == 0
    assert by_way["by hand, sequence parallel"].of_mlp == 4
    assert result.here("gathered scores over vocabulary-parallel loss, bytes") == sizes["vocabulary"] / 6
    assert [row.loss is None for row in result.rows(VocabularyLoss)] == [False, False, True]
