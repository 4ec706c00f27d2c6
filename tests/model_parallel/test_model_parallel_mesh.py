"""mesh_step.py, mesh_cost.py and mesh: three axes give the numbers of one process, and cost what is published."""

import copy
import random

import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.rank_errors import RankError
from hpml_lab.distributed import LINKS, Interconnect
from hpml_lab.model_parallel.experiments.mesh import BestMesh, MeshStep, OnMesh, best_mesh, gains_of_named, is_named_well
from hpml_lab.model_parallel.experiments.mesh.on_ranks import BlockNet, train_on_meshes
from hpml_lab.model_parallel.experiments.one_process import gradient_difference
from hpml_lab.model_parallel.lessons import mesh_cost
from hpml_lab.model_parallel.lessons.mesh_cost import RankMesh, ReplicaBatch, TransformerShape, ranks_until_bound
from hpml_lab.model_parallel.lessons.mesh_step import transformer_blocks
from hpml_lab.model_parallel.views import mesh_sliders
from hpml_lab.model_parallel.views.mesh_sliders import NETS

GPT3 = TransformerShape(layers=96, width=12_288, tokens=2048)
FREE = Interconnect("free", 0.0, 1e30)
ONE = RankMesh(1, 1, 1)
NET = BlockNet("net", layers=4, width=24, heads=2, batch=8, tokens=6)


def test_a_step_gives_the_loss_and_the_gradients_of_one_process():
    meshes = (2, 2, 1), (1, 1, 4), (2, 1, 2), (1, 2, 2)
    reports = launch(train_on_meshes, [NET], meshes, meshes[0], 2, (), 0, ranks=4, deadline_seconds=300)
    for axes in meshes:
        assert OnMesh(NET, axes, reports, micro_batches=2).difference < 1e-12


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
        ((1, 1, 2), 3, "8 sequences make no 3 equal micro-batches"),
    ],
)
def test_what_does_not_divide_is_refused(axes, micro_batches, message):
    with pytest.raises(RankError, match=message):
        launch(train_on_meshes, [NET], [axes], axes, micro_batches, (), 0, ranks=max(axes))


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


# ---- by formula --------------------------------------------------------------------------------------------------------------


def test_gpt_3_has_174_billion_parameters_and_needs_2_8_terabytes():
    assert mesh_cost.parameters_of_rank(GPT3, ONE) == pytest.approx(174e9, rel=1e-3)
    assert mesh_cost.state_bytes(GPT3, ONE, False) == pytest.approx(2.783e12, rel=1e-3)


def test_a_layer_keeps_what_korthikanti_counts():
    """34 · s · b · h bytes a layer: 0.856 GB for GPT-3 with one sequence, and an eighth of it on eight ranks."""
    batch = ReplicaBatch(micro_batches=1, sequences=1)
    assert mesh_cost.kept_bytes_of_rank(GPT3, ONE, batch) == 34 * 2048 * 12_288 * 96
    assert mesh_cost.kept_bytes_of_rank(GPT3, RankMesh(1, 8, 1), batch) == 34 * 2048 * 12_288 * 96 / 8


def test_a_mesh_of_one_rank_only_computes():
    batch = ReplicaBatch(micro_batches=4, sequences=2)
    flops = 6 * mesh_cost.parameters_of_rank(GPT3, ONE) * 8 * 2048
    assert mesh_cost.mesh_seconds(GPT3, ONE, batch, 1e12, FREE, FREE) == pytest.approx(flops / 1e12)
    assert mesh_cost.share_of_peak(GPT3, ONE, batch, 1e12, Interconnect("slow", 1.0, 1.0), FREE) == 1


def test_where_links_are_free_only_the_bubble_costs():
    for pipeline in (1, 2, 4, 8):
        for micro_batches in (1, 4, 32):
            mesh, batch = RankMesh(4, 8, pipeline), ReplicaBatch(micro_batches, 1)
            share = mesh_cost.share_of_peak(GPT3, mesh, batch, 1e14, FREE, FREE)
            assert share == pytest.approx(micro_batches / (micro_batches + pipeline - 1))


def test_a_slower_link_costs_on_its_own_axis_only():
    slow = Interconnect("slow", 1e-3, 1e9)
    batch = ReplicaBatch(8, 1)

    def seconds(mesh, inside, between):
        return mesh_cost.mesh_seconds(GPT3, mesh, batch, 1e15, inside, between)

    for axes, own in (((8, 1, 1), "between"), ((1, 8, 1), "inside"), ((1, 1, 8), "between")):
        mesh = RankMesh(*axes)
        inside, between = seconds(mesh, slow, FREE), seconds(mesh, FREE, slow)
        other, costs = (inside, between) if own == "between" else (between, inside)
        assert other == seconds(mesh, FREE, FREE) < costs


def test_an_axis_of_no_ranks_says_so():
    with pytest.raises(LabError, match=r"An axis of 0 ranks is none \(tensor\)"):
        RankMesh(1, 0, 1)


def test_the_sliders_show_the_formula():
    sliders = mesh_sliders.mesh_sliders()
    sent, kept, spent = ([value for [value] in sliders.values(panel)] for panel in sliders.panels)
    net, mesh, batch = mesh_sliders.NETS["64 billion"], RankMesh(16, 8, 4), ReplicaBatch(64, 1)
    assert sent[0] == pytest.approx(mesh_cost.tensor_bytes(net, mesh, batch) / 1e9)
    assert kept[:2] == pytest.approx([mesh_cost.state_bytes(net, mesh, sharded) / 1e9 for sharded in (False, True)])
    inside, between = mesh_sliders.inside_link(8), mesh_sliders.INFINIBAND
    share = mesh_cost.share_of_peak(net, mesh, batch, mesh_sliders.PEAK, inside, between)
    assert spent[0] == pytest.approx(100 * share) and sum(spent) == pytest.approx(100)
    beyond = [value for [value] in sliders.values(sliders.panels[2], tensor="16")]
    assert beyond[1] > 2 * spent[1], "beyond a node the tensor axis has InfiniBand"


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
