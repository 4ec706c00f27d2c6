"""A whole workload made fast: from CT scans to nodules, by profile, change and assess."""

import tempfile
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from hpml_lab.capstone.tools import prepared, scans
from hpml_lab.capstone.lessons import detector
from hpml_lab.capstone.tools.ct import synthetic
from hpml_lab.capstone.experiments.lung_nodule_pipeline.figure import draw_ladder
from hpml_lab.capstone.tools.lung_pipeline import PipelineSwitches
from hpml_lab.capstone.experiments.lung_nodule_pipeline.rows import next_to_the_lecture, rung_row, slow_row
from hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_changes import (
    AHEAD,
    CHANGES,
    EQUAL,
    PREPARATION,
    ROUNDED,
    difference_of,
    lane_seconds,
)
from hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_ladder import (
    MachineUse,
    PipelineLadder,
    PipelineRung,
    Validated,
    by_kind,
    same_method,
    watched,
)
from hpml_lab.capstone.experiments.lung_nodule_pipeline.patient_training import (
    PatientTraining,
    folder_on_ranks,
    trained_in_turns,
)
from hpml_lab.core.experiment import Params, Result, Table, experiment
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.device import NO_CUDA
from hpml_lab.core.system.machine import cores

QUICK = dict(
    shape=(28, 80, 80),
    spacing=(2.5, 1.6, 1.6),
    patients=2,
    training=40,
    steps=100,
    fitting=10,
    validation=16,
    turns=SAMPLES,
    sample_seconds=0.05,
    stream=4,
    watched=(1, 12),
    compile=False,
    edge=32,
    patches=16,
    ranks=(1, 2),
    folder=16,
)
FULL = QUICK | dict(
    shape=(128, 256, 256),
    spacing=(1.5, 0.8, 0.8),
    patients=4,
    steps=150,
    fitting=16,
    validation=32,
    turns=9,  # of half a second and more a sample
    sample_seconds=0.5,
    stream=8,
    watched=(2, 30),
    compile=True,
    edge=64,
    patches=16,
    ranks=(1, 2, 4),
    folder=32,
)
GOAL = 8.0  # of the speed-up
UNSEEN, FITTING, COUNTED = 1000, 2000, 3000  # the first seeds of those that are run, and of both groups of the validation
TOTAL = "first script / fast pipeline, same method"
LINEAR = "the same with linear interpolation"


@experiment(
    "lung-nodule-pipeline", lecture="L1", notebook="19_capstone", draw=draw_ladder, quick=QUICK, full=FULL, uses=("cuda",)
)
def lung_nodule_pipeline(params: Params) -> Result:
    """A whole workload made fast: from CT scans to nodules, one measured change at a time, detections unchanged."""
    chest = dict(shape=params.shape, spacing=params.spacing)
    network = trained_quickly(params)
    with tempfile.TemporaryDirectory(prefix="hpml-lungs-") as folder:
        patients = [scans.save(synthetic(UNSEEN + i, **chest, sick=True), f"{folder}/scans") for i in range(params.patients)]
        groups = [
            [synthetic(start + i, **chest, sick=i % 2 == 0) for i in range(count)]
            for start, count in ((FITTING, params.fitting), (COUNTED, params.validation))
        ]
        ladder = PipelineLadder(network, patients, params, groups)
        rungs = list(progress(ladder.climb(PipelineSwitches()), "rungs", len(ladder.changes) + 1))
        best = same_method(rungs)
        other = replace(best.switches, linear=True)
        total, with_linear = ladder.totals((best.switches, other), rungs[0])
        unchanged = difference_of(rungs[0].detections, best.detections)
        validated = validations(ladder, rungs, best, other)
        uses = watch_both(ladder, rungs[0], best, params)
        both = (PatientTraining(network, rung.switches, params) for rung in (rungs[0], best))
        trained, trained_faster = trained_in_turns(*both, patients, params.turns)
        on_ranks = folder_on_ranks(network, patients, Path(folder), params)

    rows, below = [], rungs[0]
    for rung in rungs[1:]:
        rows.append(rung_row(rung, below))
        below = rung if rung.kept else below
    result = Result(
        [
            Table("The first script", [slow_row(rungs[0])]),
            Table("The ladder: one change per rung", rows),
            Table("Is the output still good enough?", validated),
            Table("Next to the lecture's pipeline", next_to_the_lecture(rungs[0], best, uses, trained)),
            Table("The machine, before and after", uses),
            Table("Training on an image", trained),
            *([Table("A folder of patients on ranks", on_ranks)] if on_ranks else []),
        ]
    )
    result.notes += [*ladder.notes, *missing(params)]
    claim_detections(result, rungs, unchanged)
    claim_speed(result, rungs, total, uses)
    result.key_figure(LINEAR, with_linear.ratio, "×")
    result.key_figure("training an image, first script / fast", trained_faster.ratio, "×", lecture=round(7 / 3, 2))
    result.key_figure("its interval", trained_faster.interval)
    result.key_figure("GPUs", torch.cuda.device_count() if params.device.is_cuda else 0, lecture=4)
    result.key_figure("threads of the processor", cores(), lecture=40)
    for row in on_ranks[1:]:
        result.key_figure(f"patients/s on {row.ranks} ranks / on 1", row.rate / on_ranks[0].rate, "×")
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
        made = ladder.make(rung.switches)
        ladder.run(made, 1)
        found.append(watched(version, made, ladder.cycled(count), shown=2 if rung is slow else 6))
    return found


def missing(params: Params) -> list[str]:
    """A note for each reason why changes were not tried here."""
    notes = []
    absent = [change.switch for change in CHANGES if change.needs == "cuda"]
    if not params.device.is_cuda:
        what = f"{', '.join(absent)} have no effect on a CPU and were not tried"
        notes.append(NO_CUDA.format(what=what, slug="lung-nodule-pipeline"))
    if params.device.dtype.itemsize != 2:
        notes.append(f"bfloat16 was not tried: {params.device.dtype_reason}.")
    if not params.compile:
        notes.append("compiled was not tried: torch.compile takes tens of seconds at first; `--size full` tries it.")
    if cores() < 2:
        notes.append("Threads were not tried with whole patients: this machine has one core.")
    return notes


# ---- claims ----------------------------------------------------------------------------------------------------------


def claim_detections(result: Result, rungs: list[PipelineRung], unchanged: tuple[float, float]) -> None:
    """What the changes may alter of the detections, and what they do."""
    equal, rounded = (by_kind(rungs, kind) for kind in (EQUAL, ROUNDED))
    result.claim(
        "Changes that keep every voxel, threads and prefetching leave every detection bitwise identical; those that round "
        "otherwise move no position by 0.001 mm and no score by 0.001, alone and all together",
        len(equal) >= 4 and len(rounded) >= 3 and all(rung.same for rung in equal + rounded) and unchanged <= ROUNDED,
        f"{len(equal)} bitwise, {len(rounded)} rounded; together {unchanged[0]:.1g} mm, {unchanged[1]:.1g}",
    )


def claim_speed(result: Result, rungs: list[PipelineRung], total: SpeedUp, uses: list[MachineUse]) -> None:
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
        f"The fast pipeline is at least {GOAL:g}× faster than the first script, with detections unchanged",
        total.low >= GOAL,
        str(total),
    )
    result.measured(
        "In the first script preprocessing takes more than twice as long as the network", ratio > 2, f"{ratio:.2f}×"
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
        first, whole = lane_seconds(below.profile, PREPARATION), sum(below.profile.values())
        most = whole / max(first, whole - first)
        result.key_figure("overlap can gain at most", most, "×")
        result.measured(
            "A thread that prepares ahead gains not more than sum / max of the two stages",
            ahead.gain.low <= most,
            f"{ahead.gain}, at most {most:.3g}",
        )
