"""model_flops.py and utilization: FLOPs known from papers and counted one by one, shares of a peak, and the experiment."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from hpml_lab.core.experiment import Params
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.system.errors import LabError
from hpml_lab.profilers.nvml import GpuReading
from hpml_lab.tensors import utilization
from hpml_lab.tensors.experiments import utilization as module
from hpml_lab.tensors.experiments.utilization import LoopUse, busy_share, counted_in, own_kernels
from hpml_lab.tensors.experiments.utilization.training_loops import CNN, MLP, RECOMPUTED, LoopSize, block_flops, training_loop
from hpml_lab.tensors.lessons.model_flops import (
    attention_flops,
    convolution_flops,
    fused_attention_backward,
    linear_flops,
    share_of_peak,
    training_flops,
)


def test_a_product_counts_two_flops_for_each_multiply_add():
    assert linear_flops(5, 3, 7) == 2 * sum(1 for _ in range(5) for _ in range(3) for _ in range(7))
    assert attention_flops(1, 2, 3, 4, 5) == 2 * (2 * 3 * 4 * 5) + 2 * (2 * 3 * 4 * 5)


@pytest.mark.parametrize("groups, stride", [(1, 1), (2, 1), (1, 2), (4, 3)])
def test_a_convolution_is_counted_as_torch_counts_it_with_groups_and_strides(groups, stride):
    layer, x = nn.Conv2d(4, 8, 3, stride, padding=1, groups=groups), torch.randn(2, 4, 9, 7)
    pixels = layer(x).shape[2] * layer(x).shape[3]
    assert convolution_flops(2, pixels, 4, 8, 3, groups) == counted_in(lambda: layer(x))


def test_a_blocks_training_is_6n_and_12_heads_width_tokens_for_each_token():
    """PaLM's appendix B: 6 N + 12 L H Q T FLOPs a token, with all gradients."""
    tokens, width = 96, 64
    assert training_flops(block_flops(3, tokens, width)) == 3 * tokens * (6 * 12 * width**2 + 12 * width * tokens)
    assert fused_attention_backward(attention_flops(1, 1, 8, 8, 4)) == 5 * 2 * 8 * 8 * 4, "five products"


def test_published_shares_of_a_peak():
    # A blog's 7e10 weights and 1.64e7 tokens in 13.5 hours: 45 % of one A100. There were 16 (huggingface/blog#1649).
    flops, seconds = training_flops(linear_flops(16_400_000, 70_000, 1_000_000)), 13.5 * 3600
    assert share_of_peak(flops, seconds, 3.12e14) == pytest.approx(0.4543, abs=1e-4)
    assert share_of_peak(flops, seconds, 3.12e14, devices=16) == pytest.approx(0.0284, abs=1e-4)
    # 104 % on an H100 were 34 %: the peak was an A100's (nanoGPT#464).
    assert share_of_peak(1.04 * 312e12, 1, 989e12) == pytest.approx(0.328, abs=1e-3)
    for wrong in ((1, 0, 1e12), (1, 1, 0), (1, 1, 1e12, 0)):
        with pytest.raises(LabError, match="give no share. Measure the step between two synchronizations"):
            share_of_peak(*wrong)


@pytest.mark.parametrize("name", [MLP, CNN, RECOMPUTED])
def test_each_step_learns_and_computes_what_its_formula_says(name):
    loop = training_loop(name, 3, LoopSize(32, 8, 12), torch.device("cpu"))
    assert counted_in(loop.step) == loop.hardware_flops >= loop.model_flops == 3 * loop.forward - loop.first
    assert (loop.recomputed > 0) is (name == RECOMPUTED)


def test_the_kernels_of_the_peak_compute_what_is_said_of_them():
    works = list(own_kernels(((MLP, 5), (CNN, 2), (RECOMPUTED, 3)), LoopSize(32, 8, 12), torch.device("cpu")))
    assert len(works) == 6 and all(counted_in(work) == flops for work, flops in works)


def test_busy_is_processor_time_on_a_cpu_and_nvmls_figure_of_this_gpu_on_a_gpu(monkeypatch):
    def sample(used, own):
        gpus = (GpuReading("other", 3, 0, None, None), GpuReading("own", own, 0, None, None))
        return SimpleNamespace(process_cpu=used, gpus=gpus)

    watched = SimpleNamespace(samples=[sample(0.5, 100), sample(0.4, 50)], seconds=1.0, cost=0.02)
    assert busy_share(watched, torch.device("cpu")) == pytest.approx(88)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1f"))
    monkeypatch.setattr(module.Gpus, "bus_id_of", lambda self, uuid: "own")
    assert busy_share(watched, torch.device("cuda")) == 75
    watched.samples.append(sample(None, None))
    assert busy_share(watched, torch.device("cpu")) is busy_share(watched, torch.device("cuda")) is None


def test_joules_a_sample_where_there_is_a_counter(monkeypatch):
    monkeypatch.setattr(module, "used_joules", lambda samples: (6.0, None))
    small = dict(loops=((MLP, 1), (MLP, 4), (RECOMPUTED, 1), (RECOMPUTED, 1)), sizes=(16, 4, 8), seconds=0.0)
    monkeypatch.setattr(module, "ceiling", lambda device: SimpleNamespace(gflop_per_s=100.0))
    result = utilization.function(Params(size="quick", device=choose_device("cpu"), **small))
    rows = result.rows(LoopUse)
    assert all(row.cpu_joules == pytest.approx(6.0 / row.batch) for row in rows)
    assert not any("No joules" in note for note in result.notes) and "energy of the GPUs, J a sample" not in str(
        result.tables[0].columns
    )


def test_the_experiment_is_sound(sound, ran):
    result = ran("utilization")
    sound(result)
    rows = result.rows(LoopUse)
    assert [row.batch for row in rows] == [1, 256, 16, 4, 4]
    # 3 · 2 · 3 · 256² for one sample, less the first layer's gradient of its input
    assert rows[0].model_mflop == pytest.approx(8 * 2 * 256**2 / 1e6)
    assert rows[-1].hardware_mflop - rows[-1].model_mflop == pytest.approx(block_flops(4, 128, 256) / 1e6)
    assert all(row.hfu == pytest.approx(row.mfu) for row in rows[:-1])
    assert all(
        row.mfu == pytest.approx(row.model_mflop / row.milliseconds / result.here("measured peak") * 100) for row in rows
    )
    assert result.here("HFU over MFU with recomputation") == pytest.approx(rows[-1].hardware_mflop / rows[-1].model_mflop)
    silent = [row.cpu_joules is row.gpu_joules is None for row in rows]
    assert any("an empty column is no reading, not 0" in note for note in result.notes) is silent[1]
