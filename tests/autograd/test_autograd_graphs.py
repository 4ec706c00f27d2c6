"""The graphs of gradients and of models hold what torch recorded, for networkx and for graphviz."""

import re

import networkx as nx
import pytest
import torch
from torch import nn

from hpml_lab.autograd.tools import torch_graphs
from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import find_tool


def test_a_grad_fn_graph_holds_what_is_tracked_and_nothing_else():
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    root = ((x + 1) * w).sum()
    graph = torch_graphs.grad_fn_graph(root, {"w": w})
    assert [data["label"] for _, data in graph.nodes(data=True)] == ["SumBackward0", "MulBackward0", "w (3,)\nAccumulateGrad"]
    assert list(nx.topological_sort(graph)) == [2, 1, 0], "edges go forward, from the leaf to the root"
    assert {data["kind"] for _, data in graph.nodes(data=True)} == {"leaf", "operation", "output"}


def test_a_tensor_without_history_has_no_graph():
    with pytest.raises(ValueError, match="no grad_fn"):
        torch_graphs.grad_fn_graph(torch.ones(3))


class Residual(nn.Module):
    """x + relu(Wx), twice: two skip connections."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        x = x + torch.relu(self.first(x))
        return x + torch.relu(self.second(x))


@pytest.fixture(scope="module")
def residual():
    return torch_graphs.model_graph(Residual().to("meta"), torch.zeros(2, 4, device="meta"), depth=1)


def test_a_models_graph_has_its_modules_functions_and_shapes(residual):
    labels = [data["label"] for _, data in residual.graph.nodes(data=True)]
    assert sorted(labels) == sorted(
        ["input-tensor\n(2, 4)", "output-tensor\n(2, 4)"] + ["Linear\n(2, 4)", "relu\n(2, 4)", "add\n(2, 4)"] * 2
    )
    assert sum(degree == 2 for _, degree in residual.graph.in_degree) == 2


def test_shapes_of_a_model_that_changes_them():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 5)).to("meta")
    graph = torch_graphs.model_graph(net, torch.zeros(2, 3, 8, 8, device="meta"), depth=1).graph
    shapes = [data["label"].split("\n")[1] for _, data in graph.nodes(data=True)]
    assert shapes == ["(2, 3, 8, 8)", "(2, 8, 6, 6)", "(2, 288)", "(2, 5)", "(2, 5)"]


def test_a_drawn_model_stays_as_it_is():
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval())
    before = {name: value.clone() for name, value in net.state_dict().items()}
    for device in ("cpu", "meta"):
        torch_graphs.model_graph(net, torch.rand(3, 4, device=device))
        assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
        assert net[0].training and not net[1].training


def test_the_dot_text_names_the_same_nodes_and_edges(residual):
    nodes = [int(number) for number in re.findall(r"^\s*(\d+) \[", residual.dot, flags=re.M)]
    edges = [(int(start), int(end)) for start, end in re.findall(r"^\s*(\d+) -> (\d+)", residual.dot, flags=re.M)]
    assert sorted(nodes) == sorted(residual.graph) and sorted(edges) == sorted(residual.graph.edges)
    assert len(nodes) == 8 and len(edges) == 9


@pytest.mark.skipif(find_tool("dot") is None, reason="no graphviz here")
def test_graphviz_draws_that_text(residual):
    assert len(style.png(torch_graphs.model_figure(residual, "graphviz"))) > 2000


def test_networkx_draws_every_node_and_every_edge(residual):
    [axes] = torch_graphs.model_picture(residual).figure.axes
    labels = [text.get_text() for text in axes.texts if text.get_text()]
    assert sorted(labels) == sorted(data["label"] for _, data in residual.graph.nodes(data=True))
    assert len([text for text in axes.texts if not text.get_text()]) == residual.graph.number_of_edges(), "arrows"


def test_without_graphviz_asking_for_it_says_how_to_get_it(monkeypatch, residual):
    monkeypatch.setattr(torch_graphs, "find_tool", lambda name: None)
    with pytest.raises(LabError, match="apt-get install graphviz"):
        torch_graphs.model_figure(residual, "graphviz")
    assert torch_graphs.model_figure(residual, "networkx") is not None


def test_an_unknown_renderer_is_refused(residual):
    with pytest.raises(LabError, match="networkx or graphviz"):
        torch_graphs.model_figure(residual, "paint")


def test_a_model_is_drawn_in_its_own_mode_and_a_wrong_call_says_why():
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU())
    assert torch_graphs.model_graph(net.eval(), torch.zeros(1, 8)).graph.number_of_nodes() > 3
    for inputs, problem in (((torch.zeros(2, 7),), "mat1 and mat2"), ((), "tensors"), (([0.0],), "tensors")):
        with pytest.raises(LabError, match=problem):
            torch_graphs.model_graph(net, *inputs)
