"""mesh_step.py, groups in slices and in Traffic, and mesh: three axes at once give what one process gives, counted by hand."""

import copy
import random

import pytest
import torch
from torch import distributed as dist

from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.rank_errors import RankError
from hpml_lab.distributed import LINKS, Interconnect
from hpml_lab.model_parallel.experiments.mesh import BestMesh, MeshStep, best_mesh, gains_of_named, is_named_well
from hpml_lab.model_parallel.experiments.one_process import gradient_difference
from hpml_lab.model_parallel.lessons.column_and_row import CUT, all_gathered, all_reduced, reduce_scattered
from hpml_lab.model_parallel.lessons.mesh_cost import ranks_until_bound
from hpml_lab.model_parallel.lessons.mesh_step import (
    AXES,
    mesh_step,
    own_part,
    own_stage,
    own_tokens,
    training_mesh,
    transformer_blocks,
)
from hpml_lab.model_parallel.tools.communication import Traffic
from hpml_lab.model_parallel.tools.large_mesh import NETS

LAYERS, WIDTH, HEADS, SHAPE = 4, 24, 2, (8, 6, 24)


def net_and_batch():
    torch.manual_seed(0)
    blocks = transformer_blocks(LAYERS, WIDTH, HEADS).double()
    return blocks, *(torch.randn(SHAPE, dtype=torch.float64) for _ in range(2))


def step_on_rank(data, tensor, pipeline, micro_batches):
    """Where this rank is, its share of the loss, its gradients, and what one process has there."""
    blocks, x, target = net_and_batch()
    (blocks(x) - target).square().mean().backward()
    mesh = training_mesh(data, tensor, pipeline)
    part = own_part(blocks, mesh)
    loss = mesh_step(part, own_tokens(x, mesh), own_tokens(target, mesh), mesh, micro_batches)
    slices, number, goals = mesh["tensor"].size(), mesh.get_local_rank("tensor"), []
    for name, parameter in own_stage(blocks, mesh).named_parameters():
        goals.append(parameter.grad.chunk(slices, CUT[name.split(".")[-2]])[number])
    return [mesh.get_local_rank(axis) for axis in AXES], loss, [p.grad for p in part.parameters()], goals


@pytest.mark.parametrize("axes, micro_batches", [((2, 2, 1), 1), ((1, 1, 4), 4), ((2, 1, 2), 2), ((1, 2, 2), 2)], ids=str)
def test_a_step_gives_the_loss_and_the_gradients_of_one_process(axes, micro_batches):
    blocks, x, target = net_and_batch()
    data, tensor, pipeline = axes
    found = launch(step_on_rank, *axes, micro_batches, ranks=4)
    for rank, ((d, p, t), loss, gradients, goals) in enumerate(found):
        assert rank == (d * pipeline + p) * tensor + t
        assert (loss == 0) == (p < pipeline - 1)
        for gradient, goal in zip(gradients, goals, strict=True):
            assert torch.allclose(gradient, goal, rtol=1e-10, atol=1e-15)
    whole = (blocks(x) - target).square().mean()
    assert torch.allclose(sum(loss for _, loss, _, _ in found) / data, whole, rtol=1e-12)


def gradient_differences_on_rank():
    """Of equal gradients, and after one number of one gradient has changed."""
    whole = torch.nn.ModuleDict({"down": torch.nn.Linear(3, 2, bias=False)})
    whole["down"](torch.ones(1, 3)).sum().backward()
    part = copy.deepcopy(whole)
    part["down"].weight.grad = whole["down"].weight.grad.clone()
    equal = gradient_difference(part, whole)
    part["down"].weight.grad[1, 2] += 1
    return equal, gradient_difference(part, whole)


def test_a_wrong_gradient_is_seen():
    [(equal, wrong)] = launch(gradient_differences_on_rank, ranks=1)
    assert equal == 0 and wrong == pytest.approx(1 / 6**0.5)


def test_a_block_has_12_squares_of_the_width():
    assert sum(p.numel() for p in transformer_blocks(3, 96, 8).parameters()) == 3 * 12 * 96**2


@pytest.mark.parametrize(
    "axes, micro_batches, message",
    [
        ((1, 1, 3), 1, "4 layers do not divide among 3 stages"),
        ((3, 1, 1), 1, "8 sequences do not divide among 3 ranks"),
        ((1, 3, 1), 1, "2 heads or hidden units do not divide among 3 ranks"),
        ((1, 1, 1), 3, "8 sequences make no 3 equal micro-batches"),
    ],
)
def test_what_does_not_divide_is_refused(axes, micro_batches, message):
    with pytest.raises(RankError, match=message):
        launch(step_on_rank, *axes, micro_batches, ranks=max(axes))


def in_groups_on_rank():
    """Ranks 0 and 2, 1 and 3, by the data axis of a mesh 2 × 2: what f and g do in a group, and what is counted."""
    mesh = training_mesh(2, 2)
    group, x = mesh.get_group("data"), torch.full((1, 4, 1), 10.0 ** dist.get_rank())
    with Traffic() as traffic:
        total, part = all_reduced(x, group), reduce_scattered(x, group)
        whole = all_gathered(part, group)
        dist.all_reduce(x, group=mesh.get_group("tensor"))
        dist.all_reduce(x)
    return total, part, whole, traffic.sent, [traffic.sent_in(mesh.get_group(axis)) for axis in AXES]


def test_a_collective_is_counted_in_its_group():
    for rank, (total, part, whole, sent, by_axis) in enumerate(launch(in_groups_on_rank, ranks=4)):
        wanted = torch.full((1, 4, 1), 101.0 if rank % 2 == 0 else 1010.0)
        assert torch.equal(total, wanted) and torch.equal(whole, wanted) and torch.equal(part, wanted[:, :2])
        assert by_axis == [16 + 8 + 8, 0, 16]  # 16 bytes: an all-reduce between two sends them once
        assert sent == sum(by_axis) + 2 * 3 * 16 // 4


def test_a_layer_is_bound_by_communication_where_cs336s_inequality_says():
    """Without latency from T − 1 > 9/2 · d · bandwidth / peak on, however many tokens."""
    for width in (2048, 8192):
        for name in ("NVLink 4", "InfiniBand NDR"):
            link = Interconnect(name, 0.0, LINKS[name].bandwidth)
            bound = 4.5 * width * link.bandwidth / 989e12
            for tokens in (1, 4096):
                found = ranks_until_bound(width, tokens, 989e12, link)
                assert found == 2 or found - 2 < bound <= found - 1
    assert ranks_until_bound(8192, 4096, 989e12, LINKS["NVLink 4"]) == 13  # α makes it earlier than 15


def test_the_best_mesh_holds_the_net():
    assert best_mesh(NETS["64 billion"], 8) is None  # 1,031 GB of state for 640 GB of memory
    found = best_mesh(NETS["64 billion"], 16)  # the only one of 16 ranks that holds it
    assert (found.data, found.tensor, found.pipeline) == (1, 8, 2)


@pytest.mark.parametrize(
    "neighbor, last, is_well",
    [(1.2, 2.0, True), (0.98, 2.0, True), (0.8, 2.0, False), (1.2, 1.01, False)],
    ids=["named", "within noise", "beaten", "all alike"],
)
def test_the_formula_names_a_mesh_well_only_beyond_noise(neighbor, last, is_well):
    """From turn to turn the machine takes 3 % more or less, and 1 % from mesh to mesh."""
    draw, turns = random.Random(0), [1.0, 1.03, 0.99, 1.0, 1.02, 0.98, 1.0]
    means = {"last": last, "named": 1.0, "neighbor": neighbor}
    seconds = {name: [mean * turn * draw.uniform(0.99, 1.01) for turn in turns] for name, mean in means.items()}
    gains = gains_of_named({"last": 9.0, "named": 1.0, "neighbor": 1.1}, seconds)
    assert list(gains) == ["named over neighbor", "named over last"] and is_named_well(gains) == is_well


def test_the_experiment_is_sound(sound, ran):
    result = ran("mesh")
    sound(result)
    rows = {(row.net, row.mesh): row for row in result.rows(MeshStep)}
    assert len(rows) == 2 * 5
    width, batch, tokens = result.experiment.quick["narrow"]
    parameters, activations = 12 * 2 * width**2, 8 * batch * tokens * width
    replicas, slices = (rows["narrow, many tokens", mesh] for mesh in ("4 × 1 × 1", "1 × 4 × 1"))
    assert replicas.data_kb * 1e3 == 2 * 3 / 4 * 8 * parameters and replicas.tensor_kb == replicas.pipeline_kb == 0
    assert slices.tensor_kb * 1e3 == 2 * 4 * 2 * 3 / 4 * activations and slices.data_kb == 0
    assert replicas.kept_kb == 4 * slices.kept_kb == 32 * parameters / 1e3
    stages = rows["narrow, many tokens", "2 × 1 × 2"]
    assert stages.pipeline_kb * 1e3 == activations / 2  # half of the batch, forward by one stage, back by the other
    assert all(row.mesh.endswith("fully_shard") or row.formula_kb for row in rows.values())
    assert result.here("a layer of width 8,192 waits as long as it computes, bytes alone: from") == 15
    best = {(row.net, row.ranks): row for row in result.rows(BestMesh)}
    assert len(best) == 6 and max(row.kept_gb for row in best.values()) <= 80
    assert best["64 billion", 64].share > best["64 billion", 4096].share
