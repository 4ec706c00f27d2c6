"""The experiments of notebook 02 hold what they claim and can fail; their rows and figures show it."""

import importlib
import math
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

from hpml_lab import autograd
from hpml_lab.autograd.experiments import dynamic_graph
from hpml_lab.autograd.experiments import gradcheck as gradcheck_module
from hpml_lab.autograd.experiments.backprop_by_hand import EdgeFlow, TrainedNet
from hpml_lab.autograd.experiments.dynamic_graph import CompileCost
from hpml_lab.autograd.experiments.gradcheck import CheckCost, CheckedFunction
from hpml_lab.autograd.experiments.requires_grad import LineOutcome
from hpml_lab.autograd.lessons import custom_functions as functions
from hpml_lab.autograd.lessons import dynamic_functions, engine, perceptron
from hpml_lab.autograd.lessons.central_differences import numeric_gradient
from hpml_lab.autograd.tools import torch_graphs
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.timing.clock import PLACEBO, Timing

SMALL = {
    "backprop_by_hand": dict(xor_epochs=1000, xor_lr=1.0, digits_epochs=12),
    "requires_grad": {},
    "jacobian_vector": {},
    "chain_rule": dict(points=60),
    "perceptron_bce": dict(samples=10, updates=20),
    "dynamic_graph": dict(elements=1 << 10, gpu_elements=1 << 10),
    "torchview_graphs": dict(more=()),
    "gradcheck": dict(sizes=(1, 100)),
}
COMPILED = CompileCost(
    elements=1 << 10,
    first=3.0,
    latency=1.0,
    eager=1e-3,
    compiled=5e-4,
    gain=2.0,
    interval="1.9 to 2.1",
    verdict="faster",
    largest_difference=0.0,
)


def module(name):
    return importlib.import_module(f"hpml_lab.autograd.experiments.{name}")


def run(name, device="cpu"):
    return replace(getattr(autograd, name), quick=SMALL[name])("quick", device=device)


@pytest.fixture(scope="module")
def results(ran):
    """Every experiment; of compiling, which pays on no machine for certain, the times are known."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic_graph, "compile_gelu", lambda *_: (COMPILED, "2 times as fast"))
        known = run("dynamic_graph")
    return {name: known if name == "dynamic_graph" else ran(name.replace("_", "-")) for name in SMALL}


@pytest.mark.parametrize(
    "name, exact",
    [
        ("backprop_by_hand", 5),
        ("requires_grad", 6),
        ("jacobian_vector", 5),
        ("chain_rule", 3),
        ("perceptron_bce", 6),
        ("dynamic_graph", 5),
        ("torchview_graphs", 3),
        ("gradcheck", 5),
    ],
)
def test_every_experiment_is_sound(results, name, exact, sound):
    sound(results[name])
    assert sum(claim.exact for claim in results[name].claims) == exact


@pytest.mark.parametrize(
    "name, spoil, text",
    [
        ("backprop_by_hand", lambda p: p.setattr(engine, "mul", engine.add), "The engine computes the lecture's"),
        ("backprop_by_hand", lambda p: spoil_module(p, "backprop_by_hand", train_xor=lambda **_: _untrained()), "XOR"),
        ("requires_grad", lambda p: spoil_module(p, "requires_grad", attempt=lambda work: "works"), "without parentheses"),
        ("jacobian_vector", lambda p: p.setattr(torch.autograd.functional, "jacobian", lambda f, x: _zeros(f, x)), "vᵀJ"),
        ("chain_rule", lambda p: p.setattr(engine, "mul", engine.add), "dw/dx = y"),
        ("perceptron_bce", lambda p: p.setattr(perceptron, "sum_", engine.mean), "agree to 1e-12"),
        ("dynamic_graph", lambda p: spoil_module(p, "dynamic_graph", captured_graphs=lambda f, *inputs: [None]), "if"),
        ("gradcheck", lambda p: spoil_module(p, "gradcheck", WrongFactor=functions.Cube), "wrong factor"),
    ],
)
def test_a_claim_fails_when_what_it_claims_is_spoilt(monkeypatch, name, spoil, text):
    monkeypatch.setattr(dynamic_graph, "compile_gelu", lambda *_: (COMPILED, "2 times as fast"))
    spoil(monkeypatch)
    result = run(name)
    assert not result
    assert any(text in claim.text for claim in [*result.claims, *result.checks] if not claim.holds)


def spoil_module(patch, name, **replaced):
    for attribute, value in replaced.items():
        patch.setattr(module(name), attribute, value)


def _untrained():
    from hpml_lab.autograd.lessons.mlp import train_xor

    return train_xor(epochs=1)


def _zeros(f, x):
    return torch.zeros(*f(x).shape, *x.shape, dtype=x.dtype)


# ---- what the rows say -------------------------------------------------------------------------------------


def test_the_lectures_figures_come_out(results):
    figures = {figure.label: (figure.here, figure.lecture) for figure in results["backprop_by_hand"].key_figures}
    assert figures == {"q": (3, 3), "f": (-12, -12), "df/dx": (-4, -4), "df/dy": (-4, -4), "df/dz": (3, 3)}
    assert [figure.here for figure in results["jacobian_vector"].key_figures] == [13, 26]
    for name, result in results.items():
        for figure in result.key_figures:
            assert figure.lecture is None or figure.here is not None, name


def test_the_edges_of_the_graph_carry_value_and_gradient(results):
    flows = {(row.start, row.end): (row.value, row.gradient) for row in results["backprop_by_hand"].rows(EdgeFlow)}
    assert flows == {("x", "q"): (-2, -4), ("y", "q"): (5, -4), ("q", "f"): (3, -4), ("z", "f"): (-4, 3)}


def test_the_dead_code_of_the_slides_is_run_and_its_errors_shown(results):
    outcomes = {row.line: row.outcome for row in results["requires_grad"].rows(LineOutcome)}
    assert outcomes["b.backward"].startswith("names a method")
    assert outcomes["b.backward()"].startswith("RuntimeError: grad can be implicitly created")
    assert outcomes["s.backwards()"].startswith("AttributeError")
    assert "second time" in outcomes["s.backward() a second time"]
    chain = "SumBackward0 → MulBackward0 → AddBackward0 → AccumulateGrad"
    assert outcomes["s.grad_fn, followed back to the leaf"] == chain
    for line in ("z += 1", "torch.arange(3, requires_grad=True)"):
        assert outcomes[line].startswith("RuntimeError")


def test_gradchecks_table_has_no_gaps(results):
    result = results["gradcheck"]
    assert len(result.rows(CheckedFunction)) == 7 and [row.elements for row in result.rows(CheckCost)] == [1, 10, 100]
    assert all(cell is not None for table in result.tables for row in table.cells() for cell in row)


def test_a_checks_cost_is_in_plain_passes_and_has_the_noise_of_a_plain_pass():
    def timing(*seconds):
        return Timing(seconds, 1)

    times = {"plain": timing(*[1e-4] * 5), PLACEBO: timing(*[1.1e-4] * 5), "full": timing(*[8e-3] * 5)}
    found = gradcheck_module.plain_passes(times, "full")
    assert found.ratio == found.low == pytest.approx(80) and found.noise == pytest.approx(0.1)
    assert found.high == pytest.approx(88), "against either half of the placebo"
    times["full"] = timing(*[1.05e-4] * 5)
    assert gradcheck_module.plain_passes(times, "full").verdict == "within noise"


@pytest.mark.parametrize(
    "name, draw, curves",
    [("backprop_by_hand", "loss_curves", 2), ("requires_grad", "accumulation", 0), ("dynamic_graph", "break_even", 2)],
)
def test_further_figures_are_drawn_from_the_saved_result_too(results, name, draw, curves, tmp_path, as_shown):
    function = getattr(autograd, draw)
    picture = function(load_result(results[name].save(tmp_path)))
    assert as_shown(results[name], picture.figure, function)
    assert sum(len(axes.lines) for axes in picture.figure.axes) == curves
    assert len(picture.caption) > 40


def test_the_losses_of_every_epoch_are_kept(results):
    rows = results["backprop_by_hand"].rows(TrainedNet)
    assert [len(row.losses) for row in rows] == [2000, 14] and all(row.final_loss == row.losses[-1] for row in rows)


def test_where_nothing_can_be_compiled_the_run_says_how_to_fix_it(monkeypatch, tmp_path):
    def no_compiler(*_):
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found")

    monkeypatch.setattr(dynamic_graph, "compile_gelu", no_compiler)
    result = run("dynamic_graph")
    assert result, "the exact claims need no compiler"
    assert result.here("compile latency") is None, "nothing is made up"
    assert any("No working C++ compiler" in note and "apt-get install g++" in note for note in result.notes)
    loaded = load_result(result.save(tmp_path))
    assert [len(axes.lines) for axes in autograd.break_even(loaded).figure.axes] == [1], "one line: eager calls"


def test_compiling_pays_after_latency_over_gain():
    assert COMPILED.calls_to_break_even == pytest.approx(2000)
    assert replace(COMPILED, verdict="within noise").calls_to_break_even is None
    assert replace(COMPILED, compiled=2e-3, verdict="slower").calls_to_break_even is None


def test_where_there_is_no_graphviz_the_run_says_so(monkeypatch):
    monkeypatch.setattr(module("torchview_graphs"), "find_tool", lambda name: None)
    result = run("torchview_graphs")
    assert result and any("No graphviz here" in note for note in result.notes)


def test_compiling_is_right_and_counted_in_seconds(ran, monkeypatch):
    if shutil.which("g++") is None:
        pytest.skip("torch.compile needs a C++ compiler")
    result = ran("dynamic-graph")
    [cost] = result.rows(CompileCost)
    [gain] = [claim.measured for claim in result.claims if claim.text.startswith("A compiled call is faster")]
    assert cost.largest_difference < 1e-5
    assert min(cost.first, cost.latency, cost.eager, cost.compiled, cost.gain) > 0 and cost.interval in gain
    monkeypatch.setattr(torch, "compile", lambda function: function)
    threads = torch.get_num_threads()
    dynamic_graph.compile_gelu(1 << 12, torch.device("cpu"))
    assert torch.get_num_threads() == threads, "the number of threads is put back"


@pytest.mark.parametrize("device, by_events", [("cpu", False), ("cuda:0", True)])
def test_eager_and_compiled_calls_on_a_gpu_are_timed_by_its_events(monkeypatch, device, by_events):
    asked = []

    def interleaved(works, *, placebo, gpu):
        asked.append((list(works), placebo, gpu))

    monkeypatch.setattr(dynamic_graph, "interleaved", interleaved)
    device = torch.device(device)
    dynamic_graph.timed_in_turns(abs, abs, device)
    assert asked == [(["eager", "compiled"], "eager", device if by_events else None)]


def test_the_experiments_are_imported_without_the_heavy_packages():
    heavy = ("torchvision", "torchview", "sklearn", "torch._dynamo", "ipywidgets")
    names = ", ".join(f"hpml_lab.autograd.experiments.{name}" for name in SMALL)
    text = f"import sys, {names}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# ---- dynamic graphs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("x, multiplications, value", [(3.0, 2, math.log(12)), (-1.0, 4, 256.0), (20.0, 1, math.log(40))])
def test_grown_multiplies_until_ten_then_takes_log_or_square(x, multiplications, value):
    w = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    f = dynamic_functions.grown(w, x)
    assert f.item() == pytest.approx(value, rel=1e-12)
    names = [data["label"] for _, data in torch_graphs.grad_fn_graph(f, {"w": w}).nodes(data=True)]
    assert len(names) == multiplications + 2, "the multiplications, the last operation, and the leaf w"
    assert "w\nAccumulateGrad" in names


@pytest.mark.parametrize("x", [torch.ones(3), -torch.ones(3), torch.tensor([0.2, -0.1])])
def test_the_function_without_if_is_the_same_function(x):
    assert torch.equal(dynamic_functions.branch(x), dynamic_functions.both_branches(x))


def test_captured_graphs_compute_what_the_function_does():
    [graph] = dynamic_functions.captured_graphs(dynamic_functions.both_branches, torch.ones(3))
    [value] = graph(torch.ones(3))
    assert torch.equal(value, dynamic_functions.both_branches(torch.ones(3)))
    before, after = dynamic_functions.captured_graphs(dynamic_functions.read_out, torch.ones(3))  # .item() breaks the graph


# ---- the small modules -------------------------------------------------------------------------------------


def test_central_differences_are_the_derivative_and_leave_x_as_it_was():
    x = np.array([[0.5, -2.0], [3.0, 1.0]])
    kept = x.copy()
    assert np.allclose(numeric_gradient(lambda x: (x**3).sum(), x), 3 * x**2, atol=1e-7)
    assert np.array_equal(x, kept)


@pytest.mark.parametrize("label", [0.0, 1.0])
def test_the_three_perceptrons_agree(label):
    w, x = np.array([0.2, -1.0, 0.7]), np.array([1.0, 2.0, -0.5])
    by_hand = perceptron.perceptron_by_hand(w, x, label)
    for other in (perceptron.perceptron_by_engine(w, x, label), perceptron.perceptron_by_torch(w, x, label)):
        for name, value in vars(by_hand).items():
            assert np.allclose(getattr(other, name), value, rtol=0, atol=1e-12), name


def test_the_stable_loss_is_the_formula_where_the_formula_works():
    z = torch.linspace(-5, 5, 11, dtype=torch.float64)
    for label in (0.0, 1.0):
        losses = perceptron.three_losses(z, label)
        for loss, gradient in losses.values():
            assert torch.allclose(loss, losses["formula"][0]) and torch.allclose(gradient, torch.sigmoid(z) - label)


@pytest.mark.parametrize(
    "function, slope",
    [(functions.Cube, 12.0), (functions.CutBackward, 12.0), (functions.WrongWhereNegative, 12.0), (functions.WrongFactor, 8.0)],
)
def test_the_functions_are_all_cubes_and_as_wrong_as_they_say(function, slope):
    x = torch.tensor([2.0], requires_grad=True)
    y = function.apply(x)
    y.backward()
    assert y.item() == 8.0 and x.grad.item() == slope


@pytest.mark.cuda
@pytest.mark.parametrize("name", SMALL)
def test_on_a_gpu_every_exact_claim_holds(name):
    result = run(name, device="cuda")
    assert result, [claim.text for claim in result.claims if not claim.holds]
    drawn_on = "cpu" if name == "torchview_graphs" else "cuda:0"  # graphs are drawn of nets without numbers
    assert result.device == drawn_on and result.figure() is not None
