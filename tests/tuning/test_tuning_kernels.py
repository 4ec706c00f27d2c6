"""Fusion: GELU, layer norm and the optimizers, as chains of operators and as single kernels."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing import clock
from hpml_lab.core.timing.clock import PLACEBO, Timing
from hpml_lab.core.timing.counting import operators
from hpml_lab.tuning.experiments import fused_layernorm, fused_optimizers, pointwise_fusion
from hpml_lab.tuning.experiments.fused_layernorm import LayerNormRun
from hpml_lab.tuning.experiments.fused_optimizers import TRITON, AdamStep, difference_in_spacings
from hpml_lab.tuning.experiments.pointwise_fusion import GeluRun
from hpml_lab.tuning.lessons.compositions import gelu, layer_norm
from hpml_lab.tuning.tools.generated_kernels import compiled

CPU = torch.device("cpu")
EXPERIMENTS = (pointwise_fusion.pointwise_fusion, fused_optimizers.fused_optimizers, fused_layernorm.fused_layernorm)
POINTWISE = replace(pointwise_fusion.pointwise_fusion, quick=dict(sizes=(20_000,), samples=5, checked=500))
LAYER_NORM = replace(fused_layernorm.fused_layernorm, quick=dict(rows=64, features=128, samples=5))


@pytest.fixture
def no_compiler(monkeypatch):
    def missing(*_):
        raise LabError("torch.compile finds no compiler here.", "Install g++.")

    for module in (pointwise_fusion, fused_layernorm):
        monkeypatch.setattr(module, "compiled", missing)


def test_pointwise_fusion(ran, sound):
    result = ran("pointwise-fusion")
    sound(result)
    kernels = {row.implementation: row.kernels for row in result.rows(GeluRun)}
    assert (kernels["formula, eager"], kernels["F.gelu"]) == (5, 1)
    assert result.here("kernels of the formula") == 5 and result.here("kernels when fused") == 1


def test_fused_optimizers(ran, sound):
    result = ran("fused-optimizers")
    sound(result)
    triton = [row for row in result.rows(AdamStep) if row.implementation == TRITON]
    assert all(row.time_us is None for row in triton), "the interpreter's time says nothing about speed"


def test_fused_layernorm(ran, sound):
    sound(ran("fused-layernorm"))


def test_the_bandwidth_counts_what_a_copy_reads_and_what_it_writes(monkeypatch):
    monkeypatch.setattr(clock, "measure", lambda work, bytes, **_: Timing((1.0,), 1, bytes))
    assert clock.copy_bandwidth.__wrapped__(CPU).gb_per_s == 2 * 4 * 2**26 / 1e9


def test_with_known_times_and_bandwidth_gelu_is_compared_with_the_memory_limit(known_times, known_bandwidth, no_compiler):
    known_bandwidth(pointwise_fusion, 100.0)
    known_times(pointwise_fusion, lambda name, _: 8e-6 if name == "formula, eager" else 2e-6)
    small = dict(sizes=(1000, 2000), samples=3, checked=10)
    result = replace(pointwise_fusion.pointwise_fusion, quick=small)("quick", device="cpu")
    rows = {row.implementation: row for row in result.rows(GeluRun) if row.elements == 1000}
    assert [row.moved_mb for row in result.rows(GeluRun) if row.implementation == "F.gelu"] == [0.008, 0.016]
    assert [claim.text for claim in result.claims if "2,000 elements" in claim.text and claim.holds], "made at the largest size"
    assert len(result.figure().axes) == 3 and len(set(result.notes)) == len(result.notes)
    eager, fused = rows["formula, eager"], rows["F.gelu"]
    assert eager.limit_us == fused.limit_us == pytest.approx(2 * 1000 * 4 / 100e3)
    assert (eager.time_us, fused.time_us) == (pytest.approx(8), pytest.approx(2))
    assert eager.bandwidth_share == pytest.approx(11 * 4000 / 8e-6 / 100e9)
    assert fused.bandwidth_share == pytest.approx(2 * 4000 / 2e-6 / 100e9)
    assert (eager.gain, fused.gain, fused.verdict) == (None, pytest.approx(4), "faster")
    for label in ("torch.jit.script over formula", "one kernel over five", "fused over formula"):
        assert result.here(f"0.001 M elements, {label}") == pytest.approx(4), "on a CPU a call is its kernels"


def test_on_a_gpu_a_call_and_its_kernels_alone_are_two_times(monkeypatch):
    """No GPU is needed: a graph is the work that it would replay, and each call of it takes 1 µs, or 3 µs from Python."""
    calls = []

    def timed(works, gpu, placebo, **_):
        times = {}
        for name, work in works.items():
            calls.clear()
            work()
            times[name] = Timing(((len(calls) if len(calls) > 1 else 3) * 1e-6,) * 5, 1)
        return times | {PLACEBO: times[placebo]}

    monkeypatch.setattr(pointwise_fusion, "captured", lambda work, _: work)
    monkeypatch.setattr(pointwise_fusion, "interleaved", timed)
    x = SimpleNamespace(device=torch.device("cuda"))
    called, alone = pointwise_fusion.times_of(dict.fromkeys(("formula, eager", "F.gelu"), calls.append), x, 5)
    assert called["F.gelu"].seconds == pytest.approx(3e-6) and alone["F.gelu"].seconds == pytest.approx(1e-6)
    counts, errors = {"formula, eager": 5, "F.gelu": 1}, dict.fromkeys(called, 0.0)
    eager, fused = pointwise_fusion.gelu_rows(1000, counts, errors, (called, alone), 100.0)
    assert (fused.time_us, fused.alone_us) == (pytest.approx(3), pytest.approx(1))
    assert eager.bandwidth_share == pytest.approx(11 * 4000 / 1e-6 / 100e9), "the bandwidth is that of the kernels"
    assert fused.verdict == "within noise"
    assert fused.alone_gain == pytest.approx(1) and eager.alone_gain is None


def test_with_known_times_and_bandwidth_layer_norm_is_compared_with_the_memory_limit(known_times, known_bandwidth, no_compiler):
    known_bandwidth(fused_layernorm, 100.0)
    known_times(fused_layernorm, lambda name, _: 8e-6 if name == "composed, eager" else 2e-6)
    small = dict(rows=10, features=20, samples=3)
    result = replace(fused_layernorm.fused_layernorm, quick=small)("quick", device="cpu")
    rows = {row.implementation: row for row in result.rows(LayerNormRun)}
    eager, fused = rows["composed, eager"], rows["nn.LayerNorm"]
    assert eager.limit_us == fused.limit_us == pytest.approx(5 * 10 * 20 * 4 / 100e3)
    assert (eager.time_us, fused.time_us) == (pytest.approx(8), pytest.approx(2))
    assert eager.bandwidth_share == pytest.approx(eager.moved_mb * 1e6 / 8e-6 / 100e9)
    assert (eager.gain, fused.gain, fused.verdict) == (None, pytest.approx(4), "faster")
    assert result.here("nn.LayerNorm over the composition") == pytest.approx(4)


def test_with_known_times_an_adam_step_is_compared_with_28_bytes_per_parameter(known_times, known_bandwidth):
    known_bandwidth(fused_optimizers, 100.0)

    def seconds(name, step):
        many = len(step.__self__.param_groups[0]["params"]) > 1
        return {"for-loop": 12e-6 if many else 6e-6, "foreach": 4e-6}.get(name, 2e-6)

    known_times(fused_optimizers, seconds)
    small = dict(tensors=3, side=5, large=1000, steps=2, checked=(7,), samples=3)
    result = replace(fused_optimizers.fused_optimizers, quick=small)("quick", device="cpu")
    steps = {(row.model.split()[0], row.implementation): row for row in result.rows(AdamStep)}
    assert steps["1", "fused"].time_us == pytest.approx(2) and steps["3", "for-loop"].time_us == pytest.approx(12)
    assert steps["1", "fused"].limit_share == pytest.approx(28 * 1000 / 100e9 / 2e-6)
    assert steps["3", "foreach"].limit_share == pytest.approx(28 * 75 / 100e9 / 4e-6)
    assert steps["3", "fused"].limit_us == pytest.approx(28 * 75 / 100e3)
    assert steps["1", "fused"].limit_us == pytest.approx(28 * 1000 / 100e3)
    assert result.here("many tensors, fused over the for-loop") == pytest.approx(6)
    assert steps["3", "foreach"].gain == pytest.approx(3) and steps["1", "fused"].gain == pytest.approx(3)


@pytest.mark.parametrize("experiment", [POINTWISE, LAYER_NORM], ids=lambda experiment: experiment.slug)
def test_without_a_compiler_the_experiment_says_so_and_goes_on(experiment, no_compiler, sound):
    result = experiment("quick")
    sound(result)
    assert any("no compiler" in note for note in result.notes)
    assert not any("torch.compile" in row.implementation for row in result.rows())


def test_only_a_missing_compiler_is_forgiven(monkeypatch):
    def failing(text):
        def use(_):
            raise RuntimeError(text)

        return lambda: compiled(gelu, use, CPU)

    with pytest.raises(LabError, match="g\\+\\+"):
        failing("InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')")()
    with pytest.raises(LabError, match="python3-dev"):
        failing("RuntimeError: Failed to find C compiler. Please specify via CC environment variable")()
    with pytest.raises(RuntimeError, match="another error"):
        failing("another error")()


def test_the_compositions_compute_layer_norm_and_gelu():
    x, weight, bias = torch.randn(5, 8), torch.randn(8), torch.randn(8)
    torch.testing.assert_close(layer_norm(x, weight, bias), F.layer_norm(x, (8,), weight, bias))
    torch.testing.assert_close(gelu(x), F.gelu(x), rtol=1e-4, atol=1e-5)
    assert sum(op.bytes for op in operators(lambda: gelu(x))) == 11 * x.nbytes


def test_spacings_counts_gaps():
    b = torch.tensor([1.0, 2.0])
    assert difference_in_spacings(b, b) == 0
    assert difference_in_spacings(torch.nextafter(b, torch.tensor(9.0)), b) == 1
    assert difference_in_spacings(b * 1.001, b) > 1000


@pytest.mark.cuda
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.slug)
def test_on_a_gpu_the_exact_claims_hold(experiment):
    result = experiment("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
