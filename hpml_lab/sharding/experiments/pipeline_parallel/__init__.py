"""pipeline-parallel: stages on ranks, GPipe and 1F1B, their bubble and their memory, and the result of one process."""

from dataclasses import dataclass
from fractions import Fraction
from statistics import median

import torch
from matplotlib.ticker import PercentFormatter

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.timing.noise import speed_up_of
from hpml_lab.core.show import style
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.placement import placement
from hpml_lab.sharding.experiments.pipeline_parallel.on_ranks import (
    AGAIN,
    MICRO_BATCHES,
    StageOfStep,
    TimedStep,
    one_process,
    time_schedules,
    train_each_way,
)
from hpml_lab.sharding.lessons.pipeline import SCHEDULES, Slot, bubble, most_kept, timetable, too_few
from hpml_lab.sharding.views.timetable import draw_timetable

# With 4 ranks there are pipelines of 4 stages and 2 pipelines of 2. A backward pass takes twice pass_seconds.
# A turn takes all schedules and numbers, most of a second at quick: the fewest that give an interval.
QUICK = dict(ranks=4, micro_batches=[2, 4, 8], turns=8, pass_seconds=0.004)
FULL = dict(ranks=4, micro_batches=[2, 4, 8, 16, 32], turns=9, pass_seconds=0.01)
SHOWN = 8  # micro-batches of the timetables that are drawn
LARGEST = 8  # stages and, four times as many, micro-batches for which the formula is checked
BOUND = 1e-12


@dataclass
class PipelineWay(Row):
    """One step of a pipeline, compared with one process."""

    way: str = column("way")
    loss: float = column("mean loss", "relative difference from the whole batch")
    gradient: float = column("gradient", "relative difference from the whole batch")
    same: bool = column("bitwise that of one process on the same micro-batches")


@dataclass
class ScheduleTime(Row):
    """A schedule on ranks, with tasks of a known length."""

    schedule: str = column("schedule")
    micro_batches: int = column("micro-batches")
    formula: float = column("bubble by the formula", "%")
    measured: float = column("measured", "%")
    step_ms: float = column("step", "ms")
    kept: int = column("micro-batches that stage 0 keeps")
    kept_kb: float = column("their activations", "kB")


def draw(result: Result):
    """Left: a step with 8 micro-batches as measured on the ranks, GPipe above and 1F1B below: a row is a stage, a box a forward
    (blue) or backward pass (orange) with its micro-batch's number, and the empty space is the bubble. Right: the bubble by the
    number of micro-batches, measured (markers) and by the formula (line)."""
    figure = style.new_figure(11, 4.6)
    grid = figure.add_gridspec(2, 2, width_ratios=(2.1, 1))
    steps = {name: [Slot(*row) for row in rows] for name, rows in result.arrays["slots"].items()}
    longest = max(map(seconds, steps.values()))
    scale, unit = style.time_unit(longest)
    for number, (name, slots) in enumerate(steps.items()):
        axes = figure.add_subplot(grid[number, 0])
        draw_timetable(axes, slots, scale)
        axes.set(title=f"{name}, {SHOWN} micro-batches", xlim=(0, longest * scale))
    axes.set_xlabel(f"time in {unit}")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", ncols=2)
    right = figure.add_subplot(grid[:, 1])
    numbers = sorted({row.micro_batches for row in result.rows(ScheduleTime)})
    for name, color, marker in zip(SCHEDULES, (style.BLUE, style.ORANGE), style.MARKERS, strict=False):
        own = [row for row in result.rows(ScheduleTime) if row.schedule == name]
        right.plot(numbers, [row.measured for row in own], marker, color=color, label=f"{name}, measured", alpha=0.8)
    right.plot(numbers, [row.formula for row in own], "--", color=style.GREY, label="(p − 1) / (m + p − 1)")
    right.set(xscale="log", xlabel=f"micro-batches m, on p = {result.arrays['stages']} stages", ylabel="bubble", ylim=(0, 100))
    right.set_xticks(numbers, [str(number) for number in numbers])
    right.minorticks_off()
    right.yaxis.set_major_formatter(PercentFormatter(100))
    right.legend()
    return figure


# ---- from what the ranks found ---------------------------------------------------------------------------------------------


def way_rows(by_rank: list[dict[str, StageOfStep]]) -> list[PipelineWay]:
    """One row for each way: its gradient in the order of the layers, and its losses, compared with one process."""
    whole, parts = one_process(1), one_process(MICRO_BATCHES)
    rows = []
    for way in by_rank[0]:
        steps = [found[way] for found in by_rank]
        gradient = torch.cat([step.gradient for step in steps])[: len(whole.gradient)]  # of several replicas, the first
        losses = torch.stack([loss for step in steps for loss in step.losses])
        distance = ((gradient - whole.gradient).norm() / whole.gradient.norm()).item()
        off = abs(losses.mean() / whole.losses[0] - 1).item()
        same = torch.equal(gradient, parts.gradient) and torch.equal(losses, torch.stack(parts.losses))
        rows.append(PipelineWay(way, off, distance, same))
    return rows


def merged(by_rank: list[dict[tuple[str, int], TimedStep]], name: tuple[str, int]) -> list[list[Slot]]:
    """The tasks of all ranks, turn by turn."""
    return [sum(turn, []) for turn in zip(*(found[name].turns for found in by_rank), strict=True)]


def seconds(slots: list[Slot]) -> float:
    return max(slot.end for slot in slots) - min(slot.start for slot in slots)


def time_row(by_rank: list[dict], name: tuple[str, int]) -> ScheduleTime:
    schedule, number = name
    stages, turns = len(by_rank), merged(by_rank, name)
    return ScheduleTime(
        schedule=schedule,
        micro_batches=number,
        formula=100 * (stages - 1) / (number + stages - 1),
        measured=100 * median(float(bubble(slots)) for slots in turns),
        step_ms=1e3 * median(map(seconds, turns)),
        kept=most_kept(SCHEDULES[schedule](0, stages, number)),
        kept_kb=by_rank[0][name].peak / 1e3,
    )


def formula_is_exact() -> bool:
    """Whether each schedule's bubble is (p − 1) / (m + p − 1) on a virtual clock, however long its passes take."""
    return all(
        bubble(timetable(schedule, p, m, forward, backward)) == Fraction(p - 1, m + p - 1)
        for schedule in SCHEDULES.values()
        for p in range(1, LARGEST + 1)
        for m in (*range(1, LARGEST + 1), 2 * LARGEST, 4 * LARGEST)
        for forward, backward in ((1, 2), (1, 1), (3, 5))
    )


# ---- the experiment --------------------------------------------------------------------------------------------------------


@experiment("pipeline-parallel", lecture="L3", notebook="14_sharding", draw=draw, quick=QUICK, full=FULL, uses=("two-gpus",))
def pipeline_parallel(params: Params) -> Result:
    """Layers divided among ranks: GPipe and 1F1B give one process's gradients, and wait for (p − 1)/(m + p − 1) of the time."""
    placed = placement(params.ranks, params.device, all_gpus=params.size == "full", power_of_two=True)
    numbers = params.micro_batches
    stages, device = min(placed.ranks, params.ranks), placed.device
    on = dict(ranks=stages, device=device, deadline_seconds=600)
    ways = way_rows(launch(train_each_way, device, **on))
    arguments = device, numbers, SHOWN, params.turns, params.pass_seconds
    by_rank = launch(time_schedules, *arguments, **on)
    names = [name for name in by_rank[0] if name[0] != AGAIN]
    rows = {name: time_row(by_rank, name) for name in names}

    result = Result(
        [
            Table(f"One step in float64, {MICRO_BATCHES} micro-batches", ways),
            Table(
                f"{stages} stages; a forward pass takes {1e3 * params.pass_seconds:g} ms, a backward pass twice that",
                list(rows.values()),
            ),
        ]
    )
    result.notes = [note for note in (too_few(stages, number) for number in numbers) if note]
    if placed.note:
        result.notes.append(
            f"{placed.note} After its computation a task sleeps until its time is over, as on a device of its own."
        )
    result.arrays["stages"] = stages
    result.arrays["slots"] = {
        schedule: [list(slot) for slot in sorted(merged(by_rank, (schedule, SHOWN)), key=seconds)[params.turns // 2]]
        for schedule in SCHEDULES
    }
    label = f"{SHOWN} micro-batches"
    result.key_figure(f"bubble by the formula, {label}", rows["GPipe", SHOWN].formula, unit="%")
    for name in SCHEDULES:
        result.key_figure(f"bubble of {name}, measured, {label}", rows[name, SHOWN].measured, unit="%")
    for name in SCHEDULES:
        result.key_figure(f"activations that stage 0 keeps, {name}, {label}", rows[name, SHOWN].kept_kb, unit="kB")
    add_claims(result, ways, rows, by_rank)
    return result


def add_claims(result: Result, ways: list[PipelineWay], rows: dict[tuple[str, int], ScheduleTime], by_rank: list[dict]) -> None:
    largest = max(max(row.loss, row.gradient) for row in ways)
    result.claim(
        "GPipe and 1F1B, from scratch and by torch.distributed.pipelining, and two pipelines with averaged gradients, give the "
        "loss and the gradient of one process on the whole batch, to 1e-12 in float64",
        largest < BOUND,
        f"at most {largest:.1g}; {sum(row.same for row in ways)} of {len(ways)} bitwise those of its micro-batches one by one",
    )
    result.claim(
        "On a virtual clock GPipe and 1F1B wait for exactly (p − 1)/(m + p − 1) of the time, however long a pass takes, and "
        "also with fewer micro-batches than stages",
        formula_is_exact(),
    )
    stages = len(by_rank)
    peaks = [{name: found[name, SHOWN].peak for name in SCHEDULES} for found in by_rank]
    result.claim(
        "Stage s of p keeps the activations of all m micro-batches with GPipe, and of p − s with 1F1B: counted on the ranks",
        all(SHOWN * peak["1F1B"] == (stages - stage) * peak["GPipe"] > 0 for stage, peak in enumerate(peaks)),
        ", ".join(f"{name} {kept / 1e3:g} kB" for name, kept in peaks[0].items()),
    )
    far = max(abs(row.measured - row.formula) for row in rows.values())
    shares = [[row.measured for row in rows.values() if row.schedule == name] for name in SCHEDULES]
    result.measured(
        "On the ranks the bubble is within 10 points of the formula, and more micro-batches make it smaller",
        far < 10 and all(found == sorted(found, reverse=True) for found in shares),
        f"at most {far:.2g} points away",
    )
    times = [[seconds(slots) for slots in merged(by_rank, (name, SHOWN))] for name in ("GPipe", "1F1B", AGAIN)]
    found = speed_up_of(*times)
    result.measured("1F1B saves memory, not time: its step is not faster than GPipe's", not found.faster, str(found))
