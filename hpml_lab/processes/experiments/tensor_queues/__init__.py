"""Tensors through queues: what each route copies, what its shared memory is, and how fast it is at each size."""

import pickle
import shutil

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.processes.experiments.tensor_queues.exchange import RouteRate, crossover_kilobytes, measure_throughput
from hpml_lab.processes.experiments.start_cost import safe_methods
from hpml_lab.processes.lessons.messages import COUNTED, ROUTES, RouteCopies, count_copies, message_bytes
from hpml_lab.processes.lessons.shared_memory_ring import SHM
from hpml_lab.processes.tools import segments

KIB = 1 << 10
ABOVE_FRAME = 256 * KIB  # pickle collects what is smaller than 64 KiB in frames, which copies it once more
QUICK = dict(kib=(1, 16, 256, 2048, 16384), seconds=0.01, rounds=SAMPLES)
FULL = dict(kib=tuple(4**n for n in range(10)), seconds=0.2, rounds=SAMPLES)
LABELS = {
    "pickle": "NumPy array, pickled",
    "bytes": "tensor's bytes",
    "torch": "new tensor, handle",
    "reused": "reused tensor, handle",
    "ring": "slot of a ring",
}
STAGES = {"pack": "make the message", "pipe": "into the pipe", "read": "out of the pipe", "unpack": "make the array"}


def draw(result: Result):
    """Left: bytes per second by the size of a message, for each of the five routes; the dashed line marks the size from which
    handles beat pickled arrays. Right: how many times each route copies the bytes of the largest message after they were
    written, and in which stage; in brackets those of the smallest message that was counted, if they differ.
    """
    figure = style.new_figure(9, 4)
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
    rates = result.rows(RouteRate)
    for route, color, marker in zip(ROUTES, style.CYCLE, style.MARKERS, strict=False):
        line = [row for row in rates if row.route == route]
        sizes, speeds = [row.kilobytes for row in line], [row.megabytes_per_second for row in line]
        left.loglog(sizes, speeds, color=color, marker=marker, label=LABELS[route])
    crossover = crossover_kilobytes(rates)
    if crossover is not None:
        left.axvline(crossover, color=style.GREY, linestyle="--", linewidth=1.2)
    left.set(xlabel="size of one message, KB", ylabel="MB/s")
    left.legend(fontsize=9, loc="lower right")
    counted = result.rows(RouteCopies)
    copies, small = ([row for row in counted if row.kilobytes == end(row.kilobytes for row in counted)] for end in (max, min))
    names = [LABELS[row.route] for row in copies]
    reached = np.zeros(len(copies))
    for (stage, label), color, hatch in zip(STAGES.items(), style.CYCLE, (None, "///", "...", "xxx"), strict=False):
        width = np.array([getattr(row, stage) for row in copies])
        right.barh(names, width, left=reached, color=color, hatch=hatch, edgecolor="white", label=label)
        reached += width
    for index, (row, other) in enumerate(zip(copies, small, strict=True)):
        text = f"{row.copies}" if row.copies == other.copies else f"{row.copies} ({other.copies})"
        right.text(reached[index] + 0.1, index, text, va="center")
    right.invert_yaxis()
    size = f"{copies[0].kilobytes / 1e3:.3g} MB"
    right.set(xlabel=f"copies of the bytes at {size}", xlim=(0, max(reached) + 1.2))
    right.grid(axis="y", visible=False)
    right.legend(fontsize=9, loc="lower right")
    return figure


@experiment("tensor-queues", lecture="L0", notebook="07_processes", draw=draw, quick=QUICK, full=FULL)
def tensor_queues(params: Params) -> Result:
    """Tensors through queues: pickles, handles, and buffers that come back.

    The lecture: torch.multiprocessing moves a tensor into shared memory and passes only a handle; send buffers back.
    """
    sizes, notes = _sizes_that_fit([kib * KIB for kib in params.kib])
    counted = sorted({COUNTED, ABOVE_FRAME, max(COUNTED, *sizes)})
    copies = [row for nbytes in counted for row in count_copies(nbytes)]
    memory = segments.shared_segments()
    method = safe_methods()[0]
    throughput = measure_throughput(sizes, params.seconds, params.rounds, method)

    rates = throughput.rates
    small, large = sizes[0], sizes[-1]
    handles_small, handles_large = (throughput.gain(nbytes, "torch", "pickle") for nbytes in (small, large))
    reused_large, ring_small = throughput.gain(large, "reused", "torch"), throughput.gain(small, "ring", "torch")
    lengths = [message_bytes(torch.ones(nbytes // 4)) for nbytes in sizes]

    result = Result(
        [
            Table("Messages of each size over each route", rates),
            Table("Copies of the bytes, by size and route", copies),
            Table("Shared memory", memory),
        ],
        notes=notes,
    )
    result.key_figure("handles over pickle at the largest size", handles_large.ratio, "speed-up", lecture="efficient")
    result.key_figure("handles over pickle at the smallest size", handles_small.ratio, "speed-up")
    result.key_figure("reused over new tensors at the largest size", reused_large.ratio, "speed-up", lecture="nearly free")
    result.key_figure("ring over handles at the smallest size", ring_small.ratio, "speed-up")
    result.key_figure("message of a handle", max(lengths), "bytes")
    result.key_figure("handles win from", crossover_kilobytes(rates), "KB")
    _claim_messages(result, lengths)
    _claim_copies(result, copies, throughput.writes_through)
    result.measured("At the smallest size a handle is slower than a pickled array", handles_small.slower, str(handles_small))
    result.measured("At the largest size handles are faster", handles_large.faster, str(handles_large))
    result.measured(
        "At the largest size buffers that come back are faster than new tensors", reused_large.faster, str(reused_large)
    )
    result.arrays["method"] = method
    return result


def _sizes_that_fit(sizes: list[int]) -> tuple[list[int], list[str]]:
    """The sizes in bytes for which there is room in shared memory, and what to tell about the others."""
    if not SHM.is_dir():
        return sizes, ["This system does not show its shared memory (Linux has /dev/shm): torch's segments were not counted."]
    room = shutil.disk_usage(SHM).free
    fitting = [nbytes for nbytes in sizes if 8 * nbytes <= room]  # the ring's slots, two buffers, four tensors under way
    if fitting == sizes:
        return sizes, []
    if not fitting:
        raise LabError(f"/dev/shm has {room / 1e6:.2f} MB free, too little for any message.", "Free some: `df -h /dev/shm`.")
    return fitting, [
        f"/dev/shm has {room / 1e6:.0f} MB free, too little for messages above {fitting[-1] / 1e6:.1f} MB: they are left"
        " out. Give the container more (docker run --shm-size=4g)."
    ]


def _claim_messages(result: Result, lengths: list[int]) -> None:
    tensor = torch.ones(64 * KIB)
    in_queue, pickled = message_bytes(tensor), len(pickle.dumps(torch.ones(64 * KIB)))
    result.claim(
        "`torch.multiprocessing` makes every multiprocessing queue send a tensor as a handle of less than 1000 bytes, "
        "whatever the tensor's size; `pickle.dumps` copies it",
        max(*lengths, in_queue) < 1000 and pickled > tensor.nbytes,
        f"{min(lengths)} to {max(lengths)} bytes, and {pickled} for a tensor of {tensor.nbytes}",
    )


def _claim_copies(result: Result, copies: list[RouteCopies], writes_through: dict[str, bool]) -> None:
    count = {route: sorted({row.copies for row in copies if row.route == route}) for route in ROUTES}
    result.claim(
        "Bytes through a pipe are copied at least four times, a new tensor once, a shared tensor and a ring's slot never",
        min(*count["pickle"], *count["bytes"]) >= 4 and (count["torch"], count["reused"], count["ring"]) == ([1], [0], [0]),
        ", ".join(f"{route} {' or '.join(map(str, numbers))}" for route, numbers in count.items())
        + f", at {len(copies) // len(ROUTES)} sizes",
    )
    result.claim(
        "The producer sees what the consumer writes into a handle's tensor or a ring's slot, but not into a pickled copy",
        writes_through == {"pickle": False, "bytes": False, "torch": True, "reused": True, "ring": True},
        ", ".join(f"{route} {'seen' if seen else 'not seen'}" for route, seen in writes_through.items()),
    )
