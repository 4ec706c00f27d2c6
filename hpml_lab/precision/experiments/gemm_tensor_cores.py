"""Matrix products by number format: rate, kernel, error, and sizes that are multiples of 8."""

import torch

from hpml_lab.core.experiment.findings import Table
from hpml_lab.core.experiment.fits import Fits
from hpml_lab.core.experiment.registry import Params, experiment
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.show import style
from hpml_lab.precision import gemm
from hpml_lab.precision.data_sheets import sheet_peaks
from hpml_lab.precision.products import (
    HighestRate,
    NeighborSize,
    ProductRate,
    SumError,
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


def sums_of_ones() -> dict[str, float]:
    """4096 products 1 · 1 added one after the other, with the sum kept in three formats."""
    ones = torch.ones(1, 4096, dtype=torch.float16)
    formats = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    return {name: gemm.accumulate(ones, ones, dtype, (4096,))[4096].item() for name, dtype in formats.items()}


def fp16_products_are_exact() -> bool:
    """Whether fp32 holds the product of any two fp16 significands exactly."""
    significands = torch.linspace(1, 2, 1025)[:-1].half()
    in_fp32 = significands.float()[:, None] * significands.float()
    return torch.equal(in_fp32.double(), significands.double()[:, None] * significands.double())


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
    kernels = {name: {row.kernel for row in rates if row.number_format == name} for name in (top.name, "fp32")}
    other_kernels = kernels[top.name] - kernels["fp32"] - {gemm.UNSEEN}

    tables = [
        Table("Matrix products", rates),
        Table("Highest rate of each format, alone", highest),
        Table("Sizes around a multiple of 8", [row for rows, _ in around.values() for row in rows]),
        Table("Sums of K fp16 products", errors),
    ]
    result = Result(tables, arrays={"peaks": peaks})
    for name, rate in best.items():
        result.key_figure(f"best {name}", rate, unit="TFLOP/s")
        if name in peaks:
            result.key_figure(f"data sheet {name}", peaks[name], unit="TFLOP/s")
    lecture = "up to 8 (fp16 factors, fp32 sums; V100)"
    result.key_figure("16-bit over fp32, highest rate of each", half.tflops / single.tflops, unit="times", lecture=lecture)
    if half.per_cycle and single.per_cycle:
        result.key_figure("the same per clock cycle", half.per_cycle / single.per_cycle, unit="times")
    if half.sheet and single.sheet:
        result.key_figure("the same by the data sheet", half.sheet / single.sheet, unit="times")
    result.key_figure("multiples of 8 over the sizes between", str(around[params.starts[-1]][1]))

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
        "torch's FLOP counter gives 2MNK for each shape",
        all(row.counted_flop == gemm.flops(row.m, row.n, row.k) for row in rates),
        f"{len(rates)} products",
    )
    result.claim("The product of any two fp16 significands is exact in fp32", fp16_products_are_exact(), "1024 × 1024 products")
    result.claim(
        "Added one after the other, 4096 ones give 4096 in an fp32 sum, 2048 in an fp16 sum and 256 in a bf16 sum",
        sums_of_ones() == {"fp32": 4096.0, "fp16": 2048.0, "bf16": 256.0},
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
    result.measured("16-bit factors run a different kernel than fp32", bool(other_kernels), ", ".join(other_kernels)[:120])
    result.check(
        "The bound rejects a product of zeros, and one with its columns in another order",
        all(row.wrong_ratio > 1 for row in rates),
        f"at least {min(row.wrong_ratio for row in rates):.2g} times the bound",
    )
    result.notes += [f"Not measured here: {reason}." for reason in lacks]
    if found.slow:
        result.notes.append(f"This processor has no fast {' and '.join(found.slow)} product: larger sizes were left out.")
    if not params.device.is_cuda:
        result.notes.append(
            "No CUDA GPU here: no tensor cores and no data-sheet peak; run `hpml-lab run gemm-tensor-cores --size full` on a "
            "machine with one."
        )
    elif not peaks:
        result.notes.append(f"The table of data-sheet peaks (hpml_lab/precision/data_sheets.py) does not contain the {gpu}.")
    return result
