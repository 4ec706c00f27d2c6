"""The experiments of notebook 02 hold what they claim and can fail; graphs and figures show it."""

import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace

import networkx as nx
import numpy as np
import pytest
import torch
from torch import nn

from hpml_lab.autograd import dynamic, engine, experiments, figures, graphs, perceptron, planted
from hpml_lab.autograd.numeric import numeric_gradient
from hpml_lab.core import style
from hpml_lab.core.errors import LabError
from hpml_lab.core.result import Result

SMALL = {
    "backprop_by_hand": dict(xor_epochs=1000, xor_lr=1.0, digits_epochs=12),
    "requires_grad": {},
    "jacobian_vector": {},
    "chain_rule": dict(points=60),
    "perceptron_bce": dict(samples=10, updates=20),
    "dynamic_graph": dict(elements=1 << 10),
    "torchview_graphs": dict(more=()),
    "gradcheck": dict(sizes=(1, 100)),
}
COMPILED = {"first": 3.0, "latency": 1.0, "eager": 1e-3, "compiled": 5e-4, "ratio": 2.0, "apart": 0.0}


def run(name, device="cpu"):
    return replace(getattr(experiments, name), quick=SMALL[name])("quick", device=device)


@pytest.fixture(scope="module")
def results():
    """Every experiment once; compiling, which takes seconds and a compiler, has a test of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiments, "compile_gelu", lambda *_: COMPILED)
        return {name: run(name) for name in SMALL}


@pytest.mark.parametrize(
    "name, exact",
    [
        ("backprop_by_hand", 5),
        ("requires_grad", 9),
        ("jacobian_vector", 5),
        ("chain_rule", 3),
        ("perceptron_bce", 7),
        ("dynamic_graph", 6),
        ("torchview_graphs", 4),
        ("gradcheck", 6),
    ],
)
def test_every_row_is_sound(results, name, exact, sound):
    sound(results[name])
    assert sum(claim.exact for claim in results[name].claims) == exact


@pytest.mark.parametrize(
    "name, spoil, text",
    [
        ("backprop_by_hand", lambda p: p.setattr(engine, "mul", engine.add), "come out of the engine"),
        ("backprop_by_hand", lambda p: p.setattr(experiments, "train_xor", lambda **_: _untrained()), "XOR"),
        ("requires_grad", lambda p: p.setattr(experiments, "attempt", lambda work: "works"), "backwards"),
        ("jacobian_vector", lambda p: p.setattr(torch.autograd.functional, "jacobian", lambda f, x: _zeros(f, x)), "vᵀJ"),
        ("chain_rule", lambda p: p.setattr(engine, "mul", engine.add), "dw/dx = y"),
        ("perceptron_bce", lambda p: p.setattr(perceptron, "sum_", engine.mean), "agree to 1e-12"),
        ("dynamic_graph", lambda p: p.setattr(experiments, "captured", lambda function, *inputs: [None]), "if"),
        ("torchview_graphs", lambda p: p.setattr(experiments, "dot_graph", lambda dot: nx.DiGraph()), "graphviz"),
        ("gradcheck", lambda p: p.setattr(experiments, "WrongFactor", planted.Cube), "planted"),
    ],
)
def test_a_claim_fails_when_what_it_claims_is_spoilt(monkeypatch, name, spoil, text):
    monkeypatch.setattr(experiments, "compile_gelu", lambda *_: COMPILED)
    spoil(monkeypatch)
    result = run(name)
    assert not result
    assert any(text in claim.text for claim in result.claims if not claim.holds)


def _untrained():
    from hpml_lab.autograd.training import train_xor

    return train_xor(epochs=1)


def _zeros(f, x):
    return torch.zeros(*f(x).shape, *x.shape, dtype=x.dtype)


# ---- what the rows say -------------------------------------------------------------------------------------


def test_the_lectures_figures_come_out(results):
    assert results["backprop_by_hand"].quantities == {"q": 3, "f": -12, "df/dx": -4, "df/dy": -4, "df/dz": 3}
    assert list(results["jacobian_vector"].quantities.values()) == [13, 26]
    for name, result in results.items():
        assert set(result.experiment.lecture_says) <= set(result.quantities), name


def test_the_edges_of_the_graph_carry_value_and_gradient(results):
    on_edges = {(start, end): pair for start, end, *pair in results["backprop_by_hand"].arrays["on edges"]}
    assert on_edges == {("x", "q"): [-2, -4], ("y", "q"): [5, -4], ("q", "f"): [3, -4], ("z", "f"): [-4, 3]}


def test_the_dead_code_of_the_slides_is_run_and_its_errors_shown(results):
    happened = {row["expression"]: row["what happens"] for row in results["requires_grad"].rows}
    assert happened["b.backward"].startswith("names a method")
    assert happened["b.backward()"].startswith("RuntimeError: grad can be implicitly created")
    assert happened["s.backwards()"].startswith("AttributeError")
    assert "second time" in happened["s.backward() a second time"]


def test_where_nothing_can_be_compiled_the_run_says_how_to_mend_it(monkeypatch, tmp_path):
    def no_compiler(*_):
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found")

    monkeypatch.setattr(experiments, "compile_gelu", no_compiler)
    result = run("dynamic_graph")
    assert result, "the exact claims need no compiler"
    assert "compile latency, s" not in result.quantities, "nothing is made up"
    assert any("No working C++ compiler" in note and "apt-get install g++" in note for note in result.notes)
    loaded = Result.load(result.save(tmp_path))
    assert [len(axes.lines) for axes in loaded.figure().axes][-1] == 1, "one line: plain calls"


def test_where_there_is_no_graphviz_the_run_says_so(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    result = run("torchview_graphs")
    assert result and any("No graphviz here" in note for note in result.notes)
    assert all(claim.exact for claim in result.claims)


def test_compiling_is_right_and_counted_in_seconds():
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    threads = torch.get_num_threads()
    found = dynamic.compile_gelu(1 << 12, torch.device("cpu"))
    assert found["apart"] < 1e-5
    assert all(found[name] > 0 for name in ("first", "latency", "eager", "compiled", "ratio"))
    assert torch.get_num_threads() == threads, "the number of threads is put back"


def test_the_room_is_entered_without_the_heavy_imports():
    heavy = ("torchvision", "torchview", "sklearn", "torch._dynamo", "ipywidgets")
    text = f"import sys, hpml_lab.autograd.experiments; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- dynamic graphs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("x, multiplications, value", [(3.0, 2, math.log(12)), (-1.0, 4, 256.0), (20.0, 1, math.log(40))])
def test_grown_multiplies_until_ten_then_takes_log_or_square(x, multiplications, value):
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    f = dynamic.grown(w, x)
    assert f.item() == pytest.approx(value, rel=1e-12)
    names = [data["label"] for _, data in graphs.grad_fn_graph(f, {"w": w}).nodes(data=True)]
    assert len(names) == multiplications + 2, "the multiplications, the last operation, and the leaf w"
    assert "w\nAccumulateGrad" in names


@pytest.mark.parametrize("x", [torch.ones(3), -torch.ones(3), torch.tensor([0.2, -0.1])])
def test_the_function_without_if_is_the_same_function(x):
    assert torch.equal(dynamic.branch(x), dynamic.both_ways(x))


def test_captured_graphs_compute_what_the_function_does():
    [graph] = dynamic.captured(dynamic.both_ways, torch.ones(3))
    [value] = graph(torch.ones(3))
    assert torch.equal(value, dynamic.both_ways(torch.ones(3)))


# ---- graphs ------------------------------------------------------------------------------------------------


def test_a_grad_fn_graph_holds_what_is_tracked_and_nothing_else():
    x, w = torch.ones(3), torch.ones(3, requires_grad=True)
    root = ((x + 1) * w).sum()
    graph = graphs.grad_fn_graph(root, {"w": w})
    assert [data["label"] for _, data in graph.nodes(data=True)] == ["SumBackward0", "MulBackward0", "w (3,)\nAccumulateGrad"]
    assert list(nx.topological_sort(graph)) == [2, 1, 0], "edges go forward, from the leaf to the root"
    assert {data["kind"] for _, data in graph.nodes(data=True)} == {"leaf", "operation", "output"}


def test_a_tensor_without_history_has_no_graph():
    with pytest.raises(ValueError, match="no grad_fn"):
        graphs.grad_fn_graph(torch.ones(3))


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
    return graphs.model_graph(Residual().to("meta"), torch.zeros(2, 4, device="meta"), depth=1)


def test_a_models_graph_has_its_modules_functions_and_shapes(residual):
    labels = [data["label"] for _, data in residual.graph.nodes(data=True)]
    assert sorted(labels) == sorted(
        ["input-tensor\n(2, 4)", "output-tensor\n(2, 4)"] + ["Linear\n(2, 4)", "relu\n(2, 4)", "add\n(2, 4)"] * 2
    )
    assert sum(degree == 2 for _, degree in residual.graph.in_degree) == 2


def test_shapes_of_a_model_that_changes_them():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8 * 36, 5)).to("meta")
    graph = graphs.model_graph(net, torch.zeros(2, 3, 8, 8, device="meta"), depth=1).graph
    shapes = [data["label"].split("\n")[1] for _, data in graph.nodes(data=True)]
    assert shapes == ["(2, 3, 8, 8)", "(2, 8, 6, 6)", "(2, 288)", "(2, 5)", "(2, 5)"]


def test_the_dot_text_names_the_same_nodes_and_edges(residual):
    read = graphs.dot_graph(residual.dot)
    assert set(read) == set(residual.graph) and set(read.edges) == set(residual.graph.edges)
    assert len(read) == 8 and read.number_of_edges() == 9


@pytest.mark.skipif(shutil.which("dot") is None, reason="no graphviz here")
def test_graphviz_lays_out_the_same_nodes_and_edges(residual):
    laid_out = graphs.graphviz_graph(residual.dot)
    assert set(laid_out) == set(residual.graph) and set(laid_out.edges) == set(residual.graph.edges)
    assert len(style.png(graphs.model_figure(residual, "graphviz"))) > 2000


def test_networkx_draws_every_node_and_every_edge(residual):
    [axes] = graphs.model_figure(residual).axes
    labels = [text.get_text() for text in axes.texts if text.get_text()]
    assert sorted(labels) == sorted(data["label"] for _, data in residual.graph.nodes(data=True))
    assert len([text for text in axes.texts if not text.get_text()]) == residual.graph.number_of_edges(), "arrows"


def test_no_two_boxes_stand_in_one_place_and_no_line_runs_through_a_box(residual):
    layout = graphs._lay_out(residual.graph)
    assert len(set(layout.places.values())) == len(residual.graph)
    for start, end in residual.graph.edges:
        (column, first), (other, last) = layout.places[start], layout.places[end]
        passed = {(column, layer) for layer in range(first + 1, last)} & set(layout.places.values())
        assert column != other or not passed or (start, end) in layout.lanes


def test_lines_around_boxes_that_overlap_have_lanes_of_their_own():
    graph = nx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 4), (0, 3), (1, 4), (0, 4)])
    lanes = graphs._lay_out(graph).lanes
    assert set(lanes) == {(0, 3), (1, 4), (0, 4)} and len(set(lanes.values())) == 3


def test_without_graphviz_asking_for_it_says_how_to_get_it(monkeypatch, residual):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(LabError, match="apt-get install graphviz"):
        graphs.model_figure(residual, "graphviz")
    assert graphs.model_figure(residual, "networkx") is not None


def test_an_unknown_way_of_drawing_is_refused(residual):
    with pytest.raises(LabError, match="networkx or graphviz"):
        graphs.model_figure(residual, "paint")


def test_a_graph_survives_being_saved(residual):
    back = figures.from_lists(json.loads(json.dumps(figures.as_lists(residual.graph))))
    assert dict(back.nodes(data=True)) == dict(residual.graph.nodes(data=True))
    assert list(back.edges) == list(residual.graph.edges)


# ---- the small modules -------------------------------------------------------------------------------------


def test_central_differences_are_the_derivative_and_leave_x_as_it_was():
    x = np.array([[0.5, -2.0], [3.0, 1.0]])
    kept = x.copy()
    assert np.allclose(numeric_gradient(lambda x: (x**3).sum(), x), 3 * x**2, atol=1e-7)
    assert np.array_equal(x, kept)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_the_three_perceptrons_agree(label):
    w, x = np.array([0.2, -1.0, 0.7]), np.array([1.0, 2.0, -0.5])
    found = [way(w, x, label) for way in (perceptron.by_hand, perceptron.by_engine, perceptron.by_torch)]
    for name, value in found[0].items():
        for other in found[1:]:
            assert np.allclose(other[name], value, rtol=0, atol=1e-12), name


def test_the_stable_loss_is_the_formula_where_the_formula_works():
    z = torch.linspace(-5, 5, 11, dtype=torch.float64)
    for label in (0.0, 1.0):
        ways = perceptron.three_losses(z, label)
        for loss, gradient in ways.values():
            assert torch.allclose(loss, ways["formula"][0]) and torch.allclose(gradient, torch.sigmoid(z) - label)


@pytest.mark.parametrize(
    "function, slope",
    [(planted.Cube, 12.0), (planted.CutBackward, 12.0), (planted.WrongWhereNegative, 12.0), (planted.WrongFactor, 8.0)],
)
def test_the_planted_functions_are_all_cubes_and_wrong_as_they_say(function, slope):
    x = torch.tensor([2.0], requires_grad=True)
    y = function.apply(x)
    y.backward()
    assert y.item() == 8.0 and x.grad.item() == slope


@pytest.mark.cuda
@pytest.mark.parametrize("name", SMALL)
def test_on_a_gpu_every_exact_claim_holds(name):
    result = run(name, device="cuda")
    assert result, [claim.text for claim in result.claims if not claim.holds]
    assert result.device == "cuda:0" and result.figure() is not None
