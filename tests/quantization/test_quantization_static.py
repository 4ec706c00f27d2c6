"""Static quantization: the experiment pt2e-inductor, its nets and its traps."""

import os
import tempfile
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.compilation import no_compiler
from hpml_lab.core.timing.counting import operators
from hpml_lab.quantization.experiments import pt2e_inductor as module
from hpml_lab.quantization.experiments.pt2e_inductor import static_nets as forms
from hpml_lab.quantization.experiments.pt2e_inductor import traps
from hpml_lab.quantization.experiments.pt2e_inductor.static_nets import EAGER, FROZEN, INT8, OLD, REFERENCE, StaticNet
from hpml_lab.quantization.experiments.pt2e_inductor.traps import StaticTrap, TwoConvolutions, small_input
from hpml_lab.quantization.lessons import static_int8
from hpml_lab.quantization.lessons.static_int8 import FUSED, all_convolutional, compiled_for, eager_mode_int8, int8_weights
from hpml_lab.quantization.tools.sizes import sizes
from hpml_lab.start.tools.asking import run_tool

TINY = dict(images=256, steps=4, tested=64, batch=8, calibration=32, samples=5, resnet=False)
X = torch.linspace(-1, 1, 4 * 28 * 28).reshape(4, 1, 28, 28)


def missing_torchao(part="torchao"):
    raise LabError("torchao is not installed in this Python.", "pip install torchao")


def missing_compiler(net, x):
    raise LabError("torch.compile finds no compiler here.", "sudo apt-get install g++")


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return all_convolutional().eval()


@pytest.fixture(scope="module")
def graph(net):
    pytest.importorskip("torchao")
    return static_int8.pt2e_int8(net, X)


@pytest.fixture(scope="module")
def run(on_digits, tmp_path_factory):
    """The experiment, once, and the files that it left in the folder for temporary files."""
    pytest.importorskip("torchao")
    if run_tool(["g++", "--version"]) is None and not os.environ.get("CXX"):
        pytest.skip("torch.compile needs a C++ compiler")
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", str(folder))
        result = on_digits("pt2e-inductor", **TINY)
    return SimpleNamespace(result=result, left=list(folder.iterdir()))


# ---- the experiment --------------------------------------------------------------------------------------------------


def test_the_experiment(run, sound):
    sound(run.result)


def test_each_form_runs_its_convolutions_by_operators_of_its_own(run):
    rows = {row.form: row for row in run.result.rows(StaticNet)}
    assert list(rows) == [EAGER, FROZEN, REFERENCE, INT8, OLD]
    assert "quantized::conv2d" in rows[OLD].run_by
    assert "qconv" not in rows[REFERENCE].run_by, "the reference is float32"
    assert rows[FROZEN].run_by != rows[EAGER].run_by, "inductor has packed the frozen weights"
    if torch.backends.quantized.engine == "x86":
        assert "qconv" in rows[INT8].run_by


def test_each_row_says_how_right_and_how_large_the_net_is(run):
    rows = {row.form: row for row in run.result.rows(StaticNet)}
    weights = 146_048
    assert {row.weights_kb for row in rows.values()} == {4 * weights / 1e3, (weights + 4 * 266) / 1e3}
    assert rows[EAGER].state_kb == (4 * weights + 4 * 266) / 1e3
    assert rows[REFERENCE].state_kb > 1.25 * 0.99 * rows[EAGER].state_kb > rows[OLD].state_kb
    assert all(0 <= row.accuracy <= 100 for row in rows.values())
    assert rows[EAGER].error is None and all(row.error < 20 for row in rows.values() if row.error is not None)
    assert all(row.compile_s > 0 for name, row in rows.items() if name in (FROZEN, INT8))


def test_nothing_is_left_on_the_disk_nor_in_the_settings(run):
    from torch._inductor import config

    assert run.left == []
    assert not config.freezing and "hpml" not in os.environ.get("TORCHINDUCTOR_CACHE_DIR", "")


def test_without_torchao_the_rest_stands(on_digits, monkeypatch, sound):
    monkeypatch.setattr(static_int8, "torchao", missing_torchao)
    monkeypatch.setattr(forms, "compiled_for", lambda net, x: net)
    result = on_digits("pt2e-inductor", **TINY)
    sound(result)
    assert [row.form for row in result.rows(StaticNet)] == [EAGER, FROZEN, OLD]
    assert any("torchao is not installed" in note for note in result.notes)
    assert result.rows(StaticTrap), "eager mode's traps need neither"


def test_without_a_compiler_the_rest_stands(on_digits, monkeypatch, sound):
    pytest.importorskip("torchao")
    monkeypatch.setattr(forms, "compiled_for", missing_compiler)
    result = on_digits("pt2e-inductor", **TINY)
    sound(result)
    assert [row.form for row in result.rows(StaticNet)] == [EAGER, REFERENCE, OLD]
    assert len([note for note in result.notes if "no compiler" in note]) == 1


def test_an_operator_that_does_not_exist_here_costs_one_row(net, monkeypatch):
    def no_int8(net, x):
        if not isinstance(net, nn.Sequential):
            raise RuntimeError("UnsupportedOperatorException: onednn.qconv_prepack\nand a second line")
        return net

    monkeypatch.setattr(forms, "compiled_for", no_int8)
    notes = []
    made, seconds = forms.compile_forms({EAGER: net, REFERENCE: nn.Identity()}, X, notes)
    assert list(made) == list(seconds) == [FROZEN]
    assert notes == [f"{INT8} does not run here: UnsupportedOperatorException: onednn.qconv_prepack"]


# ---- nets ------------------------------------------------------------------------------------------------------------


def test_the_int8_weights_are_those_of_affine_quantization(net, graph):
    found = int8_weights(graph)
    assert [tuple(w.shape) for w in found] == [tuple(layer.weight.shape) for layer in net if isinstance(layer, nn.Conv2d)]
    assert all(torch.equal(a, b) for a, b in zip(found, module.weights_from_scratch(net), strict=True))
    wrong = [w.flip(0) for w in module.weights_from_scratch(net)]
    assert not any(torch.equal(a, b) for a, b in zip(found, wrong, strict=True))


def test_the_reference_is_close_to_the_float_net_for_any_batch(net, graph):
    with torch.no_grad():
        for x in (X, X[:3]):
            assert F.mse_loss(graph(x), net(x)) < 1e-3 * net(x).square().mean()


def test_eager_mode_with_stubs_is_close_to_the_float_net_and_a_quarter_as_large(net):
    old = eager_mode_int8(net, X, FUSED)
    with torch.no_grad():
        assert F.mse_loss(old(X), net(X)) < 1e-2 * net(X).square().mean()
    assert sizes(old).tensor_bytes < 0.27 * sizes(net).tensor_bytes
    assert {type(layer) for layer in net} == {nn.Conv2d, nn.ReLU, nn.Flatten}, "the net itself is not changed"


def test_only_a_missing_compiler_is_forgiven(monkeypatch):
    def failing(text):
        def compile(net, **_):
            def call(x):
                raise RuntimeError(text)

            return call

        monkeypatch.setattr(torch, "compile", compile)
        return lambda: compiled_for(nn.Identity(), X)

    with pytest.raises(LabError, match="g\\+\\+"):
        failing("InvalidCxxCompiler: No working C++ compiler found")()
    with pytest.raises(RuntimeError, match="another error"):
        failing("another error")()


def test_the_reference_runs_float_convolutions_between_pairs_of_quantize_and_dequantize(graph):
    called = [operator.name for operator in operators(lambda: graph(X))]
    pairs = ("quantize_per_tensor", "dequantize_per_tensor", "dequantize_per_channel")
    assert [called.count(name) for name in ("convolution", *pairs)] == [5, 5, 5, 5]


# ---- traps -----------------------------------------------------------------------------------------------------------


def test_the_traps_are_there_and_what_is_advised_works(run):
    said = {trap.done: trap.outcome for trap in run.result.rows(StaticTrap)}
    assert all(said[f"{mode}() of the converted net"].startswith("NotImplementedError") for mode in ("eval", "train"))
    assert "Guard failed" in said["2 images for a net exported with 3"]
    assert "AssertionError" in said["the lecture's prepare_qat, on a net in eval mode"]
    assert "quantized::conv2d" in said["call a converted net that has no stubs"]
    same = (" with dynamic_shapes", " with strict=True", ", strict=False, with two ReLUs", " in training mode")
    assert {said[f"the same{how}"] for how in same} == {traps.WORKS}


def test_the_two_nets_of_the_first_trap_compute_the_same():
    shared, apart = TwoConvolutions(True), TwoConvolutions(False)
    apart.load_state_dict(shared.state_dict())
    assert torch.equal(shared(small_input()), apart(small_input()))


def test_without_a_compiler_torch_says_which_one_it_looked_for():
    said = traps.compile_without_compiler()
    assert no_compiler(RuntimeError(said)) and "no-g++" in said


def test_a_trap_that_is_gone_is_reported_as_working(monkeypatch):
    monkeypatch.setattr(traps, "prepared", lambda graph: graph)
    assert traps.prepare_twice_called(shared=True, strict=False) == "works"
    with pytest.raises(KeyError):  # a mistake of our own passes
        traps.outcome(lambda: {}["x"])


def test_on_a_gpu_the_rows_are_the_cpus_and_a_note_says_what_serves_there(monkeypatch, on_digits):
    monkeypatch.setattr(static_int8, "torchao", missing_torchao)
    monkeypatch.setattr(forms, "compiled_for", missing_compiler)
    from hpml_lab.core.experiment import Params
    from hpml_lab.core.experiment.registry import find

    device = SimpleNamespace(is_cuda=True, torch=torch.device("cuda"))
    result = find("pt2e-inductor").function(Params(size="quick", device=device, **TINY))
    assert "quantize_" in result.notes[-1] and [row.form for row in result.rows(StaticNet)] == [EAGER, OLD]
