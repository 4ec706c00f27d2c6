"""nvprof's table of an epoch of training: kernels and copies on a GPU, operators on a CPU."""

import json
import tempfile
import time
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.experiment.render import plural
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.timing import counting
from hpml_lab.data import load
from hpml_lab.profilers.trace_calls import of_categories
from hpml_lab.profiling.lessons import annotated_step
from hpml_lab.profiling.lessons.annotated_step import STEP_RANGES, annotated_epoch, small_cnn
from hpml_lab.profiling.tools.nsys import SHIPPED_REPORT, nsys_profile, read_nsys
from hpml_lab.profiling.tools.nvprof import LECTURE_LOG, KernelRow, htod_percent, htod_rows, kernel_rows, read_nvprof

QUICK = dict(data="digits", widths=(8, 16), hidden=32, batch=128, top=10)
FULL = dict(data="mnist", widths=(32, 64), hidden=128, batch=128, top=20)
WORK = ("kernel", "gpu_memcpy")


@dataclass
class StepRange(Row):
    """All ranges of one part of a step: the host's time in them, and the GPU's for what was launched in them."""

    seen_by: str = column("seen by")
    part: str = column("range")
    ranges: int = column("number")
    host_ms: float = column("host", "ms")
    launched: int | None = column("kernels and copies launched", default=None)
    gpu_ms: float | None = column("GPU", "ms", default=None)


def range_rows(events: list[dict[str, Any]], seen_by: str, on_gpu: bool) -> list[StepRange]:
    """What ran in the ranges of each part of a step, by the events of a trace of torch.profiler or of nsys.

    A kernel belongs to the range in which it was launched, by whatever thread: autograd has one of its own. Fills do not count:
    the libraries of a new process fill their workspaces once.
    """
    own = sorted((e for e in of_categories(events, ["user_annotation"]) if e["name"] in STEP_RANGES), key=lambda e: e["ts"])
    begins, work = [event["ts"] for event in own], {e["args"].get("correlation"): e for e in of_categories(events, WORK)}
    launched: dict[str, list[float]] = {name: [] for name in STEP_RANGES}
    for call in of_categories(events, ["cuda_runtime", "cuda_driver"]):
        number = bisect_right(begins, call["ts"]) - 1
        done = work.get(call["args"].get("correlation"))
        if done is not None and number >= 0 and call["ts"] <= begins[number] + own[number]["dur"]:
            launched[own[number]["name"]].append(done["dur"] / 1e3)
    rows = []
    for name, on_device in launched.items():
        lasted = [event["dur"] / 1e3 for event in own if event["name"] == name]
        found = (len(on_device), sum(on_device)) if on_gpu else (None, None)
        rows.append(StepRange(seen_by, name, len(lasted), sum(lasted), *found))
    return rows


def by_shipped_report() -> list[StepRange]:
    """The ranges of an epoch on the digits on an H200, from the report that ships with the workbook."""
    return range_rows(read_nsys(SHIPPED_REPORT), "nsys, report of an H200, digits", on_gpu=True)


def by_nsys(params: Params) -> list[StepRange]:
    """The same epoch in a process of its own under `nsys profile`. Raises LabError where nsys may not record, or is absent."""
    given = {name: getattr(params, name) for name in ("data", "batch", "widths", "hidden")}
    with tempfile.TemporaryDirectory(prefix="hpml-nsys-") as folder:
        report = nsys_profile(["-m", annotated_step.__name__, json.dumps(given)], folder)
        return range_rows(read_nsys(report), "nsys, NVTX ranges", on_gpu=True)


def draw(result: Result):
    """The most expensive rows of the kernel table by their share of the time, and for each the mean and the range from the
    shortest to the longest call. Host-to-device copies are red where a GPU has run."""
    rows = result.rows(KernelRow)
    figure = style.new_figure(9, 1.2 + 0.3 * len(rows))
    shares, spread = figure.subplots(1, 2, sharey=True, width_ratios=(1.2, 1))
    colors = [style.RED if "HtoD" in row.name else style.BLUE for row in rows]
    positions, names = range(len(rows)), counting.short_kernel_names([row.name for row in rows])
    calls = [plural(row.calls, "call") for row in rows]
    horizontal_bars(shares, names, [row.percent for row in rows], color=colors, labels=calls)
    shares.tick_params(axis="y", labelsize=8)
    shares.set(xlabel="share of the time in %")
    spread.hlines(positions, [row.least_us for row in rows], [row.most_us for row in rows], color=style.GREY)
    spread.scatter([row.mean_us for row in rows], positions, color=colors, zorder=3)
    spread.set_xscale("log")
    spread.set(xlabel="one call in µs: mean, least and most")
    spread.grid(axis="y", visible=False)
    return figure


@experiment(
    "kernel-table", lecture="L1 L3", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL, uses=("cuda", "mnist", "nsys")
)  # fmt: skip
def kernel_table(params: Params) -> Result:
    """nvprof's table of an epoch of training: kernels and copies on a GPU, operators on a CPU."""
    device = params.device.torch
    on_gpu = device.type == "cuda"
    data = load(params.data)  # on the host: each batch is copied when its turn comes
    net = small_cnn(data.train_x.shape[-1], params.widths, params.hidden).to(device)
    start_weights = {name: weights.clone() for name, weights in net.state_dict().items()}
    in_batches = -(-len(data.train_x) // params.batch)

    def train() -> torch.Tensor:
        net.load_state_dict(start_weights)
        # The same kernels, with sums in a fixed order, in every run: else two runs of one program differ.
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True):
            return annotated_epoch(net, data, params.batch, device)

    profiled_losses: list[torch.Tensor] = []
    plain_losses = train()
    start = time.perf_counter()
    train()
    counting.synchronize(device)
    seconds = time.perf_counter() - start
    profile = counting.profiled(lambda: profiled_losses.append(train()), device)
    events = counting.trace_events(profile)
    table = kernel_rows(events, on_gpu)
    host = {row.name: row.calls for row in kernel_rows(events, gpu=False)}
    copies = htod_rows(table)
    shown = table[: params.top] + [row for row in table[params.top :] if row in copies]

    result = Result([Table("Kernels and copies" if on_gpu else "Operators, each with the time of its own", shown)])
    parts = range_rows(events, "torch.profiler", on_gpu)
    result.tables.append(Table("Ranges of a step", parts))
    result.key_figure("first row, share of the time", table[0].percent, unit="%", lecture="11.36 (L3), 13.39 (L1)")
    copied = (htod_percent(table), sum(row.time_us for row in copies) / 1e3, sum(row.calls for row in copies))
    percent, milliseconds, calls = copied if on_gpu else (None, None, None)
    result.key_figure("host-to-device copies, share of the time", percent, unit="%", lecture=0.12)
    result.key_figure("host-to-device copies", milliseconds, unit="ms", lecture=204.61)
    result.key_figure("host-to-device copies, number", calls, lecture=2888)
    result.key_figure("rows", len(table))
    result.key_figure("batches", in_batches)
    result.key_figure("epoch", seconds, unit="s")

    layers = len(params.widths)
    convolutions = [host["aten::convolution"], host["aten::convolution_backward"]]
    result.claim(
        "The convolution is called batches × layers times in each pass, forward and backward",
        convolutions == [in_batches * layers] * 2,
        f"{in_batches} × {layers} × 2 = {sum(convolutions)}",
    )
    result.claim(
        "Each batch takes two copies from host to device (images, labels) where there is a GPU, none on a CPU",
        copied[2] == (2 * in_batches if on_gpu else 0),
    )
    changed = max(int((losses != plain_losses).sum()) for losses in profiled_losses)
    result.measured(
        "Profiling changes no loss",
        changed == 0,
        f"{changed} of {len(plain_losses)} losses differ",
        depends_on="whether every kernel sums in a fixed order",
    )
    claim_lecture_row(result)
    result.check(
        "Each part of a step is one range a batch",
        [row.ranges for row in parts] == [in_batches] * len(STEP_RANGES),
        f"{len(parts)} parts, {in_batches} batches",
    )
    if on_gpu:
        compare_with_nsys(result, params, parts)
    else:
        what = "the table has operators, each with the time of its own, and no copies to a device"
        result.notes.append(NO_CUDA.format(what=what, slug="kernel-table"))
        parts += by_shipped_report()
    return result


def compare_with_nsys(result: Result, params: Params, parts: list[StepRange]) -> None:
    """The ranges again as nsys saw them, where it may record, and whether both profilers count the same."""
    try:
        seen = by_nsys(params)
    except LabError as error:
        result.notes.append(f"{error} Until then nsys' ranges are those of a report that ships with the workbook.")
        parts += by_shipped_report()
        return
    parts += seen
    counts = [[(row.part, row.ranges, row.launched) for row in rows] for rows in (parts[: len(seen)], seen)]
    result.measured(
        "nsys and torch.profiler count the same kernels and copies in each part of a step",
        counts[0] == counts[1],
        ", ".join(f"{a.part} {a.launched} and {b.launched}" for a, b in zip(parts, seen, strict=False)),
        depends_on="the kernels that each process chooses",
    )


def claim_lecture_row(result: Result) -> None:
    """The lecture's row of copies, worked out again from its other figures."""
    lecture = read_nvprof(LECTURE_LOG)
    first, last = lecture[0], lecture[-1]
    whole = first.time_us / first.percent * 100
    result.claim(
        "The lecture's row of copies agrees with itself: time / calls is its mean, time / whole its share",
        abs(last.time_us / last.calls - last.mean_us) < 0.01 and round(100 * last.time_us / whole, 2) == last.percent,
        f"{last.time_us / last.calls:.3f} µs, {100 * last.time_us / whole:.3f} %",
    )
