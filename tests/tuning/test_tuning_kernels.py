"""Fusion: GELU, layer norm and the optimizers, as chains of operators and as single kernels."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from hpml_lab.core.errors import LabError
from hpml_lab.core.timing import Timing
from hpml_lab.tuning import compiled as compiling
from hpml_lab.tuning import experiments_kernels, experiments_optimizers
from hpml_lab.tuning.experiments_kernels import composed, fused_layernorm, gelu, moved, pointwise_fusion
from hpml_lab.tuning.experiments_optimizers import fused_optimizers, spacings

CPU = torch.device("cpu")
ROWS = (pointwise_fusion, fused_optimizers, fused_layernorm)


@pytest.fixture
def no_compiler(monkeypatch):
    def missing(*_):
        raise LabError("torch.compile finds no compiler here.", "Install g++.")

    monkeypatch.setattr(experiments_kernels, "compiled", missing)


def test_pointwise_fusion(sound):
    result = pointwise_fusion("quick")
    sound(result)
    assert {"formula, eager": 5, "F.gelu": 1}.items() <= {row["way"]: row["kernels"] for row in result.rows}.items()
    assert result.quantities["kernels of the formula"] == 5 and result.quantities["kernels when fused"] == 1


def test_fused_optimizers(sound):
    result = fused_optimizers("quick")
    sound(result)
    own = [row for row in result.rows if row["way"] == experiments_optimizers.OWN]
    if own and result.device == "cpu":
        assert all(row["time, µs"] == "-" for row in own), "the interpreter's time says nothing about speed"


def test_fused_layernorm(sound):
    sound(fused_layernorm("quick"))


def test_the_bandwidth_counts_what_a_copy_reads_and_what_it_writes(monkeypatch):
    monkeypatch.setattr(experiments_kernels, "measure", lambda work, bytes, **_: Timing((1.0,), 1, bytes))
    assert experiments_kernels.copy_bandwidth.__wrapped__(CPU) == 2 * 4 * 2**25 / 1e9


def test_with_planted_times_and_bandwidth_fusion_is_set_against_the_memory_limit(planted_times, no_compiler, monkeypatch):
    monkeypatch.setattr(experiments_kernels, "copy_bandwidth", lambda _: 100.0)  # GB/s
    seconds = {"formula, eager": 8e-6, "composed, eager": 8e-6}
    planted_times(experiments_kernels, lambda name, _: seconds.get(name, 2e-6))
    small = dict(sizes=(1000,), rows=10, features=20, samples=3, checked=10)
    for row, passes in ((pointwise_fusion, 2 * 1000), (fused_layernorm, 5 * 10 * 20)):
        result = replace(row, quick=small)("quick", device="cpu")
        limit = passes * 4 / 100e9  # seconds that the memory needs for those float32
        assert result.arrays["limit, µs"] == pytest.approx(limit * 1e6)
        eager, fused = result.rows[0], next(one for one in result.rows if one["way"] in ("F.gelu", "nn.LayerNorm"))
        assert (eager["time, µs"], fused["time, µs"]) == (pytest.approx(8), pytest.approx(2))
        assert eager["share of the memory limit"] == pytest.approx(limit / 8e-6)
        assert (eager["times faster"], fused["times faster"]) == (pytest.approx(1), pytest.approx(4))
        assert pytest.approx(4) in result.quantities.values()


def test_with_planted_times_an_adam_step_is_set_against_28_bytes_a_parameter(planted_times, monkeypatch):
    monkeypatch.setattr(experiments_optimizers, "copy_bandwidth", lambda _: 100.0)

    def seconds(name, step):
        many = len(step.__self__.param_groups[0]["params"]) > 1
        return {"for-loop": 12e-6 if many else 6e-6, "foreach": 4e-6}.get(name, 2e-6)

    planted_times(experiments_optimizers, seconds)
    small = dict(tensors=3, side=5, large=1000, steps=2, checked=(7,), samples=3)
    result = replace(fused_optimizers, quick=small)("quick", device="cpu")
    by = {(row["model"].split()[0], row["way"]): row for row in result.rows}
    assert by["1", "fused"]["time, µs"] == pytest.approx(2) and by["3", "for-loop"]["time, µs"] == pytest.approx(12)
    assert by["1", "fused"]["share of the memory limit"] == pytest.approx(28 * 1000 / 100e9 / 2e-6)
    assert by["3", "foreach"]["share of the memory limit"] == pytest.approx(28 * 75 / 100e9 / 4e-6)
    assert list(result.arrays["floors, µs"].values()) == pytest.approx([28 * 75 / 100e3, 28 * 1000 / 100e3])
    told = {name: value for name, value in result.quantities.items() if "for-loop, " in name and "times" in name}
    assert list(told.values()) == pytest.approx([6, 3, 3]), "fused and foreach for many tensors, fused for one"


@pytest.mark.parametrize("row", [pointwise_fusion, fused_layernorm], ids=lambda row: row.slug)
def test_without_a_compiler_the_row_says_so_and_goes_on(row, no_compiler, sound):
    result = row("quick")
    sound(result)
    assert any("no compiler" in note for note in result.notes)
    assert not any("torch.compile" in one["way"] for one in result.rows)


def test_only_a_missing_compiler_is_forgiven(monkeypatch):
    def failing(text):
        def use(_):
            raise RuntimeError(text)

        return lambda: compiling.compiled(gelu, use, CPU)

    with pytest.raises(LabError, match="g\\+\\+"):
        failing("InvalidCxxCompiler: No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')")()
    with pytest.raises(RuntimeError, match="a bug of ours"):
        failing("a bug of ours")()


def test_the_parts_make_layer_norm_and_the_formula_gelu():
    x, weight, bias = torch.randn(5, 8), torch.randn(8), torch.randn(8)
    torch.testing.assert_close(composed(x, weight, bias), F.layer_norm(x, (8,), weight, bias))
    torch.testing.assert_close(gelu(x), F.gelu(x), rtol=1e-4, atol=1e-5)
    assert moved(lambda: gelu(x)) == 11 * x.nbytes / 1e6


def test_spacings_counts_gaps():
    b = torch.tensor([1.0, 2.0])
    assert spacings(b, b) == 0
    assert spacings(torch.nextafter(b, torch.tensor(9.0)), b) == 1
    assert spacings(b * 1.001, b) > 1000


@pytest.mark.cuda
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.slug)
def test_on_a_gpu_the_exact_claims_hold(row):
    result = row("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
