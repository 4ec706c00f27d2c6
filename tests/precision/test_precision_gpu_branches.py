"""What the experiments do on a GPU only, run on a CPU that says it is one: all formats, data-sheet peaks, fp32 with TF32."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from hpml_lab.core.experiment import registry
from hpml_lab.core.system.device import Device, choose_device
from hpml_lab.core.timing.clock import PLACEBO, Timing
from hpml_lab.precision import amp_training, gemm_tensor_cores
from hpml_lab.precision.experiments.amp_training import LoopRow, loop_measurements
from hpml_lab.precision.experiments.amp_training.loop_measurements import AMP_BF16, AMP_FP16, FP32, FP32_WITH_TF32
from hpml_lab.precision.experiments.gemm_tensor_cores import gemm, product_rates
from hpml_lab.precision.experiments.gemm_tensor_cores.product_rates import HighestRate, ProductRate

ALL_MODES = [gemm.FP32, gemm.TF32, gemm.FP16, gemm.BF16, gemm.FP8]
SMALL_AMP = dict(data="digits", seeds=1, epochs=1, batch=64, rate=0.1, channels=8, blocks=2, images=16, side=16, samples=5)


class SaidToBeGpu(Device):
    is_cuda = True
    abilities: tuple = ("bf16", "tf32", "fp8")  # of an H100

    def can(self, what):
        return what in self.abilities


class SaidToBeT4(SaidToBeGpu):
    abilities = ()


@pytest.fixture(autouse=True)
def said_to_be_a_gpu(monkeypatch):
    """A function that changes which GPU it is said to be; and what CUDA answers for it."""
    cpu = choose_device("cpu")

    def become(kind, dtype):
        monkeypatch.setattr(registry, "choose_device", lambda _: kind(*vars(replace(cpu, dtype=dtype)).values()))

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(L2_cache_size=24_000))
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda device: 1755)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(product_rates, "LOAD_SECONDS", 0.0)
    become(SaidToBeGpu, torch.bfloat16)
    return become


def times(seconds):
    """`interleaved` that takes seconds(name), the placebo 2 % more."""

    def interleaved(works, **options):
        for work in works.values():
            work()
        known = {name: seconds(name) for name in works}
        if base := options.get("placebo"):
            known[PLACEBO] = seconds(base) * 1.02
        return {name: Timing((value,) * 5, 1) for name, value in known.items()}

    return interleaved


def test_all_five_formats_stay_within_their_bounds_and_are_compared_with_the_data_sheet(monkeypatch, sound):
    speeds = {"fp32": 1, "short": 1, "tf32": 7, "fp16": 12, "bf16": 12, "fp8 e4m3": 20}
    monkeypatch.setattr(product_rates, "interleaved", times(lambda name: 1e-6 / speeds.get(name, 1)))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200 NVL")
    small = dict(gpu_sizes=(32, 64), starts=(32,), convolution=(2, 8, 8), lengths=(16, 4096))
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
    [faster] = [claim for claim in result.claims if "faster than fp32 at the largest size" in claim.text]
    assert faster.holds and "noise ±2 %" in faster.measured
    assert not any("data-sheet" in note or "No CUDA" in note or "no units" in note for note in result.notes)


def test_each_format_is_timed_alone_and_16_bits_are_compared_at_their_highest_rates(monkeypatch):
    """In turns fp32 takes 1 µs; alone, when no tensor core lowers the clock, it takes 0.8 µs."""
    in_turns, turn = times(lambda name: {"fp32": 1e-6, "short": 1e-6}.get(name, 1e-7)), {}

    def interleaved(works, **options):
        turn["alone"] = list(works) == ["fp32"]
        return {"fp32": Timing((0.9e-6, 0.8e-6), 1)} if turn["alone"] else in_turns(works, **options)

    clocks = iter([1980, 1755, 1500, 1500, 1500])  # MHz by format, in their order
    monkeypatch.setattr(product_rates, "interleaved", interleaved)
    monkeypatch.setattr(torch.cuda, "clock_rate", lambda device: next(clocks))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H100 80GB HBM3")
    small = dict(gpu_sizes=(32, 64), starts=(32,), convolution=(2, 8, 8), lengths=(16, 4096))
    result = replace(gemm_tensor_cores, quick=small)("quick")
    alone = {row.number_format: row for row in result.rows(HighestRate)}
    rate = 2 * 64**3 / 0.8e-6
    assert alone["fp32"].tflops == pytest.approx(rate / 1e12) == result.here("best fp32")
    assert (alone["fp32"].clock_mhz, alone["fp32"].per_cycle) == (1980, pytest.approx(rate / 1980e6))
    assert result.here("16-bit over fp32, highest rate of each") == pytest.approx(8), "not the 10 of the turns"
    assert result.here("the same per clock cycle") == pytest.approx(8 * 1980 / 1500)
    assert result.here("the same by the data sheet") == pytest.approx(989.5 / 67)
    squares = {(row.number_format, row.n): row.in_l2 for row in result.rows(ProductRate) if row.is_square}
    assert squares["fp32", 32] and not squares["fp32", 64] and squares["fp8 e4m3", 64], "24 kB hold 3 × 64² bytes"


def test_a_clock_that_nvml_does_not_tell_is_left_out(monkeypatch):
    monkeypatch.setattr(product_rates, "interleaved", times(lambda name: 1e-6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H300")
    done = []
    monkeypatch.setattr(torch.cuda, "synchronize", done.append)

    def no_nvml(device):
        raise ModuleNotFoundError("nvidia-ml-py does not seem to be installed")

    monkeypatch.setattr(torch.cuda, "clock_rate", no_nvml)
    small = dict(gpu_sizes=(32,), starts=(32,), convolution=(2, 8, 8), lengths=(16, 4096))
    result = replace(gemm_tensor_cores, quick=small)("quick")
    assert {row.clock_mhz for row in result.rows(HighestRate)} == {None} and len(done) == len(ALL_MODES)
    assert not [figure.label for figure in result.key_figures if "per clock cycle" in figure.label]


def test_what_a_t4_has_no_units_for_is_a_note(monkeypatch, said_to_be_a_gpu):
    said_to_be_a_gpu(SaidToBeT4, torch.float16)
    monkeypatch.setattr(product_rates, "interleaved", times(lambda name: 1e-6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H300")
    small = dict(gpu_sizes=(32,), starts=(32,), convolution=(2, 8, 8), lengths=(16, 4096))
    result = replace(gemm_tensor_cores, quick=small)("quick")
    assert {row.number_format for row in result.rows(ProductRate)} == {"fp32", "fp16"}
    assert any("does not contain the NVIDIA H300" in note for note in result.notes)
    lacking = [note for note in result.notes if note.startswith("Not measured here")]
    assert lacking == ["Not measured here: this GPU has no units for tf32, bf16, fp8 e4m3 that torch reports."]


def test_the_error_of_fp8_is_a_measured_claim_because_its_sums_are_the_gpus_own(monkeypatch):
    monkeypatch.setattr(product_rates, "interleaved", times(lambda name: 1e-6))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    multiply = gemm.product

    def coarse(mode, a, b):  # a GPU that keeps fewer bits of a sum in fp8
        return multiply(mode, a, b) * (1 + 0.1 * (mode is gemm.FP8))

    monkeypatch.setattr(gemm, "product", coarse)
    result = replace(gemm_tensor_cores, quick=dict(gpu_sizes=(32,), starts=(32,), convolution=(2, 8, 8), lengths=(16, 4096)))(
        "quick"
    )
    assert result, "no exact claim fails"
    [fp8] = [claim for claim in result.claims if "fp8" in claim.text]
    assert not fp8.holds and not fp8.exact


def test_long_and_short_k_take_more_turns_on_a_gpu_whose_clock_varies(monkeypatch):
    taken = []
    known = times(lambda name: 1e-6)

    def interleaved(works, **options):
        taken.append((set(works), options["samples"]))
        return known(works, **options)

    monkeypatch.setattr(product_rates, "interleaved", interleaved)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA L4")
    replace(gemm_tensor_cores, quick=dict(gpu_sizes=(32,), starts=(32,), convolution=(2, 8, 8), lengths=(16, 4096)))("quick")
    assert [samples for works, samples in taken if works == {"long", "short"}] == [25]


@pytest.mark.parametrize(("fp16", "bf16", "holds"), [(2e-3, 4e-3, True), (7.9e-3, 8e-3, False)])
def test_each_loop_of_amp_is_compared_with_fp32_and_a_gain_within_the_noise_is_none(monkeypatch, sound, fp16, bf16, holds):
    known = {AMP_FP16: fp16, AMP_BF16: bf16, FP32_WITH_TF32: 5e-3}
    monkeypatch.setattr(loop_measurements, "interleaved", times(lambda name: known.get(name, 8e-3)))
    result = replace(amp_training, quick=SMALL_AMP)("quick")
    sound(result)
    assert [row.gain for row in result.rows(LoopRow)] == [None, pytest.approx(8e-3 / fp16), pytest.approx(8e-3 / bf16)]
    assert result.here("fp32 with TF32 over fp32") == pytest.approx(1.6)
    default = 5e-3 / fp16 if holds else 5.1e-3 / fp16  # the half of the placebo that is nearer to 1
    assert result.here("AMP over torch's default, fp32 with TF32 in convolutions") == pytest.approx(default)
    assert result.here("the lecture's loop, fp16 and scaler, over fp32") == pytest.approx(8e-3 / fp16)
    [claim] = [claim for claim in result.claims if claim.text.startswith("AMP is faster than fp32, and than torch's default")]
    assert claim.holds == holds and FP32_WITH_TF32 in claim.measured and "; than the default: " in claim.measured


def test_a_t4_has_no_tf32_and_no_word_about_it(monkeypatch, said_to_be_a_gpu):
    said_to_be_a_gpu(SaidToBeT4, torch.float16)
    timed = []

    def interleaved(works, **options):
        timed.append(list(works))
        return times(lambda name: 2e-3 if name == AMP_FP16 else 8e-3)(works, **options)

    monkeypatch.setattr(loop_measurements, "interleaved", interleaved)
    result = replace(amp_training, quick=SMALL_AMP)("quick")
    assert timed == [[FP32, AMP_FP16]]
    assert result.here("AMP over torch's default, fp32 with TF32 in convolutions") == result.here("AMP over fp32") == 4
    assert not any("TF32" in note for note in result.notes) and not any("TF32" in claim.text for claim in result.claims)


@pytest.mark.parametrize(("free", "largest"), [(15e9, 8192), (7e9, 4096)])
def test_the_largest_product_is_left_out_where_it_does_not_fit(free, largest):
    params = registry.Params(device=None, **gemm_tensor_cores.full)
    gemm_tensor_cores.fits.to(params, free)
    assert params.gpu_sizes[-1] == largest
