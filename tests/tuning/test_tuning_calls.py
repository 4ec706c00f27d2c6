"""The rows conv-bias-bn, zero-grad and debug-apis, and what they are made of."""

import pytest
import torch
from torch import nn

from hpml_lab.tuning import experiments_calls
from hpml_lab.tuning.blocks import gradient_bytes, resnet
from hpml_lab.tuning.experiments_calls import WAYS, clear, conv_bias_bn, zero_grad
from hpml_lab.tuning.experiments_debug import FAULTS, anomaly_report, debug_apis, quiet

CPU = torch.device("cpu")


def test_both_forms_of_the_net_have_the_same_weights_and_biases_that_are_not_zero():
    torch.manual_seed(0)
    plain = resnet()
    torch.manual_seed(0)
    biased = resnet(bias=True)
    weights = dict(biased.named_parameters())
    assert all(torch.equal(one, weights[name]) for name, one in plain.named_parameters())
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


def test_conv_bias_bn(sound):
    result = conv_bias_bn("quick", device="cpu")
    sound(result)
    assert result.quantities["operators saved"] == 20


@pytest.mark.parametrize("way", WAYS)
def test_every_way_clears_all_gradients(way):
    net = nn.Linear(3, 2)
    clear(net, way)  # before the first step there are none
    net(torch.ones(1, 3)).sum().backward()
    clear(net, way)
    for parameter in net.parameters():
        assert parameter.grad is None if way == "set to None" else not parameter.grad.any()


def test_zero_grad(sound):
    result = zero_grad("quick", device="cpu")
    sound(result)
    assert [row["gradients cleared by"] for row in result.rows] == list(WAYS)
    assert [row["zero_"] for row in result.rows] == [62, 0, 0]
    peaks = [row["peak, MB"] for row in result.rows]
    assert peaks[0] == peaks[1] > 1.3 * peaks[2]  # gradients make up most of the memory of so small a batch


def test_the_clearing_that_is_timed_has_gradients_to_clear(planted_times, monkeypatch):
    held = []

    def noted(net, way):
        held.append(gradient_bytes(net))
        clear(net, way)

    def seconds(way, work):
        work()
        full.append(held[-1])
        return dict(zip(WAYS, (6e-3, 3e-3, 1e-3), strict=True))[way]

    full, net = [], nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 10))  # a small net: only times are looked at
    monkeypatch.setattr(experiments_calls, "resnet", lambda: net)
    monkeypatch.setattr(experiments_calls, "clear", noted)
    planted_times(experiments_calls, seconds)
    result = zero_grad("quick", device="cpu")
    assert len(full) == 6 and set(full) == {sum(parameter.nbytes for parameter in net.parameters())}
    assert [row["clearing, µs"] for row in result.rows] == pytest.approx([6000, 3000, 1000])
    assert [row["step, ms"] for row in result.rows] == pytest.approx([6, 3, 1])
    assert result.quantities["clearing with None, times faster"] == pytest.approx(6)


def test_debug_apis(sound):
    result = debug_apis("quick", device="cpu")
    sound(result)
    assert not torch.is_anomaly_enabled()
    assert {row["API"] for row in result.rows} >= {"anomaly mode", "profiler", "gradcheck"}


def test_anomaly_mode_that_was_on_before_is_on_again_after():
    with quiet(), torch.autograd.detect_anomaly():
        report = anomaly_report(FAULTS["nothing wrong"], CPU)
        assert torch.is_anomaly_enabled() and not report["off afterwards"]
    assert not torch.is_anomaly_enabled()


def test_warnings_are_collected_also_when_the_block_raises():
    import warnings

    with pytest.raises(ValueError), quiet() as texts:
        warnings.warn("a word", stacklevel=1)
        raise ValueError
    assert texts == ["a word"]


@pytest.mark.cuda
def test_on_a_gpu_a_bias_costs_kernels():
    assert conv_bias_bn("quick").quantities["kernels saved"] >= 20


@pytest.mark.cuda
def test_emit_nvtx_is_timed_on_a_gpu():
    assert any(row["API"] == "emit_nvtx" for row in debug_apis("quick").rows)
