"""exact-resume: a run is killed three times in mid-epoch and goes on in six ways: which samples its training then saw."""

import multiprocessing
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from hpml_lab.core.experiment import Params, Result, Row, Table, column, experiment
from hpml_lab.core.show import style
from hpml_lab.loading.experiments.exact_resume.killed_runs import (
    HANDED_OUT,
    LESSON,
    REDRAWN,
    RESTARTED,
    RIGHT,
    SEED,
    STEPS,
    TORCHDATA,
    WRONG,
    KillPlan,
    ResumedRun,
    Taken,
    all_runs,
    resume_ways,
)
from hpml_lab.loading.lessons.resuming import ResumableSampler

# A process that is killed has taken a few batches more than its last snapshot holds: they are done again.
QUICK = dict(batches=60, batch=4, kills=(7, 8, 5), every=3, workers=(0, 2, 4))
FULL = dict(batches=600, batch=16, kills=(70, 95, 50), every=20, workers=(0, 2, 4))
PREFETCH = 2  # DataLoader's prefetch_factor
RANKS = (4, 2, 3, 1)  # of the processes of one run, by their order
PANELS = (HANDED_OUT, RESTARTED, REDRAWN, LESSON)


@dataclass
class ResumedEpoch(Row):
    """What the training saw of an epoch that was stopped three times."""

    way: str = column("way")
    workers: int = column("workers")
    once: int = column("seen once")
    lost: int = column("never")
    doubled: int = column("twice or more")
    same_order: bool = column("order as never stopped")
    repeated: int = column("worker's numbers that came before")
    own: bool = column("own numbers as never stopped")
    state_bytes: int = column("in the snapshot", "B")


def draw(result: Result):
    """Which process saw which sample, with the most workers: a mark is a sample, at its place in the order of a run that was
    never stopped, in the row of the process that took it. Below, orange, those that none took, and red, those taken twice.

    Bottom right each process goes on where the snapshot before was. Top left there are gaps; top right the rows overlap from
    the third on; bottom left each process has an order of its own.
    """
    figure = style.new_figure(10, 5.6)
    panels = figure.subplots(2, 2, sharex=True, sharey=True).ravel()
    for axes, way in zip(panels, PANELS, strict=True):
        places = result.arrays["places"][way]
        seen = Counter(place for row in places for place in row)
        lost = [place for place in range(result.arrays["size"]) if not seen[place]]
        doubled = [place for place, times in seen.items() if times > 1]
        bands = [(row, style.BLUE) for row in places] + [(lost, style.ORANGE), (doubled, style.RED)]
        for low, (marked, color) in enumerate(bands):
            axes.plot(marked, [low] * len(marked), "|", color=color, markersize=9, markeredgewidth=1)
        axes.set_title(f"{way}: {len(lost)} lost, {len(doubled)} doubled", fontsize=10)
        axes.grid(False)
    names = ["1st process", *(f"after kill {number}" for number in range(1, len(places))), "lost", "doubled"]
    panels[0].set_yticks(range(len(names)), names)
    panels[0].invert_yaxis()
    for axes in panels:
        axes.set(xlabel="place in the order of the epoch" * axes.get_subplotspec().is_last_row())
        axes.set(ylabel="seen by" * axes.get_subplotspec().is_first_col())
    return figure


# ---- from what the processes returned ----------------------------------------------------------------------------------------


def resumed_row(way: str, workers: int, run: ResumedRun, whole: ResumedRun, size: int) -> ResumedEpoch:
    """One way compared with `whole`, its run that was never stopped."""
    seen = Counter(sample.index for sample in run.taken)
    own = {sample.index: sample.own_number for sample in whole.taken}
    numbers = [sample.workers_number for sample in run.taken]
    order = [[sample.index for sample in found.taken] for found in (run, whole)]
    return ResumedEpoch(
        way=way,
        workers=workers,
        once=sum(times == 1 for times in seen.values()),
        lost=size - len(seen),
        doubled=sum(times > 1 for times in seen.values()),
        same_order=order[0] == order[1] and run.following == whole.following,
        repeated=len(numbers) - len(set(numbers)),
        own=all(sample.own_number == own[sample.index] for sample in run.taken),
        state_bytes=run.state_bytes,
    )


def by_process(taken: Iterable[Taken], whole: Iterable[Taken], processes: int) -> list[list[int]]:
    """For each process the samples that it took, as their places in the order of the run that was never stopped."""
    place = {sample.index: number for number, sample in enumerate(whole)}
    found: list[list[int]] = [[] for _ in range(processes)]
    for sample in taken:
        found[sample.process].append(place[sample.index])
    return found


def on_other_ranks(size: int, batch: int, steps: Iterable[int]) -> list[int]:
    """All samples that the ranks of one run took, in processes with RANKS ranks, the last of which goes to the end."""
    state, seen = ResumableSampler(size, SEED).state_dict(), []
    for ranks, some in zip(RANKS, [*steps, size], strict=True):
        samplers = [ResumableSampler(size, SEED, rank, ranks) for rank in range(ranks)]
        for sampler in samplers:
            sampler.load_state_dict(state)
        shares = [list(sampler)[: some * batch] for sampler in samplers]
        for sampler in samplers:
            sampler.took(sum(map(len, shares)))
        state, seen = samplers[-1].state_dict(), [*seen, *sum(shares, [])]
    return seen


# ---- the experiment ----------------------------------------------------------------------------------------------------------


@experiment("exact-resume", lecture="L0", notebook="08_loading", draw=draw, quick=QUICK, full=FULL, same_picture=True)
def exact_resume(params: Params) -> Result:
    """A loader that is killed three times in mid-epoch, and which samples the training then saw, by the way it resumes."""
    plan = KillPlan(params.batches, params.batch, params.kills, params.every)
    runs, whole, codes = all_runs(plan, params.workers, resume_ways())
    rows = [resumed_row(*name, run, whole[name], plan.size) for name, run in runs.items()]
    rows.sort(key=lambda row: (*RIGHT, *WRONG).index(row.way))

    most = params.workers[-1]
    title = f"An epoch of {plan.size:,} samples in batches of {plan.batch}, killed three times"
    places = {way: by_process(runs[way, most].taken, whole[way, most].taken, len(plan.kills) + 1) for way in PANELS}
    result = Result([Table(title, rows)], arrays={"size": plan.size, "places": places})
    if (TORCHDATA, 0) not in runs:
        result.notes.append(f"torchdata is not installed, so the rows of {TORCHDATA} are missing: `pip install torchdata`.")
    if multiprocessing.get_start_method() == "spawn":
        result.notes.append("Workers start with spawn here: each imports torch first, which takes seconds.")
    by_way = {(row.way, row.workers): row for row in rows}
    for way in (LESSON, STEPS, TORCHDATA):
        found = by_way.get((way, most))
        result.key_figure(f"{way}, {most} workers, in the snapshot", found and found.state_bytes, unit="B")
    result.key_figure(f"{HANDED_OUT}, {most} workers: never seen", by_way[HANDED_OUT, most].lost, unit="samples")
    result.key_figure(f"{RESTARTED}: seen more than once", by_way[RESTARTED, most].doubled, unit="samples")
    add_claims(result, plan, by_way, runs, params.workers)
    killed = f"{len(codes)} processes, exit codes {sorted(set(codes))}"
    result.check("Three processes of each number of workers were killed", len(codes) == 3 * len(params.workers), killed)
    return result


def add_claims(
    result: Result, plan: KillPlan, rows: dict, runs: dict[tuple[str, int], ResumedRun], workers: Iterable[int]
) -> None:
    """`rows` and `runs` by way and number of workers."""
    right = [row for row in rows.values() if row.way in RIGHT]
    result.claim(
        "With 0, 2 and 4 workers, after three kills, a place counted where the training takes a batch gives each sample once, "
        "in the order of a run that was never stopped, and so the next epoch: by the lesson's sampler, by the number of steps, "
        "and by StatefulDataLoader, if it is installed",
        all(row.once == plan.size and row.same_order for row in right),
        f"{len(right)} runs of {plan.size:,} samples",
    )
    lost = {number: rows[HANDED_OUT, number].lost for number in workers}
    result.claim(
        "Counted in the sampler, a place loses nothing without workers, and with them workers × prefetch_factor batches a kill",
        all(found == 3 * number * PREFETCH * plan.batch for number, found in lost.items()),
        ", ".join(f"{number} workers: {found}" for number, found in lost.items()),
    )
    restarted = [runs[RESTARTED, number].taken for number in workers]
    result.claim(
        "A counter that begins at 0 in each process is right after the first kill, and repeats samples from the second on",
        all(twice(taken, 2) == 0 < twice(taken, 3) for taken in restarted),
        f"{rows[RESTARTED, 0].doubled} samples more than once",
    )
    redrawn = [rows[REDRAWN, number] for number in workers]
    result.claim(
        "An order drawn from the generator's state in mid-epoch is another one: as many samples come too often as are lost",
        all(row.lost > 0 and len(runs[REDRAWN, row.workers].taken) == plan.size for row in redrawn),
        f"{redrawn[0].lost} of {plan.size:,} never seen",
    )
    result.claim(
        "Random numbers of the workers' generators begin again in each process that sets the same seed; those of (seed, epoch, "
        "index) are those of a run that was never stopped",
        all(row.repeated > 0 and row.own for row in right if row.way != TORCHDATA),
        f"{rows[LESSON, 0].repeated} of {plan.size:,} numbers came before",
    )
    result.claim(
        "Begun on 4 ranks, the lesson's sampler goes on with 2, then 3, then 1: together they take each sample once",
        sorted(on_other_ranks(plan.size, plan.batch, 3 * [plan.every])) == list(range(plan.size)),
    )


def twice(taken: Iterable[Taken], processes: int) -> int:
    """How many samples the first so many processes took more than once."""
    seen = Counter(sample.index for sample in taken if sample.process < processes)
    return sum(times > 1 for times in seen.values())
