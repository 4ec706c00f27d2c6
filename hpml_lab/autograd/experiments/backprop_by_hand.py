"""Backpropagation by hand through f = (x + y)z, and an engine that does it for any graph.

The lecture's numbers are computed three times: written out, by our engine and by torch. Then the engine alone, without torch,
trains the lecture's XOR net and a classifier of handwritten digits.
"""

from dataclasses import dataclass, field

import numpy as np
import torch

from hpml_lab.autograd.lessons.engine import Tensor, backward_steps
from hpml_lab.autograd.lessons.mlp import train_digits, train_xor
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.graph import draw_graph, graph_from_record, graph_record, make_graph
from hpml_lab.core.show.picture import picture

QUICK = dict(xor_epochs=2000, xor_lr=1.0, digits_epochs=14)
FULL = dict(xor_epochs=10_000, xor_lr=0.1, digits_epochs=30)  # XOR as in the lecture

INPUTS = {"x": -2.0, "y": 5.0, "z": -4.0}
# df/df = 1; df/dq = z and df/dz = q; df/dx = df/dq · 1 and df/dy = df/dq · 1
BY_HAND = {"x": -4.0, "y": -4.0, "z": 3.0, "q": -4.0, "f": 1.0}


@dataclass
class NodeGradient(Row):
    """One node of the graph of f, with the gradient of f computed in three ways."""

    node: str = column("node")
    value: float = column("value")
    by_hand: float = column("gradient of f, by hand")
    by_engine: float = column("by the engine")
    by_torch: float = column("by torch")


@dataclass
class EdgeFlow(Row):
    """What flows along one edge of the graph: a value forward, a gradient back."""

    start: str = column("from")
    end: str = column("to")
    value: float = column("value going forward")
    gradient: float = column("gradient coming back")


@dataclass
class TrainedNet(Row):
    """One network trained by the engine."""

    net: str = column("network")
    epochs: int = column("epochs")
    lr: float = column("learning rate")
    final_loss: float = column("last loss", "nats")
    accuracy: float = column("right answers, as a fraction")
    losses: list[float] = field(default_factory=list)


# ---- drawing -----------------------------------------------------------------------------------------------


def draw(result: Result):
    """The graph of f = (x + y)z. Above each edge stands the value that goes forward along it, below the edge the gradient of f
    that comes back along it. At the sum both inputs receive the same gradient; at the product each input receives the gradient
    times the other input."""
    figure = style.new_figure(9, 3.4)
    axes = figure.subplots()
    boxes = draw_graph(axes, graph_from_record(result.arrays["graph"]), font_size=11)
    for row in result.rows(EdgeFlow):
        start, end = (np.array(boxes[node].get_position()) for node in (row.start, row.end))
        position = 0.62 * start + 0.38 * end
        for text, offset, color in ((f"{row.value:g}", 7, style.BLUE), (f"{row.gradient:g}", -16, style.RED)):
            axes.annotate(text, position, (0, offset), textcoords="offset points", ha="center", fontsize=11, color=color)
    axes.set_xlim(-0.35, 2.35)
    axes.set_title("Above an edge: the value; below it: the gradient of f")
    return figure


@picture
def loss_curves(result: Result):
    """The loss of two networks trained by the engine, epoch by epoch: the lecture's XOR net and a digits classifier."""
    figure = style.new_figure(9, 3.2)
    panels = figure.subplots(1, 2)
    for axes, row, color in zip(panels, result.rows(TrainedNet), (style.BLUE, style.ORANGE), strict=True):
        axes.plot(range(1, len(row.losses) + 1), row.losses, color=color)
        axes.set(xlabel="epoch", ylabel="loss (cross-entropy, nats)", title=row.net)
        axes.set_ylim(bottom=0)
    return figure


# ---- measuring ---------------------------------------------------------------------------------------------


@experiment("backprop-by-hand", lecture="L0", notebook="02_autograd", draw=draw, quick=QUICK, full=FULL, same_picture=True)
def backprop_by_hand(params: Params) -> Result:
    """Backpropagation by hand through f = (x + y)z, and an engine that does it for any graph."""
    nodes = {name: Tensor(value, True, name) for name, value in INPUTS.items()}
    nodes["q"] = nodes["x"] + nodes["y"]
    nodes["f"] = nodes["q"] * nodes["z"]
    gradients = dict(backward_steps(nodes["f"]))  # in the order in which the nodes are visited
    nodes["f"].backward()
    in_torch = torch_nodes(params.device.torch)
    rows = [
        NodeGradient(name, node.item(), BY_HAND[name], gradients[node].item(), in_torch[name].grad.item())
        for name, node in nodes.items()
    ]
    names = {node: name for name, node in nodes.items()}
    visited = list(gradients)
    flows = [
        EdgeFlow(names[parent], names[node], parent.item(), vjp(gradients[node]).item())
        for node in reversed(visited)
        for parent, vjp in node.parents
    ]
    xor = train_xor(epochs=params.xor_epochs, lr=params.xor_lr)
    digits = train_digits(epochs=params.digits_epochs)
    nets = [
        TrainedNet("XOR net 2-4-1, sigmoid", params.xor_epochs, params.xor_lr, xor.losses[-1], xor.accuracy, xor.losses),
        TrainedNet("digits 64-32-10, ReLU", params.digits_epochs, 0.5, digits.losses[-1], digits.accuracy, digits.losses),
    ]

    result = Result(
        [
            Table("f = (x + y)z at x = -2, y = 5, z = -4", rows),
            Table("What flows along the edges of the graph", flows),
            Table("Networks trained by the engine", nets),
        ]
    )
    result.arrays["graph"] = lecture_graph_record(nodes, flows)
    for name, lecture in (("q", 3), ("f", -12)):
        result.key_figure(name, nodes[name].item(), lecture=lecture)
    for name, lecture in (("x", -4), ("y", -4), ("z", 3)):
        result.key_figure(f"df/d{name}", nodes[name].grad.item(), lecture=lecture)

    result.claim(
        "The engine computes the lecture's q = 3, f = -12 and its gradients -4, -4 and 3",
        [nodes[name].item() for name in "qf"] == [3, -12] and [nodes[name].grad.item() for name in "xyz"] == [-4, -4, 3],
    )
    result.claim(
        "By hand, by the engine and by torch, every value and every gradient is exactly the same",
        all(row.by_hand == row.by_engine == row.by_torch and row.value == in_torch[row.node].item() for row in rows),
    )
    result.claim(
        "The backward pass visits each node once, after all nodes that were computed from it",
        len(visited) == len(set(visited)) == 5
        and all(visited.index(node) < visited.index(parent) for node in visited for parent, _ in node.parents),
    )
    result.claim(
        "The engine alone trains the XOR net until all four answers are right",
        xor.accuracy == 1.0,
        f"p = {', '.join(f'{p:.3f}' for p in xor.predictions[:, 0])}",
    )
    result.claim(
        "The engine alone trains a digits classifier to more than 90 % of unseen digits",
        digits.accuracy > 0.9,
        f"{digits.accuracy:.1%} after {params.digits_epochs} epochs",
    )
    return result


def torch_nodes(device: torch.device) -> dict[str, torch.Tensor]:
    """The same graph in torch, after its backward pass; every node keeps its gradient."""
    nodes = {
        name: torch.tensor(value, dtype=torch.float64, device=device, requires_grad=True) for name, value in INPUTS.items()
    }
    nodes["q"] = nodes["x"] + nodes["y"]
    nodes["f"] = nodes["q"] * nodes["z"]
    nodes["q"].retain_grad()
    nodes["f"].retain_grad()
    nodes["f"].backward()
    return nodes


def lecture_graph_record(nodes: dict[str, Tensor], flows: list[EdgeFlow]) -> dict[str, list]:
    """The graph of f with its labels, as plain lists."""
    leaves = [(name, f"{name} = {nodes[name].item():g}", "leaf") for name in "xyz"]
    inner = [("q", "q = x + y", "operation"), ("f", f"f = q × z\n= {nodes['f'].item():g}", "output")]
    return graph_record(make_graph([*leaves, *inner], [(row.start, row.end) for row in flows]))
