"""cuDNN's search, the layout of images, and the run with all switches: what changes is speed and memory, not the numbers."""

import pytest
import torch

from hpml_lab.core.counting import operators
from hpml_lab.tuning import experiments_convs as convs
from hpml_lab.tuning.experiments_switches import all_switches
from hpml_lab.tuning.switched import ALL, Run, Switches

IMAGES, LABELS = torch.rand(64, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(64) % 10


def run(switches, dtype=torch.float64):
    return Run(switches, IMAGES.to(dtype), LABELS, channels=8, blocks=1, batch=16)


@pytest.mark.parametrize("row", [convs.cudnn_benchmark, convs.channels_last, all_switches], ids=lambda row: row.slug)
def test_the_row_at_quick(row, sound):
    sound(row("quick", device="cpu"))


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
