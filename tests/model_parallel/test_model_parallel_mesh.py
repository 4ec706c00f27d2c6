"""mesh: what three axes cost by formula, against published figures and against counting by hand."""

import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.distributed import Interconnect
from hpml_lab.model_parallel.lessons import mesh_cost
from hpml_lab.model_parallel.lessons.mesh_cost import RankMesh, ReplicaBatch, TransformerShape
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
