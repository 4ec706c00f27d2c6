"""Strong and weak scaling: measured on the ranks of this machine, explained by the alpha-beta model, drawn out to 8,192 ranks.

All works take turns in one launch. One rank is one process with one thread, alone or in company, so that a rank that is added
is a processor that is added; where there are fewer cores than ranks, the result says so.
"""

from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.show import style
from hpml_lab.core.show.numbers import number
from hpml_lab.distributed.lessons.alpha_beta import ALGORITHMS, LINKS, MIB, fit_link, ring_seconds
from hpml_lab.distributed.tools.extrapolation import COUNTS, ExtrapolatedRow, draw_extrapolated, extrapolated
from hpml_lab.core.system.placement import crowded, placement
from hpml_lab.core.system.launcher import launch
from hpml_lab.distributed.experiments.scaling.figure import WORKS, AllReduceRow, ScalingRow, draw_measured, scaling_rows
from hpml_lab.distributed.experiments.scaling.on_ranks import (
    COMPUTE_ONLY,
    STRONG,
    WEAK,
    fastest_all_reduce,
    gains_in,
    measure_rank,
)

QUICK = dict(ranks=2, width=1024, batch=256, largest=16 * MIB, samples=11)
FULL = dict(ranks=4, width=2048, batch=512, largest=128 * MIB, samples=15)
SMALL = (4 << 10, 64 << 10)  # bytes: measured, but not for the fit
SHOWN = (8, 512, 8192)  # ranks of the table; the figure has all
PARAMETERS, NETWORK = 8e9, LINKS["InfiniBand NDR"]  # the training that is extrapolated
DEADLINE = 600.0  # seconds; far above what a loaded machine needs


def draw(result: Result):
    """Left: samples per second on this machine's ranks compared with one rank, with intervals, gray where they are within
    noise; the dark line is ideal, and the diamonds show the CPU time for the same work, which ideally stays at 1. Right: the
    efficiency for 8 billion parameters by published constants, up to 8,192 GPUs. Weak scaling (solid): 8,192 tokens for each
    GPU. Strong scaling (dashed): 4 million tokens for all, which one GPU would compute in 500 s. Dotted: one half."""
    figure = style.new_figure(12, 4.2)
    here, far = figure.subplots(1, 2, width_ratios=(1, 1.25))
    draw_measured(here, result.rows(ScalingRow))
    draw_extrapolated(far, extrapolated(PARAMETERS, NETWORK))
    far.set_xlabel(f"GPUs, joined by {NETWORK.name}")
    for axes in (here, far):
        axes.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


@experiment("scaling", lecture="L1 L2", notebook="13_distributed", draw=draw, quick=QUICK, full=FULL, uses=("two-gpus",))
def scaling(params: Params) -> Result:
    """Strong and weak scaling: measured, fitted, and drawn out to thousands of ranks."""
    where = placement(params.ranks, params.device, all_gpus=params.size == "full")
    ranks = 1 << (where.ranks.bit_length() - 1)  # a power of two
    large = [size for size in (MIB << power for power in range(20)) if size <= params.largest]
    arguments = params.width, params.batch, [*SMALL, *large], params.samples, where.device
    found = launch(measure_rank, *arguments, ranks=ranks, device=where.device, deadline_seconds=DEADLINE)
    gains, cpu = gains_in(found)
    seconds = fastest_all_reduce(found)
    link = fit_link(ranks, large[:-1], [seconds[size] for size in large[:-1]])  # the largest tests the line
    lines = {size: ring_seconds(ranks, size, link) for size in seconds}
    far, steps = extrapolated(PARAMETERS, NETWORK), scaling_rows(found, gains, link)
    result = Result(
        [
            Table("One training step; a speed-up is the median over pairs of steps", steps),
            Table(
                "All-reduces",
                [AllReduceRow(size, 1e3 * seconds[size], 1e3 * lines[size], size in large[:-1]) for size in seconds],
            ),
            Table(f"8 billion parameters on GPUs joined by {NETWORK.name}", [row for row in far if row.ranks in SHOWN]),
        ]
    )
    result.arrays["fitted"] = dict(link=[link.latency, link.bandwidth], nbytes=found[0].gradient_bytes)
    two, compute_only = gains[STRONG, 2], gains[COMPUTE_ONLY, 2]
    result.key_figure("twice the ranks, the same batch", str(two), lecture="less than 2×")
    result.key_figure("the same without the all-reduce", str(compute_only))
    result.key_figure("twice the ranks, twice the batch: samples per second", str(gains[WEAK, 2]))
    result.key_figure("CPU time of two ranks for the work of one", cpu.slowdown_text)
    result.key_figure("bandwidth found", link.bandwidth * 8 / 1e9, "Gbit/s")
    smallest = min(seconds)
    result.key_figure(f"one hop of a message of {smallest >> 10} KiB", 1e6 * seconds[smallest] / (2 * (ranks - 1)), "µs")
    result.key_figure("latency of the line through the large messages", link.latency * 1e6, "µs")
    _claim_model(result, {(row.algorithm, row.ranks): row for row in far})
    result.measured("Doubling the ranks makes the step less than twice as fast", _below_two(two), str(two))
    result.measured("Even without the all-reduce doubling gains less than twice", _below_two(compute_only), str(compute_only))
    step = next(row for row in steps if (row.work, row.ranks) == (WORKS[STRONG], 2))
    result.measured(
        "Compute / 2 + ring predicts the step of two ranks that share a batch within 25 %",
        0.75 <= step.time_ms / step.predicted_ms <= 1.25,
        f"predicted {number(step.predicted_ms, 3)} ms, measured {number(step.time_ms, 3)} ms",
    )
    ratio = seconds[large[-1]] / lines[large[-1]]
    result.measured(
        "The line predicts a message twice as large as those that it was fitted to within 25 %",
        0.75 <= ratio <= 1.25,
        f"measured {ratio:.3g} times the prediction",
    )
    if where.device == "cpu":
        result.notes += [note for note in (where.note if params.device.is_cuda else "", *crowded(ranks)) if note]
    return result


def _below_two(gain: SpeedUp) -> bool:
    """Whether a gain is below 2 by more than noise."""
    return gain.high * (1 + gain.noise) < 2


def _claim_model(result: Result, rows: dict[tuple[str, int], ExtrapolatedRow]) -> None:
    most = COUNTS[-1]
    latency = {name: 1e3 * ALGORITHMS[name](most, 0, NETWORK) for name in ("ring", "tree")}
    best = rows["hierarchical", most]
    result.claim(
        "On 8,192 GPUs a ring spends more than 200 ms on latency alone, a tree less than 1 ms",
        latency["ring"] > 200 and latency["tree"] < 1,
        f"{latency['ring']:.0f} ms and {latency['tree']:.2f} ms",
    )
    result.claim(
        "At 8,192 GPUs weak scaling keeps more than 80 % with a hierarchical all-reduce, strong scaling less than 50 %",
        best.weak > 80 and best.strong < 50,
        f"{best.weak:.0f} % and {best.strong:.0f} %",
    )
    result.key_figure("8,192 GPUs, weak scaling, hierarchical: efficiency", best.weak, "%")
    result.key_figure("8,192 GPUs, strong scaling, hierarchical: efficiency", best.strong, "%")
