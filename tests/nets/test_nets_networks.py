"""The networks are the lecture's, and the tools report their layers correctly."""

import networkx as nx
import pytest
import torch
from torch import nn

from hpml_lab.nets.lessons.networks import ThreeLayerNet, XorNet, layer_shapes, parameter_count, shape_graph


def test_the_lectures_net_has_its_parameters_and_shapes():
    net = ThreeLayerNet()
    assert parameter_count(net) == 41_854
    assert [tuple(p.shape) for p in net.parameters()] == [(120, 256), (120,), (84, 120), (84,), (10, 84), (10,)]
    assert net(torch.randn(256)).shape == (10,)
    assert net(torch.randn(4, 256)).shape == (4, 10)


def test_three_layer_net_is_the_sequence_that_its_formula_says():
    net = ThreeLayerNet(inputs=6, hidden=(5, 4), outputs=3)
    same = nn.Sequential(net.fc1, nn.ReLU(), net.fc2, nn.ReLU(), net.fc3)
    x = torch.randn(7, 6)
    assert torch.equal(net(x), same(x))


def test_xor_net_is_two_sigmoid_layers_of_17_parameters():
    net = XorNet()
    x = torch.randn(5, 2)
    a = 1 / (1 + torch.exp(-(x @ net.fc1.weight.T + net.fc1.bias)))
    p = 1 / (1 + torch.exp(-(a @ net.fc2.weight.T + net.fc2.bias)))
    assert parameter_count(net) == 17
    torch.testing.assert_close(net(x), p)
    tanh = XorNet(hidden=3, activation=torch.tanh)
    assert parameter_count(tanh) == 13
    torch.testing.assert_close(tanh(x), torch.sigmoid(tanh.fc2(torch.tanh(tanh.fc1(x)))))


def test_layer_shapes_gives_shapes_and_parameters_in_the_order_of_the_calls_and_leaves_no_hook():
    net = ThreeLayerNet()
    rows = layer_shapes(net, torch.randn(4, 256))
    assert [(row.name, row.output, row.parameters) for row in rows] == [
        ("fc1", "(4, 120)", 30_840),
        ("fc2", "(4, 84)", 10_164),
        ("fc3", "(4, 10)", 850),
    ]
    assert sum(row.parameters for row in rows) == parameter_count(net)
    assert not any(layer._forward_hooks for layer in net.modules())
    with pytest.raises(RuntimeError):
        layer_shapes(net, torch.randn(4, 99))
    assert not any(layer._forward_hooks for layer in net.modules()), "also when the forward pass fails"


def test_shape_graph_follows_the_forward_pass():
    graph = shape_graph(ThreeLayerNet(), torch.randn(4, 256))
    path = list(nx.topological_sort(graph))
    assert list(graph.edges) == list(zip(path, path[1:], strict=False)), "a chain"
    labels = [graph.nodes[node]["label"] for node in path]
    assert [label.splitlines()[0] for label in labels] == ["x", "fc1: Linear", "relu", "fc2: Linear", "relu", "fc3: Linear"]
    assert [label.splitlines()[-1] for label in labels] == ["(4, 256)", "(4, 120)", "(4, 120)", "(4, 84)", "(4, 84)", "(4, 10)"]
    assert graph.nodes[path[0]]["kind"] == "leaf" and graph.nodes[path[-1]]["kind"] == "output"


def test_shape_graph_shows_a_branch_as_a_branch():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 3)

        def forward(self, x):
            return x + self.fc(x)

    graph = shape_graph(Residual(), torch.randn(2, 3))
    assert set(graph.edges) == {("x", "fc"), ("x", "add"), ("fc", "add")}
