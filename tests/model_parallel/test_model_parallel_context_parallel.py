"""ring_attention.py and context-parallel: parts that join, a ring that gives the whole, and an order in which no rank waits."""

import math

import pytest
import torch
from torch import distributed as dist
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import launch
from hpml_lab.model_parallel.exercises.ring_attention_step import CASES, right
from hpml_lab.model_parallel.experiments.context_parallel import RingOrder, blocks_by_step, slowest_by_step, waiting
from hpml_lab.model_parallel.lessons.ring_attention import (
    RingAttention,
    attend,
    chunks_of,
    join,
    part_of_sequence,
    pass_on,
    visible_pairs,
)


def drawn(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_parts_join_in_any_order_and_number_to_the_softmax():
    q, k, v = 5 * drawn(2, 3, 4), drawn(2, 6, 4, seed=1), drawn(2, 6, 4, seed=2)
    whole = F.scaled_dot_product_attention(q, k, v)
    for order in ((0, 1, 2), (2, 0, 1)):
        part = None
        for number in order:
            block = slice(2 * number, 2 * number + 2)
            part = join(part, attend(q, k[:, block], v[:, block], False))
        assert torch.allclose(part.output / part.total, whole, rtol=0, atol=1e-14)
    scores = q @ k.mT / 2
    assert torch.allclose(part.maximum + part.total.log(), scores.logsumexp(-1, keepdim=True), atol=1e-14)


def test_a_part_of_large_scores_does_not_overflow():
    q, k, v = torch.tensor([[2000.0]]), torch.tensor([[1.0], [-1.0]]), torch.tensor([[3.0], [5.0]])
    part = join(attend(q, k[:1], v[:1], False), attend(q, k[1:], v[1:], False))
    assert part.output / part.total == 3 and part.maximum == 2000


@pytest.mark.parametrize("zigzag", [False, True], ids=["in order", "zig-zag"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8])
def test_every_pair_of_chunks_that_is_visible_is_computed_once(ranks, zigzag):
    """And by the rank that has the queries, when the keys are there."""
    found = []
    for rank in range(ranks):
        for step in range(ranks):
            source = (rank - step) % ranks
            for i, j, is_own in visible_pairs(rank, source, ranks, zigzag):
                pair = chunks_of(rank, ranks, zigzag)[i], chunks_of(source, ranks, zigzag)[j]
                assert is_own == (pair[0] == pair[1])
                found.append(pair)
    assert sorted(found) == [(row, column) for row in range(2 * ranks) for column in range(row + 1)]
    assert sorted(sum((chunks_of(rank, ranks, zigzag) for rank in range(ranks)), ())) == list(range(2 * ranks))


def test_zig_zag_is_the_llama_reports_order_and_halves_the_time_of_many_ranks():
    assert [chunks_of(rank, 4, True) for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    assert [blocks_by_step(rank, 3, False) for rank in range(3)] == [[3, 0, 0], [3, 4, 0], [3, 4, 4]]
    assert (slowest_by_step(4, False), slowest_by_step(4, True), waiting(4, False)) == ([3, 4, 4, 4], [3, 2, 2, 2], 40.0)
    assert (
        sum(slowest_by_step(200, False)) / sum(slowest_by_step(200, True)) == pytest.approx(2, rel=5e-3)
        and 49.7 < waiting(200, False) < 50
    )


def test_a_sequence_that_does_not_divide_is_refused():
    x = torch.arange(8.0).view(1, 8, 1)
    assert part_of_sequence(x, 1, 2, True).flatten().tolist() == [2, 3, 4, 5]
    assert part_of_sequence(x, 1, 2, False).flatten().tolist() == [4, 5, 6, 7]
    with pytest.raises(LabError, match="8 tokens do not divide into 2 · 3 chunks. Use a multiple of 6, or pad"):
        part_of_sequence(x, 0, 3, True)


def handed_on():
    """What arrives when every rank hands its number on: also of a tensor that is no contiguous one."""
    own = torch.full((2, 3), float(dist.get_rank())).T
    return [tensor.flatten().tolist() for tensor in pass_on(own, own[:1] + 10)]


def test_a_rank_receives_from_the_rank_before():
    for rank, (first, second) in enumerate(launch(handed_on, ranks=3)):
        before = (rank - 1) % 3
        assert first == 6 * [before] and second == 2 * [before + 10]


def ring_on_rank(q, k, v, gradient, zigzag):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    own = [part_of_sequence(x, rank, ranks, zigzag).requires_grad_() for x in (q, k, v)]
    output = RingAttention.apply(*own, zigzag)
    grads = torch.autograd.grad(output, own, part_of_sequence(gradient, rank, ranks, zigzag))
    return [output.detach(), *grads]


@pytest.mark.parametrize("zigzag", [False, True], ids=["in order", "zig-zag"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_ring_gives_what_the_formula_gives(ranks, zigzag):
    q, k, v, gradient = (drawn(1, 2, 12, 4, seed=seed) for seed in range(4))
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    scores = leaves[0] @ leaves[1].mT / 2 + torch.full((12, 12), -math.inf, dtype=torch.float64).triu(1)
    whole = scores.softmax(-1) @ leaves[2]
    goals = [whole, *torch.autograd.grad(whole, leaves, gradient)]
    for rank, found in enumerate(launch(ring_on_rank, q, k, v, gradient, zigzag, ranks=ranks)):
        for value, goal in zip(found, goals, strict=True):
            assert torch.allclose(value, part_of_sequence(goal, rank, ranks, zigzag), rtol=0, atol=1e-13)


def test_the_experiment_is_sound(sound, ran):
    result = ran("context-parallel")
    sound(result)
    sizes = result.experiment.quick
    number = sizes["batch"] * sizes["heads"] * sizes["length"] * sizes["head_width"] * 8
    in_order, zigzag = result.rows(RingOrder)
    assert in_order.forward_kb * 1e3 == zigzag.forward_kb * 1e3 == number  # 2 (n − 1)/n of two ranks
    assert in_order.backward_kb * 1e3 == 3 * number
    assert (in_order.slowest, zigzag.slowest, zigzag.waiting) == (7, 5, 0)
    assert result.claims[2].measured == "in order: 3, 7; zig-zag: 5, 5"


def test_the_exercises_steps_end_in_the_softmax():
    """The first case's three sources are all that rank 1 of 3 sees, and what it does not see."""
    steps = [case for name, case in CASES.items() if name.startswith("3 tokens a rank, rank 1")]
    q = steps[0][0]
    maximum, total, output = right(*steps[-1])
    keys, values = (torch.cat([step[part] for step in sorted(steps, key=lambda step: step[4])]) for part in (1, 2))
    scores = q @ keys.T / 2 + torch.full((3, 9), -math.inf, dtype=torch.float64).triu(4)
    assert torch.allclose(output / total[:, None], scores.softmax(-1) @ values, atol=1e-14)
    assert torch.allclose(maximum, scores.amax(-1))
