"""Profile, change, assess: takes the slow pipeline up a ladder, one change per rung, each chosen from the profile before it."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from hpml_lab import profiling
from hpml_lab.capstone import scans
from hpml_lab.capstone.lung_pipeline import PARTS, LungPipeline, PipelineSwitches, SpanClock
from hpml_lab.capstone.pipeline_changes import (
    EQUAL,
    METHOD,
    NETWORK,
    SIXTEEN,
    PipelineChange,
    applicable,
    difference_of,
    next_change,
)
from hpml_lab.core.device import Device
from hpml_lab.core.noise import SpeedUp, speed_up_of

CLEAR = 1.25  # a gain whose whole interval is above it needs no further turn
HIDDEN = 1.05  # a larger one that noise hides gets twice the turns


@dataclass(frozen=True)
class ClimbPlan:
    """How often and how long the pipeline is run: at most `turns` turns, each over as many patients as take
    `sample_seconds`, and at least over `stream` of them once stages overlap."""

    turns: int
    sample_seconds: float
    stream: int


@dataclass(frozen=True)
class PipelineRung:
    """One rung: the change that led here (None at the bottom), the profile, and what the check found.

    profile     seconds a patient of each part; once stages overlap, parts of different patients go on at the same time
    seconds     of a patient: at the bottom the sum of the profile, above it divided by each gain that was kept, so that two
                rungs compare as they did in turns
    detections  of each patient, (n, 5)
    gain        how many times as fast as the rung below, timed in turns; None at the bottom
    difference  the largest of positions in mm and of scores against the rung below
    """

    change: PipelineChange | None
    switches: PipelineSwitches
    profile: dict[str, float]
    seconds: float
    detections: list[np.ndarray]
    gain: SpeedUp | None = None
    difference: tuple[float, float] = (0.0, 0.0)

    @property
    def largest(self) -> str:
        """The part that takes the most time."""
        return max(PARTS, key=lambda part: self.profile[part])

    @property
    def same(self) -> bool:
        """Whether the detections are those of the rung below, as far as the change promises it."""
        return self.change is None or all(off <= most for off, most in zip(self.difference, self.change.bound, strict=True))

    @property
    def kept(self) -> bool:
        """Whether the change stays: right first, and faster beyond noise second; one that gives up digits, by 5 %."""
        if self.gain is None:
            return True
        return self.same and self.gain.faster and (self.change.bound != SIXTEEN or self.gain.low > 1.05)

    def share(self, part: str) -> float:
        """What part of the profile's time `part` takes, 0 to 1."""
        return self.profile[part] / sum(self.profile.values())


class PipelineLadder:
    """Climbs: profile, take the largest part's next change, assess; a change that is wrong or no faster is taken back."""

    def __init__(
        self, network: nn.Module, patients: Sequence[Path], device: Device, plan: ClimbPlan, *, compile: bool = False
    ) -> None:
        self.network, self.patients, self.device, self.plan = network, list(patients), device, plan
        self.changes = applicable(device, compile)
        self.notes: list[str] = []

    def exact(self) -> contextlib.AbstractContextManager:
        """On a GPU: sums in a fixed order, and no TF32, so that detections can be compared."""
        if not self.device.is_cuda:
            return contextlib.nullcontext()
        return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)

    def make(self, switches: PipelineSwitches) -> LungPipeline:
        return LungPipeline(self.network, switches, self.device.torch, self.device.dtype)

    def climb(self) -> Iterator[PipelineRung]:
        """The rungs from the slow pipeline up, those that were taken back among them."""
        left = list(self.changes)
        with self.exact():
            made = self.make(PipelineSwitches())
            rung = self.assess(made, None, None, None)
            yield rung
            while change := next_change(rung.profile, left, rung.switches):
                left.remove(change)
                changed = self.make(change.applied(rung.switches))
                try:
                    tried = self.assess(changed, change, made, rung)
                except RuntimeError as error:  # all that the compiler raises
                    if change.switch != "compiled" or isinstance(error, torch.OutOfMemoryError):
                        raise
                    why = str(error).strip().splitlines()[0][:120]
                    self.notes.append(f"compiled was not tried: {type(error).__name__}: {why}")
                    continue
                yield tried
                if tried.kept:
                    made, rung = changed, tried

    def assess(
        self, made: LungPipeline, change: PipelineChange | None, below: LungPipeline | None, rung: PipelineRung | None
    ) -> PipelineRung:
        """Profile a pipeline, time it in turns with the one below, and compare what both detected."""
        if change is None or change.part in (NETWORK, "network"):
            self.run(made, 1)  # what a new network does only once is done now
        profile, detections = self.profiled(made)
        found = PipelineRung(change, made.switches, profile, sum(profile.values()), detections)
        if change is None:
            return found
        gain = self.gain_of(below, made, rung.seconds)
        return replace(
            found, gain=gain, seconds=rung.seconds / gain.ratio, difference=difference_of(rung.detections, detections)
        )

    def profiled(self, made: LungPipeline) -> tuple[dict[str, float], list[np.ndarray]]:
        """Seconds a patient by part, and all patients' detections, from one run. In sequence by notebook 09's PartClock, which
        waits for the device at each border; where several threads work, by spans."""
        overlapped = made.switches.ahead or made.switches.workers > 1
        clock = SpanClock(self.device.torch) if overlapped else profiling.PartClock(self.device.torch, PARTS)
        detections = [outcome.checked() for outcome in made.run(self.patients, scans.load, clock)]
        if overlapped:
            taken = {part: sum(span.seconds for span in clock.spans if span.what == part) for part in PARTS}
        else:
            taken = clock.seconds
        return {part: taken[part] / len(self.patients) for part in PARTS}, detections

    def stream(self, made: LungPipeline, count: int) -> int:
        """How many patients a sample takes: `count`, or more where stages overlap."""
        overlapped = made.switches.ahead or made.switches.workers > 1
        return max(count, self.plan.stream) if overlapped else count

    def run(self, made: LungPipeline, count: int) -> list[np.ndarray]:
        """Detections of `count` patients, from the first on and again from the first."""
        sources = [self.patients[i % len(self.patients)] for i in range(count)]
        return [outcome.checked() for outcome in made.run(sources, scans.load)]

    def seconds(self, made: LungPipeline, count: int) -> float:
        """Seconds a patient of one run without a clock; detections are on the CPU, so that a GPU is done with them."""
        start = time.perf_counter()
        self.run(made, count)
        return (time.perf_counter() - start) / count

    def gain_of(self, below: LungPipeline, made: LungPipeline, seconds: float) -> SpeedUp:
        """How many times as fast `made` is as `below`, which takes about so many seconds a patient.

        Both take turns, A B A B … A, each A being the placebo of the one before. The turns end early where even the least of
        three is a clear gain, and late where noise hides what looks like one.
        """
        count = self.stream(below, max(1, round(self.plan.sample_seconds / seconds)))
        if seconds < self.plan.sample_seconds:  # cheap enough: both take as many patients as a stream needs
            count = self.stream(made, count)
        before, after = [self.seconds(below, count)], []
        while True:
            after.append(self.seconds(made, self.stream(made, count)))
            before.append(self.seconds(below, count))
            gain = speed_up_of(before[:-1], after, before[1:])
            clear = len(after) >= 3 and gain.faster and gain.low > CLEAR
            hidden = gain.ratio > HIDDEN and not gain.faster and len(after) < 2 * self.plan.turns
            if clear or (len(after) >= self.plan.turns and not hidden):
                return gain

    def total(self, slow: PipelineRung, best: PipelineRung) -> SpeedUp:
        """How many times as fast the pipeline of a rung is as the slow one."""
        with self.exact():
            return self.gain_of(self.make(slow.switches), self.make(best.switches), slow.seconds)


def unchanged_since(rungs: Sequence[PipelineRung]) -> tuple[float, float]:
    """The largest difference of detections between the last of `rungs` that was kept and the first after which the method
    stayed the same: what all changes together did."""
    kept = [rung for rung in rungs if rung.kept]
    start = max((i for i, rung in enumerate(kept) if rung.change and rung.change.bound == METHOD), default=0)
    return difference_of(kept[start].detections, kept[-1].detections)


def by_kind(rungs: Sequence[PipelineRung], kind: tuple[float, float] = EQUAL) -> list[PipelineRung]:
    """The rungs whose change promises the same kind of equality."""
    return [rung for rung in rungs if rung.change and rung.change.bound == kind]
