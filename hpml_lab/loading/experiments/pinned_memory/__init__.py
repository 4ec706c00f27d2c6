"""pinned-memory: how fast a batch gets to the GPU, and whether the processor has to wait for it."""

import functools
import warnings
from dataclasses import dataclass
from statistics import median

import torch
from torch.utils.data import DataLoader, TensorDataset

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.noise import SpeedUp, interval
from hpml_lab.core.timing.clock import measure
from hpml_lab.core.show import style
from hpml_lab.core.system.attempt import attempt
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.loading.experiments.pinned_memory.device_copies import CopyDuringCompute, copy_during_compute, copy_times

NOTEBOOK = "08_loading"
QUICK = dict(kilobytes=(64, 256, 1024, 4096, 16384, 65536))
FULL = dict(kilobytes=(64, 256, 1024, 4096, 16384, 65536, 262144, 1048576))


@dataclass
class HostCopy(Row):
    """A copy of one size within the host's memory."""

    megabytes: float = column("size", "MB")
    gb_per_s: float = column("host to host", "GB/s")


@dataclass
class DeviceCopy(Row):
    """A copy of one size to the GPU, from pageable and from pinned memory."""

    megabytes: float = column("size", "MB")
    pageable: float = column("pageable", "GB/s")
    pinned: float = column("pinned", "GB/s")
    gain: float = column("pinned, speed-up")
    interval: str = column("90 % interval")
    verdict: str = column("verdict")
    pageable_call: float = column("pageable: call returns after", "µs")
    pinned_call: float = column("pinned: call returns after", "µs")


def draw_pinned_memory(result: Result):
    """Bandwidth of a copy by its size: from pageable and from pinned memory to the GPU, and from one region of the host's
    memory to another, which is all that there is without a GPU."""
    figure = style.new_figure(7, 4)
    axes = figure.subplots()
    host, device = result.rows(HostCopy), result.rows(DeviceCopy)
    curves = {
        "pageable": ([(row.megabytes, row.pageable) for row in device], style.ORANGE, "s"),
        "pinned": ([(row.megabytes, row.pinned) for row in device], style.BLUE, "o"),
        "host to host": ([(row.megabytes, row.gb_per_s) for row in host], style.GREY, "D"),
    }
    for label, (points, color, marker) in curves.items():
        if points:
            axes.plot(*zip(*points, strict=True), marker=marker, color=color, label=label)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel="size of the copy in MB", ylabel="bandwidth in GB/s")
    axes.set_ylim(bottom=0)
    axes.legend()
    return figure


def pinned_or_warned() -> tuple[bool, str]:
    """Whether DataLoader(pin_memory=True) gave pinned tensors, and what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        (batch,) = next(iter(DataLoader(TensorDataset(torch.zeros(4, 3)), 4, pin_memory=True)))
        pinned = batch.is_pinned()
    texts = [str(warning.message) for warning in caught if "pin_memory" in str(warning.message)]
    return pinned, texts[0] if texts else ""


@experiment(
    "pinned-memory", lecture="L3 L4", notebook=NOTEBOOK, draw=draw_pinned_memory, quick=QUICK, full=FULL, uses=("cuda",)
)
def pinned_memory(params: Params) -> Result:
    """Pinned memory: how fast a batch gets to the GPU, and whether the processor must wait for it."""
    device = params.device.torch
    host_copies, device_copies, gains = [], [], []
    for kilobytes in params.kilobytes:
        pageable = torch.ones(kilobytes * 256)  # 4 bytes each
        host = torch.empty_like(pageable)
        seconds = measure(functools.partial(host.copy_, pageable), samples=5).seconds
        host_copies.append(HostCopy(kilobytes / 1024, pageable.nbytes / seconds / 1e9))
        if params.device.is_cuda:
            gains.append(times := copy_times(pageable, device))
            rates = (pageable.nbytes / times.pageable / 1e9, pageable.nbytes / times.pinned / 1e9)
            compared = (times.gain.ratio, times.gain.interval, times.gain.verdict)
            calls = (times.pageable_call * 1e6, times.pinned_call * 1e6)
            device_copies.append(DeviceCopy(kilobytes / 1024, *rates, *compared, *calls))

    tables = [Table("Copies to the GPU", device_copies)] if device_copies else []
    result = Result([*tables, Table("Copies within the host's memory", host_copies)])
    pinned, warning = pinned_or_warned()
    result.key_figure("host to host, largest copy", host_copies[-1].gb_per_s, "GB/s")
    result.claim(
        "DataLoader(pin_memory=True) gives pinned tensors, or warns that it does not",
        pinned != bool(warning),
        "pinned" if pinned else f"UserWarning: {warning[:90]}…",
    )
    if device_copies:
        _compare(result, device_copies[-1], gains[-1].gain, copy_during_compute(pageable.pin_memory(), device))
    else:
        result.key_figure("pinned over pageable", unit="speed-up", lecture="“almost always better”, no figure")
        refused = attempt(lambda: torch.zeros(4).pin_memory())
        result.notes.append(
            NO_CUDA.format(what="only copies within the host's memory were measured", slug="pinned-memory")
            + f" tensor.pin_memory() here: {refused}."
        )
    return result


def _compare(result: Result, largest: DeviceCopy, gain: SpeedUp, turns: CopyDuringCompute) -> None:
    """Add what a GPU shows: pageable and pinned, and a copy during compute."""
    hidden, (low, high) = median(turns.hidden), interval(turns.hidden)
    result.key_figure("pageable to GPU, largest copy", largest.pageable, "GB/s")
    result.key_figure("pinned to GPU, largest copy", largest.pinned, "GB/s")
    result.key_figure("pinned over pageable", gain.ratio, "speed-up", lecture="“almost always better”, no figure")
    result.key_figure("share of a copy hidden behind compute", hidden)
    result.measured("The largest copy is faster from pinned memory", gain.faster, str(gain))
    result.measured(
        "A non_blocking copy of pinned memory returns before it is done; one of pageable memory does not",
        largest.pinned_call * 10 < largest.pageable_call,
        f"{largest.pinned_call:.0f} and {largest.pageable_call:.0f} µs",
    )
    times = (1e3 * median(seconds) for seconds in (turns.copy, turns.compute, turns.both))
    result.measured(
        "A copy on a side stream hides behind compute for at least half of its time",
        low > 0.5,
        f"{hidden:.0%} ({low:.0%} to {high:.0%}); copy, compute, both: {', '.join(f'{time:.2f}' for time in times)} ms",
    )
