"""CPU against GPU: how fast each copies, multiplies and runs a small CNN, and where its kernels stand under the roofline."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core import style
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table, column
from hpml_lab.core.progress import progress
from hpml_lab.core.result import Result
from hpml_lab.core.threads import all_threads
from hpml_lab.core.timing import Ceiling, Timing, ceiling, measure
from hpml_lab.tensors import workloads
from hpml_lab.tensors.workloads import Workload

QUICK = {
    "copy_kib": (32, 256, 2048, 16384, 131072, 262144),
    "matmul": (32, 128, 512, 1024),
    "batches": (1, 8, 64),
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

INFERENCE, TRAINING = "inference", "training"


@dataclass
class Measured:
    """One piece of work, timed on one device."""

    device: str = column("device")
    microseconds: float = column("median", "µs")
    spread: float = column("spread", "µs")


@dataclass
class Copy(Measured):
    """A copy whose source and target together fill the working set."""

    bytes: int = column("working set", "bytes")
    rate: float = column("bandwidth", "GB/s")


@dataclass
class Product(Measured):
    """A product of two n × n matrices."""

    n: int = column("n")
    rate: float = column("rate", "GFLOP/s")
    intensity: float = column("intensity", "FLOP/byte")


@dataclass
class Roofline(Measured):
    """A kernel under the roofline."""

    kernel: str = column("kernel")
    rate: float = column("rate", "GFLOP/s")
    bandwidth: float = column("bandwidth", "GB/s")
    intensity: float = column("intensity", "FLOP/byte")
    share: float = column("share of the roofline")


@dataclass
class Images(Measured):
    """The small CNN at one batch size."""

    work: str = column("work")
    batch: int = column("batch size")
    rate: float = column("rate", "images/s")


@dataclass
class Transfer(Measured):
    """A copy between host and GPU, or between two GPUs."""

    way: str = column("way")
    rate: float = column("bandwidth", "GB/s")


def draw(result: Result):
    """Top left: copy bandwidth by working set; where it falls to the right, the data has outgrown a cache. Top right: matrix
    product rate by size. Bottom left: images per second of a small CNN by batch size. Bottom right: roofline; each kernel is a
    point under the two limits measured in the same run."""
    figure = style.new_figure(9, 7.5)
    (bandwidth, product), (cnn, roof) = figure.subplots(2, 2)
    for i, (device, limit) in enumerate(result.arrays["ceilings"].items()):
        look = {"marker": style.MARKERS[i], "color": style.CYCLE[i]}
        copies, products = _on(device, result.rows(Copy)), _on(device, result.rows(Product))
        bandwidth.plot([row.bytes for row in copies], [row.rate for row in copies], label=device, **look)
        product.plot([row.n for row in products], [row.rate for row in products], label=device, **look)
        for work, line in ((INFERENCE, "-"), (TRAINING, "--")):
            rows = [row for row in _on(device, result.rows(Images)) if row.work == work]
            cnn.plot([row.batch for row in rows], [row.rate for row in rows], line, label=f"{device}, {work}", **look)
        intensities = np.geomspace(0.03, 5000, 200)
        reachable = np.minimum(limit["GFLOP/s"], limit["GB/s"] * intensities)
        roof.plot(intensities, reachable, color=look["color"], label=f"{device}: measured limits")
        points = [(row.kernel, row.intensity, row.rate) for row in _on(device, result.rows(Roofline))]
        points.append((f"matmul, n={products[-1].n}", products[-1].intensity, products[-1].rate))
        roof.plot([x for _, x, _ in points], [y for _, _, y in points], linestyle="none", markersize=7, **look)
        for kernel, x, y in points:
            below = (6, -23 if "conv" in kernel else -11)  # the convolution lies next to the matrix product
            roof.annotate(kernel, (x, y), xytext=below, textcoords="offset points", fontsize=8)
    bandwidth.set(xscale="log", xlabel="working set, bytes", ylabel="GB/s (read + written)", title="Copy bandwidth")
    product.set(xscale="log", yscale="log", xlabel="n of an n × n product", ylabel="GFLOP/s", title="Matrix product, float32")
    cnn.set(xscale="log", yscale="log", xlabel="batch size", ylabel="images/s", title="Small CNN, 28 × 28 images")
    roof.set(xscale="log", yscale="log", xlabel="arithmetic intensity, FLOP/byte", ylabel="GFLOP/s", title="Roofline")
    for axes in (bandwidth, product, cnn, roof):
        axes.legend(fontsize=8)
    bandwidth.set_ylim(bottom=0)
    return figure


def _on(device: str, rows: list) -> list:
    return [row for row in rows if row.device == device]


@experiment("cpu-vs-gpu", lecture="L0 L2 L1", notebook="01_tensors", draw=draw, uses=("cuda",), quick=QUICK, full=FULL)
def cpu_vs_gpu(params: Params) -> Result:
    """CPU against GPU: bandwidth, matrix products, a small CNN, and the roofline."""
    cpu, threads = torch.device("cpu"), all_threads()
    devices = [cpu, params.device.torch] if params.device.is_cuda else [cpu]
    limits = {str(device): ceiling(device, threads=threads) for device in devices}
    kernels, images = [], []
    for device in devices:
        for workload, kind, extent in progress(_workloads(params, device), f"kernels on {device}"):
            timing = measure(workload.work, threads=threads, bytes=workload.bytes, flops=workload.flops)
            kernels.append(_row(kind, workload, extent, timing, device, limits[str(device)]))
        for work, make in ((INFERENCE, workloads.cnn_inference), (TRAINING, workloads.cnn_training)):
            for batch in progress(params.batches, f"{work} on {device}"):
                timing = measure(make(batch, device), threads=threads)
                images.append(Images(*_times(device, timing), work, batch, batch / timing.seconds))
    transfers = _transfers(params) if params.device.is_cuda else []

    def of(kind: type) -> list:
        return [row for row in kernels if isinstance(row, kind)]

    result = Result(
        [
            Table("Small CNN, 28 × 28 images", images),
            Table("Products of n × n matrices, float32", of(Product)),
            Table("Copies", of(Copy)),
            Table("Kernels under the roofline", of(Roofline)),
            Table("Transfers", transfers),
        ]
    )
    gpu = str(params.device) if params.device.is_cuda else None
    _key_figures(result, gpu, limits["cpu"].gb_per_s)
    _claims(result, params)
    result.notes.append(f"On the CPU torch used {threads} threads.")
    if gpu is None:
        result.notes.append(NO_CUDA.format(what="the GPU half is not measured", slug="cpu-vs-gpu"))
    result.arrays["ceilings"] = {name: {"GB/s": limit.gb_per_s, "GFLOP/s": limit.gflop_per_s} for name, limit in limits.items()}
    return result


# ---- measuring -------------------------------------------------------------------------------------------------------


def _workloads(params: Params, device: torch.device) -> Iterator[tuple[Workload, type, int]]:
    """(workload, its row type, its size), one at a time so that the tensors of one are freed before the next."""
    for kib in params.copy_kib:
        yield workloads.copy(kib * 1024 // 8, device), Copy, kib * 1024  # source and target together fill the working set
    for n in params.matmul:
        yield workloads.matmul(n, device), Product, n
    yield workloads.add(params.elements, device), Roofline, params.elements
    yield workloads.matvec(params.matvec, device), Roofline, params.matvec
    yield workloads.conv(8, 64, 56, device), Roofline, 64


def _times(device: torch.device, timing: Timing) -> tuple[str, float, float]:
    return str(device), timing.seconds * 1e6, timing.spread * 1e6


def _row(kind: type, workload: Workload, extent: int, timing: Timing, device: torch.device, limit: Ceiling) -> Measured:
    times = _times(device, timing)
    if kind is Copy:
        return Copy(*times, extent, timing.gb_per_s)
    if kind is Product:
        return Product(*times, extent, timing.gflop_per_s, timing.intensity)
    rates = timing.gflop_per_s, timing.gb_per_s, timing.intensity
    return Roofline(*times, workload.name, *rates, limit.fraction(timing))


def _transfers(params: Params) -> list[Transfer]:
    """Bandwidth between host and GPU, pageable and pinned, both ways, and between two GPUs if there are two."""
    device = params.device.torch
    host = torch.ones(params.transfer_mib << 18)
    pinned, on_gpu = host.pin_memory(), host.to(device)
    ways = {
        PAGEABLE: lambda: on_gpu.copy_(host),
        PINNED: lambda: on_gpu.copy_(pinned, non_blocking=True),
        "GPU to pinned host": lambda: pinned.copy_(on_gpu, non_blocking=True),
    }
    if torch.cuda.device_count() > 1:
        other = torch.empty_like(on_gpu, device=f"cuda:{(device.index + 1) % torch.cuda.device_count()}")
        ways[BETWEEN] = lambda: other.copy_(on_gpu, non_blocking=True)
    timings = {way: measure(work, bytes=float(host.nbytes)) for way, work in ways.items()}
    return [Transfer(*_times(device, timing), way, timing.gb_per_s) for way, timing in timings.items()]


PAGEABLE, PINNED, BETWEEN = "pageable host to GPU", "pinned host to GPU", "GPU to GPU"


# ---- what the lecture's figures are compared with --------------------------------------------------------------------


def _key_figures(result: Result, gpu: str | None, cpu_gb_per_s: float) -> None:
    rates = {row.way: row.rate for row in result.rows(Transfer)}
    inference, training, crossover = speedups(result, gpu) if gpu else (None, None, None)
    result.key_figure(
        "small CNN, inference: GPU over CPU",
        inference,
        "times",
        lecture="up to 23 (GoogLeNet, P100 with TensorRT against one Xeon E5-2690v4)",
    )
    result.key_figure(
        "small CNN, training: GPU over CPU",
        training,
        "times",
        lecture="a bar chart of K80, M40 and P100 whose figures the text does not give",
    )
    result.key_figure("matmul size n below which the GPU loses", crossover)
    result.key_figure("CPU memory bandwidth", cpu_gb_per_s, "GB/s", lecture="77 (x86), 170 (POWER8)")
    result.key_figure(
        "host to GPU, pinned", rates.get(PINNED), "GB/s", lecture="16 each way (PCIe); 75 each way (NVLink to POWER8)"
    )
    result.key_figure("GPU to GPU", rates.get(BETWEEN), "GB/s", lecture="75 each way (NVLink 2.0)")


def speedups(result: Result, gpu: str) -> tuple[float, float, int | str]:
    """How many times faster the GPU is on the CNN, at each device's best batch size, and the matmul size from which it wins."""

    def best(work: str, device: str) -> float:
        return max(row.rate for row in _on(device, result.rows(Images)) if row.work == work)

    on_cpu, on_gpu = ({row.n: row.microseconds for row in _on(name, result.rows(Product))} for name in ("cpu", gpu))
    wins = [n for n in on_cpu if on_gpu[n] < on_cpu[n]]
    ratios = [best(work, gpu) / best(work, "cpu") for work in (INFERENCE, TRAINING)]
    return *ratios, min(wins) if wins else f"above {max(on_cpu)}"


def _claims(result: Result, params: Params) -> None:
    net, images = workloads.SmallCNN(), torch.zeros(4, 1, 28, 28)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        net(images)
    result.claim(
        "The CNN's FLOPs by formula equal those that torch counts",
        counter.get_total_flops() == net.flops(4),
        f"{net.flops(4)} for 4 images",
    )
    copies = [row.rate for row in _on("cpu", result.rows(Copy))]
    rates = [row.rate for row in _on("cpu", result.rows(Product))]
    additions = [row for row in result.rows(Roofline) if row.kernel == "add"]
    result.measured(
        "A copy that fits in the caches is faster than one that does not",
        max(copies[:-1]) > copies[-1],
        f"{max(copies[:-1]):.3g} against {copies[-1]:.3g} GB/s",
    )
    result.measured(
        "A large matrix product runs at more GFLOP/s than a small one",
        rates[-1] > rates[0],
        f"{rates[-1]:.3g} against {rates[0]:.3g} GFLOP/s",
    )
    result.measured(
        "Adding two long vectors reaches at least half of the memory bandwidth",
        all(row.share > 0.5 for row in additions),
        ", ".join(f"{row.share:.2f} on {row.device}" for row in additions),
    )
    if params.device.is_cuda:
        x, device = torch.randn(64, 1, 28, 28), params.device.torch
        difference = (net(x) - net.to(device)(x.to(device)).cpu()).abs().max().item()
        result.claim("CPU and GPU compute the same outputs to 1e-3", difference < 1e-3, f"largest difference {difference:.1e}")
