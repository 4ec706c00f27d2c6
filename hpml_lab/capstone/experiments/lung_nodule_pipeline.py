"""A whole workload made fast: from CT scans to nodules, by profile, change and assess."""

import importlib.util
import tempfile
from dataclasses import replace

import numpy as np
from torch import nn

from hpml_lab.capstone import batch_run, detector, lecture_minutes, prepared, scans
from hpml_lab.capstone.ct import synthetic
from hpml_lab.capstone.lung_pictures import draw_ladder
from hpml_lab.capstone.lung_pipeline import LungPipeline, PipelineSwitches
from hpml_lab.capstone.lung_rows import LungRung, LungSlowStart, NextToTheLecture, next_to_the_lecture, rung_row, slow_row  # noqa: F401  (a saved result's rows)
from hpml_lab.capstone.pipeline_changes import AHEAD, CHANGES, EQUAL, PREPARATION, ROUNDED, difference_of, lane_seconds
from hpml_lab.capstone.pipeline_ladder import ClimbPlan, PipelineLadder, PipelineRung, by_kind, same_method
from hpml_lab.capstone.pipeline_use import MachineUse, OverlapRow, known_waits, watched
from hpml_lab.capstone.validation import FOUND, Validated, good_enough
from hpml_lab.core.experiment.findings import Table
from hpml_lab.core.experiment.registry import Params, experiment
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.measure.noise import SpeedUp
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.machine import cores

QUICK = dict(
    shape=(28, 100, 100), spacing=(2.5, 1.6, 1.6), patients=2, training=40, steps=100, fitting=24, validation=40, turns=4,
    sample_seconds=0.05, stream=4, watched=(2, 24), waits=12, ranks=2, compile=False,
)  # fmt: skip
FULL = QUICK | dict(
    shape=(128, 256, 256), spacing=(1.5, 0.8, 0.8), patients=6, steps=150, fitting=16, validation=32, turns=9,
    sample_seconds=0.5, stream=12, watched=(4, 60), waits=40, compile=True,
)  # fmt: skip
SLUG = "lung-nodule-pipeline"
GOAL = 8.0  # of the speed-up
UNSEEN, FITTING, COUNTED = 1000, 2000, 3000  # the first seeds of those that are run, and of both groups of the validation
TOTAL = "first script / fast pipeline, same method"
LINEAR = "the same with linear interpolation"


def draw(result: Result):
    return draw_ladder(result)


draw.__doc__ = draw_ladder.__doc__


@experiment(SLUG, lecture="L1", notebook="19_capstone", draw=draw, quick=QUICK, full=FULL, uses=("cuda",))
def lung_nodule_pipeline(params: Params) -> Result:
    """A whole workload made fast: from CT scans to nodules, one measured change at a time, detections unchanged."""
    chest = dict(shape=params.shape, spacing=params.spacing)
    network = trained_quickly(params)
    plan = ClimbPlan(params.turns, params.sample_seconds, params.stream)
    with tempfile.TemporaryDirectory(prefix="hpml-lungs-") as folder:
        patients = [scans.save(synthetic(UNSEEN + i, **chest, sick=True), f"{folder}/scans") for i in range(params.patients)]
        groups = [[synthetic(start + i, **chest, sick=i % 2 == 0) for i in range(count)]
                  for start, count in ((FITTING, params.fitting), (COUNTED, params.validation))]  # fmt: skip
        ladder = PipelineLadder(network, patients, params.device, plan, compile=params.compile, validation=groups)
        rungs = list(progress(ladder.climb(), "rungs", len(ladder.changes) + 1))
        best = same_method(rungs)
        other = replace(best.switches, linear=True)
        total, with_linear = (ladder.total(switches, rungs[0]) for switches in (best.switches, other))
        unchanged = difference_of(rungs[0].detections, best.detections)
        validated = validations(ladder, rungs, best, other)
        uses = watch_both(ladder, rungs[0], best, params)
        on_ranks, alone = by_ranks_and_alone(folder, network, in_one_thread(best), params.ranks)
    waits = known_waits(params.waits)

    rows, below = [], rungs[0]
    for rung in rungs[1:]:
        rows.append(rung_row(rung, below))
        below = rung if rung.kept else below
    result = Result([
        Table("The first script", [slow_row(rungs[0])]),
        Table("The ladder: one change per rung", rows),
        Table("Is the output still good enough?", validated),
        Table("Next to the lecture's pipeline", next_to_the_lecture(rungs[0], best, uses)),
        Table("The machine, before and after", uses),
        Table("Stages that only wait, 3 : 1", waits),
    ])  # fmt: skip
    result.notes += [*ladder.notes, *missing(params)]
    claim_minutes(result)
    claim_detections(result, rungs, unchanged)
    claim_methods(result, rungs, validated)
    names = [path.stem for path in patients]
    off = difference_of(*([report.detections[name] for name in names] for report in (alone, on_ranks)))
    result.claim(
        f"{params.ranks} ranks that share a folder of patients leave the detections of one process",
        off <= EQUAL and not on_ranks.failures,
    )
    claim_speed(result, rungs, total, uses, waits)
    result.key_figure(LINEAR, with_linear.ratio, "×")
    return result


# ---- measuring -------------------------------------------------------------------------------------------------------


def trained_quickly(params: Params) -> nn.Module:
    """A detector trained on volumes as the first script makes them, with cubic splines."""
    chests = prepared.patients(range(params.training), order=3, shape=params.shape, spacing=params.spacing, sick=True)
    return detector.train(chests, steps=params.steps)[0]


def validations(
    ladder: PipelineLadder, rungs: list[PipelineRung], best: PipelineRung, other: PipelineSwitches
) -> list[Validated]:
    """What the first script finds, the fast pipeline, and each change of method on top of it."""
    tried = {rung.change.switch: rung.validated for rung in rungs if rung.validated}
    same = ladder.validate("same method", ladder.make(best.switches))
    linear = tried.pop("linear", None) or ladder.validate("linear", ladder.make(other))
    return [replace(ladder.validate.before, version="first script"), same, linear, *tried.values()]


def watch_both(ladder: PipelineLadder, slow: PipelineRung, fast: PipelineRung, params: Params) -> list[MachineUse]:
    """The slow and the fast pipeline under the monitor, for about the same time."""
    found = []
    for version, rung, count in zip(("first script", "fast"), (slow, fast), params.watched, strict=True):
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
        f"DALI, the lecture's change, {'is installed, but' if there else 'is not installed here, and'} has no DICOM reader; "
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
        "Overlapped, each further image takes max(3', 1') = 3', a speed-up of 4/3; a faster network would not change that",
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


def claim_detections(result: Result, rungs: list[PipelineRung], unchanged: tuple[float, float]) -> None:
    """What the changes may alter of the detections, and what they do."""
    equal, rounded = (by_kind(rungs, kind) for kind in (EQUAL, ROUNDED))
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
    position, score = unchanged
    result.claim(
        "From the first script to the fast pipeline of the same method, no position moves by 0.001 mm and no score by 0.001",
        position <= ROUNDED[0] and score <= ROUNDED[1],
        f"{position:.1g} mm, {score:.1g}",
    )
    result.check("There are detections to compare", all(len(found) for found in rungs[0].detections))
    result.check("All values of the fast pipeline are finite", all(np.isfinite(found).all() for found in rungs[-1].detections))


def claim_methods(result: Result, rungs: list[PipelineRung], validated: list[Validated]) -> None:
    """Declared changes of method: what they find, and whether they stay."""
    before, _, *others = validated
    result.check(
        "The rule of the validation is applied", all(row.passed == good_enough(before, row.found, row.false) for row in others)
    )
    verdicts = {rung.change.switch: "kept" if rung.kept else "taken back" for rung in rungs if rung.change}
    for row in others:
        result.measured(
            f"Another method, {row.version}, passes the validation: {FOUND:.0%} of the nodules, at most 10% more false alarms",
            row.passed,
            f"{row.found} of {row.nodules} nodules (before {before.found}), {row.false} false positives ({before.false}): "
            f"{verdicts.get(row.version, 'not tried')}",
            depends_on="the network, which was trained on volumes of the first method, and the patients",
        )


def claim_speed(
    result: Result, rungs: list[PipelineRung], total: SpeedUp, uses: list[MachineUse], waits: list[OverlapRow]
) -> None:
    """What it gained, next to the lecture's figures."""
    slow, (before, after) = rungs[0], uses
    ratio = lane_seconds(slow.profile, PREPARATION) / slow.profile["network"]
    result.key_figure("preprocessing / network, first script", ratio, "×", lecture=3)
    result.key_figure(TOTAL, total.ratio, "×", lecture=4)
    result.key_figure("its interval, and the noise", f"{total.interval}, ±{100 * total.noise:.2g} %")
    result.key_figure(
        "network (GPU) at work, before", before.gpu_percent or before.network_percent, "% of the time", lecture=25
    )
    result.key_figure("network (GPU) at work, after", after.gpu_percent or after.network_percent, "% of the time", lecture=90)
    result.key_figure("the patient, scikit-learn", 1e3 * slow.profile["patient"], "ms", lecture=10)
    result.key_figure("processor, before", before.core_percent, "% of one core", lecture=75)
    result.key_figure("processor, after", after.all_percent, "% of all cores", lecture=75)
    result.measured(
        f"The fast pipeline is at least {GOAL:g} times as fast as the first script, with detections unchanged",
        total.low >= GOAL,
        str(total),
    )
    result.measured(
        "In the first script preprocessing takes more than twice as long as the network", ratio > 2, f"{ratio:.2f} times"
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
        result.key_figure("overlap can gain at most", most, "×")
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
