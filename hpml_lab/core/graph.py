"""Draws a directed acyclic graph in layers without a system graphviz.

Nodes carry `label` and `kind` (one of KINDS); networkx finds the layers, and nodes are ordered by where their neighbours stand.
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
    """Positions (x: layer, y: place in the layer, around 0); every edge leads to a larger x. Raises on a cycle."""
    layer = {node: i for i, nodes in enumerate(nx.topological_generations(graph)) for node in nodes}
    for node in graph:
        if graph.in_degree(node) == 0 and graph.out_degree(node):
            # a source stands just before its first use
            layer[node] = min(layer[child] for child in graph.successors(node)) - 1
    columns = {x: [node for node in graph if layer[node] == x] for x in sorted(set(layer.values()))}
    y = {node: place - (len(nodes) - 1) / 2 for nodes in columns.values() for place, node in enumerate(nodes)}
    # Nodes move towards the middle of their neighbours, forward and back through the layers, and keep 1 apart.
    for sweep in range(6):
        for x in sorted(columns, reverse=sweep % 2 == 1):
            wish = {}
            for node in columns[x]:
                near = [y[n] for n in (graph.successors(node) if sweep % 2 else graph.predecessors(node))]
                wish[node] = sum(near) / len(near) if near else y[node]
            columns[x].sort(key=wish.get)
            middle = sum(wish.values()) / len(wish)
            for place, node in enumerate(columns[x]):
                y[node] = middle + place - (len(wish) - 1) / 2
    return {node: (float(x), y[node]) for x, nodes in columns.items() for node in nodes}


def draw_graph(axes: Axes, graph: nx.DiGraph, *, downward: bool = False, font_size: float = 9) -> dict[object, Text]:
    """Draw `graph` from left to right (or downward) and return the text box of each node, so that it can be changed."""
    axes.set_axis_off()
    places = {node: (y, -x) if downward else (x, -y) for node, (x, y) in layered_positions(graph).items()}
    boxes = {}
    for node, (x, y) in places.items():
        fill, edge = KINDS[graph.nodes[node].get("kind", "plain")]
        boxes[node] = axes.text(
            x,
            y,
            graph.nodes[node]["label"],
            ha="center",
            va="center",
            fontsize=font_size,
            zorder=3,
            bbox={"boxstyle": "round,pad=0.4", "facecolor": fill, "edgecolor": edge, "linewidth": 1.5},
        )
    for start, end in graph.edges:
        (x0, y0), (x1, y1) = places[start], places[end]
        far = abs(y1 - y0 if downward else x1 - x0) > 1.01 and (x0 == x1 if downward else y0 == y1)
        axes.annotate(
            "",
            xy=(x1, y1),
            xytext=(x0, y0),
            zorder=1,
            arrowprops={
                "arrowstyle": "-|>",
                "color": style.GREY,
                "linewidth": 1.2,
                "patchA": boxes[start].get_bbox_patch(),
                "patchB": boxes[end].get_bbox_patch(),
                "connectionstyle": f"arc3,rad={0.35 if far else 0}",  # around the nodes between
            },
        )
    xs, ys = zip(*places.values(), strict=True)
    axes.set_xlim(min(xs) - 0.6, max(xs) + 0.6)
    axes.set_ylim(min(ys) - 0.6, max(ys) + 0.6)
    return boxes
