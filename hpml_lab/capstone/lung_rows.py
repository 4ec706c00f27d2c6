"""The rows of lung-nodule-pipeline."""

from dataclasses import dataclass, field

from hpml_lab.capstone.pipeline_changes import KINDS, LANES, PREPARATION, lane_seconds
from hpml_lab.capstone.pipeline_ladder import PipelineRung
from hpml_lab.core.findings import Row, column


@dataclass
class LungSlowStart(Row):
    """The slow pipeline, at the foot of the ladder."""

    ms: float = column("a patient", "ms")
    largest: str = column("largest part")
    largest_percent: float = column("its share", "%")
    preprocessing_ms: float = column("before the network", "ms")
    network_ms: float = column("network", "ms")
    profile: dict[str, float] = field(default_factory=dict)  # seconds a patient by part

    name = "slow"


@dataclass
class LungRung(Row):
    """One change on top of the rung below."""

    name: str = column("change")
    what: str = column("what is done")
    found_by: str = column("found in the profile")
    part_ms_before: float = column("before", "ms")
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
    same: bool = column("as promised")
    kept: bool = column("kept")
    profile: dict[str, float] = field(default_factory=dict)


def slow_row(rung: PipelineRung) -> LungSlowStart:
    return LungSlowStart(
        1e3 * rung.seconds,
        rung.largest,
        100 * rung.share(rung.largest),
        1e3 * lane_seconds(rung.profile, PREPARATION),
        1e3 * rung.profile["network"],
        rung.profile,
    )


def rung_row(rung: PipelineRung, below: PipelineRung) -> LungRung:
    """A rung as a row; `below` is the last one that was kept."""
    change = rung.change
    before, after = (attacked_seconds(found, change.part) for found in (below, rung))
    position, score = rung.difference
    return LungRung(
        name=change.switch,
        what=change.change,
        found_by=found_by(below, change.part),
        part_ms_before=1e3 * before,
        part_ms_after=1e3 * after,
        part_gain=rung.part_gain and rung.part_gain.ratio,
        part_interval=rung.part_gain and rung.part_gain.interval,
        **rung.gain.columns,
        ms=1e3 * rung.seconds,
        promised=KINDS[change.bound],
        position_mm=position,
        score=score,
        same=rung.same,
        kept=rung.kept,
        profile=rung.profile,
    )


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
