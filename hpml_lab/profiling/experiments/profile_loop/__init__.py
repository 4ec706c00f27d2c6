"""A slow trainer, brought to its best by profile, change and assess."""

import tempfile
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import mean

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.core.show.ladder_figure import draw_rungs
from hpml_lab.core.show.picture import picture
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.data import load
from hpml_lab.profiling.lessons.slow_and_fast import write_folder
from hpml_lab.profiling.experiments.profile_loop.trainer_ladder import LadderPlan, TemptingMistake, TrainerLadder, TrainerRung
from hpml_lab.profiling.experiments.profile_loop.trainer_changes import CHANGES, ROUNDING, applicable
from hpml_lab.profiling.lessons.slow_trainer import PARTS, TrainerSwitches

QUICK = dict(data="digits", train=192, test=30, batch=48, iterations=12, profiled=6, look=6, turns=SAMPLES, compile=False)
# A third of an epoch of MNIST, about 5 minutes on a slow processor, with a GPU or without: the slow rungs wait for Python.
# A turn takes seconds, so there are nine, one more than an interval needs to leave out the largest and the smallest.
FULL = dict(data="mnist", train=20000, test=250, batch=64, iterations=310, profiled=31, look=31, turns=9, compile=True)
TOTAL = "slow trainer / best trainer"
TEN = 10.0
SMALLEST = 1e-9  # where "bitwise identical" is drawn: a logarithmic axis has no 0


@dataclass
class SlowStart(Row):
    """The slow trainer, at the foot of the ladder."""

    ms: float = column("an iteration", "ms")
    largest: str = column("largest part")
    largest_percent: float = column("its share", "%")
    profile: dict[str, float] = field(default_factory=dict)  # seconds an iteration by part
    losses: list[float] = field(default_factory=list)

    name = "slow"


@dataclass(kw_only=True)
class RungRow(Row):
    """One change on top of the rung below."""

    name: str = column("change")
    attacks: str = column("attacks")
    largest_before: str = column("largest before")
    part_ms_before: float = column("the part, when profiled", "ms")
    part_ms_after: float = column("the part after", "ms")
    part_gain: float | None = column("the part, speed-up", default=None)
    part_interval: str | None = column("its interval", default=None)
    gain: float = column("speed-up")
    interval: str = column("interval")
    verdict: str = column("against the rung below")
    most_by_part: float = column("most by that part alone")
    ms: float = column("an iteration", "ms")
    once_seconds: float = column("once before", "s")
    difference: float = column("largest difference of a loss")
    allowed: float = column("allowed")
    kept: bool = column("kept")
    profile: dict[str, float] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)


def rung_row(rung: TrainerRung, below: TrainerRung) -> RungRow:
    part, gain = rung.change.part, rung.part_gain
    return RungRow(
        name=rung.change.switch,
        attacks=part,
        largest_before=below.largest,
        part_ms_before=below.profile[part] * 1e3,
        part_ms_after=rung.profile[part] * 1e3,
        part_gain=gain and gain.ratio,
        part_interval=gain and (gain.interval if gain.ratio < inf else "nothing of it is left"),
        **rung.gain.columns,
        most_by_part=1 / (1 - below.share(part)),
        ms=rung.seconds * 1e3,
        once_seconds=rung.once,
        difference=rung.difference,
        allowed=rung.bound,
        kept=rung.kept,
        profile=rung.profile,
        losses=rung.history.losses,
    )


# ---- drawing ---------------------------------------------------------------------------------------------------------


def draw(result: Result):
    """Down the ladder, one change per rung. Left: milliseconds of one iteration on a logarithmic axis. Right: which part takes
    what share of the iteration. Each change attacks the largest share of the rung above it for which a change is left. A
    change in brackets was wrong, or neither it nor its part was faster beyond noise, and was taken back. Times are the slow
    trainer's, divided by each gain kept; the key figure takes the slow and the best trainer in turns."""
    colors = dict(zip(PARTS, (*style.CYCLE, style.GREY), strict=True))
    return draw_rungs([*result.rows(SlowStart), *result.rows(RungRow)], colors, "an iteration")


def averaged(losses: list[float], points: int = 40) -> tuple[list[float], list[float]]:
    """Iterations and losses, each point the mean over as many neighbors as leave about `points` of them."""
    step = max(1, len(losses) // points)
    groups = [losses[start : start + step] for start in range(0, len(losses), step)]
    return [step * index + (len(group) + 1) / 2 for index, group in enumerate(groups)], [mean(group) for group in groups]


@picture
def rung_checks(result: Result):
    """The check of every change. Left: the training losses of all rungs, one over the other, and of the tempting mistakes,
    averaged over neighboring iterations. Right: the largest difference of a loss from the rung below (dots) against what is
    allowed (bars); mistakes are the crosses, and lie outside their bars."""
    rungs, mistakes = result.rows(RungRow), result.rows(TemptingMistake)
    figure = style.new_figure(9, 1.4 + 0.27 * (len(rungs) + len(mistakes)))
    losses, off = figure.subplots(1, 2)
    for row in [*result.rows(SlowStart), *rungs]:
        losses.plot(*averaged(row.losses), color=style.BLUE, linewidth=3, alpha=0.6, zorder=3)
    losses.plot([], [], color=style.BLUE, label="every rung")
    for row, color, line in zip(mistakes, style.CYCLE[1:], style.LINES[1:], strict=False):
        losses.plot(*averaged(row.losses), color=color, linestyle=line, label=row.mistake, zorder=4)
    losses.set(xlabel="iteration", ylabel="training loss", title="losses")
    losses.legend(fontsize=8)
    rows, largest = [*rungs, *mistakes], 50.0
    positions = range(len(rows))
    off.barh(positions, [max(row.allowed, SMALLEST) for row in rows], color=style.SKY, alpha=0.5, label="allowed")
    for kind, marker, color, label in ((rungs, "o", style.BLUE, "found"), (mistakes, "X", style.RED, "tempting mistakes")):
        found = [min(max(row.difference, SMALLEST), largest) for row in kind]
        off.plot(found, [rows.index(row) for row in kind], marker, color=color, label=label)
    off.set_yticks(positions, [*(row.name for row in rungs), *(row.mistake for row in mistakes)], fontsize=8)
    off.set(xscale="log", xlim=(SMALLEST / 2, 1e2), ylabel="change")
    off.set_xlabel(f"largest difference of a loss ({SMALLEST:g} stands for 0)", fontsize=9)
    off.invert_yaxis()
    off.legend(fontsize=8, loc="lower center", bbox_to_anchor=(0.4, 1), ncols=3)
    return figure


# ---- the experiment --------------------------------------------------------------------------------------------------


@experiment("profile-loop", lecture="L1", notebook="10_profiling", draw=draw, quick=QUICK, full=FULL, uses=("cuda", "mnist"))
def profile_loop(params: Params) -> Result:
    """A slow trainer, brought to its best by profile, change and assess.

    The lecture: remove the root cause of the biggest bottleneck first, one change at a time, and verify that the outputs are
    still valid.
    """
    plan = LadderPlan(params.iterations, params.profiled, params.batch, params.look, params.turns)
    with tempfile.TemporaryDirectory(prefix="hpml-ladder-") as folder:
        files = write_folder(Path(folder), load(params.data), params.train, params.test)
        ladder = TrainerLadder(files, params.device, plan, compile=params.compile)
        rungs = list(progress(ladder.climb(TrainerSwitches()), "rungs", len(ladder.changes) + 1))
        best = [rung for rung in rungs if rung.kept][-1]
        total = ladder.total(best)
        mistakes = ladder.try_mistakes(best)
        floor, gpu_share = ladder.floor(best), ladder.gpu_share(best)

    slow, rows, below = rungs[0], [], rungs[0]
    for rung in rungs[1:]:
        rows.append(rung_row(rung, below))
        below = rung if rung.kept else below
    start = SlowStart(slow.seconds * 1e3, slow.largest, 100 * slow.share(slow.largest), slow.profile, slow.history.losses)

    result = Result(
        [
            Table("The slow trainer", [start]),
            Table("The ladder: one change per rung", rows),
            Table("Tempting mistakes on top of the best trainer", mistakes),
        ]
    )
    result.notes += [*ladder.notes, *missing_steps(params)]
    result.key_figure(TOTAL, total.ratio, unit="times")
    result.key_figure("its interval, and the noise", f"{total.interval}, ±{100 * total.noise:.2g} %")
    result.key_figure("largest part of the slow trainer", start.largest_percent, unit="% of its time")
    result.key_figure("best trainer, share of the time in which the GPU works", gpu_share, unit="%", lecture="~95")
    result.key_figure("what one spacing in each weight does to a loss", floor)
    claim_outputs(result, rungs, rows, mistakes, floor)

    result.measured("The best trainer is at least ten times as fast as the slow one", total.low >= TEN, str(total))
    beyond = [row.name for rung, row in zip(rungs[1:], rows, strict=True) if rung.kept and rung.gain.low > row.most_by_part]
    result.measured(
        "A change can gain more than its part alone could give: it helps other parts too",
        bool(beyond),
        f"{', '.join(beyond) or 'none'} of {sum(row.kept for row in rows)} that were kept",
    )
    return result


def claim_outputs(
    result: Result, rungs: list[TrainerRung], rows: list[RungRow], mistakes: list[TemptingMistake], floor: float
) -> None:
    """What the changes may alter of the losses, and that the check sees the rest."""
    exact = [rung for rung in rungs[1:] if rung.change.bound == 0]
    rounded = [rung for rung in rungs[1:] if rung.change.bound > 0]
    result.claim(
        "Changes that keep every operation and its order leave every loss bitwise identical",
        len(exact) >= 4 and all(rung.same for rung in exact),
        f"{len(exact)} changes: {', '.join(rung.change.switch for rung in exact)}",
    )
    result.claim(
        "Changes that round in another order, or in 16 bits, move no loss by more than their stated bound",
        len(rounded) >= 3 and all(rung.same for rung in rounded),
        ", ".join(f"{rung.change.switch} {rung.difference:.1g} of {rung.bound:g}" for rung in rounded),
    )
    result.claim(
        "A comparison of losses finds all four tempting mistakes, though nothing fails and nothing warns",
        len(mistakes) == 4 and all(not row.difference <= row.allowed for row in mistakes),
        ", ".join(f"{row.mistake} {row.difference:.2g} (looks {row.verdict})" for row in mistakes),
    )
    result.claim(
        "One spacing more in each starting weight moves a loss, and by less than the bound for rounding",
        0 < floor < ROUNDING,
        f"{floor:.1g} of {ROUNDING:g}",
    )
    result.check(
        "Every trainer gives bitwise identical losses each time it is run, with the clock or without",
        all(rung.repeats for rung in rungs),
        f"{sum(rung.repeats for rung in rungs)} of {len(rungs)} rungs",
    )


def missing_steps(params: Params) -> list[str]:
    """A note for each reason why steps of the ladder were not tried here."""
    absent = {
        need: [
            change.switch
            for change in CHANGES
            if change.needs == need and not applicable(change, params.device, params.compile)
        ]
        for need in ("cuda", "bfloat16", "compile")
    }
    notes = []
    if absent["cuda"]:
        notes.append(
            NO_CUDA.format(what=f"{', '.join(absent['cuda'])} have no effect on a CPU and were not tried", slug="profile-loop")
        )
    if absent["bfloat16"]:
        notes.append(f"bfloat16 was not tried: {params.device.dtype_reason}.")
    if absent["compile"]:
        notes.append("compiled was not tried: torch.compile takes tens of seconds at first; `--size full` tries it.")
    return notes
