"""Fusion: GELU, layer norm and the optimizers, as chains of operators and as single kernels."""

import pytest
import torch
import torch.nn.functional as F

from hpml_lab.core.errors import LabError
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
