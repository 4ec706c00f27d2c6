"""Fake quantization of whole nets, cross-layer equalization, torchao's QAT, and the experiment that compares them."""

import copy
import importlib.util
import threading
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize, prune

from hpml_lab import quantization
from hpml_lab.core.experiment import Result
from hpml_lab.core.system.errors import LabError
from hpml_lab.quantization.experiments.static_and_qat import BITS, PTQ, QAT, RoundedNet, judge, some_tests
from hpml_lab.quantization.experiments.static_and_qat.qat_tools import (
    GRAPH,
    LECTURE,
    ShippedNet,
    integer_operators,
    judge_shipped,
    ship_graph,
)
from hpml_lab.quantization.experiments.static_and_qat.scaled_nets import (
    CHANNEL,
    TENSOR,
    ScaledNet,
    equalized_lenet,
    judge_scaled,
    scaled_lenet,
)
from hpml_lab.quantization.lessons.affine import affine_parameters, dequantize, quantize, value_range
from hpml_lab.quantization.lessons.equalization import equalize_layers, equalizing_factors, ranges, scale_channels
from hpml_lab.quantization.lessons.fake_quantized import FOLLOWED, FakeQuantized, calibrate, with_fake_quantization
from hpml_lab.quantization.lessons.lenet import LabeledImages, LeNet
from hpml_lab.quantization.tools.quantizers import INT8, LEGACY

NEEDS_TORCHAO = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")


def images(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def small_net():
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(27, 4)).eval()


# ---- fake quantization ------------------------------------------------------------------------------------------------


def most_values(layer):
    """The largest number of different weights that share a scale."""
    weights = layer.rounded_weight().detach().flatten(int(layer.per_channel)).sort().values
    return int((weights.diff() != 0).sum(-1).max()) + 1


@pytest.mark.parametrize("per_channel", [False, True])
def test_a_layer_computes_with_the_integers_that_it_would_ship(per_channel):
    net, x = small_net(), images(1, 20, 2, 5, 5)
    rounded = calibrate(with_fake_quantization(net, 4, 6, per_channel), x, batch=7)
    layer, axis = rounded[0], 0 if per_channel else None
    assert (layer.low, layer.high) == (x.min(), x.max())
    weight = affine_parameters(*value_range(net[0].weight, axis), bits=4, symmetric=True)
    inputs = affine_parameters(x.min(), x.max(), bits=6, signed=False)
    wanted = F.conv2d(
        dequantize(quantize(x, *inputs), *inputs[:2]),
        dequantize(quantize(net[0].weight, *weight, axis=axis), *weight[:2], axis=axis),
        net[0].bias,
        stride=2,
        padding=1,
    )
    assert torch.equal(layer(x), wanted)
    assert max(most_values(layer) for layer in rounded if isinstance(layer, FakeQuantized)) <= 16
    assert not torch.equal(rounded(x), net(x))


def test_by_default_a_layer_has_8_bits():
    layer, x = nn.Linear(40, 30), images(1, 50, 40)
    made = [FakeQuantized(layer, *bits) for bits in ((), (8, 8))]
    for each in made:
        each(x)
        each.observing = False
    assert torch.equal(*(each.eval()(x) for each in made))


def test_it_is_torchs_fake_quantization_in_values_and_gradients():
    layer, x = nn.Linear(6, 4, bias=False), images(2, 30, 6)
    rounded = calibrate(with_fake_quantization(layer, 3, per_channel=True), x[:10]).train()
    rounded(x).square().sum().backward()
    low, high = x[:10].min(), x[:10].max()
    low, high = low.lerp(x.min(), FOLLOWED), high.lerp(x.max(), FOLLOWED)
    assert (rounded.low, rounded.high) == (low, high), "in training the range follows the batches"
    a, w = affine_parameters(low, high, signed=False), layer.weight.detach().clone().requires_grad_()
    peaks = w.detach().abs().amax(1) / 3.5
    inputs = torch.fake_quantize_per_tensor_affine(x, a[0].item(), int(a[1]), *a[2:])
    weights = torch.fake_quantize_per_channel_affine(w, peaks, torch.zeros(4, dtype=torch.int32), 0, -4, 3)
    (inputs @ weights.T).square().sum().backward()
    torch.testing.assert_close(rounded.layer.weight.grad, w.grad)
    assert layer.weight.grad is None, "it is a copy"


def test_observing_is_float_and_evaluation_is_frozen():
    net, x = small_net(), images(3, 12, 2, 5, 5)
    rounded = with_fake_quantization(net, 2)
    assert torch.equal(rounded.eval()(x), net(x)), "while it observes it computes in float"
    calibrate(rounded, x)
    kept = copy.deepcopy(rounded.state_dict())
    rounded(10 * x)
    assert all(torch.equal(a, b) for a, b in zip(rounded.state_dict().values(), kept.values(), strict=True))
    assert "weights 2 bits per tensor, inputs 8 bits" in repr(rounded)


def test_a_shared_layer_stays_one_layer_and_a_channel_of_zeros_is_no_obstacle():
    layer = nn.Linear(3, 3)
    nn.init.zeros_(layer.weight[1])
    rounded = with_fake_quantization(nn.ModuleDict({"a": layer, "b": nn.Sequential(layer, layer)}), per_channel=True)
    assert rounded["a"] is rounded["b"][0] is rounded["b"][1] and isinstance(rounded["a"], FakeQuantized)
    calibrate(net := rounded["a"], torch.zeros(4, 3))
    assert torch.equal(net(torch.zeros(2, 3)), layer.bias.expand(2, 3))


@pytest.mark.parametrize(
    "work, message",
    [
        (lambda: with_fake_quantization(nn.ReLU()), "no layer that can be quantized"),
        (lambda: with_fake_quantization(nn.Sequential(nn.ConvTranspose2d(1, 1, 2))), "no layer that can be quantized"),
        (lambda: with_fake_quantization(with_fake_quantization(small_net())), "Sequential already computes with fake"),
        (lambda: with_fake_quantization(small_net(), 1), "weight_bits is 1"),
        (lambda: with_fake_quantization(small_net(), 4, 2.5), "input_bits is 2.5"),
        (lambda: calibrate(small_net(), torch.zeros(1, 2, 5, 5)), "no FakeQuantized layer"),
        (lambda: calibrate(with_fake_quantization(small_net()), torch.zeros(0, 2, 5, 5)), "no images"),
        (lambda: calibrate(with_fake_quantization(small_net()), torch.full((1, 2, 5, 5), torch.nan)), "NaN or infinity"),
        (lambda: calibrate(with_fake_quantization(small_net()), torch.full((1, 2, 5, 5), torch.inf)), "NaN or infinity"),
        (lambda: unobserved()(torch.zeros(1, 2, 5, 5)), "has not seen any input"),
        (lambda: equalize_layers([nn.Linear(2, 2)]), "at least two layers"),
        (lambda: scale_channels(nn.Linear(2, 3), nn.Linear(2, 3), torch.ones(3)), "3 outputs is not followed by one with 2"),
        (lambda: scale_channels(nn.Linear(2, 3), nn.Linear(9, 1), torch.ones(3)), "not followed by one with 9"),
        (lambda: scale_channels(nn.Linear(2, 3), nn.Linear(3, 1), torch.tensor([1.0, 0, 1])), "positive, finite factors"),
        (lambda: scale_channels(nn.Linear(2, 3), nn.Linear(3, 1), torch.ones(2)), "one for each channel"),
        (lambda: equalize_layers([nn.Conv2d(2, 2, 1, groups=2), nn.Conv2d(2, 2, 1)]), "without groups"),
        (lambda: equalize_layers([nn.Linear(2, 2), nn.ReLU()]), "cannot be equalized"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(work, message):
    with pytest.raises(LabError, match=message):
        work()


def unobserved():
    net = with_fake_quantization(small_net())
    net[0].observing = False
    return net


# ---- equalization -----------------------------------------------------------------------------------------------------


def test_equalized_layers_compute_the_same_and_have_equal_ranges():
    net = LeNet().double().eval()
    x = images(4, 5, 1, 28, 28).double()
    right, layers = net(x), [net.conv1, net.conv2, net.fc1, net.fc2, net.fc3]
    scale_channels(net.conv2, net.fc1, torch.rand(16) + 0.1)
    equalize_layers(layers)
    torch.testing.assert_close(net(x), right, rtol=1e-11, atol=1e-12)
    for first, second in zip(layers, layers[1:], strict=False):
        r1, r2 = ranges(first, second)
        torch.testing.assert_close(r1, r2, rtol=0.03, atol=0)


def test_equalization_undoes_scaling_bit_for_bit_where_the_factors_are_powers_of_two():
    plain, scaled = (nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)) for _ in range(2))
    scaled.load_state_dict(plain.state_dict())
    scale_channels(scaled[0], scaled[2], torch.tensor([0.25, 64, 1, 2, 0.5]))
    for net in (plain, scaled):
        scale_channels(net[0], net[2], equalizing_factors(net[0], net[2]))
    assert all(torch.equal(a, b) for a, b in zip(plain.parameters(), scaled.parameters(), strict=True))


def test_a_channel_without_weights_keeps_its_factor():
    first, second = nn.Linear(2, 3), nn.Linear(3, 2)
    nn.init.zeros_(first.weight[0])
    nn.init.zeros_(second.weight[:, 2])
    for powers in (False, True):
        factors = equalizing_factors(first, second, powers)
        assert factors[0] == factors[2] == 1 and factors.isfinite().all()
        assert (factors[1].log2() % 1 == 0) == powers


def test_scaled_and_equalized_lenets_are_bitwise_the_same_function():
    net, x = LeNet().eval(), images(5, 9, 1, 28, 28)
    scaled = scaled_lenet(net)
    again = equalized_lenet(scaled, powers_of_two=True)
    assert torch.equal(scaled(x), net(x)) and torch.equal(again(x), net(x))
    assert not torch.equal(scaled.fc1.weight, net.fc1.weight) and not torch.equal(again.fc1.weight, scaled.fc1.weight)


# ---- the experiment ---------------------------------------------------------------------------------------------------

SIZE = dict(
    images=100,
    steps=1,
    seeds=1,
    tests=100,
    trained=((2, TENSOR), (4, CHANNEL), (2, CHANNEL)),
    more_steps=1,
    batch=16,
    lr=1e-3,
    ao_bits=(4, 2),
    compile=True,
)


TOOLS = "hpml_lab.quantization.experiments.static_and_qat.qat_tools"


def no_compiler(net, x):
    raise LabError("torch.compile finds no compiler here.", "Install one.")


@pytest.fixture(scope="module")
def result(ran):
    return ran("static-and-qat")


@pytest.fixture(scope="module")
def shipped(on_digits):
    """Barely trained, by all tools, without a compiler."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{TOOLS}.compiled_for", no_compiler)
        return on_digits("static-and-qat", **SIZE)


def test_exact_claims_hold_and_the_figures_are_drawn(result, sound):
    sound(result)
    assert quantization.channel_ranges(result).figure.axes


def test_the_rows_compare_seed_by_seed(result):
    base, *rows = result.rows(RoundedNet)
    assert [(row.bits, row.scales) for row in rows] == [(bits, scales) for bits in BITS for scales in (TENSOR, CHANNEL)]
    assert {row.bits for row in rows if QAT in row.by_seed} == {4, 2} and base.bits == 32
    assert all(len(values) == 3 for row in [base, *rows] for values in row.by_seed.values())
    row = next(row for row in rows if (row.bits, row.scales) == (2, CHANNEL))
    least, median, most = sorted(a - b for a, b in zip(row.by_seed[QAT], base.by_seed[QAT], strict=True))
    assert row.over_control == f"{median:+.1f} ({least:+.1f} to {most:+.1f})"
    plain, scaled, _ = result.rows(ScaledNet)
    assert plain.by_seed[TENSOR] == rows[0].by_seed[PTQ] and scaled.ratio > 100 * plain.ratio / 4


@NEEDS_TORCHAO
def test_torchao_ships_what_was_trained(shipped):
    rows = shipped.rows(ShippedNet)
    assert [row.weights for row in rows] == [LECTURE, "int4", "int2", GRAPH]
    assert all(row.trained == row.converted and (row.linear, row.other) == (3, 0) for row in rows[1:3])
    assert all((row.linear, row.other) == (3, 2) for row in (rows[0], rows[3])), "the convolutions, too"
    assert [row.run_by for row in rows[1:]] == ["none", "none", "not compiled"], "they compute in float"
    assert shipped.notes[0] == "PT2E's net was not compiled: torch.compile finds no compiler here. Install one."
    assert "digits stand in" in shipped.notes[-1]


def test_the_lectures_lines_end_in_integer_kernels(shipped):
    row = shipped.rows(ShippedNet)[0]
    assert (row.run_by, row.integers) == ("2 quantized::conv2d, 3 quantized::linear", 5)
    assert row.difference < 5, "the integers stay near what was trained"


def trained_on_one_batch(net):
    """What training leaves that the conversion needs: ranges."""
    net(images(6, 8, 1, 28, 28))
    return net.eval()


@pytest.mark.environment(
    "a C++ compiler", files=("hpml_lab/quantization/experiments/static_and_qat", "hpml_lab/core/timing/compilation.py")
)
@NEEDS_TORCHAO
def test_a_compiled_graph_runs_all_layers_by_integer_operators():
    notes, x = [], images(6, 8, 1, 28, 28)
    row = ship_graph(LeNet().eval(), trained_on_one_batch, lambda net: 0.0, x, notes, compile=True)
    assert (row.integers, notes) == (5, []) and "onednn::qconv_pointwise" in row.run_by


@NEEDS_TORCHAO
def test_what_is_not_compiled_at_quick_is_no_part_of_the_claim_and_a_note_says_so():
    notes, result, whole = [], Result(), ShippedNet(LECTURE, 90, 91, 91, 0.1, 3, 2, "5", 5)
    row = ship_graph(LeNet().eval(), trained_on_one_batch, lambda net: 0.0, images(6, 8, 1, 28, 28), notes, compile=False)
    assert (row.run_by, row.integers, row.linear, row.other) == ("not compiled", 0, 3, 2)
    assert len(notes) == 1 and "`--size full` does" in notes[0]
    judge_shipped(result, [whole, row])
    assert [claim.holds for claim in result.claims] == [True] and "PT2E" not in result.claims[0].text


def test_a_float_net_runs_no_integer_operator():
    assert integer_operators(small_net(), images(7, 2, 2, 5, 5)) == ("none", 0)


def test_each_claim_about_what_is_shipped_can_fail():
    whole = ShippedNet(LECTURE, 90, 91, 91, 0.1, 3, 2, "5", 5)
    rows = [whole, ShippedNet("int4", 90, 91, 91, 0, 3, 0), replace(whole, weights=GRAPH)]

    def failing(number, **changes):
        result = Result()
        judge_shipped(result, [replace(row, **changes) if i == number else row for i, row in enumerate(rows)])
        return [claim.text[:10] for claim in result.claims if not claim.holds]

    assert failing(0) == [] and failing(0, converted=90) == []
    assert failing(1, converted=90) == ["torchao's "] and failing(2, integers=4) == failing(0, integers=3) == ["After QAT "]


def test_without_torchao_the_rest_is_complete(on_digits, monkeypatch):
    def absent(part="quantization"):
        raise LabError("torchao is not installed in this Python.", "pip install torchao")

    monkeypatch.setattr(f"{TOOLS}.torchao", absent)
    found = on_digits("static-and-qat", **SIZE)
    assert found and [row.weights for row in found.rows(ShippedNet)] == [LECTURE] and len(found.rows(RoundedNet)) == 9
    assert found.notes[0].startswith("torchao is not installed in this Python. pip install torchao")


def judged(floats=None, **changes):
    """Which claims fail where none would, with two of three seeds of one setting changed, such as QAT_2_channel=80."""
    accuracies = {(8, PTQ): 95.0, (4, PTQ): 94, (4, QAT): 96, (2, PTQ): 80, (2, QAT): 94}
    found = {(bits, scales): {} for bits in (8, 4, 2) for scales in (TENSOR, CHANNEL)}
    for (bits, kind), value in accuracies.items():
        for scales in (TENSOR, CHANNEL):
            found[bits, scales][kind] = [value] * 3
    for name, value in changes.items():
        kind, bits, scales = name.split("_")
        values = found[int(bits), f"per {scales}"]
        values[kind] = [value, value, *values[kind][2:]]
    result = Result()
    judge(result, floats or {PTQ: [95.0] * 3, QAT: [96.0] * 3}, found)
    return [number for number, claim in enumerate(result.claims) if not claim.holds]


@pytest.mark.parametrize(
    "change, fail",
    [({}, []), ({"PTQ_2_tensor": 94}, [0]), ({"QAT_2_tensor": 85}, [0]), ({"QAT_2_channel": 87}, [0]),
     ({"QAT_4_channel": 96.6}, [1])],
)  # fmt: skip
def test_most_seeds_make_a_claim_fail(change, fail):
    assert judged(**change) == fail


def test_a_control_that_does_not_gain_is_reported():
    assert judged({PTQ: [95.0] * 3, QAT: [94.0, 95, 95]}) == [1]


@pytest.mark.parametrize("which", [(0, TENSOR), (1, TENSOR), (1, CHANNEL), (2, TENSOR), None])
def test_most_seeds_make_the_claim_about_the_scaled_nets_fail(which):
    rows = [
        ScaledNet(str(k), "", "", 1.0, {TENSOR: [a] * 3, CHANNEL: [b] * 3})
        for k, (a, b) in enumerate(((95, 95), (80, 90), (95, 95)))
    ]
    if which is not None:
        number, scales = which
        value = {(0, TENSOR): 81, (1, TENSOR): 94.5, (1, CHANNEL): 79, (2, TENSOR): 94}[which]
        rows[number].by_seed[scales][:2] = [value, value]
    result = Result()
    judge_scaled(result, rows)
    assert [claim.holds for claim in result.claims] == [which is None]


def test_the_test_images_come_from_all_parts_of_the_set():
    y = torch.arange(10)
    data = LabeledImages("x", torch.zeros(1, 1), torch.zeros(1), y[:, None], y)
    assert some_tests(data, 5).test_y.tolist() == [0, 2, 4, 6, 8] and len(some_tests(data, 100).test_y) == 10


def test_a_calibrated_net_is_one_again_when_it_is_loaded():
    net, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), torch.randn(64, 4)
    saved = calibrate(with_fake_quantization(net, weight_bits=3, per_channel=True), x)
    loaded = with_fake_quantization(net, weight_bits=3, per_channel=True).eval()
    loaded.load_state_dict(saved.state_dict())
    assert torch.equal(loaded(x), saved(x)) and not torch.equal(loaded(x), net(x))
    before = copy.deepcopy(loaded.state_dict())
    loaded(100 * x)
    assert all(torch.equal(value, before[name]) for name, value in loaded.state_dict().items())
    watching = with_fake_quantization(net)
    loaded.load_state_dict(watching.state_dict())
    assert all(layer.observing for layer in loaded.modules() if isinstance(layer, FakeQuantized))


def without_parametrization(layer):
    return parametrize.remove_parametrizations(layer, "weight")


COMPUTED_WEIGHTS = {
    "masks": (lambda layer: prune.l1_unstructured(layer, "weight", 0.5), lambda layer: prune.remove(layer, "weight")),
    "the hook of weight_norm": (nn.utils.weight_norm, nn.utils.remove_weight_norm),
    "the hook of spectral_norm": (nn.utils.spectral_norm, nn.utils.remove_spectral_norm),
    "weight_norm": (parametrizations.weight_norm, without_parametrization),
    "spectral_norm": (parametrizations.spectral_norm, without_parametrization),
    "orthogonal": (parametrizations.orthogonal, without_parametrization),
}


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("how", COMPUTED_WEIGHTS)
def test_a_net_whose_weights_are_computed_is_refused_until_they_are_permanent(how):
    """Rounded weights in their place would be computed anew, or be rounded before the computation."""
    compute, undo = COMPUTED_WEIGHTS[how]
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    compute(net[2])
    x = torch.randn(64, 4)
    net(x)
    tools = {"fake": with_fake_quantization, LEGACY: lambda net: quantization.quantized(net, LEGACY)}
    if importlib.util.find_spec("torchao"):
        tools[INT8] = lambda net: quantization.quantized(net, INT8)
    for tool in tools.values():
        with pytest.raises(LabError, match=r"weight of 2, a (Parametrized)?Linear, is computed from other tensors") as raised:
            tool(net)
        undoing = ("parametrize.remove_parametrizations", "remove_weight_norm", "remove_spectral_norm", "prune.remove")
        assert all(f"{name}(layer" in raised.value.fix for name in undoing)
    net.eval()
    before = net(x)
    undo(net[2])
    torch.testing.assert_close(net(x), before)
    rounded = calibrate(tools["fake"](net), x).train()
    rounded(x).sum().backward()
    layer = rounded[2]
    seen = F.linear(layer.rounded_input(rounded[1](rounded[0](x))), layer.rounded_weight(), layer.layer.bias)
    torch.testing.assert_close(layer.eval()(rounded[1](rounded[0](x))), seen)
    assert net[2].weight.grad is None and layer.layer.weight.grad.any()
    assert all(tool(net) is not net for tool in tools.values())


def test_a_weight_that_a_layer_of_a_readers_class_computes_is_refused():
    class Tied(nn.Linear):
        """Its weight is that of another layer, as a decoder's that of an embedding."""

        def __init__(self, other):
            super().__init__(4, 4)
            del self.weight
            self.others = [other]

        @property
        def weight(self):
            return self.others[0].weight

    class Scaled(nn.Linear):
        """It only has a tensor whose name begins like that of a weight."""

        def __init__(self):
            super().__init__(4, 4)
            self.weight_gain = torch.tensor(2.0)

    with pytest.raises(LabError, match="weight of 1, a Tied, is computed"):
        with_fake_quantization(nn.Sequential(first := nn.Linear(4, 4), Tied(first)))
    assert isinstance(with_fake_quantization(Scaled()), FakeQuantized)


@pytest.mark.parametrize("held", [threading.Lock(), (i for i in range(3)), torch], ids=["lock", "generator", "module"])
def test_a_net_with_something_that_cannot_be_copied_is_refused_in_words(held):
    net = nn.Sequential(nn.Linear(4, 8))
    net[0].held = held
    for tool in (with_fake_quantization, lambda net: quantization.quantized(net, LEGACY)):
        with pytest.raises(LabError, match="this Sequential cannot be copied: cannot pickle '.*' object. Keep such an object"):
            tool(net)


class OwnLinear(nn.Linear):
    """A layer of a reader's class, which the mapping by types does not name."""


@pytest.mark.parametrize(
    ("net", "problem"),
    [
        (nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU()), "quantized nothing"),
        (nn.MultiheadAttention(16, 2), "quantized nothing"),
        (nn.Sequential(OwnLinear(8, 8), nn.Linear(8, 8)), "left 0, a OwnLinear"),
    ],
    ids=["convolutions", "attention", "a class of one's own"],
)
def test_a_net_of_which_nothing_or_not_all_is_quantized_is_an_error(net, problem):
    with pytest.raises(LabError, match=problem):
        quantization.quantized(net, LEGACY)


def test_a_block_that_is_used_several_times_stays_one_block():
    block = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    rounded = with_fake_quantization(nn.ModuleList([block, block, nn.Sequential(block)]))
    assert rounded[0] is rounded[1] is rounded[2][0] and isinstance(rounded[0][0], FakeQuantized)
    assert sum(isinstance(layer, FakeQuantized) for layer in rounded.modules()) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_a_net_of_another_number_format_trains_rounded(dtype):
    net, x = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)).to(dtype), torch.rand(8, 6, dtype=dtype)
    rounded = calibrate(with_fake_quantization(net), x).train()
    rounded(x).sum().backward()
    assert rounded[0].layer.weight.grad.isfinite().all()


def test_a_float_net_trains_rounded_under_autocast():
    net, x = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 2)), torch.rand(8, 6)
    rounded = calibrate(with_fake_quantization(net), x).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded(x).sum().backward()
    assert rounded[2].high.dtype == torch.float32 and rounded[0].layer.weight.grad.any()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_batch_without_a_range_leaves_the_recorded_one(bad):
    rounded = calibrate(with_fake_quantization(small_net()), images(3, 12, 2, 5, 5)).train()
    before = copy.deepcopy(rounded.state_dict())
    with pytest.raises(LabError, match="NaN or infinity"):
        rounded(torch.full((1, 2, 5, 5), bad))
    assert all(torch.equal(a, b) for a, b in zip(rounded.state_dict().values(), before.values(), strict=True))


def test_who_calibrates_again_begins_anew():
    x = images(3, 12, 2, 5, 5)
    once = calibrate(with_fake_quantization(net := small_net()), x)
    again = with_fake_quantization(net)
    again(100 * x)  # does it run?
    calibrate(calibrate(again, 10 * x), x)
    assert all(torch.equal(a, b) for a, b in zip(once.state_dict().values(), again.state_dict().values(), strict=True))


def test_attentions_own_layer_is_left_alone_and_an_encoder_layer_is_refused():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.out = nn.MultiheadAttention(8, 2, batch_first=True), nn.Linear(8, 8)

        def forward(self, x):
            return self.out(self.attention(x, x, x)[0])

    x = torch.rand(4, 3, 8)
    rounded = calibrate(with_fake_quantization(Block()), x)
    assert isinstance(rounded.out, FakeQuantized) and not isinstance(rounded.attention.out_proj, FakeQuantized)
    assert rounded(x).isfinite().all()
    with pytest.raises(LabError, match="TransformerEncoderLayer does not call its layers"):
        with_fake_quantization(nn.TransformerEncoderLayer(8, 2, 16))
