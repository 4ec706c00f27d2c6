"""column_and_row.py, vocabulary_loss.py, Traffic and tensor-parallel: slices on ranks that give what one process gives."""

import math

import pytest
import torch
from torch import distributed as dist

from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.rank_errors import RankError
from hpml_lab.model_parallel.exercises.row_parallel_backward import CASES, on_ranks_in_turn, right
from hpml_lab.model_parallel.experiments.tensor_parallel import BlockWay, VocabularyLoss
from hpml_lab.model_parallel.lessons.column_and_row import (
    PAIRS,
    SEQUENCE_PARALLEL,
    TENSOR_PARALLEL,
    Adjoint,
    GatedMLP,
    HeadAttention,
    slice_of,
)
from hpml_lab.model_parallel.lessons.vocabulary_loss import vocabulary_parallel_loss
from hpml_lab.model_parallel.tools.communication import Traffic


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape)), dtype=torch.float64)


def pairs_on_rank(kind):
    """f and g of integers, forward and backward: what this rank gets."""
    x = torch.arange(8.0).view(1, 4, 2) * 10 ** dist.get_rank()
    own = x.chunk(2, 1)[dist.get_rank()] if kind == SEQUENCE_PARALLEL else x
    found = []
    for given, (forward, backward) in zip((own, x), PAIRS[kind], strict=True):
        given = given.clone().requires_grad_()
        y = Adjoint.apply(given, forward, backward)
        y.backward(torch.full_like(y, 10.0 ** dist.get_rank()))
        found.append((y.detach(), given.grad))
    return found


def test_f_and_g_are_what_megatron_defines():
    counted = torch.arange(8.0).view(1, 4, 2)
    for rank, (f, g) in enumerate(launch(pairs_on_rank, TENSOR_PARALLEL)):
        assert torch.equal(f[0], counted * 10**rank) and torch.equal(f[1], torch.full((1, 4, 2), 11.0))
        assert torch.equal(g[0], counted * 11) and torch.equal(g[1], torch.full((1, 4, 2), 10.0**rank))
    for rank, (f, g) in enumerate(launch(pairs_on_rank, SEQUENCE_PARALLEL)):
        first, second = counted.chunk(2, 1)
        assert torch.equal(f[0], torch.cat([first, 10 * second], 1)) and torch.equal(f[1], torch.full((1, 2, 2), 11.0))
        assert torch.equal(g[0], 11 * (first, second)[rank])
        assert torch.equal(g[1], torch.tensor([1.0, 1, 10, 10]).view(1, 4, 1).expand(1, 4, 2))


def attention_on_rank(layer, x):
    part = slice_of(layer)
    return part(x).detach(), {name: tuple(net.weight.shape) for name, net in part.named_children()}


def test_a_rank_has_whole_heads_and_their_sum_is_the_layer():
    torch.manual_seed(0)
    layer, x = HeadAttention(12, 6).double(), drawn(2, 5, 12)
    for ranks in (1, 2, 3):
        for output, shapes in launch(attention_on_rank, layer, x, ranks=ranks):
            assert torch.allclose(output, layer(x), rtol=0, atol=1e-13)
            assert shapes == dict.fromkeys(("query", "key", "value"), (12 // ranks, 12)) | {"out": (12, 12 // ranks)}


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
    number = sizes["batch"] * sizes["length"] * sizes["width"] * 8
    assert by_way["by hand"].sent_kb * 1e3 == 4 * 2 * (sizes["ranks"] - 1) / sizes["ranks"] * number
    assert by_way["by hand, sequence parallel"].of_mlp == 4
    whole, by_hand, sequence = (row for row in result.rows(BlockWay) if row.kept_kb)
    assert whole.weights_kb == sizes["ranks"] * by_hand.weights_kb and sequence.kept_kb < by_hand.kept_kb < whole.kept_kb
    assert result.here("gathered scores over vocabulary-parallel loss, bytes") == sizes["vocabulary"] / 6
    assert [row.loss is None for row in result.rows(VocabularyLoss)] == [False, False, True]


def test_ranks_that_take_turns_compute_what_one_process_computes_with_autograd():
    """Of each case the ranks' columns and rows side by side are two whole products."""
    for x, a, b, bias, grad, own, shared in CASES.values():
        leaves = [tensor.clone().requires_grad_() for tensor in (x, torch.cat(a, 1), torch.cat(b, 0), bias)]
        whole_x, whole_a, whole_b, whole_bias = leaves
        y = ((whole_x @ whole_a * torch.cat(own, 1)) @ whole_b + whole_bias) * shared
        goals = torch.autograd.grad(y, leaves, grad)
        found = on_ranks_in_turn(right)(x, a, b, bias, grad, own, shared)
        columns, rows = torch.cat([part[2] for part in found], 1), torch.cat([part[3] for part in found], 0)
        for output, grad_x, _, _, grad_bias in found:
            for value, goal in zip((output, grad_x, columns, rows, grad_bias), (y, *goals), strict=True):
                assert torch.allclose(value, goal, rtol=1e-12, atol=1e-12)
