"""Lays out and draws directed acyclic graphs, without a system graphviz.

Nodes carry `label` and `kind` (one of KINDS). There are two layouts: `layered_layout` for small graphs with several inputs,
and `chain_layout` for networks, which are nearly chains. `draw_graph` draws either.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from hpml_lab.core.show import style

Point = tuple[float, float]
Edge = tuple[Any, Any]

KINDS = {  # fill and edge: kinds differ in lightness too, and each label says what the node is
    "leaf": ("#dbeafe", style.BLUE),
    "operation": ("#fef3c7", style.ORANGE),
    "output": ("#d1fae5", style.GREEN),
    "module": ("#f3e8ff", style.PURPLE),
    "plain": ("#f3f4f6", style.GREY),
}
LAYER, COLUMN, LANE = (0.56, 1.75, 0.16)  # inches: between layers, columns of boxes, and lines that go around boxes


@dataclass(frozen=True)
class GraphLayout:
    """Where the nodes of a graph are drawn, and how its edges run.

    centers  {node: (x, y)}, the center of each box
    bends    {edge: curvature}; an edge that is not listed is straight
    corners  {edge: the points at which its line turns}, from start to end
    """

    centers: dict[Any, Point]
    bends: dict[Edge, float] = field(default_factory=dict)
    corners: dict[Edge, list[Point]] = field(default_factory=dict)


def node_layers(graph: nx.DiGraph) -> dict[Any, int]:
    """The layer of each node; every edge leads to a later layer. Raises NetworkXUnfeasible on a cycle."""
    layers = {node: layer for layer, nodes in enumerate(nx.topological_generations(graph)) for node in nodes}
    for node in graph:
        if graph.in_degree(node) == 0 and graph.out_degree(node):  # a source stands just before its first use
            layers[node] = min(layers[child] for child in graph.successors(node)) - 1
    return layers


# ---- layers side by side -----------------------------------------------------------------------------------


def layered_positions(graph: nx.DiGraph) -> dict[Any, Point]:
    """Positions (x: layer, y: position within the layer, around 0); every edge leads to a larger x."""
    layers = node_layers(graph)
    columns = {x: [node for node in graph if layers[node] == x] for x in sorted(set(layers.values()))}
    y = {node: index - (len(nodes) - 1) / 2 for nodes in columns.values() for index, node in enumerate(nodes)}
    # Nodes move towards the middle of their neighbors, forward and back through the layers, and keep 1 apart.
    for sweep in range(6):
        for x in sorted(columns, reverse=sweep % 2 == 1):
            wish = {}
            for node in columns[x]:
                near = [y[n] for n in (graph.successors(node) if sweep % 2 else graph.predecessors(node))]
                wish[node] = sum(near) / len(near) if near else y[node]
            columns[x].sort(key=wish.get)
            middle = sum(wish.values()) / len(wish)
            for index, node in enumerate(columns[x]):
                y[node] = middle + index - (len(wish) - 1) / 2
    return {node: (float(x), y[node]) for x, nodes in columns.items() for node in nodes}


def layered_layout(graph: nx.DiGraph, *, downward: bool = False) -> GraphLayout:
    """Layer after layer from left to right (or downward); nodes are ordered by where their neighbors stand."""
    centers = {node: (y, -x) if downward else (x, -y) for node, (x, y) in layered_positions(graph).items()}
    bends = {}
    for start, end in graph.edges:
        (x0, y0), (x1, y1) = centers[start], centers[end]
        length, offset = (abs(y1 - y0), x1 - x0) if downward else (abs(x1 - x0), y1 - y0)
        if length > 1.01 and offset == 0:
            bends[start, end] = 0.35  # around the boxes between
    return GraphLayout(centers, bends)


# ---- a chain with shortcuts --------------------------------------------------------------------------------


def chain_layout(graph: nx.DiGraph) -> GraphLayout:
    """The longest path straight down, all other nodes in columns to its right, and shortcuts as lines around the boxes.

    In a network that is nearly a chain, each skip connection is seen at once. Positions are (column, -layer).
    """
    layers = node_layers(graph)
    cells = {node: (0, layers[node]) for node in nx.dag_longest_path(graph)}
    for node in nx.topological_sort(graph):
        if node not in cells:
            taken = set(cells.values())
            cells[node] = next((c, layers[node]) for c in range(1, len(layers)) if (c, layers[node]) not in taken)
    boxes, corners, spans = set(cells.values()), {}, []
    for start, end in sorted(graph.edges, key=lambda edge: layers[edge[1]] - layers[edge[0]]):
        (column, first), (end_column, last) = cells[start], cells[end]
        if column != end_column:
            corners[start, end] = [(end_column, -first) if column < end_column else (column, -last)]
        elif boxes & {(column, layer) for layer in range(first + 1, last)}:
            busy = {lane for c, lane, begin, stop in spans if c == column and begin < last and stop > first}
            lane = next(number for number in range(len(spans) + 1) if number not in busy)
            spans.append((column, lane, first, last))
            x = column + 0.5 + lane * LANE / COLUMN
            corners[start, end] = [(x, -first), (x, -last)]
    return GraphLayout({node: (column, -layer) for node, (column, layer) in cells.items()}, corners=corners)


def chain_figure(graphs: dict[str, nx.DiGraph], font_size: float = 8) -> Figure:
    """Graphs side by side, each in a `chain_layout` under its title, all in one scale; the titles may be empty."""
    layouts = [chain_layout(graph) for graph in graphs.values()]
    widths = [_right_end(layout) + 1.1 for layout in layouts]
    lowest = min(y for layout in layouts for _, y in layout.centers.values())
    title_height = 0.25 if any(graphs) else 0
    figure = style.new_figure(COLUMN * sum(widths), LAYER * (1 - lowest) + 0.1 + title_height)
    panels = figure.subplots(1, len(graphs), width_ratios=widths, squeeze=False)[0]
    with style.in_style():
        for axes, (title, graph), layout, width in zip(panels, graphs.items(), layouts, widths, strict=True):
            draw_graph(axes, graph, layout, font_size=font_size)
            axes.set(xlim=(-0.55, width - 0.55), ylim=(lowest - 0.5, 0.5), title=title)
    return figure


def _right_end(layout: GraphLayout) -> float:
    """The column of the rightmost box, or what a line around the boxes takes beyond it."""
    lines = [x - 0.4 for points in layout.corners.values() for x, _ in points]
    return max([x for x, _ in layout.centers.values()] + lines)


# ---- drawing -----------------------------------------------------------------------------------------------


def draw_graph(
    axes: Axes, graph: nx.DiGraph, layout: GraphLayout | None = None, *, downward: bool = False, font_size: float = 9
) -> dict[Any, Text]:
    """Draw `graph` and return the text box of each node, so that it can be changed.

    Without a layout it is drawn in layers from left to right, or downward.
    """
    layout = layout or layered_layout(graph, downward=downward)
    axes.set_axis_off()
    boxes = {}
    for node, (x, y) in layout.centers.items():
        fill, edge = KINDS[graph.nodes[node].get("kind", "plain")]
        outline = {"boxstyle": "round,pad=0.35", "facecolor": fill, "edgecolor": edge, "linewidth": 1.4}
        text = {"ha": "center", "va": "center", "fontsize": font_size, "color": style.DARK, "zorder": 3}
        boxes[node] = axes.text(x, y, graph.nodes[node]["label"], bbox=outline, **text)
    line = {"color": style.GREY, "linewidth": 1.2}
    for start, end in graph.edges:
        points = [layout.centers[start], *layout.corners.get((start, end), [])]
        if len(points) > 1:
            axes.plot(*zip(*points, strict=True), zorder=1, **line)  # its first end is hidden under the box
        arrow = {"arrowstyle": "-|>", "patchB": boxes[end].get_bbox_patch(), **line}
        if len(points) == 1:
            arrow["patchA"] = boxes[start].get_bbox_patch()
        else:
            arrow |= {"shrinkA": 0, "shrinkB": 1}
        arrow["connectionstyle"] = f"arc3,rad={layout.bends.get((start, end), 0)}"
        axes.annotate("", xy=layout.centers[end], xytext=points[-1], zorder=1, arrowprops=arrow)
    xs, ys = zip(*layout.centers.values(), strict=True)
    axes.set(xlim=(min(xs) - 0.6, max(xs) + 0.6), ylim=(min(ys) - 0.6, max(ys) + 0.6))
    return boxes


# ---- saving ------------------------------------------------------------------------------------------------


def graph_record(graph: nx.DiGraph) -> dict[str, list]:
    """A graph as plain lists, which a saved result can hold."""
    nodes = [{"node": node, "label": data["label"], "kind": data["kind"]} for node, data in graph.nodes(data=True)]
    return {"nodes": nodes, "edges": [list(edge) for edge in graph.edges]}


def graph_from_record(record: dict[str, list]) -> nx.DiGraph:
    """The graph that `graph_record` was given."""
    return make_graph(((node["node"], node["label"], node["kind"]) for node in record["nodes"]), record["edges"])


def make_graph(nodes: Iterable[tuple[Any, str, str]], edges: Iterable[Iterable[Any]]) -> nx.DiGraph:
    """A graph of nodes (name, label, kind) and edges (start, end)."""
    graph = nx.DiGraph()
    for node, label, kind in nodes:
        graph.add_node(node, label=label, kind=kind)
    graph.add_edges_from(map(tuple, edges))
    return graph
