"""Sizes in bytes and bits, ready-made quantization, and the experiment dynamic-quantization."""

import importlib.util
import io
import sys
import warnings
from dataclasses import replace

import pytest
import torch
from torch import nn

from hpml_lab import quantization
from hpml_lab.core.experiment import Params, Result
from hpml_lab.core.experiment.registry import find, load_result
from hpml_lab.core.judge.exercises import check
from hpml_lab.core.system.device import Device
from hpml_lab.core.system.errors import LabError
from hpml_lab.quantization.experiments.affine_quantization.agreement import compare_torchao
from hpml_lab.quantization.experiments.dynamic_quantization import mlp, torch_encoder, transformer
from hpml_lab.quantization.experiments.dynamic_quantization.claims import JudgedPlace, judge_reach, judge_times, judge_torchao
from hpml_lab.quantization.experiments.dynamic_quantization.forward_times import TimedPlace, model_times
from hpml_lab.quantization.experiments.dynamic_quantization.rows import (
    ChangedModel,
    LayerCost,
    LeNetAccuracy,
    RefusedModel,
    SeenWarning,
    TimedForward,
    every_warning,
    first_sentence,
    lectures_lines,
    outcome_of,
    runs_on,
)
from hpml_lab.quantization.tools.quantizers import (
    BF16,
    CONVOLUTIONS,
    FORMATS,
    FP16,
    FP32,
    INT4,
    INT8,
    LEGACY,
    WEIGHT_ONLY,
    converted,
    legacy_dynamic,
    quantized,
    quantized_modules,
)
from hpml_lab.quantization.tools.sizes import sizes

SMALL = dict(samples=3, mlp=64, transformer=64, train_images=256, steps=2, test_images=200) | dict(
    widths=(32, 64), batches=(1, 4), gpu_widths=(64,), gpu_batches=(1,)
)
needs_torchao = pytest.mark.skipif(importlib.util.find_spec("torchao") is None, reason="torchao is not installed")


@pytest.fixture
def no_torchao(monkeypatch):
    """Imports fail as they do where torchao is not installed."""
    for name in [name for name in sys.modules if name.split(".")[0] == "torchao"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchao", None)


# ---- sizes -----------------------------------------------------------------------------------------------------------


def test_a_float_model_takes_what_its_parameters_and_its_file_take():
    net, file = nn.Linear(10, 5), io.BytesIO()
    torch.save(net.state_dict(), file)
    found = sizes(net)
    assert (found.file_bytes, found.tensor_bytes, found.value_bits) == (file.tell(), 4 * 55, 32 * 55)
    assert sizes(net.state_dict()) == found


def test_shared_memory_counts_once_and_parts_of_it_separately():
    w = torch.randn(4, 4)
    assert sizes({"a": w, "b": w}).tensor_bytes == 64
    assert sizes({"a": w[:2], "b": w[2:]}).tensor_bytes == 64
    assert sizes({"a": w, "b": w.clone()}).tensor_bytes == 128


@pytest.mark.parametrize(
    "tensor, stored, bits",
    [
        (torch.ones(8, dtype=torch.bool), 8, 8),
        (torch.ones(8, dtype=torch.bfloat16), 16, 128),
        (torch.eye(8).to_sparse(), 8 * (2 * 8 + 4), 8 * 8 * (2 * 8 + 4)),
        (torch.eye(8).to_sparse_csr(), 9 * 8 + 8 * 12, 8 * (9 * 8 + 8 * 12)),
        (torch.eye(8).to_sparse_bsr((4, 4)), 3 * 8 + 2 * 8 + 2 * 64, 8 * (3 * 8 + 2 * 8 + 2 * 64)),
        (torch.empty(8, device="meta"), 32, 256),
    ],
    ids=["bool", "bfloat16", "coo", "csr", "bsr", "meta"],
)
def test_other_types_and_layouts(tensor, stored, bits):
    found = sizes({"x": tensor, "step": 3, "name": "x", "nothing": None})
    assert (found.tensor_bytes, found.value_bits) == (stored, bits)


def test_torchs_own_quantized_tensors_have_scales_and_zero_points():
    with every_warning():
        whole = torch.quantize_per_tensor(torch.randn(6, 4), 0.1, 0, torch.qint8)
        rows = torch.quantize_per_channel(torch.randn(6, 4), torch.ones(6), torch.zeros(6, dtype=torch.int64), 0, torch.qint8)
    assert sizes({"w": whole}).tensor_bytes == 24 + 16
    assert sizes({"w": rows}).tensor_bytes == 24 + 6 * 16


def test_the_packed_weights_of_an_lstm_are_counted():
    with every_warning():
        small = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTM(8, 8)), {nn.LSTM}, dtype=torch.qint8)
    weights, biases = 2 * 4 * 8 * 8, 2 * 4 * 8 * 4
    assert weights + biases <= sizes(small).tensor_bytes <= weights + biases + 64


@needs_torchao
def test_four_bits_are_counted_as_four_where_they_are_stored_in_eight():
    found = sizes(quantized(nn.Sequential(nn.Linear(64, 16, bias=False)), INT4))
    groups = 64 * 16 // 32
    assert found.tensor_bytes == 64 * 16 + groups * (4 + 1)  # a float scale and a zero point for each group
    assert found.value_bits == 4 * 64 * 16 + groups * (32 + 4)


# ---- ready-made quantization ------------------------------------------------------------------------------------------


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.body = nn.Conv2d(1, 4, 3), nn.Sequential(nn.Linear(64, 64), nn.ReLU())
        self.head = nn.Linear(64, 8)


@pytest.mark.parametrize("name", [LEGACY, *(pytest.param(name, marks=needs_torchao) for name in (INT8, WEIGHT_ONLY, INT4))])
def test_linear_layers_are_changed_in_a_copy_and_no_others(name):
    net = Mixed()
    before = sizes(net)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small = quantized(net, name)
    assert list(quantized_modules(small)) == ["body.0", "head"] and quantized_modules(net) == {}
    assert sizes(net) == before and sizes(small).tensor_bytes < 0.4 * before.tensor_bytes
    x = torch.randn(3, 64)
    with torch.no_grad():
        right = net.body(x)
        assert 0 < (small.body(x) - right).norm() / right.norm() < 0.3


def test_a_tensor_that_only_looks_at_activations_is_not_listed():
    with every_warning():
        net = nn.Sequential(torch.ao.nn.quantized.Quantize(0.1, 0, torch.quint8), torch.ao.nn.quantized.Linear(4, 4))
        assert list(quantized_modules(net)) == ["1"]


@pytest.mark.parametrize(
    "kinds, model, message",
    [
        ({nn.Conv2d, nn.Linear}, Mixed(), r"left conv, a Conv2d, as it was\. By default it quantizes no Conv2d"),
        ({nn.Conv2d}, quantization.LeNet(), "left conv1, a Conv2d, as it was, and 1 more layers"),
        ({nn.Linear}, nn.Linear(4, 4), r"left the model itself, a Linear, as it was\. It replaces .* nn\.Sequential\(layer\)"),
    ],
)
def test_what_the_tool_silently_leaves_as_it_was_is_an_error(kinds, model, message):
    with pytest.raises(LabError, match=message):
        quantized(model, LEGACY, kinds)


def test_a_layer_that_the_lectures_call_refuses_is_an_error():
    with pytest.raises(LabError, match="legacy int8 dynamic refuses this model: AssertionError: .*ParametrizedLinear"):
        layer = nn.Linear(4, 4)
        nn.utils.parametrize.register_parametrization(layer, "bias", nn.Identity())
        quantized(nn.Sequential(layer), LEGACY)


def test_the_computed_weight_of_a_recurrent_layer_is_refused_by_its_name():
    net = nn.Sequential(nn.utils.spectral_norm(nn.LSTM(4, 4), "weight_hh_l0"))
    with pytest.raises(LabError, match="weight_hh_l0 of 0, a LSTM, is computed from other tensors"):
        quantized(net, LEGACY, {nn.LSTM})


def test_a_layer_that_is_used_twice_stays_one_layer():
    """Of two places in one Sequential torch quantizes the first; in two blocks it makes two layers of one."""
    layer, x = nn.Linear(4, 4), torch.randn(8, 4)
    net = nn.Sequential(layer, nn.ReLU(), layer, nn.Sequential(layer))
    small = quantized(net, LEGACY)
    assert small[0] is small[2] is small[3][0] and list(quantized_modules(small)) == ["0"]
    assert torch.equal(small(x), small[0](small[0](small[0](x).relu())))
    assert net[0] is net[2] is net[3][0] is layer and isinstance(layer, nn.Linear)


@needs_torchao
def test_torchao_refuses_or_leaves_what_it_cannot_do():
    with pytest.raises(LabError, match="left conv, a Conv2d, as it was"):
        quantized(Mixed(), INT8, {nn.Conv2d})
    with pytest.raises(LabError, match="torchao 4-bit refuses this model: .* 400 to be divisible by block_size"):
        quantized(quantization.LeNet(), INT4)


def test_an_unknown_format_is_an_error_that_lists_the_known_ones():
    with pytest.raises(LabError, match="'int8' is not a known format. Take one of legacy int8 dynamic, torchao int8 dynamic"):
        quantized(Mixed(), "int8")


def test_without_torchao_its_formats_say_what_to_install(no_torchao):
    with pytest.raises(LabError, match="torchao is not installed in this Python. pip install torchao"):
        quantized(Mixed(), INT8)
    assert list(quantized_modules(quantized(Mixed(), LEGACY))) == ["body.0", "head"]


def test_a_torch_without_the_legacy_call_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.ao.quantization", None)
    with pytest.raises(LabError, match="has no torch.ao.quantization any more. Use 'torchao int8 dynamic'"):
        quantized(Mixed(), LEGACY)


@needs_torchao
def test_inductors_settings_stay_as_they_were():
    import torch._inductor.config as config

    # Another test may have let torchao set them. pytest's monkeypatch would delete them at its end: torch's own patch.
    with config.patch(coordinate_descent_tuning=False, force_fuse_int_mm_with_mul=False):
        for name in (INT8, WEIGHT_ONLY):
            converted(Mixed(), name)
        assert compare_torchao()
        assert (config.coordinate_descent_tuning, config.force_fuse_int_mm_with_mul) == (False, False)


def test_the_transformer_is_torchs_with_ordinary_layers():
    torch.manual_seed(0)
    ours, theirs = transformer(16, blocks=1), torch_encoder(16, blocks=1)
    block, layer = ours[0], theirs.layers[0]
    layer.activation, layer.activation_relu_or_gelu = nn.functional.gelu, 2
    with torch.no_grad():
        layer.self_attn.in_proj_weight.copy_(block.qkv.weight), layer.self_attn.in_proj_bias.copy_(block.qkv.bias)
    for own, other in ((layer.self_attn.out_proj, block.out), (layer.linear1, block.up), (layer.linear2, block.down)):
        own.load_state_dict(other.state_dict())
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-5)


# ---- the experiment -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result(ran):
    return ran("dynamic-quantization")


@needs_torchao
def test_the_exact_claims_hold_and_the_result_is_read_again(result, tmp_path):
    assert result, [claim for claim in result.claims if claim.exact and not claim.holds]
    assert sum(claim.exact for claim in result.claims) == 2
    again = load_result(result.save(tmp_path))
    assert again.rows(ChangedModel) == result.rows(ChangedModel) and again.figure() is not None


def test_which_layers_change(result):
    rows = {(row.model, row.format): row for row in result.rows(ChangedModel)}
    call = rows["ResNet-18", LEGACY]
    assert (call.linear, call.convolutions, call.changed, call.first) == (1, 20, 1, "fc")
    assert call.before - call.after == 3 * 512_000 - 28  # scale and zero point of the weight, and of the output
    lenet, encoder = rows["LeNet", LEGACY], rows["nn.TransformerEncoder", LEGACY]
    assert (lenet.linear, lenet.convolutions, lenet.changed) == (3, 2, 3)
    assert (encoder.linear, encoder.changed) == (6, 4)


def test_the_call_saves_three_bytes_for_each_weight_that_it_reaches(result):
    call = result.rows(ChangedModel)[0]
    assert 0 <= 3 * 1000 * 512 - (call.before - call.after) <= 64 and round(call.difference, 1) == -3.3
    suited = [row for row in result.rows(ChangedModel) if row.format == LEGACY and row.model in ("MLP", "Transformer")]
    assert all(row.changed == row.linear for row in suited) and len(suited) == 2


@needs_torchao
def test_what_a_layer_of_torchaos_stores_and_calls(result):
    cost = {row.format: row for row in result.rows(LayerCost)}
    assert cost[INT4].stored >= cost[INT8].stored and cost[INT4].needed < 0.7 * cost[INT8].needed
    assert cost[WEIGHT_ONLY].copies >= 1 and cost[LEGACY].copies == 0, "weight-only makes a float copy at each call"
    assert cost[INT8].operators >= 10 and cost[LEGACY].operators == 1
    reached = {(row.model, row.format): row.first for row in result.rows(ChangedModel)}
    assert reached["ResNet-18", INT8] == "fc"


def test_what_runs_is_timed_in_turns_and_what_does_not_says_why(result):
    timed = result.rows(TimedForward)
    assert {(row.width, row.batch) for row in timed} == {(0, 1), (0, 16), *((w, b) for w in (256, 1024) for b in (1, 256))}
    assert {row.where for row in timed} == {"on the CPU"}
    assert all((row.gain is None) == (row.format in (FP32, FP32 + ", compiled")) for row in timed)
    assert all(row.low <= row.gain <= row.high and row.noise >= 0 for row in timed if row.gain)
    said = {row.what: row.outcome for row in result.rows(RefusedModel)}
    assert said["torch.gint8"] == "AttributeError: module 'torch' has no attribute 'gint8'"
    assert not any(row.what.startswith(LEGACY + " on") for row in result.rows(RefusedModel))


def test_accuracies_and_costs(result, int8_saturates):
    accuracies, costs = result.rows(LeNetAccuracy), {row.format: row for row in result.rows(LayerCost)}
    assert accuracies[0].format == FP32 and accuracies[0].same == accuracies[0].images
    assert accuracies[0].images in (497, 4000), "all test images of digits, or those of MNIST that were asked for"
    assert int8_saturates or all(row.same >= 0.9 * row.images for row in accuracies)
    assert costs[FP32].stored == costs[FP32].needed == 32 and costs[BF16].needed == 16
    assert costs[FP32].error == 0 < costs[LEGACY].error < 0.05


def test_the_warnings_are_those_of_today_whatever_ran_before(result):
    again = lectures_lines()[2]
    assert again == result.rows(SeenWarning)
    assert any(row.package.startswith("torchvision") and "'pretrained' is deprecated" in row.text for row in again)


class SaidToBeT4(Device):
    """16 bits are fp16; the work is a processor's."""

    is_cuda = True


@needs_torchao
def test_on_a_gpu_the_lectures_layers_are_timed_on_the_cpu_too_and_torchaos_compiled(monkeypatch, without_mnist, result):
    monkeypatch.setattr(torch, "compile", lambda net, **options: net)
    device = SaidToBeT4(torch.device("cpu"), "", torch.float16, "")
    same_layers = {name: find("dynamic-quantization").quick[name] for name in ("widths", "batches")}
    gpu = find("dynamic-quantization").function(Params(size="quick", device=device, **SMALL | same_layers))
    assert gpu and [claim.text for claim in gpu.claims if claim.exact] == [claim.text for claim in result.claims if claim.exact]
    cpu, there = ([row for row in gpu.rows(TimedForward) if row.where == f"on the {name}"] for name in ("CPU", "GPU"))
    assert [(row.model, row.batch, row.format) for row in cpu] == [
        (row.model, row.batch, row.format) for row in result.rows(TimedForward)
    ]
    assert {figure.label for figure in result.key_figures} <= {figure.label for figure in gpu.key_figures}
    assert any(f"batch 1, {LEGACY}" in figure.label for figure in gpu.key_figures)
    bases = {(row.model, row.width): row.format for row in there if row.gain is None}
    assert bases == {("Linear 64", 64): FP16, ("MLP", 0): f"{FP16}, compiled", ("Transformer", 0): f"{FP16}, compiled"}
    assert {row.format for row in there if row.model == "MLP"} >= {FP16, f"{INT8}, compiled", INT8, WEIGHT_ONLY}
    assert gpu.here(f"MLP on the GPU, {INT8} and {FP16}, both compiled").startswith(
        f"{next(row.gain for row in there if row.format == f'{INT8}, compiled'):.3g}×"
    )
    gpu.experiment, gpu.slug = result.experiment, result.slug
    assert [axes.get_title() for axes in gpu.figure().axes[1:]] == [
        "One Linear layer on the CPU",
        "One Linear layer on the GPU",
    ]


def test_on_a_gpu_without_torchao_the_figure_shows_the_cpu_alone(monkeypatch, without_mnist, no_torchao):
    monkeypatch.setattr(torch, "compile", lambda net, **options: net)
    device, experiment = SaidToBeT4(torch.device("cpu"), "", torch.float16, ""), find("dynamic-quantization")
    gpu = experiment.function(Params(size="quick", device=device, **SMALL))
    there = {row.format for row in gpu.rows(TimedForward) if row.where == "on the GPU" and row.width}
    assert there == {FP16}, "nothing to compare it with"
    assert [axes.get_title() for axes in experiment.figure(gpu).axes[1:]] == ["One Linear layer on the CPU"]


@needs_torchao
@pytest.mark.parametrize("which", [(FP16, INT8), (FP16,)])
def test_where_the_base_does_not_compile_the_gpus_rows_are_compared_with_it_as_it_is(monkeypatch, which):
    compiled = []

    def refuse(net, **options):
        def forward(x):
            raise RuntimeError("Cannot find a working triton installation.")

        compiled.append(net)
        return forward if len(compiled) <= len(which) else net

    monkeypatch.setattr(torch, "compile", refuse)
    place = TimedPlace("on the GPU", torch.device("cpu"), FP16, [INT8], 2)
    rows, refused = model_times(place, {"MLP": (mlp(64), (4, 64))}, compiled=True)
    assert [(row.format, row.gain is None) for row in rows] == [(FP16, True), (INT8, False)]
    assert {row.what: row.outcome for row in refused} == {
        f"{name}, compiled: MLP on the GPU": "RuntimeError: Cannot find a working triton installation." for name in which
    }
    result = Result()
    judge_torchao(result, [JudgedPlace("on the GPU", FP16, [], [], rows)])
    assert result.claims == [], "nothing compiled, nothing claimed"


def test_a_lack_of_memory_is_no_outcome_of_a_tool(monkeypatch):
    def full(model):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setitem(FORMATS, LEGACY, full)
    for work in (lambda: converted(Mixed(), LEGACY), lambda: outcome_of(lambda: full(None))):
        with pytest.raises(torch.OutOfMemoryError):
            work()


def test_without_torchao_the_rest_stands(on_digits, no_torchao):
    alone = on_digits("dynamic-quantization", **SMALL)
    assert alone and sum(claim.exact for claim in alone.claims) == 2
    assert {row.format for row in alone.rows(TimedForward)} == {FP32, LEGACY, CONVOLUTIONS, BF16}
    assert any("rows of torchao are missing. torchao is not installed" in note for note in alone.notes)
    assert alone.figure() is not None


def test_counts_that_differ_fail_their_claims(result):
    changed = result.rows(ChangedModel)

    def failing(**other):
        found = Result()
        judge_reach(found, [replace(row, **other) for row in changed])
        return [number for number, claim in enumerate(found.claims) if not claim.holds]

    assert failing() == []
    assert failing(changed=2)[:1] == failing(first="conv1")[:1] == [0] and failing(stayed=0) == [1]


def row(name, gain, noise=0.01, width=256):
    return TimedForward("Linear", 1, name, 1.0, gain, "", "", width=width, low=0.99 * gain, high=1.01 * gain, noise=noise)


def test_times_are_judged_by_the_rule_for_noise():
    def judged(resnet, large, dynamic, whole):
        result, compiled = Result(), [row(f"{INT8}, compiled", whole)]
        linear = [row(LEGACY, 0.5), row(INT8, dynamic), row(LEGACY, large, width=1024)]
        judge_times(result, [row(LEGACY, resnet, 0.05)], linear)
        judge_torchao(result, [JudgedPlace("on the CPU", FP32, linear, [0.2, 0.3, 0.25, 0.22, 0.28], compiled)])
        return [claim.holds for claim in result.claims]

    assert judged(1.02, 3.0, 0.4, 1.5) == [True] * 3
    assert judged(1.2, 1.005, 0.995, 1.0) == [False, False, False]


def test_an_outcome_is_the_first_line_of_what_is_raised():
    def fail():
        raise AssertionError("one\ntwo")

    assert outcome_of(fail) == "AssertionError: one" and outcome_of(lambda: 1) == "runs"
    assert first_sentence("It is deprecated in 2.10. \nMore.") == "It is deprecated in 2.10"


def test_formats_are_tried_on_the_device_with_a_dtype_before_they_are_timed():
    runs, refused = runs_on(torch.device("cpu"), torch.float32, [LEGACY, BF16])
    assert runs == [LEGACY, BF16] and refused == []
    runs, refused = runs_on(torch.device("cpu"), torch.bfloat16, [LEGACY])
    assert runs == [] and refused[0].what == f"{LEGACY} on cpu"


@pytest.mark.cuda
def test_formats_run_on_a_gpu_or_say_why(on_digits):
    runs, refused = runs_on(torch.device("cuda"), torch.bfloat16, list(FORMATS))
    assert {INT8, WEIGHT_ONLY} <= set(runs) and LEGACY in {row.what.split(" on ")[0] for row in refused}


# ---- the exercise ---------------------------------------------------------------------------------------------------


def by_the_class(model):
    return [
        name
        for name, module in model.named_modules()
        if callable(getattr(module, "weight", None)) or hasattr(module, "get_weight")
    ]


def test_without_torchao_the_exercise_asks_for_torchs_layers_only(no_torchao):
    assert check("changed-layers", by_the_class).state == "right"
    assert check("changed-layers", lambda model: []).mistake == "misses-torch"


def test_convolutions_are_quantized_where_the_mapping_names_them():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
    kinds = (nn.Conv2d, nn.Linear)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert list(quantized_modules(legacy_dynamic(net, kinds))) == ["2"]
        assert list(quantized_modules(legacy_dynamic(net, kinds, convolutions=True))) == ["0", "2"]


def test_the_axis_of_speed_ups_names_its_base():
    reference = quantization.dynamic_quantization.reference()
    assert "speed-up over bfloat16" in [axes.get_ylabel() for axes in reference.figure().axes]
