"""The graphs that torch builds, made visible: of gradients, and of a model's modules.

grad_fn_graph(loss, {"w": w})    what `loss.backward()` will walk
model_graph(net, x, depth=2)     modules, functions and shapes of net(x), drawn by `model_figure`
"""

import io
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any

import networkx as nx
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from torch import nn

from hpml_lab.core import style
from hpml_lab.core.errors import LabError
from hpml_lab.core.graph import KINDS

LAYER, COLUMN, LANE = (0.56, 1.75, 0.16)  # inches: between layers, columns of boxes, and lines that go around boxes
WAYS = ("networkx", "graphviz")


# ---- the graph of gradients --------------------------------------------------------------------------------


def grad_fn_graph(root: torch.Tensor, names: dict[str, torch.Tensor] | None = None) -> nx.DiGraph:
    """The graph that autograd recorded for `root`, with edges in the direction of the forward pass.

    Each node is a `grad_fn`, the function that carries a gradient back through one operation; leaves are
    AccumulateGrad, which adds to `.grad` of a tensor. Constants and tensors that do not require a gradient do
    not appear.
    names  {name: leaf tensor} labels the leaves
    """
    if root.grad_fn is None:
        raise ValueError("this tensor has no grad_fn: nothing that requires a gradient led to it")
    called = {id(tensor): name for name, tensor in (names or {}).items()}
    graph, numbers, waiting = nx.DiGraph(), {root.grad_fn: 0}, [root.grad_fn]
    while waiting:
        function = waiting.pop()
        leaf = getattr(function, "variable", None)
        title = type(function).__name__
        if leaf is not None:
            shape = f" {tuple(leaf.shape)}" if leaf.ndim else ""
            title = f"{called.get(id(leaf), 'leaf')}{shape}\n{title}"
        kind = "output" if function is root.grad_fn else "operation" if leaf is None else "leaf"
        graph.add_node(numbers[function], label=title, kind=kind)
        for parent, _ in function.next_functions:
            if parent is not None:  # None stands for an operand that needs no gradient
                if parent not in numbers:
                    numbers[parent] = len(numbers)
                    waiting.append(parent)
                graph.add_edge(numbers[parent], numbers[function])
    return graph


# ---- the graph of a model ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ModelGraph:
    """A model's graph, ready for two drawers.

    graph  for networkx: nodes 0, 1, … carry `label` (name and output shape) and `kind`
    dot    for graphviz: torchview's own text in the DOT language
    """

    graph: nx.DiGraph
    dot: str


def model_graph(model: nn.Module, *inputs: torch.Tensor, depth: int = 3) -> ModelGraph:
    """Record `model(*inputs)` with torchview: modules and functions down to `depth` levels of nesting, with
    shapes.

    On the device "meta" a model has shapes but no numbers, so even a large one costs neither memory nor time.
    """
    from torchview import draw_graph

    drawn = draw_graph(model, input_data=inputs, device=inputs[0].device, depth=depth, mode="train")
    kinds = {"TensorNode": "leaf", "FunctionNode": "operation", "ModuleNode": "module"}
    graph = nx.DiGraph()
    for edge in drawn.edge_list:
        start, end = (drawn.id_dict[node.node_id] for node in edge)
        for node, number in zip(edge, (start, end), strict=True):
            kind = kinds[type(node).__name__]
            shapes = [node.tensor_shape] if kind == "leaf" else node.output_shape
            name = node.name.replace("auxiliary-tensor", "input-tensor")  # torchview's inner name for an input
            shown = ", ".join(str(tuple(shape)) for shape in shapes)
            kind = "output" if name == "output-tensor" else kind
            graph.add_node(number, label=f"{name}\n{shown}", kind=kind)
        graph.add_edge(start, end)
    return ModelGraph(graph, drawn.visual_graph.source)


def dot_graph(dot: str) -> nx.DiGraph:
    """Nodes and edges that a DOT text of torchview names."""
    graph = nx.DiGraph()
    graph.add_nodes_from(int(number) for number in re.findall(r"^\s*(\d+) \[", dot, flags=re.M))
    edges = re.findall(r"^\s*(\d+) -> (\d+)", dot, flags=re.M)
    graph.add_edges_from((int(start), int(end)) for start, end in edges)
    return graph


def graphviz_graph(dot: str) -> nx.DiGraph:
    """Nodes and edges that the program `dot` laid out. Raises LabError where there is no such program."""
    laid_out = json.loads(_dot(dot, "json"))
    names = {one["_gvid"]: int(one["name"]) for one in laid_out["objects"]}
    graph = nx.DiGraph()
    graph.add_nodes_from(names.values())
    graph.add_edges_from((names[one["tail"]], names[one["head"]]) for one in laid_out.get("edges", []))
    return graph


def _dot(text: str, form: str) -> bytes:
    """What graphviz makes of a DOT text, as "png" or "json"."""
    program = shutil.which("dot")
    mend = "Install graphviz (apt-get install graphviz, or conda install graphviz), or draw by networkx."
    if program is None:
        raise LabError("The program `dot` of graphviz is not installed.", mend)
    done = subprocess.run([program, f"-T{form}", "-Gdpi=80"], input=text.encode(), capture_output=True, timeout=60)
    if done.returncode:
        raise LabError(f"graphviz could not draw this graph: {done.stderr.decode()[:200]}", mend)
    return done.stdout


def model_figure(model: ModelGraph, way: str = "networkx") -> Figure:
    """A picture of a model's graph, drawn by "networkx" (which is always there) or by the program
    "graphviz"."""
    if way not in WAYS:
        raise LabError(f"{way!r} is no way of drawing.", f"Use {' or '.join(WAYS)}.")
    if way == "graphviz":
        return _framed(_dot(model.dot, "png"))
    figure = style.new_figure(*downward_size(model.graph))
    with style.in_style():
        draw_downward(figure.subplots(), model.graph)
    return figure


def _framed(png: bytes) -> Figure:
    """A PNG as a figure of just its size."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    figure = style.new_figure(image.width / 100, image.height / 100)
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.imshow(image, interpolation="none")
    axes.set_axis_off()
    return figure


# ---- drawing a graph that is nearly a chain ----------------------------------------------------------------


@dataclass(frozen=True)
class _Layout:
    """Where a graph's nodes stand, (column, layer), and beside which column an edge that would cross a box
    goes down."""

    places: dict[Any, tuple[int, int]]
    lanes: dict[tuple[Any, Any], float]
    right: float
    bottom: int


def _lay_out(graph: nx.DiGraph) -> _Layout:
    """The longest path runs straight down column 0; what is not on it stands in the first free column beside
    it."""
    layers = {node: layer for layer, nodes in enumerate(nx.topological_generations(graph)) for node in nodes}
    places = {node: (0, layers[node]) for node in nx.dag_longest_path(graph)}
    for node in nx.topological_sort(graph):
        if node not in places:
            taken = set(places.values())
            places[node] = next((c, layers[node]) for c in range(1, len(layers)) if (c, layers[node]) not in taken)
    boxes, lanes, spans = set(places.values()), {}, []
    for start, end in sorted(graph.edges, key=lambda edge: layers[edge[1]] - layers[edge[0]]):
        (column, first), (other, last) = places[start], places[end]
        if column == other and boxes & {(column, layer) for layer in range(first + 1, last)}:
            busy = {lane for c, lane, begin, stop in spans if c == column and begin < last and stop > first}
            lane = next(number for number in range(len(spans) + 1) if number not in busy)
            spans.append((column, lane, first, last))
            lanes[start, end] = column + 0.5 + lane * LANE / COLUMN
    right = max([column for column, _ in boxes] + [lane - 0.4 for lane in lanes.values()])
    return _Layout(places, lanes, right, max(layers.values()))


def downward_size(graph: nx.DiGraph) -> tuple[float, float]:
    """Width and height in inches that `draw_downward` needs."""
    layout = _lay_out(graph)
    return COLUMN * (layout.right + 1.1), LAYER * (layout.bottom + 1) + 0.1


def draw_downward(axes: Axes, graph: nx.DiGraph, font_size: float = 8) -> None:
    """Draw a directed acyclic graph downward: its longest path as a straight line, shortcuts as lines around
    the boxes.

    Networks are nearly chains: drawn like this, a skip connection is seen at once. Nodes carry `label` and
    `kind`, as for core.graph.draw_graph.
    """
    layout = _lay_out(graph)
    boxes = {}
    for node, (x, layer) in layout.places.items():
        fill, edge = KINDS[graph.nodes[node]["kind"]]
        boxes[node] = axes.text(
            x,
            -layer,
            graph.nodes[node]["label"],
            ha="center",
            va="center",
            fontsize=font_size,
            zorder=3,
            bbox={"boxstyle": "round,pad=0.3", "facecolor": fill, "edgecolor": edge, "linewidth": 1.3},
        )
    line = {"color": style.GREY, "linewidth": 1.2}
    for start, end in graph.edges:
        (x0, layer), (x1, last) = layout.places[start], layout.places[end]
        corners = [(x0, -layer)]
        if (start, end) in layout.lanes:
            lane = layout.lanes[start, end]
            corners += [(lane, -layer), (lane, -last)]
        elif x0 != x1:
            corners.append((x1, -layer) if x0 < x1 else (x0, -last))
        axes.plot(*zip(*corners, strict=True), zorder=1, **line)  # its first end is hidden under the box
        arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 1, "patchB": boxes[end].get_bbox_patch(), **line}
        axes.annotate("", xy=(x1, -last), xytext=corners[-1], zorder=1, arrowprops=arrow)
    axes.set_axis_off()
    axes.set_xlim(-0.55, layout.right + 0.55)
    axes.set_ylim(-layout.bottom - 0.5, 0.5)
