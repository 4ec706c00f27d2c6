"""DataParallel and DistributedDataParallel: one process with threads, or one process per replica, on the same network."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import CLAIMED, SpeedUp, interval, speed_up_of
from hpml_lab.core.timing.timeline import Span, busy, gantt, rows
from hpml_lab.core.show import style
from hpml_lab.core.system import machine
from hpml_lab.distributed.lessons.data_parallel import MAIN, STAGES
from hpml_lab.distributed.experiments.dp_vs_ddp.on_ranks import (
    AGAIN,
    ALONE,
    LARGE,
    RANKS,
    SMALL,
    THREADS,
    compare_ways,
    gradients_on_rank,
    whole_gradient,
)
from hpml_lab.core.system.placement import crowded, placement
from hpml_lab.core.system.launcher import launch

# `batch` is a replica's: with N replicas the work is N times as much, and at best takes as long.
QUICK = dict(
    ranks=2,
    works={SMALL: dict(layers=150, width=16, batch=16), LARGE: dict(layers=3, width=256, batch=1024)},
    rounds=SAMPLES,
    steps=4,
)
FULL = dict(
    ranks=8,
    works={SMALL: dict(layers=100, width=64, batch=64), LARGE: dict(layers=6, width=1024, batch=256)},
    rounds=11,
    steps=5,
)
GPU_LARGE = dict(layers=8, width=4096, batch=4096)  # on a GPU a product must be larger before it takes longer than its launch
CHECKED = dict(ranks=3, samples=[12, 7], width=16)
TRANSFER = "all-reduce"
ONLY_DP = ("scatter", "replicate", "gather", "reduce")
SAYS = "good up to two, maybe four GPUs"  # L4
SHOWN = (*STAGES, TRANSFER)
COLORS = dict(
    zip(SHOWN, (style.SKY, style.ORANGE, style.BLUE, style.PURPLE, style.GREEN, style.RED, style.YELLOW), strict=True)
)


@dataclass
class ParallelSpeed(Row):
    """Training steps of one network, by one process or by several replicas that each have a batch of the same size."""

    net: str = column("network")
    way: str = column("by")
    replicas: int = column("replicas")
    step_ms: float = column("step", "ms")
    samples_per_s: float = column("samples per second")
    gain: float | None = column("speed-up in samples per second", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)


@dataclass
class StageTime(Row):
    """A stage of DataParallel's step: the median over some steps."""

    net: str = column("network")
    stage: str = column("stage of DataParallel")
    where: str = column("runs on")
    time_ms: float = column("time", "ms")
    share: float = column("share of the step", "%")
    at_once: float | None = column("threads that compute at once", "", None)


# ---- measuring -------------------------------------------------------------------------------------------------------------


def speed_rows(
    net: str, batch: int, replicas: int, seconds: dict[str, list[float]]
) -> tuple[list[ParallelSpeed], dict[str, SpeedUp]]:
    """The rows of DataParallel and DDP with this many replicas, and their speed-ups in samples per second."""
    alone, again = ([value / batch for value in seconds[way]] for way in (ALONE, AGAIN))
    found, gains = [], {}
    for way in (THREADS, RANKS):
        per_sample = [value / (batch * replicas) for value in seconds[way]]
        gains[way] = speed_up_of(alone, per_sample, again)
        speed = 1e3 * median(seconds[way]), 1 / median(per_sample)
        found.append(ParallelSpeed(net, way, replicas, *speed, **gains[way].columns))
    return found, gains


def stage_rows(net: str, timelines: list[list[dict]], at_once: dict[str, list[float]]) -> list[StageTime]:
    """How long each stage took, and its share of the step from the first stage's start to the last one's end."""
    step = median(max(row["end"] for row in timeline) for timeline in timelines)
    found = []
    for stage in STAGES:
        lanes = {row["lane"] for row in timelines[0] if row["what"] == stage}
        if lanes:  # on GPUs the reduction is part of the backward pass
            spent = median(busy(Span(**row) for row in timeline if row["what"] == stage) for timeline in timelines)
            where = "the main thread" if lanes == {MAIN} else f"{len(lanes)} threads"
            threads = median(at_once[stage]) if stage in at_once else None
            found.append(StageTime(net, stage, where, 1e3 * spent, 100 * spent / step, threads))
    return found


def typical(timelines: Sequence[list[dict]]) -> list[dict]:
    """The timeline whose length is the median."""
    return sorted(timelines, key=lambda timeline: max(row["end"] for row in timeline))[len(timelines) // 2]


# ---- drawing ---------------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """One network in each row. Left: samples per second of N replicas, as a multiple of one process, with intervals; the dashed
    line is the ideal, hollow markers are within the noise. Right: one step of DataParallel (threads of one process) and, below
    the line, of DDP (one process per rank). An outline is the time that a thread needs for its stage, the height of the color
    in it the share of this time in which it computes; the rest it waits for the lock or a core."""
    nets = list(result.arrays["timelines"])
    figure = style.new_figure(11, 2.9 * len(nets))
    for (speed, timeline), net in zip(figure.subplots(len(nets), 2, width_ratios=(1, 2.1)), nets, strict=True):
        found = [row for row in result.rows(ParallelSpeed) if row.net == net]
        replicas = sorted({row.replicas for row in found})
        speed.plot(replicas, replicas, "--", color=style.GREY, label="ideal")
        for way, color, marker in ((THREADS, style.ORANGE, "s"), (RANKS, style.BLUE, "o")):
            line = [(1, 1.0, "")] + [(row.replicas, row.gain, row.verdict) for row in found if row.way == way]
            speed.plot([n for n, _, _ in line], [gain for _, gain, _ in line], color=color, marker=marker, label=way)
            for row in (row for row in found if row.way == way and row.interval):
                speed.plot([row.replicas] * 2, [float(end) for end in row.interval.split(" to ")], color=color, lw=1)
            unsure = [(n, gain) for n, gain, verdict in line if verdict not in ("", *CLAIMED)]
            speed.plot(
                *zip(*unsure, strict=True) if unsure else ([], []), marker, color=color, markerfacecolor="none", markersize=11
            )
        speed.set(
            title=net,
            xlabel="replicas",
            ylabel="samples per second,\ntimes one process",
            xticks=replicas,
            ylim=(0, 1.25 * replicas[-1]),
        )
        speed.legend(fontsize=8)
        spans = result.arrays["timelines"][net]
        lanes = list(dict.fromkeys(sorted((row["lane"] for row in spans), key=_lane_order)))
        gantt(timeline, spans, COLORS, lanes)
        _show_waiting(timeline, spans, lanes, {row.stage: row.at_once for row in result.rows(StageTime) if row.net == net})
        timeline.axhline(sum(not lane.startswith("rank") for lane in lanes) - 0.5, color=style.INK, linewidth=1)
        timeline.set_title(f"one step, {replicas[-1]} replicas: {THREADS} above, {RANKS} below")
    figure.legend(*_all_entries(figure.axes[1::2]), loc="outside lower center", ncols=len(SHOWN))
    return figure


def _show_waiting(axes, spans: list[dict], lanes: list[str], at_once: dict[str, float | None]) -> None:
    """Lower the bars of the threads' stages to the share of their time in which they compute, inside an outline."""
    scale, _ = style.time_unit(max(row["end"] for row in spans))
    for bars in axes.containers:
        stage = bars.get_label()
        own = [row for row in spans if row["what"] == stage]
        threads = [Span(**row) for row in own if row["lane"].startswith("thread")]
        if not threads or not at_once.get(stage):
            continue
        share = min(1.0, at_once[stage] * busy(threads) / sum(each.seconds for each in threads))
        for row, bar in zip(own, bars, strict=True):
            if row["lane"].startswith("thread"):
                left, width = row["start"] * scale, (row["end"] - row["start"]) * scale
                axes.barh(lanes.index(row["lane"]), width, left=left, height=0.7, fill=False, edgecolor=style.INK, linewidth=1)
                bar.set(y=bar.get_y() + 0.7 * (1 - share), height=0.7 * share)


def _lane_order(lane: str) -> tuple[bool, bool, str]:
    return lane.startswith("rank"), lane != MAIN, lane


def _all_entries(panels) -> tuple[list, list[str]]:
    entries = {label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    return [entries[stage] for stage in SHOWN if stage in entries], [stage for stage in SHOWN if stage in entries]


# ---- the experiment --------------------------------------------------------------------------------------------------------


@experiment("dp-vs-ddp", lecture="L3 L4", notebook="13_distributed", draw=draw, quick=QUICK, full=FULL, uses=("two-gpus",))
def dp_vs_ddp(params: Params) -> Result:
    """DataParallel and DDP: where the time of one process with many threads goes."""
    where = placement(params.ranks, params.device, all_gpus=params.size == "full")
    cuda = where.device == "cuda"
    most = where.ranks if cuda else min(where.ranks, max(2, machine.cores()))
    numbers = [n for n in (2, 4, 8) if n <= most]
    works = params.works | ({LARGE: GPU_LARGE} if cuda else {})
    speeds: list[ParallelSpeed] = []
    stages: list[StageTime] = []
    gains: dict[tuple[str, int], dict[str, SpeedUp]] = {}
    timelines, at_once = {}, {}
    for n in numbers:
        arguments = where.device, works, params.rounds, params.steps
        by_rank = launch(compare_ways, *arguments, ranks=n, device=where.device, deadline_seconds=600)
        for net, work in works.items():
            first = by_rank[0][net]
            if n == 2:
                alone = median(first["seconds"][ALONE])
                speeds.append(ParallelSpeed(net, ALONE, 1, 1e3 * alone, work["batch"] / alone))
            found, gains[net, n] = speed_rows(net, work["batch"], n, first["seconds"])
            speeds += found
            if n == numbers[-1]:
                stages += stage_rows(net, first[THREADS], first["at_once"])
                at_once[net] = first["at_once"].get("forward", [])
                ddp = rows([each for rank in by_rank for each in rank[net][RANKS]])
                timelines[net] = [*typical(first[THREADS]), *ddp]
    speeds.sort(key=lambda row: list(works).index(row.net))

    result = Result(
        [
            Table("Samples per second; a speed-up is the median over pairs of steps", speeds),
            Table(f"Where DataParallel's step goes, {numbers[-1]} replicas", stages),
        ]
    )
    result.arrays["timelines"] = timelines
    unit = "times one process's samples per second"
    for net, n in ((net, n) for net in works for n in numbers if n <= 4):
        for way, lecture in ((THREADS, SAYS), (RANKS, None)):
            result.key_figure(f"{net}, {way}, {n} replicas", gains[net, n][way].ratio, unit, lecture=lecture)
    for net in works:
        only = sum(row.share for row in stages if row.net == net and row.stage in ONLY_DP)
        result.key_figure(f"{net}: scatter, replicate, gather and reduce", only, "% of DataParallel's step")

    _claim_gradients(result)
    small = {way: gains[SMALL, 2][way] for way in (THREADS, RANKS)}
    result.measured(
        "With many small layers, two threads of one process process less than 1.5 times the samples of one: the interpreter's"
        " lock lets only one of them run Python",
        small[THREADS].high < 1.5,
        str(small[THREADS]),
    )
    dp, ddp = small[THREADS], small[RANKS]
    result.measured(f"With {SMALL}, DDP is ahead of DataParallel", ddp.low > dp.high, f"{ddp}, compared with {dp}")
    dp, ddp = gains[LARGE, 2][THREADS], gains[LARGE, 2][RANKS]
    result.measured(f"With {LARGE}, two threads gain as well", dp.faster, f"{dp}; DDP {ddp}")
    if not cuda:
        measure_lock(result, at_once)
        result.notes += crowded(numbers[-1])
        result.notes.append(
            f"{where.note} DataParallel needs several GPUs; on a CPU it only calls the network. Threads stand in for its GPUs"
            " here: threads, the interpreter's lock and copies are real, the transfers between GPUs and their speed are not."
        )
    return result


def measure_lock(result: Result, at_once: dict[str, list[float]]) -> None:
    """A thread that waits for the lock uses no CPU time: CPU time over wall-clock time counts those that do not wait."""
    intervals = {net: interval(samples) for net, samples in at_once.items()}
    words = {net: f"{median(at_once[net]):.2f} ({low:.2f} to {high:.2f})" for net, (low, high) in intervals.items()}
    for net, found in words.items():
        result.key_figure(f"{net}: threads that compute at once in the forward pass", found)
    result.measured(
        "The lock is held for a smaller share of a large layer than of a small one: more threads compute at once",
        intervals[SMALL][1] < intervals[LARGE][0],
        f"{words[LARGE]}, compared with {words[SMALL]}",
    )


def _claim_gradients(result: Result) -> None:
    """What does not depend on the machine: gradients, and the bytes that pass through the first replica."""
    ranks, width = CHECKED["ranks"], CHECKED["width"]
    first = launch(gradients_on_rank, CHECKED["samples"], width, ranks=ranks)[0]
    errors = []
    for samples, found in zip(CHECKED["samples"], first, strict=True):
        whole = whole_gradient(samples, width)
        errors.append({way: float((found[way] - whole).abs().max() / whole.abs().max()) for way in (THREADS, RANKS)})
    even, uneven = errors
    result.claim(
        "With equal shares both give the gradient of one process on the whole batch, to 1e-12 in float64; with 7 samples on 3 "
        "replicas only DataParallel does, because its loss is that of the gathered outputs",
        max(even.values()) < 1e-12 and uneven[THREADS] < 1e-12 and uneven[RANKS] > 1e-3,
        f"{even[THREADS]:.1e} and {even[RANKS]:.1e}; {uneven[THREADS]:.1e} and {uneven[RANKS]:.2g}",
    )
    payload = len(whole) * 8
    copied = first[0]["copied"]
    through_first = copied["replicate"] + copied["reduce"]
    result.claim(
        "In each step 2 (N − 1) times the parameters pass through DataParallel's first replica: N times what a rank sends in a"
        " ring all-reduce",
        through_first == 2 * (ranks - 1) * payload == ranks * (2 * (ranks - 1) * payload // ranks),
        f"{through_first:,} bytes for {payload:,} bytes of parameters on {ranks} replicas",
    )
