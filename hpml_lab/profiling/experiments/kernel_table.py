"""nvprof's table of an epoch of training: kernels and copies on a GPU, operators on a CPU."""

import time
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from hpml_lab.core.experiment.findings import Table
from hpml_lab.core.experiment.registry import Params, experiment
from hpml_lab.core.experiment.render import plural
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.measure import counting
from hpml_lab.core.show import style
from hpml_lab.core.show.charts import horizontal_bars
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.data import DataSet, load
from hpml_lab.data.batches import batches
from hpml_lab.profiling.tools.nvprof import LECTURE_LOG, KernelRow, htod_percent, htod_rows, kernel_rows, read_nvprof

QUICK = dict(data="digits", widths=(8, 16), hidden=32, batch=128, top=10)
FULL = dict(data="mnist", widths=(32, 64), hidden=128, batch=128, top=20)


# ---- the work --------------------------------------------------------------------------------------------------------


def small_cnn(pixels: int, widths: tuple[int, ...], hidden: int) -> nn.Module:
    """The lecture's MNIST net without dropout: 3 × 3 convolutions with ReLU, a pooling, two linear layers."""
    channels = [1, *widths]
    layers = [layer for a, b in pairwise(channels) for layer in (nn.Conv2d(a, b, 3, padding=1), nn.ReLU())]
    flat = channels[-1] * (pixels // 2) ** 2
    return nn.Sequential(*layers, nn.MaxPool2d(2), nn.Flatten(), nn.Linear(flat, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def train_epoch(net: nn.Module, data: DataSet, batch: int, device: torch.device) -> torch.Tensor:
    """One epoch of SGD with momentum, each batch copied to `device` as it comes; the losses, one a batch."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
    losses = []
    for images, labels in batches(data.train_x, data.train_y, batch, torch.Generator().manual_seed(0)):
        images, labels = images.to(device), labels.to(device)
        loss = F.cross_entropy(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)  # no .item() in the loop: each would copy back and wait


# ---- drawing ---------------------------------------------------------------------------------------------------------


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


# ---- the experiment --------------------------------------------------------------------------------------------------


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
            return train_epoch(net, data, params.batch, device)

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
    if not on_gpu:
        what = "the table has operators, each with the time of its own, and no copies to a device"
        result.notes.append(NO_CUDA.format(what=what, slug="kernel-table"))
    return result


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
