"""What the experiments do on a GPU only, run on a CPU that says it is one: known times, and a profiler's kernels."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from hpml_lab.core.experiment import registry
from hpml_lab.core.system.device import Device, choose_device
from hpml_lab.core.timing.clock import PLACEBO, Timing
from hpml_lab.core.timing.counting import Kernel
from hpml_lab.tuning.experiments import (
    channels_last,
    conv_bias_bn,
    debug_apis,
    fused_layernorm,
    fused_optimizers,
    pointwise_fusion,
    turns,
    zero_grad,
)
from hpml_lab.tuning.experiments.debug_apis import DebugCost
from hpml_lab.tuning.experiments.zero_grad import ClearedStep

IMAGES = dict(batch=4, side=32, samples=5)


class SaidToBeGpu(Device):
    is_cuda = True

    def can(self, what):
        return False


@pytest.fixture(autouse=True)
def said_to_be_a_gpu(monkeypatch):
    monkeypatch.setattr(registry, "choose_device", lambda _: SaidToBeGpu(*vars(choose_device("cpu")).values()))


@pytest.fixture(autouse=True)
def graphs(monkeypatch):
    """A graph is the work that it would replay."""
    monkeypatch.setattr(turns, "captured", lambda work, _: work)


@pytest.fixture
def counted(monkeypatch):
    """(module, counts) makes the module's `kernels` report (fills, others), one pair for each piece of work in order."""

    def set_kernels(module, counts):
        pairs = iter(counts)

        def ran(*_):
            fills, others = next(pairs)
            kernels = [Kernel("FillFunctor<float>", fills, 1e-3), Kernel("CUDAFunctor_add<float>", others, 1e-3)]
            return [kernel for kernel in kernels if kernel.calls]

        monkeypatch.setattr(module, "kernels", ran)

    return set_kernels


def claims(result, words):
    return {claim.text: claim for claim in result.claims if words in claim.text}


def test_zero_grad_counts_the_kernels_of_each_way(known_times, counted, sound):
    for module in (zero_grad, turns):
        known_times(module, lambda way, _: 1e-3 if way == "set to None" else 3e-3)
    counted(zero_grad, [(63, 300), (2, 300), (1, 238)])
    result = replace(zero_grad.zero_grad, quick=IMAGES)("quick")
    sound(result)
    assert [(row.fill_kernels, row.kernels) for row in result.rows(ClearedStep)] == [(63, 363), (2, 302), (1, 239)]
    assert result.here("kernels saved per step") == 124
    [claim] = claims(result, "two kernels for each parameter").values()
    assert claim.holds and claim.measured == "363 → 302 → 239 kernels, of which 63 → 2 → 1 fill"
    assert "kernels\nthat fill" in [label.get_text() for label in result.figure().axes[0].get_xticklabels()]


def test_where_the_profiler_sees_no_kernel_none_is_claimed(known_times, counted, sound):
    for module in (zero_grad, turns):
        known_times(module, lambda *_: 1e-3)
    counted(zero_grad, [(0, 0)] * 3)
    result = replace(zero_grad.zero_grad, quick=IMAGES)("quick")
    sound(result)
    assert {row.kernels for row in result.rows(ClearedStep)} == {None} and not claims(result, "kernels")


@pytest.mark.parametrize(("saved", "holds"), [(60, True), (20, False)])
def test_a_bias_costs_three_kernels_or_the_claim_fails(known_times, counted, saved, holds):
    known_times(turns, lambda *_: 1e-3)
    counted(conv_bias_bn, [(0, 300), (0, 300 - saved)])
    result = replace(conv_bias_bn.conv_bias_bn, quick=IMAGES)("quick")
    assert result.here("kernels saved") == saved
    assert [claim.holds for claim in claims(result, "three kernels").values()] == [holds]
    [step] = claims(result, "The step is faster").values()
    assert not step.holds and "within noise" in step.measured


def test_layouts_and_layer_norm_are_compared_by_events(monkeypatch, sound):
    asked = []

    def timed(works, gpu, placebo, **_):
        asked.append(gpu.type)
        return {name: Timing((1e-3,) * 5, 1) for name in (*works, PLACEBO)}

    for module in (turns, fused_layernorm):
        monkeypatch.setattr(module, "interleaved", timed)
    monkeypatch.setattr(SaidToBeGpu, "can", lambda _, what: what == "tf32")
    result = replace(channels_last.channels_last, quick=IMAGES)("quick")
    sound(result)
    assert any("tensor cores, in the format TF32" in note for note in result.notes)
    sound(replace(fused_layernorm.fused_layernorm, quick=dict(rows=10, features=20, samples=5))("quick"))
    assert set(asked) == {"cpu"}, "the device, which here is a CPU that says it is a GPU"


@pytest.mark.parametrize(("module", "states"), [(channels_last, 2), (conv_bias_bn, 2), (zero_grad, 3)])
def test_on_a_gpu_steps_are_replayed_and_each_has_a_network_of_its_own(
    module, states, monkeypatch, known_times, counted, sound
):
    """A graph writes where the gradients of its network were when it was captured: no other step may free them."""
    trained, forward = [], torch.nn.Conv2d.forward

    def noted(layer, x):
        if trained:
            trained[-1].add(id(layer))
        return forward(layer, x)

    def captured(work, _):
        trained.append(set())
        work()
        return work

    monkeypatch.setattr(torch.nn.Conv2d, "forward", noted)
    monkeypatch.setattr(turns, "captured", captured)
    known_times(turns, lambda *_: 1e-3)
    if module is zero_grad:
        known_times(module, lambda *_: 1e-3)
    if module is not channels_last:
        counted(module, [(1, 300)] * states)
    result = replace(getattr(module, module.__name__.split(".")[-1]), quick=IMAGES)("quick")
    sound(result)
    layers = trained[:states]
    assert len(set.union(*layers)) == sum(map(len, layers)) == 20 * states
    assert turns.REPLAYED in result.notes
    assert any("no TF32" in note for note in result.notes) == (module is channels_last), "this GPU has none"


def test_the_triton_adam_is_compared_with_fused_in_turns_of_its_own(known_times, known_bandwidth):
    pytest.importorskip("triton", reason="Triton has no wheel for this system")
    known_bandwidth(fused_optimizers, 25.0)
    known_times(fused_optimizers, lambda name, _: {"for-loop": 8e-6, "Triton kernel": 1e-6}.get(name, 2e-6))
    small = dict(tensors=3, side=5, large=1000, steps=2, checked=(7,), samples=5)
    result = replace(fused_optimizers.fused_optimizers, quick=small)("quick")
    [claim] = claims(result, "not slower than fused").values()
    assert claim.holds and claim.measured.startswith("112%; 2× faster")
    assert [claim.measured[:9] for claim in claims(result, "LAMB in two kernels").values()] == ["8× faster"]


@pytest.mark.parametrize(("alone_us", "holds"), [(3, True), (15, False)])
def test_launches_bind_the_formula_only_if_its_kernels_alone_are_twice_as_fast(monkeypatch, sound, alone_us, holds):
    def times_of(functions, *_):
        called = {name: Timing(((20e-6 if "eager" in name else 5e-6),) * 5, 1) for name in functions}
        alone = {name: Timing((alone_us * 1e-6,) * 5, 1) for name in functions}
        return tuple(times | {PLACEBO: times["formula, eager"]} for times in (called, alone))

    monkeypatch.setattr(pointwise_fusion, "times_of", times_of)
    result = replace(pointwise_fusion.pointwise_fusion, quick=dict(sizes=(1000, 2000), samples=5, checked=10))("quick")
    sound(result)
    [claim] = claims(result, "launches bind the formula").values()
    assert claim.holds == holds and claim.measured == f"{alone_us:.1f} of 20.0 µs"
    assert "1,000 elements" in claim.text and claims(result, "2,000 elements, one kernel")
    assert result.here("0.001 M elements, one kernel over five") == pytest.approx(1), "of the kernels alone"
    assert result.here("0.001 M elements, torch.jit.script over formula") == pytest.approx(4), "of calls, as in the lecture"
    assert result.here("0.001 M elements, fused over formula") == pytest.approx(4)
    assert any(f"takes {alone_us} of its 5 µs" in note for note in result.notes)
    assert [claim.holds for claim in claims(result, "the lecture's torch.jit.script").values()] == [True]


def test_debugging_tools_are_timed_next_to_the_kernels_alone(monkeypatch, sound):
    """By the clock on the wall, each sample the fastest of several; the plain step's graph says what of it is launches."""
    asked, graphs = [], []

    def sample(work, gpu=None, *, fastest_of=1):
        asked.append((work in graphs, gpu is not None, fastest_of))
        return 1e-3 if work in graphs else 5e-3

    monkeypatch.setattr(debug_apis, "debug_tools", lambda _: {"anomaly mode": nullcontext, "profiler": nullcontext})
    monkeypatch.setattr(debug_apis, "captured", lambda work, _: graphs.append(work) or work)
    monkeypatch.setattr(debug_apis, "one_sample", sample)
    result = replace(debug_apis.debug_apis, quick=debug_apis.QUICK | dict(layers=2, samples=3, fastest_of=4, inputs=2))("quick")
    sound(result)
    assert not torch.is_anomaly_enabled()
    assert set(asked) == {(False, False, 4), (True, True, 1)}
    assert {row.net: row.kernels_ms for row in result.rows(DebugCost)} == {
        "20 small layers": 1, "ResNet-18": 1, "one layer": None
    }  # fmt: skip
    assert any("20 small layers 5 ms, its kernels alone 1 ms" in note for note in result.notes)
