"""Gradients of several ranks become one: when the sum is that of the whole batch, what it costs, and what overlap hides.

The ranks are processes on this machine's CPU, connected by gloo. They all read the clock that processes share, and each step
starts together on all ranks; a step takes as long as its slowest rank. The links are of chosen speed: the sums are computed at
once, and arrive when a ring over such a link would have delivered them (`lessons.buckets.Link`).
"""

from dataclasses import dataclass, replace

from hpml_lab import data
from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.show import style
from hpml_lab.distributed.experiments.gradient_aggregation.figure import (
    SynchronizedStep,
    draw_gains,
    draw_timelines,
    steps_and_gains,
    timelines,
)
from hpml_lab.distributed.experiments.gradient_aggregation.on_ranks import (
    AFTER,
    DDP,
    INTEGER_SHARES,
    UNEVEN,
    OverlapReport,
    RankReport,
    check_gradients,
    own,
    run_overlap,
    slowest_rank,
)
from hpml_lab.core.system.placement import crowded
from hpml_lab.core.system.launcher import launch

# A large batch: the backward pass takes long for the bytes of its gradients. What the processor itself spends on a sum is then
# small next to the time that the link takes, which is set in backward passes, on a fast machine as on a slow one.
QUICK = dict(
    ranks=2,
    width=128,
    depth=8,
    batch=2048,  # a backward pass of 10 to 30 ms: gloo's threads share the cores, and wait for a few ms at times
    traffics=(0.1, 1, 3),
    bucket_mb=0.125,  # two of the eight layers
    further_mb=(0, 8),
    samples=SAMPLES,
)
FULL = dict(
    ranks=4, width=512, depth=12, batch=1024, traffics=(0.1, 0.3, 1, 3, 9), bucket_mb=3, further_mb=(0, 1, 6, 64), samples=11
)
WHOLE_BATCH = 48  # of the digits, the whole batch
SMALL = 1e-12
DEADLINE = 900.0  # seconds; far above what a loaded machine needs


@dataclass
class GradientDifference(Row):
    """How far the gradient averaged over ranks is from the whole batch's, relative to its largest entry."""

    ranks: int = column("ranks")
    samples: str = column("samples by rank")
    numbers: str = column("data")
    loss: str = column("loss of a rank")
    ddp: float = column("DDP is off by")
    overlapping: float = column("OverlappingDDP is off by")
    predicted: float | None = column("by theory", "", None)


@dataclass
class RingTraffic(Row):
    """The payloads that ranks send in one all-reduce."""

    ranks: int = column("ranks")
    way: str = column("all-reduce")
    rank_0: float = column("rank 0 sends", "payloads")
    others: float = column("each other rank", "payloads")


# ---- from the ranks' reports to rows ------------------------------------------------------------------------------------


def differences(ranks: int, report: RankReport) -> list[GradientDifference]:
    even = " + ".join([str(WHOLE_BATCH // ranks)] * ranks)
    shares = {"even": even, "uneven": " + ".join(map(str, UNEVEN[ranks]))}
    integers = [0.0 if report.integers[way] else float("nan") for way in ("DDP", "OverlappingDDP")]
    found = [GradientDifference(ranks, " + ".join(map(str, INTEGER_SHARES[ranks])), "integers", "sum · N/G", *integers)]
    for (numbers, share, loss), errors in report.errors.items():
        predicted = report.predicted if (share, loss) == ("uneven", "mean") else None
        off = errors["DDP"], errors["OverlappingDDP"]
        found.append(GradientDifference(ranks, shares[share], f"digits, {numbers}", loss, *off, predicted))
    return found


def ring_traffic(ranks: int, reports: list[RankReport]) -> list[RingTraffic]:
    return [RingTraffic(ranks, way, sent, reports[-1].sent[way]) for way, sent in reports[0].sent.items()]


def draw(result: Result):
    """Left: the median step of rank 0 over a fast, a balanced and a slow link; for each, all gradients in one message after the
    backward pass (upper two lanes), and in buckets while it goes on (lower two). Right: the speed-up by buckets, measured with
    intervals (gray: within noise), by how long the link needs for all gradients. Dashed is the formula endₖ, with 4 % of a
    backward pass as the latency of each message; dotted is the bound, in which messages have none and nothing is left over."""
    figure = style.new_figure(11, 7)
    grid = figure.add_gridspec(3, 2, width_ratios=(1.5, 1))
    draw_timelines(figure, grid, result)
    draw_gains(figure.add_subplot(grid[:, 1]), result)
    return figure


# ---- the experiment -----------------------------------------------------------------------------------------------------


@experiment("gradient-aggregation", lecture="L2 L4", notebook="13_distributed", draw=draw, quick=QUICK, full=FULL)
def gradient_aggregation(params: Params) -> Result:
    """Averaged gradients: equal to the whole batch's, summed on a ring, hidden behind the backward pass."""
    digits = data.load("digits")
    images, labels = digits.train_x[:WHOLE_BATCH].flatten(1), digits.train_y[:WHOLE_BATCH]
    checked = {n: launch(check_gradients, images, labels, ranks=n, deadline_seconds=DEADLINE) for n in (2, 3, 4)}
    settings = params.width, params.depth, params.batch, params.traffics, params.bucket_mb, params.further_mb, params.samples
    overlap = launch(run_overlap, *settings, ranks=params.ranks, deadline_seconds=DEADLINE)
    steps, gains = steps_and_gains(overlap)
    first = {n: reports[0] for n, reports in checked.items()}

    result = Result(
        [
            Table(
                "The gradient on several ranks and on one",
                [row for n, report in first.items() for row in differences(n, report)],
            ),
            Table("What ranks send", [row for n, reports in checked.items() for row in ring_traffic(n, reports)]),
            Table("Steps over links of chosen speed; a speed-up is the median over pairs of steps", steps),
        ]
    )
    claim_equality(result, checked)
    measure_overlap(result, overlap, steps, gains, params)
    if params.device.is_cuda:
        result.notes.append("The ranks run on the CPU with gloo, also where there is a GPU: the links are of chosen speed.")
    result.notes += crowded(params.ranks)
    return result


def claim_equality(result: Result, checked: dict[int, list[RankReport]]) -> None:
    first = {n: reports[0] for n, reports in checked.items()}
    every = [report for reports in checked.values() for report in reports]
    even = [max(report.errors["float64", "even", "mean"].values()) for report in every]
    result.claim(
        "On 2, 3 and 4 ranks the gradient of DDP and of OverlappingDDP is the whole batch's: bitwise with small integers, to "
        "1e-12 with real data",
        all(all(report.integers.values()) for report in every) and max(even) < SMALL,
        f"{max(even):.1e}",
    )
    wrong = [error for report in first.values() for error in report.errors["float64", "uneven", "mean"].values()]
    right = max(error for report in every for error in report.errors["float64", "uneven", "sum · N/G"].values())
    result.claim(
        "Over uneven shares the mean of means is wrong, by Σ (1/N − nᵣ/G)·gᵣ to 1e-12; N/G times the sum over a rank's samples "
        "is right",
        min(wrong) > 1e-3 and max(report.prediction_error for report in every) < SMALL and right < SMALL,
        f"off by {100 * min(wrong):.0f} % to {100 * max(wrong):.0f} % of the largest entry, and {right:.1e}",
    )
    for n, report in first.items():
        result.key_figure(
            f"mean of means is off, {n} uneven ranks", 100 * report.errors["float64", "uneven", "mean"]["DDP"], "%"
        )
    result.claim(
        "On a ring each rank sends exactly 2(N−1)/N payloads; by way of rank 0, that rank sends N−1, and the sums are equal",
        all(
            each.sent == {"ring": 2 * (n - 1) / n, "by way of rank 0": n - 1 if rank == 0 else 1} and each.sums_right
            for n, reports in checked.items()
            for rank, each in enumerate(reports)
        ),
    )


def measure_overlap(
    result: Result,
    reports: list[OverlapReport],
    steps: list[SynchronizedStep],
    gains: dict[tuple[float, str], SpeedUp],
    params: Params,
) -> None:
    report, way = reports[0], own(params.bucket_mb)
    fast, slow = min(params.traffics), max(params.traffics)
    hidden = {row.traffic: row.hidden for row in steps if row.way == way}
    result.arrays["timelines"] = timelines(report, {"one message": AFTER, "buckets": way})
    result.arrays["way"], result.arrays["forward"] = way, report.forward / report.backward
    result.arrays["buckets"] = next(row.messages for row in steps if row.way == way)
    for name, traffic in (("fast", fast), ("balanced", 1), ("slow", slow)):
        result.key_figure(f"overlap, {name} link", str(gains[traffic, way]))
        result.key_figure(f"transfer hidden, {name} link", hidden[traffic], "%")
    balanced = gains[1, way]
    result.measured("Overlap pays where the link needs about as long as the backward pass", balanced.faster, str(balanced))
    result.measured(
        "Over a slow link it pays as well, but the backward pass is too short to hide even half of the transfer",
        gains[slow, way].faster and hidden[slow] < 50,
        f"{gains[slow, way]}; {hidden[slow]:.0f} % of the transfer is hidden",
    )
    seconds = slowest_rank(reports)
    # The placebo of this link is the step without overlap, twice.
    with_theirs = replace(speed_up_of(seconds[1, DDP], seconds[1, way], seconds[1, DDP]), noise=balanced.noise)
    result.key_figure("OverlappingDDP, compared with torch's DDP", str(with_theirs))
    theirs = next(row.hidden for row in steps if (row.traffic, row.way) == (1, DDP))
    result.key_figure("transfer hidden by torch's DDP, balanced link", theirs, "%")
    each, whole = gains[1, own(0)], gains[1, own(max(params.further_mb))]
    result.measured(
        "A few buckets beat one bucket per parameter and one bucket for all",
        balanced.low > each.ratio and balanced.low > whole.ratio,
        f"speed-ups {balanced.ratio:.3g}, {each.ratio:.3g} and {whole.ratio:.3g}",
    )
