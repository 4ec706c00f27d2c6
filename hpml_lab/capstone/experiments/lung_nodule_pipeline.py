"""A whole workload made fast: from CT scans to nodules, by profile, change and assess, with detections unchanged."""

import importlib.util
import tempfile
from dataclasses import replace

import numpy as np
from torch import nn

from hpml_lab.capstone import batch_run, detector, lecture_minutes, prepared, scans
from hpml_lab.capstone.ct import synthetic
from hpml_lab.capstone.lung_pictures import draw_ladder
from hpml_lab.capstone.lung_pipeline import LungPipeline, PipelineSwitches
from hpml_lab.capstone.lung_rows import LungRung, LungSlowStart, rung_row, slow_row  # noqa: F401  (a saved result's rows)
from hpml_lab.capstone.pipeline_changes import (
    AHEAD,
    CHANGES,
    EQUAL,
    METHOD,
    PREPARATION,
    ROUNDED,
    SIXTEEN,
    difference_of,
    lane_seconds,
)
from hpml_lab.capstone.pipeline_ladder import ClimbPlan, PipelineLadder, PipelineRung, by_kind, unchanged_since
from hpml_lab.capstone.pipeline_use import MachineUse, OverlapRow, known_waits, watched
from hpml_lab.core.device import NO_CUDA
from hpml_lab.core.experiment import Params, experiment
from hpml_lab.core.findings import Table
from hpml_lab.core.machine import cores
from hpml_lab.core.noise import SpeedUp
from hpml_lab.core.progress import progress
from hpml_lab.core.result import Result

QUICK = dict(
    shape=(28, 100, 100), spacing=(2.5, 1.6, 1.6), patients=2, training=12, steps=36, turns=4, sample_seconds=0.05, stream=4,
    watched=(2, 24), waits=12, ranks=2, compile=False,
)  # fmt: skip
FULL = QUICK | dict(
    shape=(128, 256, 256), spacing=(1.5, 0.8, 0.8), patients=6, training=40, steps=150, turns=9, sample_seconds=0.5, stream=12,
    watched=(4, 60), waits=40, compile=True,
)  # fmt: skip
SLUG = "lung-nodule-pipeline"
GOAL = 8.0  # times as fast
UNSEEN = 1000  # the first seed of the patients that are run; training has the seeds from 0
TOTAL = "slow pipeline / fast pipeline"


def draw(result: Result):
    return draw_ladder(result)


draw.__doc__ = draw_ladder.__doc__


@experiment(SLUG, lecture="L1", notebook="16_capstone", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def lung_nodule_pipeline(params: Params) -> Result:
    """A whole workload made fast: from CT scans to nodules, one measured change at a time, with detections unchanged."""
    chest = dict(shape=params.shape, spacing=params.spacing)
    network = trained_quickly(params)
    plan = ClimbPlan(params.turns, params.sample_seconds, params.stream)
    with tempfile.TemporaryDirectory(prefix="hpml-lungs-") as folder:
        patients = [scans.save(synthetic(UNSEEN + i, **chest, sick=True), f"{folder}/scans") for i in range(params.patients)]
        ladder = PipelineLadder(network, patients, params.device, plan, compile=params.compile)
        rungs = list(progress(ladder.climb(), "rungs", len(ladder.changes) + 1))
        kept = [rung for rung in rungs if rung.kept]
        best = [rung for rung in kept if rung.change is None or rung.change.bound != SIXTEEN][-1]
        total = ladder.total(rungs[0], best)
        uses = watch_both(ladder, rungs[0], kept[-1], params)
        on_ranks, alone = by_ranks_and_alone(folder, network, in_one_thread(best), params.ranks)
    waits = known_waits(params.waits)

    rows, below = [], rungs[0]
    for rung in rungs[1:]:
        rows.append(rung_row(rung, below))
        below = rung if rung.kept else below
    result = Result([
        Table("The slow pipeline", [slow_row(rungs[0])]),
        Table("The ladder: one change per rung", rows),
        Table("The machine, before and after", uses),
        Table("Stages that only wait, 3 : 1", waits),
    ])  # fmt: skip
    result.notes += [*ladder.notes, *missing(params)]
    claim_minutes(result)
    claim_detections(result, rungs)
    names = [path.stem for path in patients]
    off = difference_of(*([report.detections[name] for name in names] for report in (alone, on_ranks)))
    result.claim(
        f"{params.ranks} ranks that share a folder of patients leave the detections of one process",
        off <= EQUAL and not on_ranks.failures,
    )
    claim_speed(result, rungs, best, total, uses, waits)
    return result


# ---- measuring -------------------------------------------------------------------------------------------------------


def trained_quickly(params: Params) -> nn.Module:
    """A detector trained just long enough to find something: the ladder asks for equal detections, not for good ones."""
    chests = prepared.patients(range(params.training), shape=params.shape, spacing=params.spacing, sick=True)
    return detector.train(chests, steps=params.steps)[0]


def watch_both(ladder: PipelineLadder, slow: PipelineRung, fast: PipelineRung, params: Params) -> list[MachineUse]:
    """The slow and the fast pipeline under the monitor, for about the same time."""
    found = []
    for version, rung, count in zip(("slow", "fast"), (slow, fast), params.watched, strict=True):
        sources = [ladder.patients[i % len(ladder.patients)] for i in range(count)]
        made = ladder.make(rung.switches)
        ladder.run(made, 1)
        found.append(watched(version, made, sources, shown=2 if rung is slow else 6))
    return found


def by_ranks_and_alone(
    folder: str, network: nn.Module, switches: PipelineSwitches, ranks: int
) -> tuple[batch_run.FolderReport, batch_run.FolderReport]:
    """The folder's patients by several processes, and by this one alone: the same work on the processor on every machine."""
    scanned = f"{folder}/scans"
    together = batch_run.run_on_ranks(scanned, f"{folder}/ranks", network, switches, ranks=ranks)
    return together, batch_run.run_folder(scanned, f"{folder}/alone", LungPipeline(network, switches))


def in_one_thread(rung: PipelineRung):
    """The same method, by one thread a rank and on the CPU."""
    return replace(rung.switches.method, channels_last=False, compiled=False, on_device=False)


def missing(params: Params) -> list[str]:
    """A note for each reason why changes were not tried here."""
    notes = []
    absent = [change.switch for change in CHANGES if change.needs == "cuda"]
    if not params.device.is_cuda:
        what = f"{', '.join(absent)} have no effect on a CPU and were not tried"
        notes.append(NO_CUDA.format(what=what, slug=SLUG))
    if params.device.dtype.itemsize != 2:
        notes.append(f"bfloat16 was not tried: {params.device.dtype_reason}.")
    if not params.compile:
        notes.append("compiled was not tried: torch.compile takes tens of seconds at first; `--size full` tries it.")
    if cores() < 2:
        notes.append("Threads were not tried with whole patients: this machine has one core.")
    there = importlib.util.find_spec("nvidia") and importlib.util.find_spec("nvidia.dali")
    notes.append(
        f"DALI, the lecture's change, {'is installed, but' if there else 'is not installed here, and'} has no reader for CT; "
        "on a GPU the rung on_device does what it did there: it moves interpolation off the processor."
    )
    return notes


# ---- claims ----------------------------------------------------------------------------------------------------------


def claim_minutes(result: Result) -> None:
    """The lecture's arithmetic."""
    result.claim(
        "In sequence an image takes 3' + 1' = 4': the GPU is used for 25 % of it, one thread of the processor for 75 %",
        lecture_minutes.sequence_is_the_lectures(),
    )
    result.claim(
        "Overlapped, each further image takes max(3', 1') = 3', 4/3 times as fast; a faster network would not change that",
        lecture_minutes.overlap_gives_three(),
    )
    result.claim(
        "k workers make it max(3'/k, 1'): three balance the two stages, and a fourth gains nothing",
        lecture_minutes.three_workers_balance(),
    )
    result.claim(
        "Twice the GPUs leave the overlapped 3' as they are; two GPUs need six workers",
        lecture_minutes.more_gpus_gain_nothing(),
    )
    result.claim(
        "Training takes 3' + 1' + 3' = 7' in sequence and max(3', 1' + 3') = 4' with the next image prepared ahead",
        lecture_minutes.training_takes_seven(),
    )
    sequence, overlapped = lecture_minutes.pipeline_of_fifty()
    result.claim(
        "A chain of n items ends after (n − 1) · max + sum, as its schedule does; 50 of .18, .05 and .01 s: 12.00 and 9.06 s",
        lecture_minutes.schedules_agree() and (sequence * 100, overlapped * 100) == (1200, 906),
    )


def claim_detections(result: Result, rungs: list[PipelineRung]) -> None:
    """What the changes may alter of the detections, and what they do."""
    equal, rounded, methods = (by_kind(rungs, kind) for kind in (EQUAL, ROUNDED, METHOD))
    result.claim(
        "Changes that keep every voxel, threads and prefetching leave every detection bitwise identical",
        len(equal) >= 4 and all(rung.same for rung in equal),
        f"{len(equal)} changes: {', '.join(rung.change.switch for rung in equal)}",
    )
    result.claim(
        "Changes that only round otherwise, batches and folding too, move no position by 0.001 mm and no score by 0.001",
        len(rounded) >= 3 and all(rung.same for rung in rounded),
        ", ".join(f"{rung.change.switch} {rung.difference[0]:.1g} mm, {rung.difference[1]:.1g}" for rung in rounded),
    )
    result.claim(
        "Linear interpolation in place of cubic splines is another method: detections move by more than rounding moves them",
        all(rung.difference > ROUNDED for rung in methods) and len(methods) == 1,
        ", ".join(f"{rung.difference[0]:.3g} mm, score {rung.difference[1]:.2g}" for rung in methods),
    )
    exact = [rung for rung in rungs if rung.change is None or rung.change.bound != SIXTEEN]
    position, score = unchanged_since(exact)
    result.claim(
        "From that method on, all changes together leave the detections as they were, to 0.001 mm and 0.001 of score",
        position <= ROUNDED[0] and score <= ROUNDED[1],
        f"{position:.1g} mm, {score:.1g}",
    )
    for rung in by_kind(rungs, SIXTEEN):
        result.measured(
            "16 bits in the network move no position by more than an eighth of a voxel, and no score by more than 0.02",
            rung.same,
            f"{rung.difference[0]:.2g} mm, {rung.difference[1]:.2g}: {'kept' if rung.kept else 'taken back'}",
            depends_on="how near the scores of neighboring cells are to each other: the better one suppresses the other",
        )
    result.check("There are detections to compare", all(len(found) for found in rungs[0].detections))
    result.check("All values of the fast pipeline are finite", all(np.isfinite(found).all() for found in exact[-1].detections))


def claim_speed(
    result: Result,
    rungs: list[PipelineRung],
    best: PipelineRung,
    total: SpeedUp,
    uses: list[MachineUse],
    waits: list[OverlapRow],
) -> None:
    """What it gained, next to the lecture's figures."""
    slow, (before, after) = rungs[0], uses
    ratio = lane_seconds(slow.profile, PREPARATION) / slow.profile["network"]
    result.key_figure("preprocessing / network, slow pipeline", ratio, "times", lecture=3)
    result.key_figure(TOTAL, total.ratio, "times", lecture=4)
    result.key_figure("its interval, and the noise", f"{total.interval}, ±{100 * total.noise:.2g} %")
    result.key_figure("network (GPU) at work, slow", before.gpu_percent or before.network_percent, "% of the time", lecture=25)
    result.key_figure("network (GPU) at work, fast", after.gpu_percent or after.network_percent, "% of the time", lecture=90)
    result.key_figure("processor, slow", before.core_percent, "% of one core", lecture=75)
    result.key_figure("processor, fast", after.all_percent, "% of all cores", lecture=75)
    result.measured(
        f"The fast pipeline is at least {GOAL:g} times as fast as the slow one, with detections unchanged",
        total.low >= GOAL,
        str(total),
    )
    result.measured(
        "In the slow pipeline preprocessing takes more than twice as long as the network", ratio > 2, f"{ratio:.2f} times"
    )
    largest = {rung.largest for rung in rungs if rung.kept}
    result.measured(
        "Once the largest part is fixed another one is the largest: the ladder is not a list that was known before",
        len(largest) >= 3,
        ", ".join(dict.fromkeys(rung.largest for rung in rungs if rung.kept)),
    )
    ahead = next((rung for rung in rungs if rung.change is AHEAD), None)
    if ahead is not None:
        below = [rung for rung in rungs[: rungs.index(ahead)] if rung.kept][-1]
        lanes = [
            lane_seconds(below.profile, PREPARATION),
            sum(below.profile.values()) - lane_seconds(below.profile, PREPARATION),
        ]
        most = sum(lanes) / max(lanes)
        result.key_figure("overlap can gain at most", most, "times")
        result.measured(
            "A thread that prepares ahead gains, and not more than sum / max of the two stages",
            ahead.gain.faster and ahead.gain.low <= most,
            f"{ahead.gain}, at most {most:.3g}",
        )
    result.measured(
        "Stages that only wait take what the formula says, to 15 %",
        all(abs(row.longer_percent) < 15 for row in waits),
        ", ".join(f"{row.arrangement} {row.longer_percent:+.1f} %" for row in waits),
    )
    result.measured(
        "The fast pipeline keeps more of the machine busy",
        after.all_percent > before.all_percent and after.network_percent > before.network_percent,
        f"processor {before.all_percent:.0f} to {after.all_percent:.0f} % of all cores, "
        f"network {before.network_percent:.0f} to {after.network_percent:.0f} % of the time",
    )
