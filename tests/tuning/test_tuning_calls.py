"""The experiments conv-bias-bn, zero-grad and debug-apis, and what they are made of."""

from contextlib import contextmanager

import pytest
import torch
from torch import nn

from hpml_lab.core.system.warned import collect_warnings
from hpml_lab.core.timing.clock import Timing
from hpml_lab.core.timing.counting import Kernel
from hpml_lab.tuning import conv_bias_bn, debug_apis
from hpml_lab.tuning.experiments import debug_apis as apis
from hpml_lab.tuning.experiments import turns, zero_grad
from hpml_lab.tuning.experiments.debug_apis import AnomalyReport, DebugCost, anomaly_report
from hpml_lab.tuning.experiments.tuned_networks import gradient_bytes, resnet
from hpml_lab.tuning.experiments.zero_grad import WAYS, ClearedStep, ClearingTime

CPU = torch.device("cpu")


def test_both_forms_of_the_net_have_the_same_weights_and_biases_that_are_not_zero():
    torch.manual_seed(0)
    plain = resnet()
    torch.manual_seed(0)
    biased = resnet(bias=True)
    weights = dict(biased.named_parameters())
    assert all(torch.equal(parameter, weights[name]) for name, parameter in plain.named_parameters())
    convs = [layer for layer in biased.modules() if isinstance(layer, nn.Conv2d)]
    assert len(convs) == 20 and all(layer.bias.abs().max() > 0.1 for layer in convs)


def test_without_batch_norm_a_bias_does_change_the_output():
    torch.manual_seed(0)
    conv = nn.Conv2d(3, 8, 3)
    bare = nn.Conv2d(3, 8, 3, bias=False)
    bare.weight = conv.weight
    x = torch.randn(4, 3, 8, 8)
    norm = nn.BatchNorm2d(8)
    assert (conv(x) - bare(x)).abs().max() > 0.01
    assert torch.allclose(norm(conv(x)), norm(bare(x)), atol=1e-5)


def test_conv_bias_bn(ran, sound):
    result = ran("conv-bias-bn")
    sound(result)
    assert result.here("operators saved") == 20


@pytest.mark.parametrize("way", WAYS)
def test_every_way_clears_all_gradients(way):
    net, clear = nn.Linear(3, 2), WAYS[way]
    clear(net)  # before the first step there are none
    net(torch.ones(1, 3)).sum().backward()
    clear(net)
    for parameter in net.parameters():
        assert parameter.grad is None if way == "set to None" else not parameter.grad.any()


def test_zero_grad(ran, sound):
    result = ran("zero-grad")
    sound(result)
    rows = result.rows(ClearedStep)
    assert [row.way for row in rows] == list(WAYS)
    assert [row.zero_calls for row in rows] == [62, 0, 0]
    memset, one_call, none = (row.peak_mb for row in rows)
    assert memset == one_call > 1.3 * none  # gradients are most of the memory of so small a batch


def test_the_clearing_that_is_timed_has_gradients_to_clear(known_times, monkeypatch):
    held = []

    def noted(clear):
        def clear_and_note(net):
            held.append(gradient_bytes(net))
            clear(net)

        return clear_and_note

    def seconds(way, work):
        work()
        timed.append(held[-1])
        return dict(zip(WAYS, (6e-3, 3e-3, 1e-3), strict=True))[way]

    timed, net = [], nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))  # small, because only times are looked at
    monkeypatch.setattr(zero_grad, "resnet", lambda: net)
    monkeypatch.setattr(zero_grad, "WAYS", {way: noted(clear) for way, clear in WAYS.items()})
    for module in (zero_grad, turns):
        known_times(module, seconds)
    result = zero_grad.zero_grad("quick", device="cpu")
    assert len(timed) == 6 and set(timed) == {sum(parameter.nbytes for parameter in net.parameters())}
    alone, whole = ([row for row in result.rows(ClearingTime) if row.work == work] for work in ("clearing alone", "whole step"))
    assert [row.time_us for row in alone] == [row.time_us for row in whole] == pytest.approx([6000, 3000, 1000])
    assert [row.gain for row in alone] == [None, pytest.approx(2), pytest.approx(6)]


def test_on_a_gpu_the_kernels_of_a_step_are_counted(monkeypatch):
    """The names are a profiler's. Other fills, such as the seed of the backward pass, are counted too: all ways have them."""
    vectorized = "void at::native::vectorized_elementwise_kernel<4, at::native::{}, std::array<char*, 1ul> >(int, ...)"
    ran = [
        Kernel(vectorized.format("FillFunctor<float>"), 63, 1e-4),
        Kernel(vectorized.format("CUDAFunctor_add<float>"), 132, 1e-4),
        Kernel(
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<..., ZeroFunctor<float, 1, 1, 0> >(...)", 1, 1e-5
        ),
        Kernel("Memset (Device)", 2, 1e-6),
    ]
    assert zero_grad.filling(ran) == 66


def test_debug_apis(ran, sound):
    result = ran("debug-apis")
    sound(result)
    assert all(report.off_afterwards for report in result.rows(AnomalyReport))
    *_, sound_loss = result.rows(AnomalyReport)
    assert sound_loss.fault == "nothing wrong" and sound_loss.reported is None
    assert {row.tool for row in result.rows(DebugCost)} >= {"anomaly mode", "profiler", "gradcheck"}


def test_a_tool_that_is_left_on_is_started_once_per_sample_and_not_within_it(monkeypatch):
    events = []

    @contextmanager
    def tool():
        events.append("on")
        yield
        events.append("off")

    def one_sample(step, fastest_of):
        events.append("sample")
        return step()

    monkeypatch.setattr(apis, "one_sample", one_sample)
    assert apis.sample_left_on(tool, lambda: 2.0, 3) == 2.0
    assert events == ["on", "sample", "off"]
    times = apis.step_costs(lambda: 1.0, {apis.PROFILER: tool}, samples=2, fastest_of=3)
    assert set(times) == {apis.PLAIN, apis.PROFILER, apis.RESTARTED, "placebo"}
    assert events[3:] == ["sample", "on", "sample", "off", "sample", "sample", "on", "off"] * 2


def test_a_sample_is_the_fastest_of_several_so_that_a_host_that_was_held_up_does_not_count(monkeypatch):
    monkeypatch.setattr(turns, "interleaved", lambda works, samples, gpu: {"": Timing((3.0, 1.0, 2.0)[:samples], 1)})
    assert turns.one_sample(int) == 3 and turns.one_sample(int, fastest_of=3) == 1
    assert apis.FULL["fastest_of"] > 1


def test_anomaly_mode_that_was_on_before_is_on_again_after():
    with collect_warnings(), torch.autograd.detect_anomaly():
        report = anomaly_report("nothing wrong", CPU)
        assert torch.is_anomaly_enabled() and not report.off_afterwards
    assert not torch.is_anomaly_enabled()


def test_warnings_are_collected_also_when_the_block_raises():
    import warnings

    with pytest.raises(ValueError), collect_warnings() as caught:
        warnings.warn("a word", stacklevel=1)
        raise ValueError
    assert [str(warning.message) for warning in caught] == ["a word"]


@pytest.mark.cuda
def test_on_a_gpu_a_bias_costs_kernels():
    assert conv_bias_bn("quick").here("kernels saved") >= 20


@pytest.mark.cuda
def test_on_a_gpu_none_saves_two_kernels_for_each_parameter():
    assert zero_grad.zero_grad("quick").here("kernels saved per step") >= 2 * 62


@pytest.mark.cuda
def test_emit_nvtx_is_timed_on_a_gpu():
    assert any(row.tool == "emit_nvtx" for row in debug_apis("quick").rows(DebugCost))
