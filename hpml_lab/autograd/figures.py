"""The figures of notebook 02; each docstring is its figure's caption."""

import networkx as nx
import numpy as np

from hpml_lab.autograd.graphs import downward_size, draw_downward
from hpml_lab.core import style
from hpml_lab.core.graph import draw_graph
from hpml_lab.core.result import Result

LINES = ("-", "--", "-.", ":")


def as_lists(graph: nx.DiGraph) -> dict[str, list]:
    """A graph as plain lists, which a saved result can hold."""
    nodes = [{"node": node, "label": data["label"], "kind": data["kind"]} for node, data in graph.nodes(data=True)]
    return {"nodes": nodes, "edges": [list(edge) for edge in graph.edges]}


def from_lists(lists: dict[str, list]) -> nx.DiGraph:
    """The graph that `as_lists` was given."""
    graph = nx.DiGraph()
    for one in lists["nodes"]:
        graph.add_node(one["node"], label=one["label"], kind=one["kind"])
    graph.add_edges_from(map(tuple, lists["edges"]))
    return graph


def draw_backprop_by_hand(result: Result):
    """Top: the graph of f = (x + y)z. On each edge stand the value that goes forward along it (above) and the
    gradient that comes back along it (below). Bottom: the loss of two networks trained by the same engine,
    epoch by epoch: the lecture's XOR net and a classifier of handwritten digits."""
    figure = style.new_figure(9.5, 6.6)
    top, bottom = figure.subfigures(2, 1, height_ratios=[1.3, 1])
    axes, graph = top.subplots(), from_lists(result.arrays["graph"])
    boxes = draw_graph(axes, graph, font_size=11)
    for *edge, value, gradient in result.arrays["on edges"]:
        start, end = (np.array(boxes[node].get_position()) for node in edge)
        x, y = 0.62 * start + 0.38 * end
        near = {"textcoords": "offset points", "ha": "center", "fontsize": 11}
        axes.annotate(f"{value:g}", (x, y), (0, 6), color=style.BLUE, **near)
        axes.annotate(f"{gradient:g}", (x, y), (0, -15), color=style.RED, **near)
    axes.set_xlim(-0.35, 2.35)
    axes.set_title("above an edge: the value that goes forward; below: the gradient that comes back", fontsize=10)

    for axes, (name, losses), colour in zip(
        bottom.subplots(1, 2), result.arrays["losses"].items(), (style.BLUE, style.ORANGE), strict=True
    ):
        axes.plot(range(1, len(losses) + 1), losses, color=colour)
        axes.set(xlabel="epoch", ylabel="loss (cross-entropy)", title=name)
        axes.set_ylim(bottom=0)
    return figure


def draw_requires_grad(result: Result):
    """Left: how b = (x + y) + z is computed; grey tensors are not tracked, because nothing that they come
    from requires a gradient. Right: the mean of z.grad after each call in a row of calls; backward adds to
    it, None stands for no gradient yet."""
    figure = style.new_figure(11, 4.2)
    left, right = figure.subplots(1, 2, width_ratios=[1.25, 1])
    draw_graph(left, from_lists(result.arrays["graph"]), font_size=8.5)
    events = result.arrays["events"]
    for place, (_, value) in enumerate(events):
        right.bar(place, value or 0, color=style.BLUE, width=0.6)
        right.text(place, (value or 0) + 0.04, "None" if value is None else f"{value:g}", ha="center")
    right.set_xticks(range(len(events)), [what for what, _ in events], rotation=35, ha="right", fontsize=9)
    right.set(ylabel="mean of z.grad", title="backward adds to .grad")
    right.margins(y=0.15)
    right.grid(axis="x", visible=False)
    right.set_axisbelow(True)
    return figure


def draw_jacobian_vector(result: Result):
    """Each line is one product vᵀJ for z = 2x² + 5x at x = 2, with the four elements of x and z in a row. J
    is diagonal with 13 in every place, so the upstream ones give 13 and the slide's upstream twos give 26."""
    products = result.arrays["products"]
    figure = style.new_figure(9.5, 2.3 * len(products))
    grid = figure.subplots(len(products), 3, width_ratios=[1, 1, 1], squeeze=False)
    jacobian = np.array(result.arrays["jacobian"])
    top = max(np.abs(one["product"]).max() for one in products)
    for line, one in zip(grid, products, strict=True):
        parts = ((f"v = {one['name']}", [one["v"]]), ("J = ∂z/∂x", jacobian), ("vᵀJ, as it lands in x.grad", [one["product"]]))
        for axes, (title, values) in zip(line, parts, strict=True):
            _matrix(axes, np.array(values, dtype=float), top)
            axes.set_title(title, fontsize=10)
    return figure


def _matrix(axes, values: np.ndarray, top: float) -> None:
    """A matrix as shaded cells with its numbers in them."""
    axes.imshow(values, cmap="Blues", vmin=0, vmax=1.6 * top)
    for (i, j), value in np.ndenumerate(values):
        axes.text(j, i, f"{value:g}", ha="center", va="center")
    axes.set(xticks=[], yticks=[])
    axes.grid(False)


def draw_chain_rule(result: Result):
    """Lines of equal w = xy + 2, and at some points the gradient (∂w/∂x, ∂w/∂y) = (y, x) as an arrow, drawn
    to a sixth of its length. Arrows stand at right angles to the lines and point to where w grows; at the
    origin there is none."""
    figure = style.new_figure(6.5, 5.4)
    axes = figure.subplots()
    side = np.linspace(-4, 4, 81)
    x, y = np.meshgrid(side, side)
    lines = axes.contour(x, y, x * y + 2, levels=np.arange(-12, 17, 4), colors=style.GREY, linewidths=1)
    axes.clabel(lines, fontsize=8)
    points = np.array(result.arrays["points"])
    slopes = np.array(result.arrays["gradients"])
    axes.quiver(*points.T, *slopes.T, color=style.BLUE, angles="xy", scale_units="xy", scale=6, width=0.006)
    axes.set(xlabel="x", ylabel="y", aspect="equal", xlim=(-4, 4), ylim=(-4, 4))
    axes.set_title("w = xy + 2 and its gradient (1/6 of its length)")
    axes.set_axisbelow(True)
    return figure


def draw_perceptron_bce(result: Result):
    """Loss (left) and gradient ∂L/∂z (right) of one sample with label y = 0 against its logit z, in float32.
    The more wrong the net is, the larger z. As soon as σ(z) is rounded to 1, the formula gives infinity and
    no gradient, and BCELoss jumps to 100 with gradient 0; only BCEWithLogitsLoss goes on as it should."""
    figure = style.new_figure(10, 4)
    left, right = figure.subplots(1, 2)
    z = np.array(result.arrays["z"])
    looks = zip((style.GREY, style.RED, style.BLUE), ("o", None, None), (":", "--", "-"), strict=True)
    for (name, curves), (colour, marker, line) in zip(result.arrays["curves"].items(), looks, strict=True):
        look = {"color": colour, "linestyle": line, "marker": marker, "markersize": 4, "markevery": 8, "label": name}
        for axes, values in ((left, curves["loss"]), (right, curves["gradient"])):
            values = np.array(values, dtype=float)
            axes.plot(z, np.where(np.isfinite(values), values, np.nan), **look)
    left.set(xlabel="logit z", ylabel="loss (nats)", title="Loss for y = 0")
    right.set(xlabel="logit z", ylabel="∂L/∂z", title="Gradient for y = 0; it should be σ(z) - y")
    left.legend(fontsize=8)
    right.legend(fontsize=8, loc="center right")
    return figure


def draw_dynamic_graph(result: Result):
    """Left and middle: the graphs that autograd recorded of one and the same function for two inputs; the
    number of multiplications and the last operation depend on the data. Right: the time that a number of
    calls takes, plain and (where there is a compiler) compiled. The compiled line begins at the time that
    compiling took, and wins only after the lines have crossed."""
    graphs = {name: from_lists(lists) for name, lists in result.arrays["graphs"].items()}
    sizes = [downward_size(graph) for graph in graphs.values()]
    figure = style.new_figure(sum(width for width, _ in sizes) + 5.5, max(height for _, height in sizes) + 0.5)
    *panels, lines = figure.subplots(1, 3, width_ratios=[*(width for width, _ in sizes), 5.2])
    deepest = max(height for _, height in sizes)
    for axes, (name, graph), (_, height) in zip(panels, graphs.items(), sizes, strict=True):
        draw_downward(axes, graph)
        low, high = axes.get_ylim()
        axes.set_ylim(high - (high - low) * deepest / height, high)  # one scale for both
        axes.set_title(name, fontsize=10)
    eager, compiled, latency = (result.arrays[name] for name in ("eager", "compiled", "latency"))
    calls = np.geomspace(1, 1e6, 100)
    lines.plot(calls, eager * calls, color=style.BLUE, label="plain")
    if compiled is not None:
        lines.plot(calls, latency + compiled * calls, color=style.ORANGE, linestyle="--", label="compiled")
    lines.set(xscale="log", yscale="log", xlabel="calls", ylabel="time since the start (s)")
    lines.set_title("When compiling pays" if compiled is not None else "No compiler here: plain calls only")
    lines.legend()
    return figure


def draw_torchview_graphs(result: Result):
    """Four networks as torchview records them, drawn by networkx and matplotlib: a multilayer perceptron, one
    block of ResNet-18, ResNet-18 with its blocks closed, and a small Transformer. Each box has the shape that
    leaves it; a line around boxes is a skip connection."""
    drawn = {name: from_lists(lists) for name, lists in result.arrays["graphs"].items()}
    columns = [list(drawn)[:2], list(drawn)[2:3], list(drawn)[3:]]
    sizes = {name: downward_size(graph) for name, graph in drawn.items()}
    widths = [max(sizes[name][0] for name in column) for column in columns]
    heights = [sum(sizes[name][1] + 0.4 for name in column) for column in columns]
    figure = style.new_figure(sum(widths) + 0.6, max(heights))
    for part, column, height in zip(figure.subfigures(1, 3, width_ratios=widths), columns, heights, strict=True):
        shares = [sizes[name][1] for name in column] + [max(heights) - height + 0.01]
        *panels, rest = part.subplots(len(shares), 1, height_ratios=shares, squeeze=False)[:, 0]
        rest.set_axis_off()
        for axes, name in zip(panels, column, strict=True):
            draw_downward(axes, drawn[name])
            axes.set_title(name)
    return figure


def draw_gradcheck(result: Result):
    """How many times longer a check takes than one forward and backward pass, against the number of elements
    in the input, both axes logarithmic. The full check grows with the input, the fast one does not."""
    figure = style.new_figure(7, 4.2)
    axes = figure.subplots()
    looks = zip((style.BLUE, style.ORANGE), ("o", "s"), LINES, strict=False)
    for (name, ratios), (colour, marker, line) in zip(result.arrays["ratios"].items(), looks, strict=True):
        axes.plot(result.arrays["sizes"], ratios, color=colour, marker=marker, linestyle=line, label=name)
    axes.axhline(1, color=style.GREY, linestyle=":", linewidth=1.5, label="one plain forward and backward pass")
    axes.set(xscale="log", yscale="log", xlabel="elements of the input", ylabel="time / time of a plain pass")
    axes.set_title("What a check costs")
    axes.legend(fontsize=9)
    return figure
