"""Why zeros alone do not make a net faster, and what does: sparse formats, 2:4, and rows or channels taken out.

Which elements are kept, what stores them and the bytes by formula are in lessons/formats.py, the times in times.py.
lessons/channels.py takes channels out of LeNet, and smaller_nets.py times what is left.
"""

import copy
from collections.abc import Callable
from functools import partial

import torch

from hpml_lab.pruning.lessons import formats
from hpml_lab.pruning.lessons.channels import (
    IMAGE_BITS,
    on_a_grid,
    weakest,
    without_rounding,
    without_zero_channels,
    zero_channels,
)
from hpml_lab.pruning.experiments.sparse_formats.pictures import LOOK, zeros_axis
from hpml_lab.pruning.experiments.sparse_formats.times import (
    NEVER,
    BreakEven,
    FormatTime,
    break_even,
    products,
    rounding_error,
    timed,
)
from hpml_lab.pruning.lessons.formats import CSR, ROWS, SEARCHED, SEMI, ZEROS
from hpml_lab.quantization import trained
from hpml_lab.pruning.experiments.sparse_formats.smaller_nets import (
    FULL_NET,
    SMALLER,
    ZEROED,
    SmallerNet,
    compared,
    half_of_resnet18,
    infer,
    parameters,
)
from hpml_lab.core.experiment.findings import Table
from hpml_lab.core.experiment.fits import Fits
from hpml_lab.core.experiment.registry import Params, experiment
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.measure.noise import SpeedUp
from hpml_lab.core.show import style
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.errors import LabError

ALL_ZEROS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)
QUICK = dict(
    sizes=(1024,), columns=64, gpu_sizes=(4096,), gpu_columns=4096, zeros=ALL_ZEROS, samples=7, train_images=8000, steps=150
)
QUICK |= dict(batch=256, side=128, resnet_batch=1)
# On a GPU the matrices are so large that a product takes far longer than launching it: 2:4 in 16 bits gains only there.
FULL = dict(sizes=(1024, 4096), columns=64, gpu_sizes=(4096, 8192), gpu_columns=4096, zeros=ALL_ZEROS, samples=11)
FULL |= dict(train_images=60_000, steps=900, batch=1024, side=224, resnet_batch=16)

Gains = dict[tuple[str, float], SpeedUp]


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Time of weight @ x by the share of zeros in the weights, both axes logarithmic; the horizontal line is the dense product
    without zeros, in its band of noise, and a vertical line marks where CSR crosses it. Look at which format the zeros make
    faster at once, which only when there are many, and which never."""
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
        axes.set(yscale="log", ylabel="time in ms", title=f"Weights {matrix}")
        style.label_log_axis(axes.yaxis)
        zeros_axis(axes, [row.zeros for row in rows[1:]])
        axes.legend(fontsize=8.5)
    return figure


# ---- the claims ------------------------------------------------------------------------------------------------------


def check_products(result: Result) -> None:
    """Add that every format multiplies as the dense matrix does, on the CPU, whichever device is timed."""
    generator = torch.Generator().manual_seed(0)
    weight, x = torch.randn(256, 256, generator=generator), torch.randn(256, 16, generator=generator)
    errors = [rounding_error(product, x) for product in products(weight, ALL_ZEROS, x)[0]]
    result.check(
        "In every format the product is that of the dense matrix with the same zeros, within the bound of rounding",
        max(errors) <= 1,
        f"largest error: {max(errors):.2g} of the bound",
    )


def check_bytes(result: Result, n: int) -> None:
    """Add that the formulas count what is stored, and where the indices eat up what the zeros save."""
    rows = [row for row in result.rows(FormatTime) if row.format not in (SEMI, SEARCHED)]
    result.check(
        "The formulas count every byte: values, column indices and row pointers",
        all(round(row.kilobytes * 1e3) == row.formula for row in rows),
    )

    def smaller(kept: int, store: Callable[[torch.Tensor], torch.Tensor]) -> bool:
        weight = torch.zeros(n * n)
        weight[:kept] = 1
        return formats.stored_bytes(store(weight.view(n, n))) < 4 * n * n

    int32, coo = partial(formats.csr, index=torch.int32), lambda weight: weight.to_sparse().coalesce()
    for name, store, formula, share in (
        ("CSR with int64 indices", formats.csr, formats.csr_bytes, "two thirds"),
        ("CSR with int32 indices", int32, formats.csr_int32_bytes, "half"),
        ("COO, with an int64 row and column for each,", coo, formats.coo_bytes, "four fifths"),
    ):
        most = formats.most_kept(formula, n, n)
        zeros = 1 - most / n**2
        add = result.claim if name.startswith("CSR with int64") else result.check
        add(
            f"{name} takes fewer bytes than dense float32 only with more than {share} zeros: counted on both sides",
            smaller(most, store) and not smaller(most + 1, store) and 0 <= zeros - SHARES[share] < 2 / n,
            f"from {100 * zeros:.2f} % on",
        )


SHARES = {"two thirds": 2 / 3, "half": 1 / 2, "four fifths": 4 / 5}


def check_two_of_four(result: Result) -> None:
    """Add that the mask is right, by itself and compared with torch's; and torch's count."""
    weight = torch.randn(128, 96, generator=torch.Generator().manual_seed(0))
    pruned = formats.two_of_four(weight)
    groups, sizes = pruned.view(-1, 4), weight.abs().view(-1, 4).sort(dim=1).values
    result.check(
        "The 2:4 mask by hand keeps exactly half: in each group of four the two largest",
        bool(((groups != 0).sum(1) == 2).all()) and torch.equal(groups.abs().sort(dim=1).values[:, 2:], sizes[:, 2:]),
        f"{int((pruned == 0).sum()):,} of {pruned.numel():,} are 0",
    )
    theirs = formats.by_weight_norm_sparsifier(weight)
    if theirs is None:
        result.notes.append("This torch has no torch.ao.pruning: the 2:4 mask is not compared with WeightNormSparsifier's.")
    else:
        same = torch.equal(theirs != 0, pruned != 0)
        words = f"{int((theirs == 0).sum()):,} zeros, {'the same mask' if same else 'another mask'}"
        text = "torch's WeightNormSparsifier, set to zero 2 in each block of 1 × 4, chooses the same elements"
        result.measured(text, same, words, depends_on="the version of torch")


def judge_times(result: Result, matrix: str, gains: Gains) -> None:
    """Add what zeros gain in each format that ran, for one matrix."""
    if zeroed := [gain for (name, _), gain in gains.items() if name == ZEROS]:
        result.measured(
            f"{matrix}: zeros in a dense matrix make the product faster at no sparsity",
            not any(gain.faster for gain in zeroed),
            f"at best {max(zeroed, key=lambda gain: gain.ratio)}",
        )
    if csr := [gain for (name, _), gain in gains.items() if name == CSR]:
        result.measured(
            f"{matrix}: CSR is slower than dense at the fewest zeros, and faster at the most",
            csr[0].slower and csr[-1].faster,
            f"{csr[0].slowdown_text}; {csr[-1]}",
        )
    if rows := [gain for (name, _), gain in gains.items() if name == ROWS]:
        result.measured(
            f"{matrix}: with rows taken out the product is faster at every sparsity",
            all(gain.faster for gain in rows),
            f"at the fewest zeros {rows[0]}",
        )
    if semi := {name: gain for (name, _), gain in gains.items() if name in (SEMI, SEARCHED)}:
        best = max(semi.values(), key=lambda gain: gain.ratio)
        result.measured(
            f"{matrix}: 2:4 is faster than dense, with the better of torch's algorithm and the one that a search finds",
            best.faster,
            ", ".join(f"{name}: {gain}" for name, gain in semi.items()),
        )
        result.key_figure(f"{matrix}: 2:4", str(best))


def check_channels(result: Result, params: Params) -> None:
    """Take half of the channels out of LeNet, and add that it computes what it did; and what it gains."""
    net, data = trained(params.train_images, params.steps)
    result.notes += data.notes
    half = {name: weakest(getattr(net, name), 0.5) for name in ("conv1", "conv2")}
    biased = zero_channels(copy.deepcopy(net), half, biases=False)
    zeroed = zero_channels(copy.deepcopy(net), half)
    small = without_zero_channels(zeroed)
    x = data.test_x[: params.batch]
    grid = on_a_grid(x, IMAGE_BITS)
    result.check(
        "LeNet without its channels of zeros has 35,388 of 60,074 parameters",
        (parameters(zeroed), parameters(small)) == (60_074, 35_388),
    )
    result.claim(
        "Computed without rounding, its outputs are bitwise identical to those of the net with zeros",
        torch.equal(infer(without_rounding(zeroed), grid), infer(without_rounding(small), grid)),
        f"{len(x)} images",
    )
    before, after = infer(zeroed, x), infer(small, x)
    apart = float((before - after).abs().max() / before.abs().max())
    result.check("In float32 they agree to 1e-5 of the largest output", apart < 1e-5, f"{apart:.1e}")
    result.measured(
        "In float32, too, they are bitwise identical",
        torch.equal(before, after),
        f"{int((before != after).sum()):,} of {before.numel():,} outputs differ; zeros change how a sum is divided into parts",
    )
    result.claim(
        "If the biases of the channels are left, no channel can be taken out: each still gives relu(bias)",
        parameters(without_zero_channels(biased)) == parameters(net),
    )
    lost = float((infer(biased, x) - after).abs().max())
    result.measured(
        "Channels that are taken out in spite of their biases change the output by more than 0.01",
        lost > 0.01,
        f"{lost:.2g}, for outputs up to {float(before.abs().max()):.2g}",
        depends_on="the trained weights",
    )
    device = params.device.torch
    nets = {FULL_NET: net.to(device), ZEROED: zeroed.to(device), SMALLER: small.to(device)}
    rows, gain = compared(f"LeNet, batch {len(x)}", nets, x.to(device), params.samples)
    resnet = check_resnet(result, params)
    result.tables.append(Table("Half of the channels", [*rows, *resnet]))
    result.key_figure("LeNet, half of its channels taken out", str(gain))


def check_resnet(result: Result, params: Params) -> list[SmallerNet]:
    """Take half of the channels out of ResNet-18 by torch-pruning, and add what that gains; a row that says so without it."""
    name = f"ResNet-18, batch {params.resnet_batch}"
    try:
        net, half = (each.to(params.device.torch) for each in half_of_resnet18(params.side))
    except LabError as missing:
        result.notes.append(f"ResNet-18 is left out: {missing}")
        return [SmallerNet(name, SMALLER, None, None, None, verdict="torch-pruning is not installed")]
    x = torch.randn(params.resnet_batch, 3, params.side, params.side, device=params.device.torch)
    rows, gain = compared(name, {FULL_NET: net, SMALLER: half}, x, params.samples)
    sizes = parameters(net), parameters(half)
    result.measured(
        "torch-pruning at ratio 0.5 leaves 3,055,880 of ResNet-18's 11,689,512 parameters: about a quarter, not half",
        sizes == (11_689_512, 3_055_880),
        f"{sizes[1]:,} of {sizes[0]:,}",
        depends_on="the version of torch-pruning",
    )
    result.measured("ResNet-18 without half of its channels is faster", gain.faster, str(gain))
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
        middle = NEVER if row.faster is None else f"{row.faster:.3g}"
        result.key_figure(
            f"{row.matrix}: {row.format} faster from (at the earliest to at the latest), zeros",
            f"{middle} ({row.interval})",
            "%",
        )
        if row.format == CSR:
            result.key_figure(f"{row.matrix}: CSR smaller from, zeros", round(row.smaller, 2), "%")
    check_products(result)
    check_bytes(result, min(params.sizes))
    check_two_of_four(result)
    check_channels(result, params)
    for matrix, gains in judged:
        judge_times(result, matrix, gains)
    if cuda:
        worst = max(times, key=lambda row: row.error)
        words = f"{worst.error:.2g} of it, {worst.format}, {worst.matrix}"
        result.measured("On the GPU, too, every product is within the bound of rounding", worst.error <= 1, words)
        if packed := [row.share for row in times if row.format == SEMI]:
            text = "2:4 takes 9/16 of the bytes of dense weights in 16 bits: half of the values, and two bits for each"
            result.measured(text, set(packed) == {56.25}, ", ".join(f"{share:.4g} %" for share in packed))
        elif not params.device.can("2:4"):
            result.notes.append("2:4 is only counted: this GPU has no units for it, which came with compute capability 8.0.")
    else:
        what = "2:4 is only counted, because its products need one of compute capability 8.0"
        result.notes.append(NO_CUDA.format(what=what, slug="sparse-formats"))
    return result
