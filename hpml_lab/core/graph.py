"""Draws a directed acyclic graph in layers without a system graphviz.

Nodes carry `label` and `kind` (one of KINDS); networkx finds the layers, and nodes are ordered by where their parents stand.
"""

import networkx as nx
from matplotlib.axes import Axes
from matplotlib.text import Text

from hpml_lab.core import style

KINDS = {  # fill and edge: kinds differ in lightness too, and each label says what the node is
    "leaf": ("#dbeafe", style.BLUE),
    "operation": ("#fef3c7", style.ORANGE),
    "output": ("#d1fae5", style.GREEN),
    "module": ("#f3e8ff", style.PURPLE),
    "plain": ("#f3f4f6", style.GREY),
}


def layered_positions(graph: nx.DiGraph) -> dict[object, tuple[float, float]]:
    """Positions (x: layer, y: place in the layer, centred on 0); every edge leads to a larger x. Raises on a cycle."""
    positions: dict[object, tuple[float, float]] = {}
    for layer, nodes in enumerate(nx.topological_generations(graph)):
        parents = {node: [positions[p][1] for p in graph.predecessors(node)] for node in nodes}
        ordered = sorted(nodes, key=lambda node: sum(parents[node]) / len(parents[node]) if parents[node] else 0.0)
        for place, node in enumerate(ordered):
            positions[node] = (float(layer), place - (len(ordered) - 1) / 2)
    # A source stands just before its first use, not in the first column far from it.
    for node in [n for n in graph if graph.in_degree(n) == 0 and graph.out_degree(n)]:
        first_use = min(positions[child][0] for child in graph.successors(node))
        if first_use - 1 > positions[node][0]:
            taken = {y for n, (x, y) in positions.items() if x == first_use - 1}
            y = positions[node][1]
            while any(abs(y - other) < 1 for other in taken):
                y -= 1.0
            positions[node] = (first_use - 1, y)
    return positions


def draw_graph(
    axes: Axes, graph: nx.DiGraph, *, downward: bool = False, font_size: float = 9
) -> dict[object, Text]:
    """Draw `graph` from left to right (or downward) and return the text box of each node, so that it can be changed."""
    axes.set_axis_off()
    places = {
        node: (y, -x) if downward else (x, -y) for node, (x, y) in layered_positions(graph).items()
    }
    boxes = {}
    for node, (x, y) in places.items():
        fill, edge = KINDS[graph.nodes[node].get("kind", "plain")]
        boxes[node] = axes.text(
            x, y, graph.nodes[node]["label"], ha="center", va="center", fontsize=font_size, zorder=3,
            bbox={"boxstyle": "round,pad=0.4", "facecolor": fill, "edgecolor": edge, "linewidth": 1.5},
        )
    for start, end in graph.edges:
        (x0, y0), (x1, y1) = places[start], places[end]
        far = abs(y1 - y0 if downward else x1 - x0) > 1.01 and (x0 == x1 if downward else y0 == y1)
        axes.annotate(
            "", xy=(x1, y1), xytext=(x0, y0), zorder=1,
            arrowprops={
                "arrowstyle": "-|>", "color": style.GREY, "linewidth": 1.2,
                "patchA": boxes[start].get_bbox_patch(), "patchB": boxes[end].get_bbox_patch(),
                "connectionstyle": f"arc3,rad={0.35 if far else 0}",  # around the nodes between
            },
        )
    xs, ys = zip(*places.values(), strict=True)
    axes.set_xlim(min(xs) - 0.6, max(xs) + 0.6)
    axes.set_ylim(min(ys) - 0.6, max(ys) + 0.6)
    return boxes
