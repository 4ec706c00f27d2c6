"""Graphs that are nearly chains are laid out with their shortcuts around the boxes, and survive being saved."""

import json

import networkx as nx
import pytest

from hpml_lab.core.show.graph import (
    GraphLayout,
    chain_figure,
    chain_layout,
    draw_graph,
    graph_from_record,
    graph_record,
    make_graph,
)
from hpml_lab.core.show.style import new_figure

CHAIN = [(0, 1), (1, 2), (2, 3), (3, 4)]
SHORTCUTS = [(0, 3), (1, 4), (0, 4)]


def labeled(edges):
    nodes = sorted({node for edge in edges for node in edge})
    return make_graph(((node, f"node {node}", "operation") for node in nodes), edges)


def residual_block():
    """Two skip connections; the second passes through a node of its own."""
    return labeled([*CHAIN, (0, 2), (2, 5), (5, 4)])


def cells(layout):
    return {node: (x, -y) for node, (x, y) in layout.centers.items()}


@pytest.mark.parametrize("edges", [CHAIN, CHAIN + SHORTCUTS, [*CHAIN, (0, 2), (2, 5), (5, 4)]])
def test_no_two_boxes_share_a_place_and_no_line_runs_through_a_box(edges):
    graph = labeled(edges)
    layout = chain_layout(graph)
    taken = cells(layout)
    assert len(set(taken.values())) == len(graph)
    for start, end in graph.edges:
        (column, first), (end_column, last) = taken[start], taken[end]
        passed = {(column, layer) for layer in range(first + 1, last)} & set(taken.values())
        assert column != end_column or not passed or (start, end) in layout.corners


def test_lines_around_boxes_that_overlap_have_lanes_of_their_own():
    corners = chain_layout(labeled(CHAIN + SHORTCUTS)).corners
    assert set(corners) == set(SHORTCUTS)
    assert len({points[0][0] for points in corners.values()}) == 3


def test_every_edge_of_a_chain_leads_down():
    layout = chain_layout(residual_block())
    assert all(layout.centers[start][1] > layout.centers[end][1] for start, end in residual_block().edges)
    assert [layout.centers[node][0] for node in range(5)] == [0] * 5, "the longest path is one column"


def test_graphs_stand_side_by_side_in_one_scale():
    figure = chain_figure({"short": labeled(CHAIN[:1]), "long": residual_block()})
    assert [axes.get_title() for axes in figure.axes] == ["short", "long"]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


def test_a_layout_is_drawn_as_it_says():
    axes = new_figure().subplots()
    layout = GraphLayout({0: (0.0, 0.0), 1: (2.0, -1.0)}, bends={(0, 1): 0.5})
    boxes = draw_graph(axes, labeled([(0, 1)]), layout)
    assert {node: box.get_position() for node, box in boxes.items()} == layout.centers
    [arrow] = [text.arrow_patch for text in axes.texts if getattr(text, "arrow_patch", None)]
    assert arrow.get_connectionstyle().rad == 0.5


def test_a_graph_survives_being_saved():
    graph = residual_block()
    back = graph_from_record(json.loads(json.dumps(graph_record(graph))))
    assert dict(back.nodes(data=True)) == dict(graph.nodes(data=True))
    assert list(back.edges) == list(graph.edges)
    assert isinstance(back, nx.DiGraph)
