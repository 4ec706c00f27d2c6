"""Matrix products by number format: rate, kernel, error, and sizes that are multiples of 8."""

import re

import torch

from hpml_lab.core.experiment import Fits, Params, Result, Table, experiment
from hpml_lab.core.show import style
from hpml_lab.precision.experiments.gemm_tensor_cores import gemm
from hpml_lab.precision.experiments.gemm_tensor_cores.product_rates import (
    HighestRate,
    NeighborSize,
    ProductRate,
    SumError,
    channels_around_multiples,
    gain_of_long_k,
    gpu_bytes,
    highest_rates,
    products,
    sizes_around_multiples,
    sum_errors,
    within_fp32_bound,
)

QUICK = dict(sizes=(128, 256, 512), gpu_sizes=(128, 256, 512, 4096), starts=(1000,), lengths=(16, 64, 256, 1024, 4096))
FULL = dict(sizes=(512, 1024, 2048, 4096), gpu_sizes=(512, 1024, 2048, 4096, 8192), starts=(1000, 4088))
FULL |= dict(lengths=(4, 16, 64, 256, 1024, 4096, 16384))
QUICK |= dict(convolution=(8, 28, 56))  # images, their side, and channels from which on
FULL |= dict(convolution=(32, 28, 248))

_HOPPER_SXM = {"fp32": 67, "tf32": 494.5, "fp16": 989.5, "bf16": 989.5, "fp8 e4m3": 1979}
_HOPPER_NVL = {"fp32": 60, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8 e4m3": 1670.5}
# Dense peaks in TFLOP/s (no sparsity), with fp32 accumulation (P100: fp16 arithmetic), by a pattern of
# torch.cuda.get_device_name(). Sources: NVIDIA's data sheets of the P100, V100, T4, A100, L4, L40S, H100, H200 and GH200, which
# give the newer ones with sparsity (twice as much), and the white papers of the GA102 and AD102 chips for the GeForce cards.
# A pattern that ends with $ leaves out a part of a GPU (MIG) and a virtual one: their names continue.
PEAKS: dict[str, dict[str, float]] = {
    r"P100-SXM2": {"fp32": 10.6, "fp16": 21.2},
    r"P100-PCIE": {"fp32": 9.3, "fp16": 18.7},
    r"V100-SXM2": {"fp32": 15.7, "fp16": 125},
    r"V100-PCIE": {"fp32": 14, "fp16": 112},
    r"\bT4$": {"fp32": 8.1, "fp16": 65},
    r"^(NVIDIA )?A100-(SXM4?|PCIE)-[48]0GB$|\bA100 80GB PCIe$": {"fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312},
    r"\bL4$": {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "fp8 e4m3": 242.5},
    r"\bL40S$": {"fp32": 91.6, "tf32": 183, "fp16": 362, "bf16": 362, "fp8 e4m3": 733},
    r"\bH100 PCIe$": {"fp32": 51, "tf32": 378, "fp16": 756, "bf16": 756, "fp8 e4m3": 1513},
    r"\bH100 NVL$|\bH200 NVL$": _HOPPER_NVL,
    r"\bH100( SXM5)?( 80GB)?( HBM3)?$|\bH200( SXM5?)?( 141GB)?( HBM3e)?$|\bGH200( \d+GB?)?( HBM3e?)?$": _HOPPER_SXM,
    r"RTX 3090$": {"fp32": 35.6, "tf32": 35.6, "fp16": 71, "bf16": 71},
    r"RTX 4090$": {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8 e4m3": 330.3},
}


def sheet_peaks(gpu: str) -> dict[str, float]:
    """The data sheet's dense peaks in TFLOP/s by number format for the GPU called `gpu`; empty if the table has no such GPU."""
    return next((peaks for pattern, peaks in PEAKS.items() if re.search(pattern, gpu)), {})


def draw(result: Result):
    """Left: TFLOP/s of square products by size, one line per format, with the data sheet's peak dashed if it is known. Middle:
    time of products around a multiple of 8 (green), relative to the fastest. Right: largest relative error of a sum of K
    positive fp16 products, with the sum kept in fp16, bf16 and fp32."""
    figure = style.new_figure(9, 3.8)
    rates, neighbors, errors = figure.subplots(1, 3)
    rows = [row for row in result.rows(ProductRate) if row.is_square]
    names = list(dict.fromkeys(row.number_format for row in rows))
    for name, color, marker in zip(names, style.CYCLE, style.MARKERS, strict=False):
        shown = [row for row in rows if row.number_format == name]
        rates.plot([row.n for row in shown], [row.tflops for row in shown], marker, ls="-", color=color, label=name)
        if peak := result.arrays["peaks"].get(name):
            rates.axhline(peak, ls="--", color=color, lw=1)
    rates.set_xscale("log", base=2)
    rates.set_yscale("log")
    rates.set(xlabel="M = N = K", ylabel="TFLOP/s", title="rate by format")
    rates.legend(fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.25), ncols=3)
    sizes = result.rows(NeighborSize)
    sizes = [row for row in sizes if row.start == sizes[-1].start]
    fastest = min(row.time_ms for row in sizes)
    bars = neighbors.bar(
        range(len(sizes)),
        [row.time_ms / fastest for row in sizes],
        color=[style.GREEN if row.is_multiple else style.ORANGE for row in sizes],
        edgecolor="white",
    )
    for bar, row in zip(bars, sizes, strict=True):
        bar.set_hatch(None if row.is_multiple else "///")
    neighbors.set_xticks(range(len(sizes)), [row.n for row in sizes], rotation=60)
    neighbors.grid(axis="x", visible=False)
    neighbors.set_axisbelow(True)
    neighbors.set(xlabel="M = N = K (plain: multiple of 8)", ylabel="time / fastest", title=f"sizes, {sizes[0].number_format}")
    for name, marker, color in zip(
        ("fp16", "bf16", "fp32"), style.MARKERS, (style.RED, style.PURPLE, style.BLUE), strict=False
    ):
        curve = [row for row in result.rows(SumError) if row.sum_format == name]
        errors.plot([row.k for row in curve], [row.error for row in curve], marker, ls="-", color=color, label=f"{name} sum")
    errors.set_xscale("log", base=2)
    errors.set_yscale("log")
    errors.set(xlabel="K, products added", ylabel="largest relative error", title="format of the sum")
    errors.legend(fontsize=8)
    return figure


@experiment(
    "gemm-tensor-cores",
    lecture="L1",
    notebook="12_precision",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("cuda",),
    fits=Fits(gpu_bytes, scale="gpu_sizes", least=3),
)
def gemm_tensor_cores(params: Params) -> Result:
    """Matrix products by number format: rate, kernel, error, and multiples of 8."""
    device = params.device.torch
    modes, lacks = gemm.modes(params.device)
    gpu = torch.cuda.get_device_name(device) if params.device.is_cuda else ""
    peaks = sheet_peaks(gpu)
    with gemm.matmul_settings(gemm.FP32):
        found = products(params, modes)
        rates: list[ProductRate] = found.rows
        fast_modes = [mode for mode in modes if mode.stored.itemsize == 2 and mode.name not in found.slow]
        top = fast_modes[-1] if fast_modes else gemm.FP32
        around = {start: sizes_around_multiples(params, top, start) for start in params.starts}
        channels, channels_gain = channels_around_multiples(params, top)
        long_k = gain_of_long_k(params, top)
        highest: list[HighestRate] = highest_rates(params, modes, rates, peaks)
    alone = {row.number_format: row for row in highest}
    best = {name: max(row.tflops, *(r.tflops for r in rates if r.number_format == name)) for name, row in alone.items()}
    for row in rates:
        row.best_share = row.tflops / best[row.number_format]
        row.sheet_share = row.tflops / peaks[row.number_format] if row.number_format in peaks else None
    errors = sum_errors(params.lengths)
    longest = {row.sum_format: row.error for row in errors if row.k == params.lengths[-1]}
    by_sum = {name: within_fp32_bound([row for row in errors if row.sum_format == name]) for name in longest}

    short_names = [mode.name for mode in modes if mode.stored.itemsize == 2]
    gains = {(name, n): gain for (name, m, n, k), gain in found.speed_ups.items() if m == n == k and name in short_names}
    largest = max(row.n for row in rates if row.is_square)
    halves = [alone[name] for name in short_names]
    half, single = max(halves, key=lambda row: row.tflops), alone["fp32"]

    tables = [
        Table("Matrix products", rates),
        Table("Best shape of each format, alone", highest),
        Table("Sizes around a multiple of 8", [row for rows, _ in around.values() for row in rows]),
        Table("Convolutions with channels around a multiple of 8", channels),
        Table("Sums of K fp16 products", errors),
    ]
    result = Result(tables, arrays={"peaks": peaks})
    for name, rate in best.items():
        result.key_figure(f"best {name}", rate, unit="TFLOP/s")
        if name in peaks:
            result.key_figure(f"data sheet {name}", peaks[name], unit="TFLOP/s")
    lecture = "up to 8 (fp16 factors, fp32 sums; V100)"
    if gains:
        most = max(gain.ratio for gain in gains.values())
        result.key_figure("16-bit over fp32, at most", most, unit="times", lecture=lecture)
    result.key_figure("16-bit over fp32, highest rate of each", half.tflops / single.tflops, unit="times", lecture=lecture)
    if half.per_cycle and single.per_cycle:
        result.key_figure("the same per clock cycle", half.per_cycle / single.per_cycle, unit="times")
    if half.sheet and single.sheet:
        result.key_figure("the same by the data sheet", half.sheet / single.sheet, unit="times")
    result.key_figure("multiples of 8 over the sizes between", str(around[params.starts[-1]][1]))
    result.key_figure("the same of a convolution's channels", str(channels_gain))

    summed = [row.error_ratio for row in rates if row.number_format != gemm.FP8.name]
    result.claim(
        "Every element of every product that is summed in fp32 is as close to float64 as its format allows",
        max(summed) <= 1,
        f"at most {max(summed):.2f} of the bound",
    )
    if eighths := [row.error_ratio for row in rates if row.number_format == gemm.FP8.name]:
        result.measured(
            "fp8 products, too, are as close as a sum of which 14 bits are kept allows, as on Hopper",
            max(eighths) <= 1,
            f"at most {max(eighths):.2f} of the bound",
        )
    result.claim(
        "fp16 products summed in fp32 stay within the error bound of fp32 sums; summed in 16 bits they exceed it",
        by_sum["fp32"] and not by_sum["fp16"] and not by_sum["bf16"],
        ", ".join(f"{name} sum: {error:.1e}" for name, error in longest.items()) + f" at K = {params.lengths[-1]}",
    )
    result.measured(
        "16-bit factors are multiplied faster than fp32 at the largest size",
        any(gain.faster for (_, n), gain in gains.items() if n == largest),
        ", ".join(f"{name} {n}: {gain}" for (name, n), gain in gains.items()),
    )
    result.measured(
        "A FLOP is cheaper in multiples of 8 than in the sizes between them",
        all(gain.faster for _, gain in around.values()),
        ", ".join(f"from {start}: {gain}" for start, (_, gain) in around.items()),
    )
    result.measured("Of shapes with equally many FLOP, long K is faster than short K", long_k.faster, f"{long_k} ({top.name})")
    result.notes += [f"Not measured here: {reason}." for reason in lacks]
    if found.slow:
        result.notes.append(f"This processor has no fast {' and '.join(found.slow)} product: larger sizes were left out.")
    if not params.device.is_cuda:
        result.notes.append(
            "No CUDA GPU here: no tensor cores and no data-sheet peak; run `hpml-lab run gemm-tensor-cores --size full` on a "
            "machine with one."
        )
    elif not peaks:
        result.notes.append(
            f"The table of data-sheet peaks (hpml_lab/precision/experiments/gemm_tensor_cores) does not contain the {gpu}."
        )
    return result
