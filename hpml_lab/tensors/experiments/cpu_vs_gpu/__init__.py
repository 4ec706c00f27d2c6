"""CPU against GPU: how fast each copies, multiplies and runs a small CNN, and where its kernels stand under the roofline."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.timing.noise import SpeedUp, speed_up
from hpml_lab.core.timing.roofline import draw_roof
from hpml_lab.core.timing.threads import all_threads
from hpml_lab.core.timing.clock import STUCK, Ceiling, ceiling, interleaved, launch_seconds, measure, stuck
from hpml_lab.core.show import style
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.tensors.experiments.cpu_vs_gpu import workloads
from hpml_lab.tensors.experiments.cpu_vs_gpu.memories import Cache, caches
from hpml_lab.tensors.experiments.cpu_vs_gpu.comparisons import (
    GpuGain,
    PeakShare,
    counted,
    faster_from,
    fastest_training,
    gain_per,
    on_each_device,
    peak_shares,
    processor_time,
    time_copy,
)
from hpml_lab.tensors.experiments.cpu_vs_gpu.rows import Copy, Images, Product, Roofline, Transfer, times_of
from hpml_lab.tensors.experiments.cpu_vs_gpu.memories import BETWEEN, PINNED, transfers
from hpml_lab.tensors.experiments.cpu_vs_gpu.workloads import Workload

QUICK = {
    "copy_kib": (32, 256, 2048, 16384, 131072, 524288),
    "matmul": (32, 128, 512, 1024),
    "batches": (1, 8, 32),
    "elements": 1 << 25,
    "matvec": 8192,
    "transfer_mib": 64,
}
FULL = {
    "copy_kib": (32, 128, 512, 2048, 8192, 32768, 131072, 524288, 2097152),
    "matmul": (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    "batches": (1, 4, 16, 64, 256, 1024),
    "elements": 1 << 27,
    "matvec": 16384,
    "transfer_mib": 1024,
}

ONE_IS_SLOWER = 0.1  # seconds of a product on all threads: from here on it is not tried on one
TOO_LONG = 2.0  # seconds: a product that would take longer on the CPU is left out there
INFERENCE, TRAINING, PRODUCT = "inference", "training", "product"
CNN = {INFERENCE: workloads.cnn_inference, TRAINING: workloads.cnn_training}


def draw(result: Result):
    """Top left: copy bandwidth by working set, with the sizes of the caches. Top right: matrix product rate by size. Bottom
    left: images per second of a small CNN by batch size. Bottom right: roofline with the two limits measured in the same run;
    each kernel is a point, and the small points on a dotted line are the products by size."""
    figure = style.new_figure(9, 7.5)
    (bandwidth, product), (cnn, roof) = figure.subplots(2, 2)
    for i, device in enumerate(devices := list(dict.fromkeys(row.device for row in result.rows(Images)))):
        look = {"marker": style.MARKERS[i], "color": style.CYCLE[i]}
        bandwidth.plot(*_line(device, result.rows(Copy), "bytes"), label=device, **look)
        product.plot(*_line(device, result.rows(Product), "n"), label=device, **look)
        for work, line in ((INFERENCE, "-"), (TRAINING, "--")):
            rows = [row for row in _on(device, result.rows(Images)) if row.work == work]
            cnn.plot([row.batch for row in rows], [row.rate for row in rows], line, label=f"{device}, {work}", **look)
        products = _on(device, result.rows(Product))
        if limit := result.arrays["ceilings"].get(device):
            draw_roof(roof, Ceiling(limit["GB/s"], limit["GFLOP/s"], threads=1), look["color"], f"{device}: measured limits")
        points = [(row.kernel.split(",")[0], row.intensity, row.rate) for row in _on(device, result.rows(Roofline))]
        points.append((f"matmul, n={products[-1].n}", products[-1].intensity, products[-1].rate))
        roof.plot([x for _, x, _ in points], [y for _, _, y in points], linestyle="none", markersize=7, **look)
        roof.plot(*_line(device, result.rows(Product), "intensity"), ".:", color=look["color"], linewidth=1, markersize=5)
        points.append((f"n={products[0].n}", products[0].intensity, products[0].rate))
        *lower, upper = sorted((rate, kernel) for kernel, _, rate in points if kernel[:4] in ("conv", "matm"))
        where = {kernel: (-20, -16) for _, kernel in lower} | {upper[1]: (-20, 7), points[-1][0]: (-28, -3)}
        for kernel, x, y in points:
            roof.annotate(kernel, (x, y), xytext=where.get(kernel, (6, -11)), textcoords="offset points", fontsize=8)
    colors = dict(zip(devices, style.CYCLE, strict=False))
    # Each name on a line of its own: caches of two devices may lie close together.
    for i, cache in enumerate(result.rows(Cache)):
        bandwidth.axvline(cache.used, color=colors[cache.device], linestyle=":", linewidth=1)
        at = (cache.used, 0.02 + 0.05 * i), (2, 0), bandwidth.get_xaxis_transform(), "offset points"
        bandwidth.annotate(cache.name, *at, fontsize=8, color=colors[cache.device])
    bandwidth.set(xscale="log", xlabel="working set, bytes", ylabel="GB/s (read + written)", title="Copy bandwidth")
    product.set(xscale="log", yscale="log", xlabel="n of an n × n product", ylabel="GFLOP/s", title="Matrix product, float32")
    cnn.set(xscale="log", yscale="log", xlabel="batch size", ylabel="images/s", title="Small CNN, 28 × 28 images")
    for axes in (bandwidth, product, cnn, roof):
        axes.legend(fontsize=8, loc="lower right" if axes is roof else "best")
    roof.set(xlim=(None, 3e4), ylim=(None, 3 * roof.get_ylim()[1]))  # room for names
    if len(colors) == 1:
        bandwidth.set_ylim(bottom=0)
    else:  # a GPU's memory is ten times as fast and more
        bandwidth.set_yscale("log")
    return figure


def _on(device: str, rows: list) -> list:
    return [row for row in rows if row.device == device]


def _line(device: str, rows: list, size: str) -> tuple[list[float], list[float]]:
    """Sizes and rates of a device, with a gap at each size that only another device has."""
    rates = {getattr(row, size): row.rate for row in _on(device, rows)}
    sizes = sorted({getattr(row, size) for row in rows})
    return sizes, [rates.get(size, np.nan) for size in sizes]


@experiment("cpu-vs-gpu", lecture="L0 L2 L1", notebook="01_tensors", draw=draw, uses=("cuda",), quick=QUICK, full=FULL)
def cpu_vs_gpu(params: Params) -> Result:
    """CPU against GPU: bandwidth, matrix products, a small CNN, and the roofline."""
    # float32 on every device: by default a GPU's convolutions round their inputs to TF32.
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        return _measured(params)


def _measured(params: Params) -> Result:
    cpu, threads = torch.device("cpu"), all_threads()
    devices = [cpu, params.device.torch] if params.device.is_cuda else [cpu]
    limits, kernels, images = {}, [], []
    for device in devices:
        for kib in progress(params.copy_kib, f"copies on {device}"):
            work = workloads.copy(kib * 1024 // 8, device)  # source and target together fill the working set
            timing = counted(time_copy(work.work, device), work)
            kernels.append(Copy(str(device), *times_of(timing), kib * 1024, timing.gb_per_s))
        # The slope of the roofline is the largest of these copies.
        limits[str(device)] = replace(ceiling(device, threads=threads), gb_per_s=kernels[-1].rate)
        clock = measure if device.type == "cuda" else processor_time
        for work in progress(_kernels(params, device), f"kernels on {device}"):
            timing = counted(clock(work.work), work)
            rates = timing.gflop_per_s, timing.gb_per_s, timing.intensity, limits[str(device)].fraction(timing)
            kernels.append(Roofline(str(device), *times_of(timing), work.name, *rates))
    products, gains, left_out = multiply(params.matmul, devices)
    kernels += products
    for (work, make), batch in progress(list(itertools.product(CNN.items(), params.batches)), "small CNN"):
        times, gains[work, batch] = on_each_device({str(device): make(batch, device) for device in devices})
        images += [Images(name, *times_of(timing), work, batch, batch / timing.seconds) for name, timing in times.items()]
    gains = {key: gain for key, gain in gains.items() if gain is not None}
    copied = transfers(params.device.torch, params.transfer_mib) if params.device.is_cuda else []

    def of(kind: type) -> list:
        return [row for row in kernels if isinstance(row, kind)]

    sizes = [cache for device in devices for cache in caches(device, threads)]
    compared = [GpuGain(work, extent, **gain.columns) for (work, extent), gain in gains.items()]
    best = {str(device): fastest_training(images, str(device)).batch for device in devices}
    result = Result(
        [
            Table("Small CNN, 28 × 28 images", images),
            Table("Products of n × n matrices, float32", of(Product)),
            Table("GPU against CPU", compared),
            Table("Copies", of(Copy)),
            Table("Caches", sizes),
            Table("Kernels under the roofline", of(Roofline)),
            Table("Transfers", copied),
            Table("Training, per peak FLOP/s", peak_shares(devices, params.matmul[-1], best)),
        ]
    )
    passes = {work: make(params.batches[-1], params.device.torch) for work, make in CNN.items()}
    forward = speed_up(interleaved(passes, threads=threads, placebo=TRAINING), TRAINING, INFERENCE)
    _key_figures(result, limits["cpu"].gb_per_s, forward.ratio)
    _claims(result, params, devices, threads)
    _check_clock(result, devices)
    _claim_peak(result)
    _gpu_claims(result, params, gains)
    for n, seconds in left_out.items():
        result.notes.append(f"n = {n} was not multiplied on the CPU: one product would take about {seconds:.0f} s there.")
    if not sizes:
        result.notes.append("This system does not report the sizes of its caches.")
    result.notes.append(f"The CPU's times are the better of one thread and all {threads}.")
    if not params.device.is_cuda:
        result.notes.append(NO_CUDA.format(what="the GPU half is not measured", slug="cpu-vs-gpu"))
    result.arrays["ceilings"] = {name: {"GB/s": limit.gb_per_s, "GFLOP/s": limit.gflop_per_s} for name, limit in limits.items()}
    return result


# ---- measuring -------------------------------------------------------------------------------------------------------


def _kernels(params: Params, device: torch.device) -> Iterator[Workload]:
    """The kernels under the roofline, one at a time so that the tensors of one are freed before the next."""
    yield workloads.add(params.elements, device)
    yield workloads.matvec(params.matvec, device)
    yield workloads.conv(8, 64, 56, device)


def multiply(
    sizes: tuple[int, ...], devices: list[torch.device]
) -> tuple[list[Product], dict[tuple[str, int], SpeedUp | None], dict[int, float]]:
    """Products by size, smallest first: rows, what the GPU gains at each size, and {size: seconds} of those that would have
    taken too long on the CPU, by the largest one before."""
    rows, gains, left_out, known = [], {}, {}, None
    for n in progress(sizes, "products"):
        seconds = known.microseconds * 1e-6 * (n / known.n) ** 3 if known else 0.0
        if seconds > TOO_LONG:
            left_out[n] = seconds
        pieces = {device: workloads.matmul(n, device) for device in devices if device.type != "cpu" or n not in left_out}
        if not pieces:
            continue
        works = {str(device): piece.work for device, piece in pieces.items()}
        times, gains[PRODUCT, n] = on_each_device(works, all_threads() if seconds > ONE_IS_SLOWER else None)
        for device, piece in pieces.items():
            timing = counted(times[str(device)], piece)
            rows.append(Product(str(device), *times_of(timing), n, timing.gflop_per_s, timing.intensity))
            known = rows[-1] if device.type == "cpu" else known
    return rows, gains, left_out


# ---- what the lecture's figures are compared with --------------------------------------------------------------------


def _key_figures(result: Result, cpu_gb_per_s: float, training_over_forward: float) -> None:
    rates = {row.way: row.rate for row in result.rows(Transfer)}
    result.key_figure(
        "small CNN, inference: the GPU's best images/s over the CPU's",
        best_rates(result.rows(Images), INFERENCE),
        "times",
        lecture="up to 23 (GoogLeNet, P100 with TensorRT against one Xeon E5-2690v4)",
    )
    result.key_figure(
        "small CNN, training: the GPU's best images/s over the CPU's",
        best_rates(result.rows(Images), TRAINING),
        "times",
        lecture="a bar chart of K80, M40 and P100 whose figures the text does not give",
    )
    products = [row for row in result.rows(GpuGain) if row.work == PRODUCT]
    result.key_figure("n from which on the GPU multiplies faster", faster_from(products, PRODUCT) if products else None)
    result.key_figure("training step / forward pass of the small CNN: time", training_over_forward)
    flops = workloads.SmallCNN.training_flops(1) / workloads.SmallCNN.flops(1)
    result.key_figure("training step / forward pass of the small CNN: FLOPs", flops)
    result.key_figure("CPU memory bandwidth (large copy)", cpu_gb_per_s, "GB/s", lecture="77 (x86), 170 (POWER)")
    result.key_figure(
        "host to GPU, pinned", rates.get(PINNED), "GB/s", lecture="16 each way (PCIe); 75 each way (NVLink 2.0 to the CPU)"
    )
    result.key_figure("GPU to GPU", rates.get(BETWEEN), "GB/s one way", lecture="75 each way (NVLink 2.0)")


def best_rates(rows: list[Images], work: str) -> float | None:
    """The GPU's rate at its best batch size over the CPU's at its own; None if only one of them was measured."""
    cpu, gpu = ([row.rate for row in rows if row.work == work and (row.device == "cpu") is on_cpu] for on_cpu in (True, False))
    return max(gpu) / max(cpu) if cpu and gpu else None


def _claims(result: Result, params: Params, devices: list[torch.device], threads: int) -> None:
    _claim_cache(result)
    smallest, *_, largest = sorted(_on("cpu", result.rows(Product)), key=lambda row: row.n)
    by_size = gain_per("flops", workloads.matmul(smallest.n, devices[0]), workloads.matmul(largest.n, devices[0]), threads)
    result.key_figure("FLOP/s on the CPU, the largest product over the smallest", by_size.ratio, "times")
    result.measured(
        f"Per FLOP, a product with n = {largest.n} is faster than one with n = {smallest.n}", by_size.faster, str(by_size)
    )
    device = devices[-1]
    additions = gain_per("bytes", workloads.copy(params.elements, device), workloads.add(params.elements, device), 1)
    result.measured(
        f"Adding two long vectors moves at least half as many bytes a second as a copy, on {device.type}",
        min(additions.low, additions.ratio / (1 + additions.noise)) > 0.5,
        str(additions),
    )


def _claim_cache(result: Result) -> None:
    """Of the copies that fit in a cache of the CPU, the fastest, next to the largest copy of all; on one core."""
    *smaller, outside = _on("cpu", result.rows(Copy))
    cache = max((cache.used for cache in _on("cpu", result.rows(Cache))), default=smaller[0].bytes)
    inside = [row for row in smaller if row.bytes <= cache]
    if outside.bytes <= cache or not inside:
        result.notes.append(f"No copy from main memory was measured: a cache of this CPU holds {cache >> 20} MiB.")
        return
    best = max(inside, key=lambda row: row.rate).bytes
    large, small = (workloads.copy(size // 8, torch.device("cpu")) for size in (outside.bytes, best))
    gain = gain_per("bytes", large, small, threads=1)
    result.measured(
        f"Per byte, a copy within {best >> 10} KiB, which fits in a cache, is faster than one within {outside.bytes >> 20} MiB",
        gain.faster,
        f"{gain}, on one thread",
    )


def _claim_peak(result: Result) -> None:
    """The lecture's "training speed is the same as long as FLOPs are the same, independent from hardware"."""
    rows = result.rows(PeakShare)
    if len(rows) < 2:
        result.notes.append("One core and no GPU: no second device to compare training per peak FLOP/s with.")
        return
    per_peak = [row.per_peak for row in rows]
    apart = max(per_peak) / min(per_peak)
    result.key_figure("training, images/s per peak FLOP/s: the best device over the worst", apart, "times", lecture=1)
    result.measured(
        f"Images per second for each peak FLOP/s agree to 25 % in training: {', '.join(row.device for row in rows)}",
        apart <= 1.25,
        "; ".join(f"{row.per_peak:.3g} for a GFLOP/s, {row.share:.0%} of the peak" for row in rows),
    )


def _check_clock(result: Result, devices: list[torch.device]) -> None:
    """Times that stay equal while the work grows are not those of the work."""
    found = []
    for device in devices:
        copies, products = (_on(str(device), result.rows(kind)) for kind in (Copy, Product))
        for rows, work in ((copies, [row.bytes for row in copies]), (products, [row.n**3 for row in products])):
            found += stuck(work, [row.microseconds * 1e-6 for row in rows], launch_seconds(device))
    if found:
        result.notes.append(STUCK)


def _gpu_claims(result: Result, params: Params, gains: dict[tuple[str, int], SpeedUp]) -> None:
    """Who wins where."""
    if not params.device.is_cuda:
        return
    sizes, batch = [n for work, n in gains if work == PRODUCT], params.batches[-1]
    small, large = gains[PRODUCT, sizes[0]], gains[PRODUCT, sizes[-1]]
    result.measured(
        f"The GPU is slower on a product with n = {sizes[0]}, and faster on one with n = {sizes[-1]}",
        small.slower and large.faster,
        f"{small}; {large}",
    )
    found = [gains[work, batch] for work in CNN]
    result.measured(
        f"The GPU is faster at inference and at training of the small CNN with batches of {batch}",
        all(gain.faster for gain in found),
        "; ".join(map(str, found)),
    )
