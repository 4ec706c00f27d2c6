"""What the experiments do on a GPU only, run on a CPU that says it is one: all formats, data-sheet peaks, fp32 with TF32."""

from dataclasses import replace

import pytest
import torch

from hpml_lab.core import experiment
from hpml_lab.core.device import Device, choose_device
from hpml_lab.core.timing import PLACEBO, Timing
from hpml_lab.precision import amp_training, gemm, gemm_tensor_cores, loop_measurements, products
from hpml_lab.precision.experiments.amp_training import LoopRow
from hpml_lab.precision.loop_measurements import AMP_BF16, AMP_FP16, FP32_WITH_TF32
from hpml_lab.precision.products import ProductRate

ALL_MODES = [gemm.FP32, gemm.TF32, gemm.FP16, gemm.BF16, gemm.FP8]


class SaidToBeGpu(Device):
    is_cuda = True


@pytest.fixture(autouse=True)
def said_to_be_a_gpu(monkeypatch):
    cpu = replace(choose_device("cpu"), dtype=torch.bfloat16)
    monkeypatch.setattr(experiment, "choose_device", lambda _: SaidToBeGpu(*vars(cpu).values()))


def times(seconds):
    """`interleaved` that takes seconds(name), the placebo 2 % less."""

    def interleaved(works, **options):
        for work in works.values():
            work()
        known = {name: seconds(name) for name in works} | {PLACEBO: seconds(options["placebo"]) / 1.02}
        return {name: Timing((value,) * 5, 1) for name, value in known.items()}

    return interleaved


def test_all_five_formats_stay_within_their_bounds_and_are_compared_with_the_data_sheet(monkeypatch, sound):
    speeds = {"fp32": 1, "short": 1, "tf32": 7, "fp16": 12, "bf16": 12, "fp8 e4m3": 20}
    monkeypatch.setattr(products, "interleaved", times(lambda name: 1e-6 / speeds.get(name, 1)))
    monkeypatch.setattr(gemm, "modes", lambda device: (ALL_MODES, []))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200 NVL")
    small = dict(sizes=(32,), gpu_sizes=(64,), starts=(32,), lengths=(16, 4096))
    result = replace(gemm_tensor_cores, quick=small)("quick")
    sound(result)
    rows = {(row.number_format, row.n): row for row in result.rows(ProductRate) if row.is_square}
    assert set(rows) == {(mode.name, n) for mode in ALL_MODES for n in (32, 64)}
    assert {name: rows[name, 64].gain for name in ("tf32", "fp8 e4m3")} == {
        "tf32": pytest.approx(7),
        "fp8 e4m3": pytest.approx(20),
    }
    best = 20 * 2 * 64**3 / 1e-6 / 1e12
    assert result.here("best fp8 e4m3") == pytest.approx(best) and result.here("data sheet fp8 e4m3") == 1670.5
    assert rows["fp8 e4m3", 64].sheet_share == pytest.approx(best / 1670.5)
    [twice] = [claim for claim in result.claims if "twice as fast" in claim.text]
    assert twice.holds and "noise ±2 %" in twice.measured
    assert not any("data-sheet" in note or "No CUDA" in note for note in result.notes)


def test_a_gpu_that_the_table_does_not_know_has_no_share_and_is_named(monkeypatch):
    monkeypatch.setattr(products, "interleaved", times(lambda name: 1e-6))
    monkeypatch.setattr(gemm, "modes", lambda device: (ALL_MODES[:1], ["fp16 needs compute capability 5.3"]))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H300")
    small = dict(sizes=(32,), gpu_sizes=(), starts=(32,), lengths=(16, 4096))
    result = replace(gemm_tensor_cores, quick=small)("quick")
    assert result.here("16-bit over fp32, at most") is None
    assert any("does not contain the NVIDIA H300" in note for note in result.notes)
    assert "Not measured here: fp16 needs compute capability 5.3." in result.notes


@pytest.mark.parametrize(("fp16", "bf16", "holds"), [(2e-3, 4e-3, True), (7.9e-3, 8e-3, False)])
def test_each_loop_of_amp_is_compared_with_fp32_and_a_gain_within_the_noise_is_none(monkeypatch, sound, fp16, bf16, holds):
    known = {AMP_FP16: fp16, AMP_BF16: bf16, FP32_WITH_TF32: 5e-3}
    monkeypatch.setattr(loop_measurements, "interleaved", times(lambda name: known.get(name, 8e-3)))
    small = dict(data="digits", seeds=1, epochs=1, batch=64, rate=0.1, channels=8, blocks=2, images=16, side=16, samples=5)
    result = replace(amp_training, quick=small)("quick")
    sound(result)
    assert [row.gain for row in result.rows(LoopRow)] == [None, pytest.approx(8e-3 / fp16), pytest.approx(8e-3 / bf16)]
    assert result.here("fp32 with TF32 over fp32") == pytest.approx(1.6)
    [claim] = [claim for claim in result.claims if claim.text == "AMP is faster than fp32"]
    assert claim.holds == holds and FP32_WITH_TF32 in claim.measured
