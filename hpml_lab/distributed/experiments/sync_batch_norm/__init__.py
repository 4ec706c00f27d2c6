"""Batch norm on several ranks: with the statistics of each share, with averaged ones, and with those of the whole batch."""

from dataclasses import dataclass

import numpy as np
import torch

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import speed_up_of
from hpml_lab.core.show import style
from hpml_lab.distributed.lessons.batch_norm import merge_moments, moments
from hpml_lab.distributed.experiments.sync_batch_norm.on_ranks import (
    AGAIN,
    AVERAGED,
    CHANNELS,
    EVEN,
    PLAIN,
    SYNC,
    TORCHS,
    UNEVEN,
    make_batch,
    make_net,
    on_rank,
    sizes,
    step,
    variance_errors,
)
from hpml_lab.core.system.placement import crowded, placement
from hpml_lab.core.system.launcher import launch

QUICK = dict(ranks=2, rounds=SAMPLES, steps=5, channels=64)
FULL = dict(ranks=4, rounds=15, steps=20, channels=256)
QUANTITIES = {"output": "output", "gradient": "gradient", "running_mean": "running mean", "running_var": "running variance"}
EXACT = 1e-14
RATIOS = tuple(10.0**k for k in range(6))  # mean / standard deviation
LARGE = 1e4
ROUNDING = 2.0**-24  # of float32


@dataclass
class RanksAgainstWhole(Row):
    """How far ranks with one kind of batch norm are from one process on the whole batch: largest difference / largest value."""

    norm: str = column("batch norm")
    shares: str = column("shares")
    output: float = column("output")
    gradient: float = column("gradient")
    running_mean: float = column("running mean")
    running_var: float = column("running variance")

    @property
    def largest(self) -> float:
        return max(getattr(self, name) for name in QUANTITIES)


@dataclass
class VarianceError(Row):
    """The relative error of a variance over ranks in float32, for the channel where it is largest."""

    mean_over_std: float = column("mean / standard deviation")
    sums_of_squares: float = column("mean of x² minus mean²")
    merged: float = column("merged mean, M2 and n")


@dataclass
class ShareMoments(Row):
    """One channel's values on one rank, or on all of them."""

    share: str = column("share")
    n: int = column("values")
    mean: float = column("mean")
    variance: float = column("variance")


def compare(norms: list[str], by_rank: list[dict], whole: dict[str, torch.Tensor]) -> list[RanksAgainstWhole]:
    rows = []
    for shares in (EVEN, UNEVEN):
        for norm in norms:
            ranks = [found["found"][norm, shares] for found in by_rank]
            together = {**ranks[0], "output": torch.cat([found["output"] for found in ranks])}
            errors = {name: float((together[name] - right).abs().max() / right.abs().max()) for name, right in whole.items()}
            rows.append(RanksAgainstWhole(norm, shares, **errors))
    return rows


def draw(result: Result):
    """Left: the values of one channel, sample by sample, with mean and standard deviation of each rank's share (bars), by
    averaged variances (dotted) and of the whole batch (dashed). Right: the error of two formulas for the variance in float32,
    as the mean grows."""
    figure = style.new_figure(10, 4)
    batch, formulas = figure.subplots(1, 2)
    _draw_batch(batch, result)
    lines = (("sums_of_squares", "mean of x² − mean²", style.RED, "s"), ("merged", "merged mean, M2 and n", style.BLUE, "o"))
    rows = result.rows(VarianceError)
    ratios = np.array([row.mean_over_std for row in rows])
    for name, label, color, marker in lines:
        formulas.plot(ratios, [getattr(row, name) for row in rows], color=color, marker=marker, label=label)
    formulas.plot(ratios, ROUNDING * ratios**2, "--", color=style.GREY, label="2⁻²⁴ · (mean / std)²")
    formulas.axhline(1, color=style.INK, linewidth=1, label="all digits are lost")
    formulas.set(xscale="log", yscale="log", xlabel="mean / standard deviation", ylabel="error of the variance, relative")
    formulas.set_title("a variance in float32")
    formulas.legend(fontsize=8, loc="upper left")
    return figure


def _draw_batch(axes, result: Result) -> None:
    values, start = np.asarray(result.arrays["values"]), 0
    *shares, averaged, whole = result.rows(ShareMoments)
    for row, color in zip(shares, style.CYCLE, strict=False):
        samples = np.arange(start, start + round(len(values) * row.n / whole.n))
        axes.plot(np.repeat(samples, values.shape[1]), values[samples].ravel(), ".", color=color, markersize=3, alpha=0.6)
        bar = dict(color=color, linewidth=3, capsize=6, marker="o", label=row.share)
        axes.errorbar(samples.mean(), row.mean, row.variance**0.5, **bar)
        start += len(samples)
    for row, line, color in ((averaged, ":", style.RED), (whole, "--", style.INK)):
        edges = [row.mean - row.variance**0.5, row.mean + row.variance**0.5]
        axes.hlines(edges, -0.5, len(values) - 0.5, color=color, linestyle=line, label=row.share, linewidth=2)
    axes.set(xlabel="sample", ylabel="values of one channel", title="mean ± standard deviation")
    axes.margins(y=0.3)
    axes.legend(fontsize=8, loc="upper left", ncols=2)


@experiment("sync-batch-norm", lecture="L4", notebook="13_distributed", draw=draw, quick=QUICK, full=FULL, uses=("two-gpus",))
def sync_batch_norm(params: Params) -> Result:
    """Batch norm over all ranks equals one process on the whole batch."""
    where = placement(params.ranks, params.device, all_gpus=params.size == "full")
    ranks, (x, y) = where.ranks, make_batch(where.ranks)
    norms = [PLAIN, AVERAGED, SYNC] + [TORCHS] * (where.device == "cuda")
    whole = step(make_net(), x, y, scale=1 / len(x))
    arguments = where.device, norms, x, y, params.rounds, params.steps
    by_rank = launch(on_rank, *arguments, ranks=ranks, device=where.device, deadline_seconds=600)
    rows = compare(norms, by_rank, whole)
    plain, wrong, sync = ([row for row in rows if row.norm == norm] for norm in (PLAIN, AVERAGED, SYNC))

    with torch.no_grad():
        values = make_net()[0](x)
    counts, means, squares = zip(*map(moments, values.split(sizes(UNEVEN, ranks))), strict=True)
    n, means, squares = torch.tensor(counts, dtype=x.dtype)[:, None], torch.stack(means), torch.stack(squares)
    total, mean, merged = merge_moments(n, means, squares)
    lost = (n * (means - mean).square()).sum(0) / total
    one = int((lost / merged).argmax())  # the channel that is shown: where the ranks differ most
    shares = [
        ShareMoments(f"rank {rank}", counts[rank], float(means[rank, one]), float(squares[rank, one] / counts[rank]))
        for rank in range(ranks)
    ]
    averaged = (squares / n).mean(0)
    shares.append(ShareMoments("averaged", sum(counts), float(means.mean(0)[one]), float(averaged[one])))
    shares.append(ShareMoments("whole batch", sum(counts), float(mean[one]), float(merged[one] / total)))

    noise = torch.randn(256 * ranks, params.channels, dtype=torch.float64)
    formulas = [VarianceError(ratio, *variance_errors((noise + ratio).float(), ranks)) for ratio in RATIOS]
    large = next(row for row in formulas if row.mean_over_std == LARGE)
    seconds, numbers = by_rank[0]["seconds"], by_rank[0]["all_reduces"]
    cost = speed_up_of(seconds[PLAIN], seconds[SYNC], seconds[AGAIN])

    tables = {"Against one process on the whole batch": rows, "One channel, uneven shares": shares}
    result = Result([Table(title, found) for title, found in (tables | {"A variance over ranks in float32": formulas}).items()])
    result.arrays["values"] = values[:, one].flatten(1)[:, ::6].tolist()
    result.key_figure("SyncBatchNorm, largest difference from the whole batch", max(row.largest for row in sync))
    result.key_figure("plain batch norm, difference of the gradient", plain[1].gradient)
    result.key_figure("averaged variances, difference of the gradient", wrong[1].gradient)
    result.key_figure("variance of the whole batch, one channel", shares[-1].variance)
    result.key_figure("average of the ranks' variances", shares[-2].variance)
    result.key_figure("a step with four SyncBatchNorms", cost.slowdown_text)

    result.claim(
        "SyncBatchNorm on several ranks equals one process on the whole batch to 1e-14 in float64: output, gradient, running "
        "mean and variance, with even and uneven shares",
        all(row.largest <= EXACT for row in sync),
        f"largest difference {max(row.largest for row in sync):.1e}",
    )
    result.claim(
        "Plain batch norm under DDP does not, nor does averaging the ranks' means and variances: the gradient is off by more "
        "than 1 %",
        all(row.gradient > 0.01 for row in plain + wrong),
        f"{plain[0].gradient:.2g} and {plain[1].gradient:.2g}; averaged, {wrong[0].gradient:.2g} and {wrong[1].gradient:.2g}",
    )
    result.claim(
        "What an average of variances leaves out, even if it is weighted by the shares, is the variance between the ranks: "
        "Σ nᵣ (meanᵣ − mean)² / n",
        bool(torch.allclose(values.var((0, 2, 3), correction=0) - squares.sum(0) / total, lost, rtol=1e-12))
        and float(lost.min()) > 0,
        f"{shares[-1].variance:.4g} = {float(squares.sum(0)[one] / total):.4g} + {float(lost[one]):.4g}",
    )
    result.claim(
        "It costs one all-reduce in the forward pass and one in the backward pass, each of N (2 C + 1) numbers",
        numbers == {name: [ranks * (2 * CHANNELS + 1)] for name in ("forward", "backward")},
        f"{ranks * (2 * CHANNELS + 1)} numbers for {CHANNELS} channels on {ranks} ranks",
    )
    result.claim(
        "In float32, with a mean of 10,000 standard deviations, sums of squares lose more than half of the variance; merged "
        "moments are off by less than 1 %",
        large.sums_of_squares > 0.5 and large.merged < 0.01,
        f"{large.sums_of_squares:.2g} and {large.merged:.1g}",
    )
    result.measured("The all-reduces make a step longer", cost.slower, cost.slowdown_text)
    result.notes += [where.note] * bool(where.note) + crowded(where.ranks) * (where.device == "cpu")
    return result
