"""Measured scaling and all-reduces, as rows and pictures."""

from dataclasses import dataclass

import numpy as np

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.core.show import style
from hpml_lab.core.show.picture import picture
from hpml_lab.core.timing.noise import CLAIMED, SpeedUp
from hpml_lab.distributed.experiments.scaling.on_ranks import ALONE, COMPUTE_ONLY, STRONG, WEAK, RankTimes, cpu_of_all, slowest
from hpml_lab.distributed.lessons.alpha_beta import MIB, Interconnect, ring_seconds, strong_efficiency, weak_efficiency
from hpml_lab.distributed.tools.extrapolation import COUNTS, label_ranks

WORKS = {STRONG: "same batch, divided", COMPUTE_ONLY: "same, without all-reduce", WEAK: "a batch for each rank"}


@dataclass
class ScalingRow(Row):
    """One kind of step on some ranks. The gain counts samples per second, compared with one rank."""

    work: str = column("step")
    ranks: int = column("ranks")
    time_ms: float = column("time", "ms")
    gain: float | None = column("speed-up in samples per second", "", None)
    interval: str | None = column("90 % interval", "", None)
    verdict: str | None = column("verdict", "", None)
    efficiency: float | None = column("efficiency", "%", None)
    predicted_ms: float | None = column("predicted: compute + ring", "ms", None)
    cpu_ms: float = column("CPU time of all ranks", "ms", 0.0)


@dataclass
class AllReduceRow(Row):
    """All-reduces of one size: the fastest, because the model knows no neighbors."""

    nbytes: int = column("message", "bytes")
    time_ms: float = column("fastest time", "ms")
    line_ms: float = column("by the line", "ms")
    fitted: bool = column("in the fit")


def scaling_rows(found: list[RankTimes], gains: dict[tuple[str, int], SpeedUp], link: Interconnect) -> list[ScalingRow]:
    """The steps, with what compute and a ring over `link` would take."""
    wall, cpu = ({name: 1e3 * float(np.median(times)) for name, times in of(found).items()} for of in (slowest, cpu_of_all))
    compute = wall[ALONE, 1]
    rows = [ScalingRow("one rank", 1, compute, cpu_ms=cpu[ALONE, 1])]
    for (work, count), gain in gains.items():
        ring = 1e3 * ring_seconds(count, found[0].gradient_bytes, link) if work != COMPUTE_ONLY else 0.0
        rows.append(
            ScalingRow(
                WORKS[work],
                count,
                wall[work, count],
                **gain.columns,
                efficiency=100 * gain.ratio / count,
                predicted_ms=(compute if work == WEAK else compute / count) + ring,
                cpu_ms=cpu[work, count],
            )
        )
    return rows


def draw_measured(axes, rows: list[ScalingRow]) -> None:
    """The gains as bars with intervals, and the CPU time for the same work as diamonds."""
    alone, *rows = rows
    counts = sorted({row.ranks for row in rows})
    looks = dict(zip(WORKS.values(), zip(style.CYCLE, (None, "///", "..."), strict=False), strict=True))
    unsure = "(gray: within noise)"
    for row in rows:
        color, hatch = looks[row.work]
        x = counts.index(row.ranks) + 0.3 * (list(looks).index(row.work) - 1)
        low, high = (float(end) for end in row.interval.split(" to "))
        fill = color if row.verdict in CLAIMED else style.GREY
        axes.bar(x, row.gain, width=0.27, color=fill, hatch=hatch, edgecolor="white")
        axes.vlines(x - 0.05, low, high, color=style.INK, lw=1.5)
        batches = row.ranks if row.work == WORKS[WEAK] else 1
        axes.plot(x + 0.05, row.cpu_ms / batches / alone.cpu_ms, "D", color=style.YELLOW, markeredgecolor=style.INK)
    for work, (color, hatch) in looks.items():
        axes.bar(
            [0], [0], color=color, hatch=hatch, edgecolor="white", label=f"{work} {unsure}" if work == WORKS[STRONG] else work
        )
    axes.plot([], [], "D", color=style.YELLOW, markeredgecolor=style.INK, label="CPU time for the same work")
    for index, count in enumerate(counts):
        axes.hlines(count, index - 0.48, index + 0.48, color=style.INK, lw=2.5, label="ideal" if index == 0 else None)
    axes.set_xticks(range(len(counts)), [f"{count} ranks" for count in counts])
    axes.set(ylabel="speed-up over one rank", xlabel="measured on this machine", ylim=(0, 1.25 * max(counts)))
    axes.grid(axis="x", visible=False)
    axes.set_axisbelow(True)


@picture
def all_reduce_fit(result: Result):
    """Left: the time of an all-reduce by the size of the message. Full dots are in the fit, open dots are not: small messages,
    and the largest, which tests the line. Right: the efficiency of this machine's training step by the fitted line, for a ring
    of up to 8,192 such ranks; the dots are what was measured."""
    rows = result.rows(AllReduceRow)
    figure = style.new_figure(11, 3.8)
    axes, far = figure.subplots(1, 2)
    sizes = np.geomspace(rows[0].nbytes, rows[-1].nbytes, 100)
    line = np.interp(sizes, [row.nbytes for row in rows], [row.line_ms for row in rows])
    axes.plot(sizes / MIB, line, color=style.ORANGE, label="fitted line")
    for fitted, fill in ((True, style.BLUE), (False, "none")):
        dots = [row for row in rows if row.fitted == fitted]
        label = "in the fit" if fitted else "not in the fit"
        x, y = [row.nbytes / MIB for row in dots], [row.time_ms for row in dots]
        axes.plot(x, y, "o", markerfacecolor=fill, markeredgecolor=style.BLUE, ms=8, label=label)
    axes.set(xscale="log", yscale="log", xlabel="message", ylabel="all-reduce in ms")
    axes.set_xticks([1 / 256, 1 / 16, 1, 4, 16, 64], ["4 KiB", "64 KiB", "1 MiB", "4 MiB", "16 MiB", "64 MiB"])
    axes.set_xlim(0.7 * sizes[0] / MIB, 1.4 * sizes[-1] / MIB)
    axes.minorticks_off()
    style.label_log_axis(axes.yaxis)
    axes.legend(fontsize=9)
    _draw_drawn_out(far, result)
    return figure


def _draw_drawn_out(axes, result: Result) -> None:
    """This machine's step on more and more ranks, by the latency and the bandwidth that were fitted; measured steps as dots."""
    alone, *steps = result.rows(ScalingRow)
    fitted = result.arrays["fitted"]
    link, compute = Interconnect("fitted", *fitted["link"]), alone.time_ms / 1e3
    kinds = (
        ("weak", weak_efficiency, WEAK, style.BLUE, "-", "o"),
        ("strong", strong_efficiency, STRONG, style.ORANGE, "--", "s"),
    )
    for kind, of, work, color, line, marker in kinds:
        model = [100 * of(count, compute, fitted["nbytes"], link) for count in COUNTS]
        axes.plot(COUNTS, model, line, color=color, label=f"{kind} scaling, fitted line")
        found = [row for row in steps if row.work == WORKS[work]]
        axes.plot(
            [row.ranks for row in found], [row.efficiency for row in found], marker, color=color, label=f"{kind}, measured"
        )
    axes.set(xlabel="ranks of this machine's kind", ylabel="efficiency in %", ylim=(0, 105))
    label_ranks(axes)
    axes.legend(fontsize=8)
