"""FP8, e2m1 and e8m0 from their specifications, MXFP4 and NVFP4 by hand, layers with rounded factors, and the experiment."""

import math
from dataclasses import replace

import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.data import load
from hpml_lab.precision.experiments import low_precision_formats as experiment
from hpml_lab.precision.experiments.low_precision_formats import CastRow, LayerRow, StorageError, cast_row, product_error
from hpml_lab.precision.lessons.formats import E2M1, E4M3, E5M2
from hpml_lab.precision.lessons.low_precision import every_code, mxfp4, nearest_power_of_two, nvfp4, saturated, scale_in_e8m0
from hpml_lab.precision.lessons.rounded_layers import (
    FLOAT32,
    LAYERS,
    ROUNDINGS,
    RoundedProduct,
    accuracies,
    initial_layers,
    logits_of,
    train_layers,
)

SMALL = experiment.QUICK | dict(rows=8, seeds=2, steps=3)


def normal(*shape, seed=0):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_codes_are_those_of_the_specifications():
    e4m3, e5m2 = every_code(E4M3), every_code(E5M2)
    assert e4m3[[0x00, 0x01, 0x07, 0x08, 0x38, 0x7E, 0xFE]].tolist() == [0, 2**-9, 7 * 2**-9, 2**-6, 1, 448, -448]
    assert e5m2[[0x00, 0x01, 0x03, 0x04, 0x3C, 0x7B, 0xFB]].tolist() == [0, 2**-16, 3 * 2**-16, 2**-14, 1, 57344, -57344]
    assert e4m3.isnan().nonzero().flatten().tolist() == [0x7F, 0xFF] and not e4m3.isinf().any()
    assert e5m2.isinf().nonzero().flatten().tolist() == [0x7C, 0xFC]
    assert e5m2.isnan().nonzero().flatten().tolist() == [0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]
    assert every_code(E2M1).tolist() == [sign * size for sign in (1, -1) for size in (0, 0.5, 1, 1.5, 2, 3, 4, 6)]
    assert math.copysign(1, every_code(E2M1)[8]) == -1, "−0 has a code of its own"


def test_e2m1_rounds_to_the_nearest_ties_to_the_even_code_and_saturates():
    assert saturated(torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0]), E2M1).tolist() == [0, 1, 1, 2, 2, 4, 4]
    assert saturated(torch.tensor([6.9, -7.0, 1e30, -math.inf]), E2M1).tolist() == [6, -6, 6, -6]
    x, codes = 4 * normal(2000), every_code(E2M1)
    nearest = codes[(x[:, None] - codes).abs().argmin(1)]
    assert torch.equal(saturated(x, E2M1), nearest)


def test_a_scale_in_e8m0_is_a_power_of_two():
    x = torch.tensor([1.0, 1.49, 1.5, 3.0, -3.0, 0.0, 2.0**127 * 1.49])
    assert nearest_power_of_two(x).double().tolist() == [1, 1, 2, 4, 4, 2.0**-127, 2.0**127]
    assert nearest_power_of_two(torch.tensor([2.0**127 * 1.5, math.inf, math.nan])).double().isnan().all()
    assert scale_in_e8m0(torch.tensor([-200, -127, 0, 127, 200])).double().log2().tolist() == [-127, -127, 0, 127, 127]


def block(largest, size=32):
    return torch.cat([torch.tensor([largest]), torch.full((size - 1,), 0.1)]).double()


@pytest.mark.parametrize(
    ("largest", "scale", "stored"),
    [(4.0, 1, 4), (5.9, 1, 6), (-7.75, 1, -6), (8.0, 2, 8), (1.0, 0.25, 1), (2.0**-130, 2.0**-127, 0), (0.0, 2.0**-127, 0)],
)
def test_the_scale_of_mxfp4_is_rounded_down_and_the_largest_is_clamped(largest, scale, stored):
    x = block(largest)
    x[1:] = x[1:].clamp(max=abs(largest) / 8)
    found = mxfp4(x)
    assert found.scale.double().item() == scale and found.dequantized()[0] == stored


def test_the_scales_of_nvfp4_are_relative_to_the_tensors_largest_number():
    x = torch.stack([block(6.0, 16), block(3.1, 16), torch.zeros(16), 1e-6 * block(1.0, 16)])
    found = nvfp4(x)
    whole = torch.tensor(6 / 2688).item()
    assert found.whole == whole
    # 3.1 / 6 / whole = 231.5, between 224 and 240: nearer to 224; the third and the last underflow
    assert found.scale.double().flatten().tolist() == [448, 224, 0, 0]
    assert found.dequantized()[0, 0] == 6 * 448 * whole and not found.dequantized()[2:].any()
    assert not nvfp4(torch.zeros(2, 32)).dequantized().any(), "and no NaN"


@pytest.mark.parametrize(("form", "size", "bits"), [(mxfp4, 32, 4.25), (nvfp4, 16, 4.5)])
def test_every_number_stored_is_one_of_its_block_and_storing_it_again_changes_nothing(form, size, bits):
    x = normal(3, 5, 4 * size) * 2.0 ** torch.arange(4).repeat_interleave(size)
    found = form(x)
    assert found.bits == bits and found.dequantized().shape == x.shape
    assert torch.isin(found.numbers, every_code(E2M1)).all()
    assert found.scale.dtype == {16: torch.float8_e4m3fn, 32: torch.float8_e8m0fnu}[size]
    if form is mxfp4:
        again = mxfp4(found.dequantized())
        assert torch.equal(again.dequantized(), found.dequantized())
        alone = torch.cat([mxfp4(part).dequantized() for part in x.split(size, -1)], -1)
        assert torch.equal(alone, found.dequantized()), "a block's scale depends on no other block"


def test_what_is_no_multiple_of_a_block_is_refused():
    for form, size in ((mxfp4, 32), (nvfp4, 16)):
        for x in (torch.ones(2, size + 1), torch.ones(2, 0), torch.tensor(1.0)):
            with pytest.raises(LabError, match=f"Blocks of {size} do not fill"):
                form(x)


def test_a_wrong_rounding_is_noticed():
    codes = every_code(E4M3)
    cut = cast_row("cut off", E4M3.dtype, codes, lambda x: E4M3.round(x.double().abs() * (1 - 2**-5)) * x.sign(), 20)
    assert cut.different > 10_000
    assert cast_row("another code", E4M3.dtype, codes + (codes == 448), lambda x: E4M3.round(x.double()), 20).different == 1


# ---- layers ----------------------------------------------------------------------------------------------------------------


def test_a_product_of_factors_as_they_are_is_autograds():
    x, weight, upstream = normal(2, 5, 8).requires_grad_(), normal(2, 3, 8, seed=1).requires_grad_(), normal(2, 5, 3, seed=2)
    own = torch.autograd.grad(RoundedProduct.apply(x, weight, FLOAT32), (x, weight), upstream)
    torch.testing.assert_close(own, torch.autograd.grad(x @ weight.mT, (x, weight), upstream))


@pytest.mark.parametrize("name", ROUNDINGS)
def test_forward_and_backward_multiply_the_rounded_factors(name):
    rounding = ROUNDINGS[name]
    x, weight, upstream = (
        normal(1, 4, 32).requires_grad_(),
        normal(1, 16, 32, seed=1).requires_grad_(),
        normal(1, 4, 16, seed=2),
    )
    y = RoundedProduct.apply(x, weight, rounding)
    dx, dw = torch.autograd.grad(y, (x, weight), upstream)
    a, b, g = rounding.inputs(x.detach()), rounding.weights(weight.detach()), rounding.gradients(upstream)
    torch.testing.assert_close((y, dx, dw), (a @ b.mT, g @ b, g.mT @ a))
    assert not torch.equal(a, x) and not torch.equal(b, weight)
    assert torch.equal(g, upstream) == (name != "FP8")
    assert len(rounding.weights(weight.detach()).unique()) < len(weight.unique())
    assert not rounding.inputs(torch.zeros(1, 4, 32)).any(), "zeros stay zeros"


def test_e5m2_gradients_keep_a_range_of_2_to_the_31():
    gradient = torch.tensor([[1.0, 2.0**-31, 2.0**-33]])  # 57344, 1.75 · 2⁻¹⁶ and 0.44 · 2⁻¹⁶ times the scale
    assert ROUNDINGS["FP8"].gradients(gradient).tolist() == [[1.0, pytest.approx(2 / 1.75 * 2.0**-31), 0.0]]


def test_a_seed_trains_as_it_does_alone():
    data, options = load("digits"), dict(steps=5, batch=16, rate=0.1)
    three = train_layers(data, [ROUNDINGS["FP8"]] * LAYERS, [3, 4, 5], **options)
    alone = train_layers(data, [ROUNDINGS["FP8"]] * LAYERS, [4], **options)
    for many, one in zip(three, alone, strict=True):
        torch.testing.assert_close(many[1:2], one, rtol=0.02, atol=0.02)  # a factor may be rounded to the next number
    assert not torch.equal(three[0][0], three[0][1])


def test_initial_layers_and_accuracy_are_what_they_say():
    layers = initial_layers(0)
    assert [tuple(each.shape) for each in layers[::2]] == [(64, 64)] * 3 + [(10, 64)]
    assert layers[0].std().item() == pytest.approx((2 / 64) ** 0.5, rel=0.05) and not layers[1].any()
    data, parameters = load("digits"), [each[None] for each in layers]
    logits = logits_of(parameters, data.test_x.flatten(1)[None], [FLOAT32] * LAYERS)
    h = data.test_x.flatten(1)
    for index in range(LAYERS):
        h = (h if index == 0 else h.relu()) @ layers[2 * index].T
    torch.testing.assert_close(logits[0], h)
    share = 100 * (h.argmax(1) == data.test_y).double().mean().item()
    assert accuracies(parameters, data, [FLOAT32] * LAYERS) == [pytest.approx(share)]


# ---- the experiment --------------------------------------------------------------------------------------------------------


def test_the_experiment_is_sound(sound, ran):
    result = ran("low-precision-formats")
    sound(result)
    errors = {row.way: row for row in result.rows(StorageError)}
    assert [row.bits for row in errors.values()] == [8, 8, 4.25, 4.5]
    # rounding to steps of 64 σ / 127 is off by a step / √12; e4m3's error does not depend on the size of the largest
    assert errors["int8, one scale"].error_with == pytest.approx(100 * 64 / 127 / math.sqrt(12), rel=0.02)
    assert errors["e4m3, one scale"].error_with == pytest.approx(errors["e4m3, one scale"].error, rel=0.1)
    # an outlier takes its block with it: 1 - 0.999ⁿ of the numbers
    for name, others in (("MXFP4", 31), ("NVFP4", 15)):
        lost = 1 - 0.999**others
        row = errors[name]
        assert row.error_with / 100 == pytest.approx(math.sqrt(lost + (1 - lost) * (row.error / 100) ** 2), rel=0.15)
    assert [row.different for row in result.rows(CastRow)] == [0, 0, 0]
    assert [len(values) for values in result.arrays["numbers"].values()] == [127, 126, 123, 7]
    assert [(row.products, row.where) for row in result.rows(LayerRow)][:2] == [("float32", "all"), ("FP8", "all")]
    assert len(result.rows(LayerRow)) == 2 + 2 * 2
    assert all(row.lowest <= row.accuracy <= row.highest for row in result.rows(LayerRow))


def test_without_a_product_in_fp8_one_note_says_so(monkeypatch, sound):
    def absent(*_, **__):
        raise RuntimeError("no kernel\nfor this device")

    monkeypatch.setattr(torch, "_scaled_mm", absent)
    result = replace(experiment.low_precision_formats, quick=SMALL)("quick", device="cpu")
    sound(result)
    [note] = [note for note in result.notes if "No product in FP8" in note]
    assert note.startswith("No product in FP8 on this cpu: no kernel. ")
    assert not [claim for claim in result.claims if "_scaled_mm" in claim.text]


def test_a_product_that_is_off_exceeds_its_bound(monkeypatch):
    right = torch._scaled_mm
    try:
        share, lost = product_error(torch.device("cpu"))
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"no product in FP8: {error}")
    assert 0 < share <= 1
    # each factor is off by 2.6 % (root mean square of e4m3's rounding), both together by √2 times that
    assert lost == pytest.approx(100 * 0.026 * math.sqrt(2), rel=0.1)
    monkeypatch.setattr(torch, "_scaled_mm", lambda *given, **options: right(*given, **options) * 1.02)
    assert product_error(torch.device("cpu"))[0] > 1


@pytest.mark.cuda
def test_a_gpu_multiplies_e4m3_within_the_bound():
    if torch.cuda.get_device_capability() < (8, 9):
        pytest.skip("needs compute capability 8.9")
    share, _ = product_error(torch.device("cuda"))
    assert 0 < share <= 1
