"""The networks of this topic, and tools that show one: its layers, its parameters, its graph with shapes."""

from collections.abc import Callable
from dataclasses import dataclass

import networkx as nx
import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.experiment import Row, column


class ThreeLayerNet(nn.Module):
    """Three fully connected layers, ReLU after the first two: x (…, inputs) → (…, outputs).

    h₁ = relu(W₁x + b₁), h₂ = relu(W₂h₁ + b₂), output = W₃h₂ + b₃
    """

    def __init__(self, inputs: int = 256, hidden: tuple[int, int] = (120, 84), outputs: int = 10) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden[0])
        self.fc2 = nn.Linear(hidden[0], hidden[1])
        self.fc3 = nn.Linear(hidden[1], outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.fc1(x))
        x = F.relu(self.fc2(x))
        return self.fc3(x)


class XorNet(nn.Module):
    """The lecture's SimpleNN, 2-4-1: x (N, 2) → probabilities p (N, 1).

    a = activation(W₁x + b₁), p = σ(W₂a + b₂)
    """

    def __init__(self, hidden: int = 4, activation: Callable[[torch.Tensor], torch.Tensor] = torch.sigmoid) -> None:
        super().__init__()
        self.fc1 = nn.Linear(2, hidden)
        self.fc2 = nn.Linear(hidden, 1)
        self.activation = activation

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.fc2(self.activation(self.fc1(x))))


def parameter_count(net: nn.Module) -> int:
    """How many numbers training adjusts: all elements of all parameters."""
    return sum(parameter.numel() for parameter in net.parameters())


@dataclass
class Layer(Row):
    """One layer of a network: what goes in, what comes out, and how many parameters it has."""

    name: str = column("layer")
    kind: str = column("kind")
    input: str = column("input shape")
    output: str = column("output shape")
    parameters: int = column("parameters")


def layer_shapes(net: nn.Module, x: torch.Tensor) -> list[Layer]:
    """One row for each layer without children, in the order in which `net(x)` calls them."""
    rows: list[Layer] = []

    def recorder(name: str) -> Callable:
        def record(layer: nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            shapes = str(tuple(inputs[0].shape)), str(tuple(output.shape))
            rows.append(Layer(name, type(layer).__name__, *shapes, parameter_count(layer)))

        return record

    leaves = [(name, layer) for name, layer in net.named_modules() if not list(layer.children())]
    hooks = [layer.register_forward_hook(recorder(name)) for name, layer in leaves]
    try:
        with torch.no_grad():
            net(x)
    finally:
        for hook in hooks:
            hook.remove()
    return rows


def shape_graph(net: nn.Module, x: torch.Tensor) -> nx.DiGraph:
    """The graph of `net(x)` for core.graph.draw_graph: inputs, layers and functions, each with the shape of its output.

    torch.fx calls `forward` once with a proxy for x and records every operation, so `forward` must not branch on values.
    """
    from torch import fx

    graph = nx.DiGraph()

    class WithShapes(fx.Interpreter):
        def run_node(self, node: fx.Node):
            value = super().run_node(node)
            if node.op != "output":
                label = f"{_name(self.module, node)}\n{tuple(value.shape)}"
                graph.add_node(node.name, label=label, kind=_kind(node))
                graph.add_edges_from((parent.name, node.name) for parent in node.all_input_nodes)
            return value

    traced = fx.symbolic_trace(net)
    with torch.no_grad():
        WithShapes(traced).run(x)
    (result,) = next(node for node in traced.graph.nodes if node.op == "output").all_input_nodes
    graph.nodes[result.name]["kind"] = "output"
    return graph


def _name(net: nn.Module, node) -> str:
    if node.op == "call_module":
        layer = net.get_submodule(node.target)
        count = f"{parameter_count(layer):,}".replace(",", "\u2009")
        return f"{node.target}: {type(layer).__name__}\n{count} parameters"
    return getattr(node.target, "__name__", str(node.target))


def _kind(node) -> str:
    return {"placeholder": "leaf", "call_module": "module"}.get(node.op, "operation")
