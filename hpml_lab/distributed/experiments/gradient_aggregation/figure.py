"""Steps over links of chosen speed as rows and pictures: timelines, gains compared with theory, and sizes of buckets."""

from dataclasses import dataclass
from statistics import median

import numpy as np

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.timing.clock import PLACEBO
from hpml_lab.core.timing.noise import CLAIMED, SpeedUp, speed_up_of
from hpml_lab.core.timing.timeline import gantt, rows
from hpml_lab.distributed.experiments.gradient_aggregation.on_ranks import AFTER, DDP, MESSAGE, OverlapReport, slowest_rank
from hpml_lab.distributed.lessons.buckets import last_arrival

COLORS = {"forward": style.SKY, "backward": style.BLUE, "sum over ranks": style.ORANGE}


@dataclass
class SynchronizedStep(Row):
    """One training step with one way of synchronizing over one link."""

    traffic: float = column("all gradients take", "backward passes")
    mbit_per_s: float = column("link", "Mbit/s")
    way: str = column("gradients summed")
    messages: int = column("messages")
    step_ms: float = column("step", "ms")
    hidden: float = column("transfer hidden", "%")
    gain: float | None = column("speed-up", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)


def steps_and_gains(reports: list[OverlapReport]) -> tuple[list[SynchronizedStep], dict[tuple[float, str], SpeedUp]]:
    """The rows, and the speed-up of each way over one message after the backward pass over the same link."""
    slowest = slowest_rank(reports)
    found, gains = [], {}
    for run in reports[0].runs:
        key = run.traffic, run.way
        if run.way == PLACEBO:
            continue
        if run.way != AFTER:
            before, again = slowest[run.traffic, AFTER], slowest[run.traffic, PLACEBO]
            gains[key] = speed_up_of(before, slowest[key], again)
        columns = gains[key].columns if key in gains else {}
        step_ms, hidden = 1e3 * median(slowest[key]), 100 * run.hidden
        found.append(SynchronizedStep(*key[:1], run.mbit_per_s, run.way, len(run.messages), step_ms, hidden, **columns))
    return found, gains


def timelines(report: OverlapReport, ways: dict[str, str]) -> dict[str, dict[str, list[dict]]]:
    """{traffic: {name: spans of rank 0}} of the fastest, the balanced and the slowest link."""
    traffics = sorted({run.traffic for run in report.runs})
    shown = dict.fromkeys((traffics[0], 1, traffics[-1]))
    runs = {(run.traffic, run.way): run for run in report.runs}

    def bars(traffic: float, way: str) -> list[dict]:
        spans = rows(runs[traffic, way].spans)
        return [{**bar, "what": "sum over ranks"} if bar["lane"] == "link" else bar for bar in spans]

    return {str(traffic): {name: bars(traffic, way) for name, way in ways.items()} for traffic in shown}


def draw_timelines(figure, grid, result: Result) -> None:
    """One step over each of three links, below each other in the first column of `grid`."""
    names = ("Fast", "Balanced", "Slow")
    for row, (name, (traffic, by_way)) in enumerate(zip(names, result.arrays["timelines"].items(), strict=True)):
        axes = figure.add_subplot(grid[row, 0])
        bars = [{**bar, "lane": f"{way}: {bar['lane']}"} for way, spans in by_way.items() for bar in spans]
        gantt(axes, bars, COLORS, [f"{way}: {lane}" for way in by_way for lane in ("compute", "link")])
        passes = "1 backward pass" if float(traffic) == 1 else f"{float(traffic):g} backward passes"
        axes.set_title(f"{name} link: {passes} for all gradients", loc="left")
        if row == 0:
            figure.legend(*axes.get_legend_handles_labels(), fontsize=9, ncols=3, loc="outside upper left")


def modelled_gain(traffic: float, forward: float, buckets: int) -> float:
    """The gain by theory, with times in backward passes, if `buckets` equal buckets become ready one after the other."""
    ready = [forward + (number + 1) / buckets for number in range(buckets)]
    overlapped = last_arrival(ready, [traffic / buckets + MESSAGE] * buckets)
    return (forward + 1 + traffic + MESSAGE) / overlapped


def draw_gains(axes, result: Result) -> None:
    """The gain of overlap by the speed of the link, measured and by theory."""
    found = result.rows(SynchronizedStep)
    ratios = np.geomspace(found[0].traffic / 1.5, found[-1].traffic * 1.5, 200)
    forward, buckets = result.arrays["forward"], result.arrays["buckets"]
    axes.plot(ratios, [modelled_gain(x, forward, buckets) for x in ratios], "--", color=style.INK, label="formula for buckets")
    bound = (forward + 1 + ratios) / (forward + np.maximum(1, ratios))
    axes.plot(ratios, bound, ":", color=style.INK, label="bound")
    for way, color, marker, shift in ((result.arrays["way"], style.ORANGE, "o", 0.96), (DDP, style.GREEN, "s", 1.04)):
        measured = [row for row in found if row.way == way]
        for row in measured:
            low, high = (float(number) for number in row.interval.split(" to "))
            shown = color if row.verdict in CLAIMED else style.GREY
            axes.plot([row.traffic * shift] * 2, [low, high], color=shown)
            axes.plot(row.traffic * shift, row.gain, marker, color=shown, markersize=9)
        axes.plot([], [], marker, color=color, markersize=9, label=way.partition(",")[0])
    axes.axhline(1, color=style.GREY, linewidth=1)
    axes.set(
        xscale="log",
        xlabel="transfer of all gradients, in backward passes",
        ylabel="speed-up over one message after the backward pass",
    )
    style.label_log_axis(axes.xaxis)
    axes.legend(fontsize=9, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1), columnspacing=1)


@picture
def bucket_sizes(result: Result):
    """Over the balanced link: the speed-up of OverlappingDDP over one message after the backward pass, by its buckets, with
    intervals (gray: within noise), in this run and in the recorded one. Dashed is the formula: one bucket cannot start before
    the backward pass ends, and one bucket per parameter pays a latency for each."""
    runs = {"this run": result} | ({"recorded run": found} if (found := result.reference()) else {})
    figure = style.new_figure(5.5 * len(runs), 3.4)
    for axes, (name, run) in zip(figure.subplots(1, len(runs), squeeze=False)[0], runs.items(), strict=True):
        draw_bucket_sizes(axes, run)
        axes.set_title(name)
    return figure


def draw_bucket_sizes(axes, result: Result) -> None:
    """One run's speed-ups by the number of buckets."""
    balanced = [row for row in result.rows(SynchronizedStep) if row.traffic == 1]
    found = sorted((row for row in balanced if row.way not in (AFTER, DDP)), key=lambda row: row.messages)
    messages = [row.messages for row in found]
    counts = range(1, max(messages) + 1)
    forward = result.arrays["forward"]
    axes.plot(counts, [modelled_gain(1, forward, count) for count in counts], "--", color=style.INK, label="formula")
    for row in found:
        low, high = (float(number) for number in row.interval.split(" to "))
        color = style.ORANGE if row.verdict in CLAIMED else style.GREY
        axes.plot([row.messages] * 2, [low, high], color=color)
        axes.plot(row.messages, row.gain, "o", color=color, markersize=9)
    axes.axhline(1, color=style.GREY, linewidth=1)
    axes.set(xscale="log", xlabel="buckets", ylabel="speed-up over one message\nafter the backward pass")
    axes.set_xticks(messages, [str(count) for count in messages])
    axes.minorticks_off()
    axes.legend(fontsize=9)
