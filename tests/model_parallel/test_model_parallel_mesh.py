"""mesh: what three axes cost by formula, against published figures and against counting by hand."""

import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.distributed import Interconnect
from hpml_lab.model_parallel.lessons import mesh_cost
from hpml_lab.model_parallel.lessons.mesh_cost import RankMesh, ReplicaBatch, TransformerShape
from hpml_lab.model_parallel.tools import large_mesh
from hpml_lab.model_parallel.views import mesh_sliders

GPT3 = TransformerShape(layers=96, width=12_288, tokens=2048)
FREE = Interconnect("free", 0.0, 1e30)
ONE = RankMesh(1, 1, 1)


def test_gpt_3_has_174_billion_parameters_and_needs_2_8_terabytes():
    assert mesh_cost.parameters_of_rank(GPT3, ONE) == pytest.approx(174e9, rel=1e-3)
    assert mesh_cost.state_bytes(GPT3, ONE, False) == pytest.approx(2.783e12, rel=1e-3)


def test_a_layer_keeps_what_korthikanti_counts():
    """34 · s · b · h bytes a layer: 0.856 GB for GPT-3 with one sequence, and an eighth of it on eight ranks."""
    batch = ReplicaBatch(micro_batches=1, sequences=1)
    assert mesh_cost.kept_bytes_of_rank(GPT3, ONE, batch) == 34 * 2048 * 12_288 * 96
    assert mesh_cost.kept_bytes_of_rank(GPT3, RankMesh(1, 8, 1), batch) == 34 * 2048 * 12_288 * 96 / 8


def test_state_is_divided_by_every_axis_or_by_two_of_them():
    whole = mesh_cost.state_bytes(GPT3, ONE, False)
    mesh = RankMesh(data=4, tensor=8, pipeline=3)
    assert mesh.ranks == 96
    assert mesh_cost.state_bytes(GPT3, mesh, False) * 24 == pytest.approx(whole)
    assert mesh_cost.state_bytes(GPT3, mesh, True) * 96 == pytest.approx(whole)


@pytest.mark.parametrize("tensor", [1, 2, 8])
@pytest.mark.parametrize("pipeline", [1, 3])
def test_bytes_are_those_of_the_collectives_one_by_one(tensor, pipeline):
    """A ring of T ranks sends 2 (T − 1) messages of a T-th for each sum; every layer has two sums forward and two backward."""
    net, batch = TransformerShape(layers=6, width=16, tokens=10), ReplicaBatch(micro_batches=5, sequences=3)
    mesh = RankMesh(data=4, tensor=tensor, pipeline=pipeline)
    activations = 2 * 3 * 10 * 16
    sent = 0.0
    for _micro_batch in range(5):
        for _layer in range(6 // pipeline):
            for _sum in ("attention", "MLP", "attention backward", "MLP backward"):
                sent += sum(activations / tensor for _message in range(2 * (tensor - 1)))
    assert mesh_cost.tensor_bytes(net, mesh, batch) == pytest.approx(sent)
    to_neighbors = 5 * 2 * activations / tensor if pipeline > 1 else 0
    assert mesh_cost.pipeline_bytes(net, mesh, batch) == pytest.approx(to_neighbors)
    gradients = 2 * 12 * 6 * 16**2 / tensor / pipeline
    assert mesh_cost.data_bytes(net, mesh) == pytest.approx(6 * gradients / 4)  # 2 (D − 1) messages of a D-th


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

    assert (
        seconds(RankMesh(8, 1, 1), slow, FREE)
        == seconds(RankMesh(8, 1, 1), FREE, FREE)
        < seconds(RankMesh(8, 1, 1), FREE, slow)
    )
    assert (
        seconds(RankMesh(1, 8, 1), FREE, slow)
        == seconds(RankMesh(1, 8, 1), FREE, FREE)
        < seconds(RankMesh(1, 8, 1), slow, FREE)
    )
    assert (
        seconds(RankMesh(1, 1, 8), slow, FREE)
        == seconds(RankMesh(1, 1, 8), FREE, FREE)
        < seconds(RankMesh(1, 1, 8), FREE, slow)
    )


def test_an_axis_of_no_ranks_says_so():
    with pytest.raises(LabError, match=r"An axis of 0 ranks is none \(tensor\)"):
        RankMesh(1, 0, 1)


def test_the_sliders_show_the_formula():
    sliders = mesh_sliders.mesh_sliders()
    sent, kept, spent = ([value for [value] in sliders.values(panel)] for panel in sliders.panels)
    net, mesh, batch = large_mesh.NETS["64 billion"], RankMesh(16, 8, 4), ReplicaBatch(64, 1)
    assert sent[0] == pytest.approx(mesh_cost.tensor_bytes(net, mesh, batch) / 1e9)
    assert kept[:2] == pytest.approx([mesh_cost.state_bytes(net, mesh, sharded) / 1e9 for sharded in (False, True)])
    inside, between = large_mesh.inside_link(8), large_mesh.INFINIBAND
    share = mesh_cost.share_of_peak(net, mesh, batch, large_mesh.PEAK, inside, between)
    assert spent[0] == pytest.approx(100 * share) and sum(spent) == pytest.approx(100)
    twice = [value for [value] in sliders.values(sliders.panels[1], width="16,384", layers="80")]
    assert twice == pytest.approx([4 * kept[0], 4 * kept[1], 2 * kept[2]]), "weights grow with d², activations with d"
    beyond = [value for [value] in sliders.values(sliders.panels[2], tensor="16")]
    assert beyond[1] > 2 * spent[1], "beyond a node the tensor axis has InfiniBand"
