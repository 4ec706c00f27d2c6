"""cuDNN's search, the layout of images, and the run with all switches: what changes is speed and memory, not the numbers."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch

from hpml_lab.core.counting import operators
from hpml_lab.tuning import experiments_convs as convs
from hpml_lab.tuning import experiments_switches as switches
from hpml_lab.tuning.blocks import gradient_bytes
from hpml_lab.tuning.experiments_switches import all_switches
from hpml_lab.tuning.switched import ALL, Run, Switches

IMAGES, LABELS = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 10


def run(switches, dtype=torch.float64):
    return Run(switches, IMAGES.to(dtype), LABELS, channels=8, blocks=1, batch=16)


@pytest.mark.parametrize("row", [convs.cudnn_benchmark, convs.channels_last, all_switches], ids=lambda row: row.slug)
def test_the_row_at_quick(row, sound):
    sound(row("quick", device="cpu"))


def test_a_time_stands_in_the_column_of_the_flag_it_was_taken_with(planted_times, monkeypatch):
    flags = []

    @contextmanager
    def searching(on):
        flags.append(on)
        yield

    def seconds(_, work):
        work()
        return 1e-3 if flags[-1] else 3e-3

    monkeypatch.setattr(convs, "searching", searching)
    monkeypatch.setattr(convs, "first_calls", lambda on, *_: 9e-3 if on else 2e-3)
    planted_times(convs, seconds)
    small = dict(batch=1, channels=2, side=4, samples=3, shapes=2)
    result = replace(convs.cudnn_benchmark, quick=small)("quick", device="cpu")
    for row in result.rows:
        assert (row["off, ms"], row["on, ms"], row["times faster"]) == (pytest.approx(3), pytest.approx(1), pytest.approx(3))
    told = result.quantities
    assert (told["forward, search off, µs"], told["forward, search on, µs"]) == (pytest.approx(3000), pytest.approx(1000))
    assert told["first call with a new shape, search on, ms"] == pytest.approx(9)


def test_the_first_calls_are_told_by_their_median_without_the_very_first(monkeypatch):
    clock = iter([0.0, 90.0, 100.0, 103.0, 200.0, 201.0, 300.0, 302.0])
    monkeypatch.setattr(convs, "perf_counter", lambda: next(clock))
    size = type("Size", (), dict(batch=1, channels=2, side=4, shapes=3))
    assert convs.first_calls(True, size, torch.device("cpu")) == 2


def test_a_layouts_time_is_that_of_its_own_images(planted_times, monkeypatch):
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
    planted_times(convs, seconds)
    result = replace(convs.channels_last, quick=dict(batch=2, side=8, samples=3))("quick", device="cpu")
    for row in result.rows:
        assert (row["NCHW, ms"], row["NHWC, ms"], row["times faster"]) == (pytest.approx(2), pytest.approx(1), pytest.approx(2))


def test_with_planted_times_a_larger_batch_counts_all_its_samples(planted_times):
    planted_times(switches, lambda name, _: 2.0 if "debugging" in name else 1.0)
    small = dict(data="digits", channels=4, blocks=1, batch=8, steps=1, samples=3)
    result = replace(all_switches, quick=small)("quick", device="cpu")
    by = {row["switch"]: (row["ms a step"], row["samples/s"], row["times faster"]) for row in result.rows}
    assert by["all off"] == by["all on"] == (1000, 8, 1)
    assert by["all off, debugging"] == (2000, 4, 0.5)
    assert by["all on, batch × 4"] == (1000, 32, 4)


def test_gradients_that_stay_from_step_to_step_are_part_of_the_peak(monkeypatch):
    monkeypatch.setattr(switches, "peak_bytes", lambda step, _: 1000)
    kept, dropped = run(Switches()), run(Switches(gradients_to_none=True))
    assert switches._peak(kept) == 1000 + gradient_bytes(kept.net) > 1000
    assert switches._peak(dropped) == 1000


@pytest.mark.parametrize("name", [*ALL, "debugging"])
def test_a_switch_changes_no_loss(name):
    off, on = run(Switches()), run(Switches(**{name: True}))
    for _ in range(6):
        assert on.step().item() == pytest.approx(off.step().item(), abs=1e-12)


def test_a_batch_that_was_changed_would_be_noticed():
    off, other = run(Switches()), run(Switches())
    other.number = 1
    assert other.step().item() != pytest.approx(off.step().item(), abs=1e-6)


def test_the_run_trains():
    one = run(Switches(**dict.fromkeys(ALL, True)))
    losses = [one.step().item() for _ in range(40)]
    assert losses[-1] < losses[0]


def test_flags_are_set_back_even_when_a_step_fails():
    one = run(Switches(search=True, debugging=True))
    one.optimizer.step = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        one.step()
    assert torch.backends.cudnn.benchmark is False and not torch.is_anomaly_enabled()
    with pytest.raises(KeyError), convs.searching(True):
        raise KeyError
    assert torch.backends.cudnn.benchmark is False


def test_each_operator_that_a_switch_saves_is_counted():
    counts = {name: len(operators(run(Switches(**{name: True})).step)) for name in ("fused_optimizer", "fused_pointwise")}
    off = [one.name for one in operators(run(Switches()).step)]
    assert off.count("erf") == 2 and len(off) > max(counts.values())


def test_a_layout_that_is_lost_on_the_way_is_noticed():
    class Transposed(torch.nn.Module):
        def forward(self, x):
            return x.contiguous()

    net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), Transposed(), torch.nn.Conv2d(4, 4, 3)).double()
    x = torch.rand(2, 3, 8, 8, dtype=torch.float64)
    assert convs.conv_layouts(net, x) == (2, 0)
    assert (
        convs.conv_layouts(net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last))[1] == 2
    )


@pytest.mark.cuda
@pytest.mark.parametrize("row", [convs.cudnn_benchmark, convs.channels_last, all_switches], ids=lambda row: row.slug)
def test_on_a_gpu_the_exact_claims_hold(row):
    result = row("quick", device="cuda")
    assert [claim.text for claim in result.claims if claim.exact and not claim.holds] == []
