"""Why zeros alone do not make a net faster, and what does: sparse formats, 2:4, and rows or channels taken out.

Which elements are kept, what stores them and the bytes by formula are in lessons/sparse_layouts.py, the times in
format_times.py. lessons/channels.py takes channels out of LeNet, and smaller_nets.py times what is left.
"""

import copy
from collections.abc import Sequence

import torch
from torch import nn

from hpml_lab.pruning.lessons import sparse_layouts
from hpml_lab.pruning.lessons.channels import (
    IMAGE_BITS,
    on_a_grid,
    weakest,
    without_rounding,
    without_zero_channels,
    zero_channels,
)
from hpml_lab.pruning.experiments.sparse_formats.pictures import LOOK, zeros_axis
from hpml_lab.pruning.experiments.sparse_formats.format_times import BreakEven, FormatTime, break_even, timed
from hpml_lab.pruning.lessons.sparse_layouts import CSR, ROWS, SEARCHED, SEMI, ZEROS
from hpml_lab.quantization import trained
from hpml_lab.pruning.experiments.sparse_formats.smaller_nets import (
    FULL_NET,
    SMALLER,
    ZEROED,
    SmallerNet,
    compared,
    half_of_resnet18,
    infer,
)
from hpml_lab.core.experiment import Fits, Params, Result, Table, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.show import style
from hpml_lab.core.show.numbers import number
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError

ALL_ZEROS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
QUICK = dict(sizes=(1024,), columns=64, gpu_sizes=(4096,), gpu_columns=4096, zeros=ALL_ZEROS, samples=SAMPLES)
QUICK |= dict(train_images=8000, steps=150, batch=256, side=128, resnet_batch=1)
# On a GPU the larger matrix is there for 2:4 in 16 bits, which Python code launches: only a product that takes longer can gain.
FULL = dict(sizes=(1024, 4096), columns=64, gpu_sizes=(4096, 8192), gpu_columns=4096, zeros=ALL_ZEROS, samples=SAMPLES)
FULL |= dict(train_images=60_000, steps=900, batch=1024, side=224, resnet_batch=16)

Gains = dict[tuple[str, float], SpeedUp]


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Time of weight @ x by the share of zeros in the weights, both axes logarithmic; the horizontal line is the dense product
    without zeros, in its band of noise (the title has it: a quiet machine's is thinner than the line), and a vertical line
    marks where CSR crosses it. Look at which format the zeros make faster at once, which only when there are many, and which
    never."""
    matrices = list(dict.fromkeys(row.matrix for row in result.rows(FormatTime)))
    across = min(len(matrices), 2)
    down = -(-len(matrices) // 2)
    figure = style.new_figure(7.5 if across == 1 else 10, 4.4 * down)
    for axes, matrix in zip(figure.subplots(down, across, squeeze=False).flat, matrices, strict=False):
        rows = [row for row in result.rows(FormatTime) if row.matrix == matrix]
        dense, noise = rows[0].time_ms, 1 + result.arrays["noise"][matrix]
        axes.axhspan(dense / noise, dense * noise, color=style.GREY, alpha=0.2, linewidth=0)
        axes.axhline(dense, color=style.INK, linewidth=1.5, label="dense, no zeros")
        for name in dict.fromkeys(row.format for row in rows[1:]):
            found = [row for row in rows if row.format == name]
            axes.plot([100 - row.zeros for row in found], [row.time_ms for row in found], label=name, **LOOK[name])
        [crossed] = [row.faster for row in result.rows(BreakEven) if (row.matrix, row.format) == (matrix, CSR)] or [None]
        if crossed is not None:
            axes.axvline(100 - crossed, color=LOOK[CSR]["color"], linewidth=1, linestyle=":")
            where = (100 - crossed, 0.97)
            axes.annotate(
                f"CSR from {crossed:.0f} %",
                where,
                (4, 0),
                va="top",
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
            )
        axes.set(yscale="log", ylabel="time in ms", title=f"Weights {matrix}; noise ±{number(100 * (noise - 1), 2)} %")
        style.label_log_axis(axes.yaxis)
        zeros_axis(axes, [row.zeros for row in rows[1:]])
    figure.legend(*axes.get_legend_handles_labels(), fontsize=8.5, loc="outside lower center", ncols=4)  # the last has all
    return figure


# ---- the claims ------------------------------------------------------------------------------------------------------


def claim_bytes(result: Result, n: int) -> None:
    """Add where the indices take as many bytes as the zeros save."""

    def smaller(kept: int) -> bool:
        weight = torch.zeros(n * n)
        weight[:kept] = 1
        return sparse_layouts.stored_bytes(sparse_layouts.csr(weight.view(n, n))) < 4 * n * n

    most = sparse_layouts.most_kept(sparse_layouts.csr_bytes, n, n)
    zeros = 1 - most / n**2
    result.claim(
        "CSR with int64 indices takes fewer bytes than dense float32 only if more than two thirds are zeros: counted",
        smaller(most) and not smaller(most + 1) and 0 <= zeros - 2 / 3 < 2 / n,
        f"from {100 * zeros:.2f} % on",
    )


def judge_times(result: Result, judged: Sequence[tuple[str, Gains]]) -> None:
    """Add what zeros gain in each format that ran, over all matrices."""

    def of(*names: str) -> dict[str, list[SpeedUp]]:
        found = {matrix: [gain for (name, _), gain in gains.items() if name in names] for matrix, gains in judged}
        return {matrix: gains for matrix, gains in found.items() if gains}

    if zeroed := of(ZEROS):
        best = {matrix: max(gains, key=lambda gain: gain.ratio) for matrix, gains in zeroed.items()}
        result.measured(
            "Zeros in a dense matrix make the product faster at no sparsity",
            not any(gain.faster for gains in zeroed.values() for gain in gains),
            "; ".join(f"{matrix}, at best {gain}" for matrix, gain in best.items()),
        )
    if csr := of(CSR):
        result.measured(
            "CSR is slower than dense at the fewest zeros, and faster at the most",
            all(gains[0].slower and gains[-1].faster for gains in csr.values()),
            "; ".join(f"{matrix}: {gains[0].slowdown_text}, then {gains[-1]}" for matrix, gains in csr.items()),
        )
    if rows := of(ROWS):
        result.measured(
            "With rows taken out the product is faster at every sparsity",
            all(gain.faster for gains in rows.values() for gain in gains),
            "; ".join(f"{matrix}, at the fewest zeros {gains[0]}" for matrix, gains in rows.items()),
        )
    if semi := of(SEMI, SEARCHED):
        best = {matrix: max(gains, key=lambda gain: gain.ratio) for matrix, gains in semi.items()}
        result.measured(
            "2:4 is faster than dense, with the better of torch's algorithm and the one that a search finds",
            all(gain.faster for gain in best.values()),
            "; ".join(f"{matrix}: {gain}" for matrix, gain in best.items()),
        )
        for matrix, gain in best.items():
            result.key_figure(f"{matrix}: 2:4", str(gain))


def half_of_lenet(result: Result, params: Params) -> None:
    """Take half of the channels out of LeNet, and add that it computes what it did; and what it gains."""
    net, data = trained(params.train_images, params.steps)
    result.notes += data.notes
    half = {name: weakest(getattr(net, name), 0.5) for name in ("conv1", "conv2")}
    zeroed = zero_channels(copy.deepcopy(net), half)
    small = without_zero_channels(zeroed)
    x = data.test_x[: params.batch]
    grid = on_a_grid(x, IMAGE_BITS)
    result.claim(
        "LeNet without its channels of zeros, computed without rounding: outputs bitwise identical to those with them",
        torch.equal(infer(without_rounding(zeroed), grid), infer(without_rounding(small), grid)),
        f"{len(x)} images",
    )
    device = params.device.torch
    nets = {FULL_NET: net.to(device), ZEROED: zeroed.to(device), SMALLER: small.to(device)}
    rows, gain = compared(f"LeNet, batch {len(x)}", nets, x.to(device), params.samples)
    # Without what compares numbers: max-pooling takes less time over zeros, because a CPU guesses right which one is larger.
    convolutions = {kind: nn.Sequential(each.conv1, nn.AvgPool2d(2), each.conv2) for kind, each in nets.items()}
    alone, _ = compared("its convolutions, with average pooling", convolutions, x.to(device), params.samples)
    resnet = half_of_resnet(result, params)
    result.tables.append(Table("Half of the channels", [*rows, *alone, *resnet]))
    result.key_figure("LeNet, half of its channels taken out", str(gain))


def half_of_resnet(result: Result, params: Params) -> list[SmallerNet]:
    """Take half of the channels out of ResNet-18 by torch-pruning, and add what that gains; a row that says so without it."""
    name = f"ResNet-18, batch {params.resnet_batch}"
    try:
        net, half = (each.to(params.device.torch) for each in half_of_resnet18(params.side))
    except LabError as missing:
        result.notes.append(f"ResNet-18 is left out: {missing}")
        return [SmallerNet(name, SMALLER, None, None, None, verdict="torch-pruning is not installed")]
    x = torch.randn(params.resnet_batch, 3, params.side, params.side, device=params.device.torch)
    rows, gain = compared(name, {FULL_NET: net, SMALLER: half}, x, params.samples)
    result.key_figure("ResNet-18, half of its channels taken out", str(gain))
    return rows


# ---- the experiment --------------------------------------------------------------------------------------------------


def gpu_bytes(params: Params) -> int:
    """The memory of a GPU that it takes at its peak: 18 pruned float32 copies of the largest matrix, which are 72 bytes for
    each of its elements, what stores them, 27, and float64 copies that check a product, 24; and the columns."""
    n = params.gpu_sizes[-1]
    return 125 * n**2 + 16 * n * params.gpu_columns


@experiment(
    "sparse-formats",
    lecture="own",
    notebook="17_pruning",
    draw=draw,
    quick=QUICK,
    full=FULL,
    uses=("cuda", "mnist", "torch-pruning"),
    fits=Fits(gpu_bytes, scale="gpu_sizes", least=1),
)
def sparse_formats(params: Params) -> Result:
    """Zeros in a dense matrix gain nothing; sparse formats, 2:4, and rows or channels taken out can."""
    cuda = params.device.is_cuda
    sizes, columns = (params.gpu_sizes, params.gpu_columns) if cuda else (params.sizes, params.columns)
    result, times, even, judged = Result(arrays={"noise": {}}), [], [], []
    for n in sizes:
        for dtype in dict.fromkeys((torch.float32, params.device.dtype)) if cuda else (torch.float32,):
            rows, gains, notes = timed(n, columns, params.zeros, params.device, dtype, params.samples)
            times += rows
            even += break_even(rows[0].matrix, n, dtype.itemsize, gains)
            judged.append((rows[0].matrix, gains))
            result.notes += notes
            result.arrays["noise"][rows[0].matrix] = max((gain.noise for gain in gains.values()), default=0.0)
    result.tables = [Table(f"weights @ x, {columns:,} columns", times), Table("From which sparsity on", even)]
    for row in even:
        result.key_figure(
            f"{row.matrix}: {row.format} faster from (at the earliest to at the latest), zeros", row.faster_from(), "%"
        )
        if row.format == CSR:
            result.key_figure(f"{row.matrix}: CSR smaller from, zeros", round(row.smaller, 2), "%")
    claim_bytes(result, min(params.sizes))
    half_of_lenet(result, params)
    judge_times(result, judged)
    if cuda:
        if not params.device.can("2:4"):
            result.notes.append("2:4 is only counted: this GPU has no units for it, which came with compute capability 8.0.")
    else:
        what = "2:4 is only counted, because its products need one of compute capability 8.0"
        result.notes.append(NO_CUDA.format(what=what, slug="sparse-formats"))
    return result
