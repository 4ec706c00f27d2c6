"""Affine quantization: the arithmetic, the experiment next to torch and others, and the interactive view."""

import re
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hpml_lab import quantization
from hpml_lab.core.experiment import Result
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.system.errors import LabError
from hpml_lab.quantization.experiments import affine_quantization as experiment
from hpml_lab.quantization.experiments.affine_quantization import RoundingError, agreement, judge_agreement, judge_rounding
from hpml_lab.quantization.experiments.affine_quantization.agreement import EqualityCheck, narrowed, seeded, value_and_gradient
from hpml_lab.quantization.lessons.affine import (
    LEAST_SCALE,
    affine_parameters,
    dequantize,
    fake_quantize,
    quantize,
    value_range,
)
from hpml_lab.quantization.lessons.lenet import LeNet
from hpml_lab.quantization.views import affine_explorer

# ---- the arithmetic --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 16])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("signed", [False, True])
def test_values_and_gradients_are_torchs_for_every_number_of_bits(bits, symmetric, signed):
    x = seeded(30, 40)
    low, high = value_range(x)
    p = affine_parameters(0.6 * low, 0.5 * high, bits, symmetric, signed)
    assert p[3] - p[2] == 2**bits - 1 and p[2] <= p[1] <= p[3]
    for ours, theirs in zip(
        value_and_gradient(lambda v: fake_quantize(v, *p), x),
        value_and_gradient(lambda v: torch.fake_quantize_per_tensor_affine(v, *p), x),
        strict=True,
    ):
        assert torch.equal(ours, theirs)
    integers = quantize(x, *p)
    assert torch.equal(dequantize(integers, *p[:2]), fake_quantize(x, *p))
    assert not integers.is_floating_point() and p[2] == integers.min() and p[3] == integers.max()


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_each_channel_has_its_own_scale_along_any_axis(axis):
    x = seeded(3, 4, 5) * torch.logspace(-2, 1, 60).reshape(3, 4, 5)
    p = affine_parameters(*value_range(x, axis), bits=4)
    rounded, integers = fake_quantize(x, *p, axis=axis), quantize(x, *p, axis=axis)
    assert torch.equal(rounded, torch.fake_quantize_per_channel_affine(x, p[0], p[1], axis % 3, *p[2:]))
    assert torch.equal(dequantize(integers, *p[:2], axis=axis), rounded)
    for index in range(x.shape[axis]):
        part = x.select(axis, index)
        assert torch.equal(rounded.select(axis, index), fake_quantize(part, *affine_parameters(*value_range(part), bits=4)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_floats_are_rounded_as_torch_does_and_keep_their_type(dtype):
    x = seeded(5000).to(dtype)
    rounded = fake_quantize(x, 0.037, 3, -8, 7)
    assert rounded.dtype == dtype and torch.equal(rounded, torch.fake_quantize_per_tensor_affine(x, 0.037, 3, -8, 7))


def test_parameters_are_those_of_the_formulas():
    assert [float(v) for v in affine_parameters(-1.0, 3.0, 2, signed=False)] == [pytest.approx(4 / 3), 1, 0, 3]
    assert [float(v) for v in affine_parameters(-1.0, 3.0, 2, symmetric=True)] == [2, 0, -2, 1]
    assert [float(v) for v in affine_parameters(-1.0, 3.0, 2, symmetric=True, signed=False)] == [2, 2, 0, 3]
    assert [float(v) for v in affine_parameters(2.0, 3.0, 8, signed=False)[:2]] == [pytest.approx(3 / 255), 0], (
        "0 is in the range"
    )
    assert [float(v) for v in affine_parameters(-3.0, -2.0, 8)[:2]] == [pytest.approx(3 / 255), 127]
    assert affine_parameters(0.0, 1e-9)[0] == LEAST_SCALE, "as torch's observers have it"


def test_integers_take_the_narrowest_type_and_halves_go_to_the_even_one():
    x = torch.tensor([0.5, 1.5, 2.5, -0.5, 300.0, -70000.0])
    assert quantize(x, 1.0, 0, -128, 127).tolist() == [0, 2, 2, 0, 127, -128]
    ends = [((-8, 7), torch.int8), ((0, 255), torch.uint8), ((-(2**15), 2**15 - 1), torch.int16), ((0, 65535), torch.int32)]
    assert all(quantize(x, 1.0, 0, *pair).dtype == dtype for pair, dtype in ends)


def test_a_gradient_passes_where_nothing_was_clamped_also_twice():
    x = torch.tensor([-9.0, -8.4, -0.2, 7.4, 7.6], requires_grad=True)
    (first,) = torch.autograd.grad((fake_quantize(x, 1.0, 0, -8, 7) ** 2).sum(), x, create_graph=True)
    assert first.tolist() == [0, -16, 0, 14, 0]
    (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [0, 2, 2, 2, 0]


NAN, INF = float("nan"), float("inf")
P = (0.1, 0, -8, 7)
ONES = torch.ones(2, 3)
BAD = {
    "9.5 is not a valid number of bits": lambda: affine_parameters(0, 1, 9.5),
    "17 is not a valid number of bits": lambda: affine_parameters(0, 1, 17),
    "True is not a valid number of bits": lambda: affine_parameters(0, 1, True),
    "The range from 2 to 1 is empty": lambda: affine_parameters(2, 1),
    "The range from 3 to 0 is empty": lambda: affine_parameters(torch.tensor([0.0, 3]), torch.tensor([1.0, 0])),
    "different shapes, (2,) and ()": lambda: affine_parameters(torch.zeros(2), 1.0),
    "The range contains NaN or infinity": lambda: affine_parameters(NAN, 1),
    "The range contains NaN or infinity,": lambda: affine_parameters(0, INF),
    "The scale contains NaN or infinity": lambda: affine_parameters(-3e38, 3e38),
    "the scale would be 0": lambda: affine_parameters(*value_range(torch.zeros(5))),
    "so the scale would be 0": lambda: affine_parameters(torch.tensor([-1.0, 0]), torch.tensor([1.0, 0]), symmetric=True),
    "The tensor is empty": lambda: value_range(torch.empty(0, 3)),
    "has no axis 2": lambda: value_range(ONES, 2),
    "(2, 3) has no axis -3": lambda: quantize(ONES, torch.ones(3), torch.zeros(3), -8, 7, axis=-3),
    "The tensor contains NaN": lambda: fake_quantize(torch.tensor([1.0, NAN]), *P),
    "The tensor contains NaN or infinity": lambda: quantize(torch.tensor([1.0, INF]), *P),
    "torch.int64 cannot be quantized": lambda: quantize(torch.arange(3), *P),
    "A scale is 0, negative or NaN": lambda: quantize(ONES, 0.0, 0, -8, 7),
    "A scale is 0, negative or NaN.": lambda: dequantize(ONES.char(), torch.tensor([1.0, NAN]), torch.zeros(2), axis=0),
    "There are 2 scales and 2 zero points; for axis 1": lambda: fake_quantize(
        ONES, torch.ones(2), torch.zeros(2), -8, 7, axis=1
    ),
    "without axis there has to be 1": lambda: fake_quantize(ONES, torch.ones(2), torch.zeros(2), -8, 7),
}


@pytest.mark.parametrize("problem", BAD)
def test_bad_input_is_named_with_what_to_do(problem):
    with pytest.raises(LabError, match=re.escape(problem)) as caught:
        BAD[problem]()
    assert len(caught.value.fix) > 15


# ---- the experiment --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(on_digits):
    """A small run in which torchao is not found."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("torchao", "torchao.quantization"):
            patch.setitem(sys.modules, module, None)
        return on_digits("affine-quantization", values=60_000)


def test_every_exact_claim_holds_and_the_result_can_be_read_back(result, tmp_path):
    assert result, [claim for claim in result.claims if not claim.holds]
    assert sum(claim.exact for claim in result.claims) == 4
    again = load_result(result.save(tmp_path))
    assert again.rows(EqualityCheck) == result.rows(EqualityCheck) and again.figure() is not None


def test_without_torchao_a_note_says_so_and_the_rest_stands(result):
    assert "torchao" in result.notes[0] and "pip install" in result.notes[0]
    assert not any("torchao" in row.theirs for row in result.rows(EqualityCheck))
    assert not any("torchao" in claim.text for claim in result.claims)


def test_the_rounding_errors_are_those_of_each_range(result):
    rows = {(row.data, row.scheme, row.bits): row for row in result.rows(RoundingError)}
    assert len(rows) == 3 * len(experiment.BITS)
    x = seeded(60_000)
    eight = rows["after ReLU", "affine", 8]
    assert eight.scale == pytest.approx(x.max().item() / 255) and eight.zero_point == 0
    levels = torch.arange(4) * x.max() / 3
    nearest = (x.relu()[:, None] - levels).abs().amin(1).double()
    assert rows["after ReLU", "affine", 2].rms * eight.scale * 85 == pytest.approx(
        nearest.square().mean().sqrt().item(), rel=1e-4
    )


def test_every_comparison_has_compared_something(result):
    rows = result.rows(EqualityCheck)
    assert all(row.values > 0 and (row.differ == 0) == (row.largest is None) for row in rows)
    engines = set(agreement.EXACT_ENGINES) & set(torch.backends.quantized.supported_engines)
    assert sum("quantized.linear" in row.theirs for row in rows) == len(engines)


def test_the_arithmetic_is_that_of_torch_and_of_the_engines(result, int8_saturates):
    for row in result.rows(EqualityCheck):
        others = "most clamped" in row.theirs or "round(x" in row.theirs or (int8_saturates and "_int_mm" in row.theirs)
        assert others or row.differ == ("2,049 terms" in row.theirs), row  # float32 cannot hold every integer from 2^24 on


def test_dynamic_linear_is_torchaos(int8_saturates):
    pytest.importorskip("torchao")
    if int8_saturates:
        pytest.skip("torchao's int8 product is wrong on this processor")
    found = agreement.compare_torchao()
    assert found.differ == 0 and found.values == 8 * 32 + 64 * 128 + 17 * 100


def failing(judge, *given):
    result = Result()
    judge(result, *given)
    return [claim.text for claim in [*result.claims, *result.checks] if not claim.holds]


def test_a_claim_about_an_equality_fails_where_one_value_differs(result):
    tables = result.rows(EqualityCheck)
    rows = {"fake": tables[:4], "roundings": tables[-5:-3], "one line": tables[-3:]}
    assert failing(judge_agreement, rows) == []
    texts = []
    for kind, given in rows.items():
        texts += failing(judge_agreement, rows | {kind: [EqualityCheck("", "", 100, 50, 2.0), *given[1:]]})
    assert len(texts) == len(set(texts)) == 3


def test_no_value_moves_by_more_than_half_a_step_and_each_bit_adds_6_db(result):
    rows = result.rows(RoundingError)
    assert failing(judge_rounding, rows) == []
    assert all(row.largest <= 0.5 + 2.0**-23 * 2**row.bits for row in rows), "half a step, and the rounding of float32"
    uniform = [row.rms * 12**0.5 for row in rows if row.bits >= 4 and row.data == "normal"]
    assert uniform == pytest.approx([1] * len(uniform), rel=0.05)
    changed = [
        RoundingError(**(vars(row) | ({"ratio": 60.0} if (row.data, row.bits) == ("normal", 8) else {}))) for row in rows
    ]
    assert ["6 dB" in text for text in failing(judge_rounding, changed)] == [True]


def test_the_one_line_estimator_loses_what_is_far_outside():
    x = torch.tensor([1000.3, 0.3])
    p = narrowed(torch.tensor([-0.2, 0.5]), 8, False)
    ours, one = fake_quantize(x, *p), agreement.one_line(x, *p)
    assert ours[1] == one[1] and ours[0] != one[0] and (ours - one).abs().max() < 1e-3


# ---- the interactive view --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def small():
    """A LeNet with random, lopsided weights, and random images that it classifies "correctly"."""
    net = LeNet().eval()
    for number, parameter in enumerate(net.parameters()):
        parameter.data = seeded(*parameter.shape, seed=number) * 0.3 + 0.05
    x = seeded(50, 1, 28, 28)
    with torch.no_grad():
        return net, SimpleNamespace(test_x=x, test_y=net(x).argmax(1))


def test_all_controls_change_the_picture_and_the_saved_one_is_a_png(small):
    view = quantization.explore_affine(*small)
    pictures = {bytes(view.image.value)}
    values = {"bits": 3, "range (%)": 60, "scheme": "affine", "scales": "per channel", "layer": "conv1"}
    for control in view.children[:-1]:
        control.value = values[control.description]
        pictures.add(bytes(view.image.value))
    assert len(pictures) == 6
    bundle, metadata = view._repr_mimebundle_()
    assert bundle["image/png"] and "number lines" in metadata["image/png"]["alt"]


def test_the_accuracy_is_that_of_the_rounded_net(small):
    net, data = small
    layers = affine_explorer.QuantizedLayers(net, data)
    assert list(layers.weights) == ["conv1", "conv2", "fc1", "fc2", "fc3"]
    assert layers.accuracy({}) == 100
    rounded = {name: found.rounded for name, found in layers.quantized(2, 0.5, True, False).items()}
    copied = LeNet().eval()
    copied.load_state_dict(net.state_dict() | {f"{name}.weight": weight for name, weight in rounded.items()})
    with torch.no_grad():
        share = (copied(data.test_x).argmax(1) == data.test_y).double().mean().item()
    assert layers.accuracy(rounded) == pytest.approx(100 * share) and share < 1
    assert all(torch.equal(module.weight, layers.weights[name]) for name, module in net.named_children()), "the net stays"


@pytest.mark.parametrize("per_channel", [False, True])
def test_weights_are_rounded_to_the_levels_of_their_channel(per_channel):
    weight = seeded(5, 4, 3)
    found = affine_explorer.quantize_weight(weight, 3, 0.7, False, per_channel)
    assert found.levels.shape == (5, 8) and (len(found.levels.unique(dim=0)) > 1) is per_channel
    for row, levels in zip(found.rounded, found.levels, strict=True):
        assert torch.isin(row, levels).all()


@pytest.mark.parametrize("symmetric", [False, True])
def test_a_channel_of_zeros_stays_what_it_is(symmetric):
    weight = seeded(5, 4, 3).index_fill(0, torch.tensor([2]), 0.0)
    rounded = affine_explorer.quantize_weight(weight, 4, 1.0, symmetric, True).rounded
    assert not rounded[2].any() and all(rounded[channel].any() for channel in (0, 1, 3, 4))


def test_a_net_without_weights_is_refused(small):
    with pytest.raises(LabError, match="neither a Conv2d nor a Linear"):
        quantization.explore_affine(nn.Flatten(), small[1])
