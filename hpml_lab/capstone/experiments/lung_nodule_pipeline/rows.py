"""The rows of lung-nodule-pipeline."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hpml_lab.capstone.experiments.lung_nodule_pipeline.patient_training import TrainingTime
from hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_changes import KINDS, LANES, PREPARATION, lane_seconds
from hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_ladder import MachineUse, PipelineRung
from hpml_lab.capstone.tools.lung_pipeline import BEFORE
from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.machine import cores


@dataclass
class LungSlowStart(Row):
    """The first script, from which the ladder starts."""

    ms: float = column("a patient", "ms")
    largest: str = column("largest part")
    largest_percent: float = column("its share", "%")
    preprocessing_ms: float = column("before the network", "ms")
    network_ms: float = column("network", "ms")
    profile: dict[str, float] = field(default_factory=dict)  # seconds a patient by part

    name = "script"


@dataclass
class LungRung(Row):
    """One change on top of the rung below."""

    name: str = column("change")
    what: str = column("what is done")
    found_by: str = column("found in the profile")
    part_ms_before: float = column("when profiled", "ms")
    part_ms_after: float = column("after", "ms")
    part_gain: float | None = column("the part", "speed-up")
    part_interval: str | None = column("interval of that")
    gain: float = column("the whole", "speed-up")
    interval: str = column("interval")
    verdict: str = column("against the rung below")
    ms: float = column("a patient", "ms")
    promised: str = column("detections: promised")
    position_mm: float = column("off by", "mm")
    score: float = column("score off by")
    same: bool = column("as promised, or valid")
    kept: bool = column("kept")
    profile: dict[str, float] = field(default_factory=dict)


@dataclass
class NextToTheLecture(Row):
    """A line of the lecture's slide, and the same of this pipeline: the first script, and the fast one with the same method."""

    what: str = column("")
    lecture_before: str = column("lecture, before")
    before: str = column("here, before")
    after: str = column("here, after")
    lecture_after: str = column("lecture, after")


def next_to_the_lecture(
    slow: PipelineRung, fast: PipelineRung, uses: Sequence[MachineUse], trained: Sequence[TrainingTime]
) -> list[NextToTheLecture]:
    """The lecture's pipeline of minutes next to this one of milliseconds."""

    def lane(*parts: str) -> list[str]:
        return [in_ms(1e3 * sum(rung.profile[part] for part in parts)) for rung in (slow, fast)]

    before, after = uses
    network = [f"{use.gpu_percent or use.network_percent:.0f} %" for use in uses]
    processor = f"{before.core_percent:.0f} % of one core", f"{after.all_percent:.0f} % of {cores()} cores"
    rows = [
        ("preprocessing", "3' on one thread, Python", *lane(*BEFORE), ""),
        ("network and boxes", "1' on a GPU", *lane("network", "boxes"), ""),
        ("the patient, by scikit-learn", "10 ms", *lane("patient"), ""),
        ("an image, inference", "4' in sequence", in_ms(1e3 * slow.seconds), in_ms(1e3 * fast.seconds), "1'"),
        ("an image, training", "7' in sequence", *(in_ms(row.image) for row in trained), "3'"),
        ("GPU, or network, at work", "25 % of one GPU", *network, "90 % of 4 GPUs"),
        ("processor", "75 % of one thread", *processor, "75 % of 40 threads"),
    ]
    return [NextToTheLecture(*row) for row in rows]


def in_ms(ms: float) -> str:
    """Three digits, or all of a large number."""
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def slow_row(rung: PipelineRung) -> LungSlowStart:
    before = 1e3 * lane_seconds(rung.profile, PREPARATION)
    share, network = 100 * rung.share(rung.largest), 1e3 * rung.profile["network"]
    return LungSlowStart(1e3 * rung.seconds, rung.largest, share, before, network, rung.profile)


def rung_row(rung: PipelineRung, below: PipelineRung) -> LungRung:
    """A rung as a row; `below` is the last one that was kept."""
    change = rung.change
    before, after = (attacked_seconds(found, change.part) for found in (below, rung))
    position, score = rung.difference
    return LungRung(
        name=change.switch, what=change.change, found_by=found_by(below, change.part),
        part_ms_before=1e3 * before, part_ms_after=1e3 * after,
        part_gain=rung.part_gain and rung.part_gain.ratio, part_interval=rung.part_gain and rung.part_gain.interval,
        **rung.gain.columns, ms=1e3 * rung.seconds, promised=KINDS[change.bound],
        position_mm=position, score=score, same=rung.same, kept=rung.kept, profile=rung.profile,
    )  # fmt: skip


def attacked_seconds(rung: PipelineRung, part: str) -> float:
    """Seconds a patient of what a change attacks: a part, a lane, or, for idle cores, the whole."""
    if part in rung.profile:
        return rung.profile[part]
    return lane_seconds(rung.profile, part) if part in LANES else rung.seconds


def found_by(below: PipelineRung, part: str) -> str:
    """What the profile said: the part's share and its rank."""
    if part in below.profile:
        rank = 1 + sum(seconds > below.profile[part] for seconds in below.profile.values())
        place = "largest" if rank == 1 else f"number {rank}"
        return f"{part}: {100 * below.share(part):.0f} %, {place}"
    if part in LANES:
        lanes = {lane: lane_seconds(below.profile, lane) for lane in LANES}
        other = next(lane for lane in lanes if lane != part)
        return f"{part} {1e3 * lanes[part]:.3g} ms, {other} {1e3 * lanes[other]:.3g} ms"
    return "no part has a change left; cores are idle"
