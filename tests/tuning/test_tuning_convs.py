"""cuDNN's search, the layout of images, and the run with all switches: what changes is speed and memory, not the numbers."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from hpml_lab.core.counting import operators
from hpml_lab.core.device import choose_device
from hpml_lab.core.experiment import Params
from hpml_lab.tuning.experiments import all_switches, channels_last, cudnn_benchmark
from hpml_lab.tuning.experiments.all_switches import SwitchedStep, peak_of_step
from hpml_lab.tuning.experiments.channels_last import LayoutTiming, conv_layouts
from hpml_lab.tuning.experiments.cudnn_benchmark import SearchTiming
from hpml_lab.tuning.networks import gradient_bytes
from hpml_lab.tuning.switches import OPTIMIZATIONS, GuideSwitches, SwitchedRun, cudnn_search

EXPERIMENTS = [cudnn_benchmark.cudnn_benchmark, channels_last.channels_last, all_switches.all_switches]
IMAGES, LABELS = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 10


def run(switches, dtype=torch.float64):
    return SwitchedRun(switches, IMAGES.to(dtype), LABELS, channels=8, blocks=1, batch=16)


@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.slug)
def test_the_experiment_at_quick(experiment, sound):
    sound(experiment("quick", device="cpu"))


def test_a_time_is_in_the_column_of_the_flag_it_was_measured_with(known_times, monkeypatch):
    flags = []

    @contextmanager
    def noted_search(on):
        flags.append(on)
        yield

    def seconds(_, work):
        work()
        return 1e-3 if flags[-1] else 3e-3

    monkeypatch.setattr(cudnn_benchmark, "cudnn_search", noted_search)
    monkeypatch.setattr(cudnn_benchmark, "first_calls", lambda on, *_: 9e-3 if on else 2e-3)
    known_times(cudnn_benchmark, seconds)
    small = dict(batch=1, channels=2, side=4, samples=3, shapes=2)
    result = replace(cudnn_benchmark.cudnn_benchmark, quick=small)("quick", device="cpu")
    for row in result.rows(SearchTiming):
        assert (row.off_ms, row.on_ms, row.speedup) == (pytest.approx(3), pytest.approx(1), pytest.approx(3))
    assert result.here("forward, search off") == pytest.approx(3000)
    assert result.here("forward, search on") == pytest.approx(1000)
    assert result.here("first call with a new shape, search on") == pytest.approx(9)


def test_first_calls_are_their_median_without_the_very_first(monkeypatch):
    clock = iter([0.0, 90.0, 100.0, 103.0, 200.0, 201.0, 300.0, 302.0])
    monkeypatch.setattr(cudnn_benchmark, "perf_counter", lambda: next(clock))
    params = Params(device=choose_device("cpu"), batch=1, channels=2, side=4, shapes=3)
    assert cudnn_benchmark.first_calls(True, params) == 2


def test_the_time_of_a_layout_is_that_of_its_own_images(known_times, monkeypatch):
    layouts = []

    class Net(torch.nn.Sequential):
        def forward(self, x):
            layouts.append(x.is_contiguous(memory_format=torch.channels_last))
            return super().forward(x)

    def small_net(**_):
        return Net(torch.nn.Conv2d(3, 10, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())

    def seconds(_, step):
        step()
        return 1e-3 if layouts[-1] else 2e-3

    monkeypatch.setattr("torchvision.models.resnet18", small_net)
    known_times(channels_last, seconds)
    result = replace(channels_last.channels_last, quick=dict(batch=2, side=8, samples=3))("quick", device="cpu")
    for row in result.rows(LayoutTiming):
        assert (row.nchw_ms, row.nhwc_ms, row.gain) == (pytest.approx(2), pytest.approx(1), pytest.approx(2))


def test_with_known_times_a_larger_batch_counts_all_its_samples(known_times):
    known_times(all_switches, lambda name, _: 2.0 if "debugging" in name else 1.0)
    small = dict(data="digits", channels=4, blocks=1, batch=8, steps=1, samples=3)
    result = replace(all_switches.all_switches, quick=small)("quick", device="cpu")
    steps = {row.switches: (row.step_ms, row.samples_per_second, row.speedup) for row in result.rows(SwitchedStep)}
    assert steps["all off"] == steps["all on"] == (1000, 8, 1)
    assert steps["all off, debugging"] == (2000, 4, 0.5)
    assert steps["all on, batch × 4"] == (1000, 32, 4)


def test_gradients_that_stay_from_step_to_step_are_part_of_the_peak(monkeypatch):
    monkeypatch.setattr(all_switches, "peak_bytes", lambda step, _: 1000)
    kept, dropped = run(GuideSwitches()), run(GuideSwitches(gradients_to_none=True))
    assert peak_of_step(kept) == 1000 + gradient_bytes(kept.net) > 1000
    assert peak_of_step(dropped) == 1000


@pytest.mark.parametrize("name", [*OPTIMIZATIONS, "debugging"])
def test_a_switch_changes_no_loss(name):
    off, on = run(GuideSwitches()), run(GuideSwitches(**{name: True}))
    for _ in range(6):
        assert on.step().item() == pytest.approx(off.step().item(), abs=1e-12)


def test_a_batch_that_was_changed_would_be_noticed():
    off, other = run(GuideSwitches()), run(GuideSwitches())
    other.batch_index = 1
    assert other.step().item() != pytest.approx(off.step().item(), abs=1e-6)


def test_the_run_trains():
    trained = run(GuideSwitches(**dict.fromkeys(OPTIMIZATIONS, True)))
    losses = [trained.step().item() for _ in range(40)]
    assert losses[-1] < losses[0]


def test_flags_are_restored_even_when_a_step_fails():
    failing = run(GuideSwitches(search=True, debugging=True))
    failing.optimizer.step = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        failing.step()
    assert torch.backends.cudnn.benchmark is False and not torch.is_anomaly_enabled()
    with pytest.raises(KeyError), cudnn_search(True):
        raise KeyError
    assert torch.backends.cudnn.benchmark is False


def test_each_operator_that_a_switch_saves_is_counted():
    counts = {name: len(operators(run(GuideSwitches(**{name: True})).step)) for name in ("fused_optimizer", "fused_pointwise")}
    off = [op.name for op in operators(run(GuideSwitches()).step)]
    assert off.count("erf") == 2 and len(off) > max(counts.values())


def test_a_layout_that_is_lost_between_layers_is_noticed():
    class Transposed(torch.nn.Module):
        def forward(self, x):
            return x.contiguous()

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), Transposed(), torch.nn.Conv2d(4, 4, 3)).double()
    x = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    assert conv_layouts(net, x) == (2, 0)
    net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    assert conv_layouts(net, x) == (2, 2)


@pytest.mark.cuda
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.slug)
def test_on_a_gpu_the_exact_claims_hold(experiment):
    result = experiment("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
