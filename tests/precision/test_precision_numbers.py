"""Number formats, matrix products by format and lost updates."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from hpml_lab.core.experiment import Params
from hpml_lab.core.system.device import choose_device
from hpml_lab.core.timing.clock import PLACEBO, Timing
from hpml_lab.precision import fp16_vs_bf16, gemm_tensor_cores
from hpml_lab.precision.experiments.fp16_vs_bf16 import FormatRow
from hpml_lab.precision.experiments.fp16_vs_bf16.stored_descent import STORAGES, descend
from hpml_lab.precision.experiments.gemm_tensor_cores import gemm, product_rates, sheet_peaks
from hpml_lab.precision.experiments.gemm_tensor_cores.product_rates import NeighborChannels, NeighborSize, ProductRate, SumError
from hpml_lab.precision.lessons.formats import BF16, FORMATS, FP16, from_bits, is_lost, round_stochastically
from hpml_lab.precision.lessons.sums import accumulate

CPU = torch.device("cpu")


def test_fp16_vs_bf16(sound, ran):
    result = ran("fp16-vs-bf16")
    sound(result)
    formats = {row.number_format: row for row in result.rows(FormatRow)}
    assert formats["fp16"].largest == 65504 and formats["fp16"].smallest == 2.0**-24
    assert formats["bf16"].spacing_at_1000 == 4 and formats["fp8 e4m3"].largest == 448
    assert all(len(curve["magnitude"]) == len(curve["spacing"]) > 10 for curve in result.arrays["spacing"].values())
    assert result.here("updates lost, bf16") > result.here("updates lost, fp16") > 50
    assert {name: row.exact_integers for name, row in formats.items()} == {
        "fp32": 2**24, "tf32": 2**11, "bf16": 2**8, "fp16": 2**11, "fp8 e5m2": 2**3, "fp8 e4m3": 2**4
    }  # fmt: skip
    spacing = result.arrays["spacing"]["fp16"]
    assert dict(zip(spacing["magnitude"], spacing["spacing"], strict=True)).items() >= {
        2.0**-24: 2.0**-24, 2.0**-14: 2.0**-24, 1.0: 2.0**-10, 2.0**15: 2.0**5
    }.items()  # fmt: skip
    runs = {storage.name: descend(storage, 500, 1200, 0.01, CPU) for storage in STORAGES}
    for name, curve in result.arrays["losses"].items():
        assert curve["loss"] == [runs[name].losses[step] for step in curve["step"]], f"the curve of {name} is that of its run"


def test_gemm_tensor_cores_on_the_cpu(sound, ran):
    result = ran("gemm-tensor-cores")
    sound(result)
    rows = result.rows(ProductRate)
    assert all(row.sheet_share is None for row in rows), "no data sheet is made up for a CPU"
    assert not [figure for figure in result.key_figures if "data sheet" in figure.label]
    assert any("no data-sheet peak" in note for note in result.notes)
    assert all(row.kernel and row.counted_flop == gemm.flops(row.m, row.n, row.k) and row.wrong_ratio > 1 for row in rows)
    assert {row.number_format for row in rows} >= {"fp32"}


def test_with_known_times_every_number_of_the_products_is_what_they_say(monkeypatch):
    def known_times(works, placebo=None, **_):
        """fp32 takes 4 ms, 16 bits 2 ms, and so do long and short K; in the neighboring sizes a FLOP takes 3 times as long
        between multiples of 8. The placebo is 1 % slower. Alone, without a placebo, a product takes as long as in turns."""
        seconds = {name: 4e-3 if name in ("fp32", "short") else 2e-3 for name in works}
        seconds |= {n: gemm.flops(*[int(n)] * 3) * (1e-9 if int(n) % 8 == 0 else 3e-9) for n in works if n.isdigit()}
        if placebo is None:
            return {name: Timing((time,), 1) for name, time in seconds.items()}
        seconds[PLACEBO] = seconds[placebo] * 1.01
        return {name: Timing((time, 0.5 * time, 9 * time), 1) for name, time in seconds.items()}

    monkeypatch.setattr(product_rates, "interleaved", known_times)
    small_sizes = dict(sizes=(16, 32), gpu_sizes=(64,), starts=(96,), convolution=(2, 8, 8), lengths=(16, 4096))
    result = replace(gemm_tensor_cores, quick=small_sizes)("quick", device="cpu")
    rows = {(row.number_format, row.m, row.k): row for row in result.rows(ProductRate)}
    fp32, half, small = rows["fp32", 32, 32], rows["fp16", 32, 32], rows["fp32", 16, 16]
    assert fp32.time_ms == 4 and half.time_ms == 2
    assert fp32.tflops == pytest.approx(2 * 32**3 / 4e-3 / 1e12) == pytest.approx(half.tflops / 2)
    assert fp32.intensity == 2 * 32**3 / (3 * 4 * 32**2) == half.intensity / 2
    assert (fp32.best_share, small.best_share) == (1, pytest.approx(1 / 8))
    assert result.here("best fp32") == fp32.tflops
    assert result.here("16-bit over fp32, highest rate of each") == pytest.approx(2)
    assert result.here("16-bit over fp32, at most") == pytest.approx(2), "as in older recorded runs"
    assert (half.gain, half.interval, fp32.gain) == (pytest.approx(2), "2 to 2.02", None)
    assert result.here("multiples of 8 over the sizes between") == "3× faster (3 to 3.03; noise ±1 %)"
    assert [row.channels for row in result.rows(NeighborChannels)] == list(range(8, 17))
    neighbors = result.rows(NeighborSize)
    assert [row.n for row in neighbors] == list(range(96, 105)), "both multiples of 8 and all between"
    assert neighbors[0].time_ms == pytest.approx(0.5 * 2 * 96**3 * 1e-9 * 1e3), "the shortest of the samples"
    [shapes] = [claim for claim in result.claims if "long K" in claim.text]
    assert shapes.holds and shapes.measured.startswith("2× faster (2 to 2.02; noise ±1 %)")
    assert all(row.error < 1 for row in result.rows(SumError)), "relative: a sum that stops growing is off by less than itself"


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.name)
def test_the_spacing_is_the_distance_to_the_next_number(form):
    for x in (form.smallest_subnormal, form.smallest_normal, 1.0, 1.75, 2.0, 100.0):
        number = form.round(torch.tensor([x], dtype=torch.float64)).item()
        spacing = form.spacing(number)
        near = torch.tensor([number + 0.49 * spacing, number + 0.51 * spacing], dtype=torch.float64)
        assert form.round(near).tolist() == [number, number + spacing]


def test_too_large_becomes_infinite_and_ties_go_to_the_even_one():
    x = torch.tensor([65519.99, 65520.0, -65520.0, math.inf, 1 + 2.0**-11, 1 + 3 * 2.0**-11], dtype=torch.float64)
    assert FP16.round(x).tolist() == [65504.0, math.inf, -math.inf, math.inf, 1.0, 1 + 2 * 2.0**-10]


def test_below_a_power_of_two_half_an_update_is_enough():
    one, down = torch.ones(1, dtype=torch.float64), torch.tensor([-0.4 * FP16.eps], dtype=torch.float64)
    assert not is_lost(one, down, FP16) and is_lost(one, -down, FP16)
    assert (one.half() + down.half()).item() < 1 == (one.half() - down.half()).item()


def test_stochastic_rounding_keeps_what_fits_and_gives_only_the_neighbors():
    x = torch.tensor([1.0, 1.5, -2.25, 1.001, -1.001])
    rounded = torch.stack([round_stochastically(x, torch.Generator().manual_seed(seed)).float() for seed in range(50)])
    assert (rounded[:, :3] == x[:3]).all()
    assert set(rounded[:, 3].tolist()) == {1.0, 1 + BF16.eps} and set(rounded[:, 4].tolist()) == {-1.0, -1 - BF16.eps}


def test_a_weight_stops_where_the_spacing_says_and_goes_on_with_a_master():
    runs = {storage.name: descend(storage, 50, 1200, 0.01, CPU) for storage in STORAGES}
    assert runs["fp16"].stuck == runs["bf16"].stuck == 50
    assert 0.03 < runs["fp16"].distance <= 1.01 * FP16.eps / 0.02
    assert runs["fp16, fp32 master"].distance < 1.01 * FP16.eps
    assert runs["bf16, stochastic rounding"].losses[-1] < runs["bf16"].losses[-1] / 100


def factors(mode, m, n, k):
    return gemm.stored(mode, *gemm.normal_factors(m, n, k, CPU))


def on_tensor_cores(mode, a, b):
    """The product (float64) as a tensor core computes it: blocks of products are added to the sum, all cut off where the
    largest has its last bit. Fasi, Higham, Mikaitis and Pranesh, Numerical behavior of NVIDIA tensor cores (2021)."""
    if mode is gemm.TF32:  # the unit reads 10 fraction bits
        a, b = ((x.contiguous().view(torch.int32) & -(2**13)).view(torch.float32) for x in (a, b))
    a, b, bits = a.double(), b.double(), -math.log2(mode.u_sum)
    block = {gemm.FP8: 32, gemm.TF32: 4}.get(mode, 8)

    def unit(largest):
        return torch.exp2(torch.floor(torch.log2(largest.clamp(min=2.0**-100))) - bits)

    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64)
    for k in range(0, a.shape[1], block):
        products = a[:, k : k + block, None] * b[None, k : k + block]
        last = unit(torch.maximum(products.abs().amax(1), total.abs()))
        total = ((products / last[:, None]).trunc() * last[:, None]).sum(1) + (total / last).trunc() * last
        total = (total / unit(total.abs())).trunc() * unit(total.abs())
    return total.to(mode.out).double()


MODES = [gemm.FP32, gemm.TF32, gemm.FP16, gemm.BF16, gemm.FP8]
ALL_SHAPES = sorted({
    shape for params in (gemm_tensor_cores.quick, gemm_tensor_cores.full) for gpu in (False, True)
    for shape in product_rates.shapes(Params(**params, device=SimpleNamespace(is_cuda=gpu)))
})  # fmt: skip


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("k", sorted({k for _, _, k in ALL_SHAPES}))
def test_the_bound_holds_on_tensor_cores_and_rejects_zeros_and_permuted_columns_for_every_k(mode, k):
    a, b = factors(mode, 8, 24, k)
    right, wrong = product_rates.error_ratios(mode, a, b, on_tensor_cores(mode, a, b))
    assert 0 < right <= 1 < 2 < wrong


def test_a_product_whose_sums_are_kept_in_too_few_bits_exceeds_the_bound():
    a, b = factors(gemm.BF16, 8, 24, 4096)
    coarse = on_tensor_cores(replace(gemm.BF16, u_sum=2.0**-10), a, b)
    assert product_rates.error_ratios(gemm.BF16, a, b, coarse)[0] > 1


@pytest.mark.parametrize("mode", [gemm.FP32, gemm.FP16, gemm.BF16], ids=lambda mode: mode.name)
def test_the_bound_holds_and_can_be_exceeded(mode):
    a, b = factors(mode, 24, 40, 96)
    right, bound = a.double() @ b.double(), gemm.error_bound(mode, a, b)
    assert ((gemm.product(mode, a, b).double() - right).abs() <= bound).all()
    coarse = right.float().to(torch.float8_e5m2).double()  # a product stored in too few bits exceeds it
    assert ((coarse - right).abs() > bound).any()


def test_emulated_tf32_stays_within_its_bound():
    a, b = factors(gemm.TF32, 24, 40, 96)
    cut = [(x.view(torch.int32) & -(2**13)).view(torch.float32) for x in (a, b)]  # the unit reads 10 fraction bits
    error = ((cut[0] @ cut[1]).double() - a.double() @ b.double()).abs()
    assert (error <= gemm.error_bound(gemm.TF32, a, b)).all() and (error > gemm.error_bound(gemm.FP32, a, b)).any()


def test_the_settings_are_restored_even_after_an_error():
    matmul = torch.backends.cuda.matmul
    before = matmul.fp32_precision, matmul.allow_fp16_reduced_precision_reduction
    with pytest.raises(KeyError), gemm.matmul_settings(gemm.TF32):
        assert matmul.fp32_precision == "tf32" and matmul.allow_fp16_reduced_precision_reduction is False
        raise KeyError
    assert (matmul.fp32_precision, matmul.allow_fp16_reduced_precision_reduction) == before
    torch.get_float32_matmul_precision()  # raises if the old and the new API were left mixed


@pytest.mark.parametrize(
    "gpu, fp16",
    [
        ("Tesla P100-SXM2-16GB", 21.2),
        ("Tesla V100-SXM2-32GB", 125),
        ("Tesla T4", 65),
        ("A100-PCIE-40GB", 312),
        ("A100-SXM-80GB", 312),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA A100-PCIE-40GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("NVIDIA A100-SXM4-40GB MIG 3g.20gb", None),
        ("GRID A100-10C", None),
        ("NVIDIA L4", 121),
        ("NVIDIA L40S", 362),
        ("NVIDIA H100 80GB HBM3", 989.5),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835.5),
        ("NVIDIA H200", 989.5),
        ("NVIDIA H200 NVL", 835.5),
        ("NVIDIA H200 MIG 1g.18gb", None),
        ("NVIDIA GH200 480GB", 989.5),
        ("NVIDIA GH200 144G HBM3e", 989.5),
        ("NVIDIA GeForce RTX 4090", 165.2),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3090 Ti", None),
        ("NVIDIA L40", None),
        ("", None),
    ],
)
def test_the_data_sheet_is_that_of_exactly_this_gpu(gpu, fp16):
    assert sheet_peaks(gpu).get("fp16") == fp16


def test_the_lectures_eightfold_is_that_of_the_data_sheet():
    v100 = sheet_peaks("Tesla V100-SXM2-16GB")
    assert v100["fp16"] / v100["fp32"] == pytest.approx(8, rel=0.01)


def test_on_a_gpu_a_product_is_captured_with_its_own_settings_and_timed_between_events(monkeypatch):
    """A GPU's tensors and timing are replaced: what counts is which settings the captured and the timed work see."""
    matmul, seen, asked = torch.backends.cuda.matmul, [], {}
    gpu, factor = torch.device("cuda:0"), SimpleNamespace(is_cuda=True, device=torch.device("cuda:0"))

    def captured(work, device):
        seen.append((device, matmul.fp32_precision))
        return lambda: seen.append(("replayed", matmul.fp32_precision))

    monkeypatch.setattr(product_rates, "captured", captured)
    monkeypatch.setattr(product_rates, "interleaved", lambda works, **options: asked.update(options))
    for mode in (gemm.TF32, gemm.FP16):
        product_rates.timed_product(mode, factor, factor)()
    before = matmul.fp32_precision
    assert seen == [(gpu, "tf32"), ("replayed", before), (gpu, "ieee"), ("replayed", before)]
    product_rates.timed_in_turns({}, "fp32", gpu)
    assert (asked["gpu"], asked["placebo"]) == (gpu, "fp32")
    product_rates.timed_in_turns({}, "fp32", CPU)
    assert asked["gpu"] is None


def test_a_profiler_that_sees_no_kernels_is_no_error(monkeypatch):
    monkeypatch.setattr(gemm, "kernels", lambda work, device: [])
    assert gemm.kernel_name(lambda: None, torch.device("cuda:0")) == gemm.UNSEEN


def test_finding_the_kernels_name_does_not_change_standard_output(capfd):
    a, b = factors(gemm.FP32, 64, 64, 64)
    print("before", flush=True)
    name = gemm.kernel_name(lambda: a @ b, CPU)
    print("after", flush=True)
    assert name and capfd.readouterr().out == "before\nafter\n"


SHORT = [form for form in FORMATS if form.dtype and form.bits <= 16]


def test_formats_agree_with_torch():
    for form in FORMATS:
        if form.dtype:
            info = torch.finfo(form.dtype)
            assert (info.max, info.smallest_normal, info.eps) == (form.largest, form.smallest_normal, form.eps)


@pytest.mark.parametrize("form", SHORT, ids=lambda form: form.name)
def test_every_number_derived_from_its_bits_is_the_one_that_torch_reads(form):
    assert torch.equal(form.values(), from_bits(form))


@pytest.mark.parametrize("form", SHORT, ids=lambda form: form.name)
def test_torch_rounds_to_the_nearest_number_and_ties_to_even(form):
    """At every number of the format, at every midpoint of two, and at the fp32 numbers next to the midpoints."""
    values = form.values()
    midpoints = ((values[1:] + values[:-1]) / 2).float()
    neighbors = [torch.nextafter(midpoints, torch.tensor(end)).double() for end in (0.0, 1e38)]
    x = torch.cat([values, -values, midpoints.double(), -midpoints.double(), *neighbors])
    assert torch.equal(form.round(x), x.float().to(form.dtype).double())


@pytest.mark.parametrize("form", [FP16, BF16], ids=lambda form: form.name)
def test_integers_are_exact_up_to_the_one_that_the_row_says(form):
    n = 2 ** (form.fraction + 1)
    integers = torch.arange(n + 2, dtype=torch.float64)
    assert (integers.to(form.dtype).double() == integers).tolist() == [True] * (n + 1) + [False]


def test_sums_of_ones_stop_where_one_more_is_half_the_spacing():
    ones = torch.ones(1, 4096, dtype=torch.float16)
    sums = [accumulate(ones, ones, dtype, (4096,))[4096].item() for dtype in (torch.float32, torch.float16, torch.bfloat16)]
    assert sums == [4096, 2048, 256]


def test_the_product_of_two_fp16_numbers_is_exact_in_fp32():
    significands = torch.linspace(1, 2, 1025)[:-1].half()
    in_fp32 = significands.float()[:, None] * significands.float()
    assert torch.equal(in_fp32.double(), significands.double()[:, None] * significands.double())


@pytest.mark.cuda
def test_tensor_cores_run_16_bits_by_another_kernel_and_within_the_bound(sound):
    result = gemm_tensor_cores("quick", device="cuda:0")
    sound(result)
    rows = result.rows(ProductRate)
    kernels = {name: {row.kernel for row in rows if row.number_format == name} for name in ("fp32", "fp16")}
    assert kernels["fp16"] and not kernels["fp16"] & kernels["fp32"]
    if choose_device("cuda").can("fp8"):
        assert result.here("best fp8 e4m3") > 0


@pytest.mark.cuda
def test_updates_are_lost_on_a_gpu_as_predicted(sound):
    sound(fp16_vs_bf16("quick", device="cuda:0"))
