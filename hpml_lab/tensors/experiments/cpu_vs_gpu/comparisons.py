"""Comparisons beyond noise: one piece of work on two devices, or two pieces of work by their bytes or FLOPs."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.timing.clock import PLACEBO, Timing, best_threads, captured, interleaved, launch_seconds, measure
from hpml_lab.core.timing.noise import SpeedUp, speed_up, speed_up_of
from hpml_lab.core.timing.threads import all_threads
from hpml_lab.tensors.experiments.cpu_vs_gpu.rows import Images, Product
from hpml_lab.tensors.experiments.cpu_vs_gpu.workloads import SmallCNN, Workload, cnn_training, matmul


@dataclass
class GpuGain(Row):
    """How many times as fast the GPU is as the CPU on one piece of work, and whether that is more than noise."""

    work: str = column("work")
    extent: int = column("n, or batch size")
    gain: float = column("GPU, speed-up")
    interval: str = column("interval")
    verdict: str = column("the GPU is")


@dataclass
class PeakShare(Row):
    """Training the small CNN, next to the largest product on the same device: how much of its peak the training uses."""

    device: str = column("device")
    peak: float = column("peak (large product)", "GFLOP/s")
    rate: float = column("training", "images/s")
    per_peak: float = column("per peak GFLOP/s", "images/s")
    share: float = column("share of the peak")


def processor_time(work: Callable[[], object]) -> Timing:
    """The CPU's time for a piece of work: the better of one thread and all."""
    return best_threads(work, samples=3)


def on_each_device(
    works: dict[str, Callable[[], object]], threads: int | None = None
) -> tuple[dict[str, Timing], SpeedUp | None]:
    """The time of the same work on each device, in turns; and how many times as fast the second device is, if there are two.

    threads  of the CPU, which is the first device; by default the better of one and all
    """
    first, *others = works
    if not others:
        return {first: measure(works[first], threads=threads) if threads else processor_time(works[first])}, None
    threads = threads or best_threads(works[first], samples=3).threads
    times = interleaved(works, threads=threads, placebo=first)
    return {name: times[name] for name in works}, speed_up(times, first, others[0])


COPIES = 50  # in one CUDA graph
LAUNCHES = 10  # a copy that takes as many is not hidden by its launch


def time_copy(copy: Callable[[], object], device: torch.device) -> Timing:
    """The time of a small or large copy: on a CPU the better of one thread and all; on a GPU small ones are replayed many in a
    CUDA graph, or launching would hide the caches."""
    if device.type != "cuda":
        return processor_time(copy)
    timing = measure(copy)
    if timing.seconds >= LAUNCHES * launch_seconds(device):
        return timing
    timing = measure(captured(lambda: [copy() for _ in range(COPIES)], device))
    return replace(timing, samples=tuple(seconds / COPIES for seconds in timing.samples))


def counted(timing: Timing, workload: Workload) -> Timing:
    """The timing with the workload's FLOPs and bytes."""
    return replace(timing, flops=workload.flops, bytes=workload.bytes)


def gain_per(unit: str, base: Workload, changed: Workload, threads: int) -> SpeedUp:
    """How many times as many `unit`s ("bytes" or "flops") a second `changed` gets done as `base`."""
    times = interleaved({"base": base.work, "changed": changed.work}, threads=threads, placebo="base")
    done = {"base": getattr(base, unit), "changed": getattr(changed, unit), PLACEBO: getattr(base, unit)}
    return speed_up_of(*([s / done[name] for s in times[name].samples] for name in ("base", "changed", PLACEBO)))


def faster_from(rows: list[GpuGain], work: str) -> int | str:
    """The smallest size from which on the GPU is faster beyond noise at every size that was measured."""
    sizes = sorted((row.extent, row.verdict == "faster") for row in rows if row.work == work)
    slow = [extent for extent, faster in sizes if not faster]
    above = [extent for extent, _ in sizes if not slow or extent > slow[-1]]
    if not above:
        return f"none up to {sizes[-1][0]}"
    return above[0] if slow else f"{above[0]}, the smallest measured"


def fastest_training(rows: list[Images], device: str) -> Images:
    """The training of the small CNN at the batch size with the most images per second on a device."""
    return max((row for row in rows if (row.device, row.work) == (device, "training")), key=lambda row: row.rate)


def peak_share(name: str, peak: float, rate: float) -> PeakShare:
    """The row of a device with so many GFLOP/s in a large product and so many images per second in training."""
    return PeakShare(name, peak, rate, rate / peak, rate * SmallCNN.training_flops(1) / 1e9 / peak)


def peak_shares(devices: list[torch.device], n: int, batches: dict[str, int]) -> list[PeakShare]:
    """A product of size n (on a CPU at most 2048) and training steps, in turns: on one thread of the CPU, on all, on a GPU.

    batches  of each device, by its name
    """
    places = [(device, threads) for device in devices for threads in sorted({1, all_threads() if device.type == "cpu" else 1})]
    rows = []
    for device, threads in places:
        product, batch = matmul(min(n, 2048) if device.type == "cpu" else n, device), batches[str(device)]
        works = {"product": product.work, "step": cnn_training(batch, device)}
        times = interleaved(works, threads=threads)
        name = f"cpu, {threads} thread{'s' * (threads > 1)}" if device.type == "cpu" else str(device)
        peak = counted(times["product"], product).gflop_per_s
        rows.append(peak_share(name, peak, batch / times["step"].seconds))
    return rows


def peak_shares_of(run: Result) -> list[PeakShare]:
    """The peak shares of a run; of one recorded before they were measured, from its products and from its training."""
    products, images = run.rows(Product), run.rows(Images)
    if shares := run.rows(PeakShare):
        return shares
    peaks = {row.device: max(other.rate for other in products if other.device == row.device) for row in products}
    return [peak_share(device, peak, fastest_training(images, device).rate) for device, peak in peaks.items()]
