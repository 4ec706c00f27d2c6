"""The pipeline's ladder: how a rung is profiled, timed in turns with the one below, and compared in its detections."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from torch import nn

from hpml_lab import profiling
from hpml_lab.capstone.experiments.lung_nodule_pipeline.changes import (
    EQUAL,
    NETWORK,
    PipelineChange,
    applicable,
    difference_of,
    next_change,
    overlaps,
)
from hpml_lab.capstone.experiments.lung_nodule_pipeline.validation import Validated, Validation
from hpml_lab.capstone.tools import scans
from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.capstone.tools.lung_pipeline import PARTS, LungPipeline, PipelineSwitches, SpanClock
from hpml_lab.core.measure.ladder import Ladder, Rung, gain_in_turns, in_turns
from hpml_lab.core.measure.noise import SpeedUp
from hpml_lab.core.system.device import Device

WHOLE = "whole"
Sample = dict[str, float]  # seconds a patient, of the whole and of each part


@dataclass(frozen=True)
class ClimbPlan:
    """How often and how long the pipeline is run: at most `turns` turns, each over as many patients as take
    `sample_seconds`, and at least over `stream` of them once stages overlap."""

    turns: int
    sample_seconds: float
    stream: int


@dataclass(frozen=True)
class PipelineRung(Rung):
    """One rung of the pipeline; the profile and the seconds are those of a patient.

    profile     once stages overlap, parts of different patients go on at the same time
    seconds     at the bottom the sum of the profile, above it divided by each gain that was kept, so that two rungs compare
                as they did in turns
    detections  of each patient, (n, 5)
    part_gain   the speed-up of the part that the change attacks; None where it attacks a lane or idle cores
    difference  the largest of positions in mm and of scores against the rung below
    validated   of a change of method: what it finds in patients of known nodules
    """

    detections: list[np.ndarray] = field(default_factory=list)
    part_gain: SpeedUp | None = None
    difference: tuple[float, float] = (0.0, 0.0)
    validated: Validated | None = None

    @property
    def same(self) -> bool:
        """Whether the detections are as the change promises, or, of a declared change of method, pass the validation."""
        if self.change is None:
            return True
        if self.change.declared:
            return self.validated is not None and self.validated.passed
        return all(off <= most for off, most in zip(self.difference, self.change.bound, strict=True))


class PipelineLadder(Ladder):
    """The ladder from the first script to the fast pipeline."""

    def __init__(
        self, network: nn.Module, patients: Sequence[Path], device: Device, plan: ClimbPlan, *, compile: bool = False,
        validation: tuple[Sequence[Scan], Sequence[Scan]],
    ) -> None:  # fmt: skip
        """validation  scans that set the threshold and fit the classifier, and scans that are counted"""
        super().__init__(device, applicable(device, compile))
        self.network, self.patients, self.plan = network, list(patients), plan
        self.classifier = None
        with self.exact():
            self.validate = Validation(lambda: self.make(PipelineSwitches()), *validation)
        self.classifier = self.validate.classifier

    def make(self, switches: PipelineSwitches) -> LungPipeline:
        return LungPipeline(self.network, switches, self.device.torch, self.device.dtype, self.classifier)

    def next_change(
        self, profile: dict[str, float], left: Sequence[PipelineChange], switches: PipelineSwitches
    ) -> PipelineChange | None:
        return next_change(profile, left, switches)

    def assess(
        self, made: LungPipeline, change: PipelineChange | None, below: LungPipeline | None, rung: PipelineRung | None
    ) -> PipelineRung:
        """Profile a pipeline, time it in turns with the one below, and compare what both detected."""
        if change is None or change.part in (NETWORK, "network"):
            self.run(made, 1)  # what a new network does only once is done now
        detections: list[np.ndarray] = []
        sample = self.sample(made, self.patients, detections)
        profile = {part: sample[part] for part in PARTS}
        found = PipelineRung(change, made.switches, profile, sum(profile.values()), detections=detections)
        if change is None:
            return found
        alone = change.part in PARTS and not overlaps(made.switches)
        before, after = self.in_turns(below, made, rung.seconds)
        gain = gain_in(WHOLE, before, after)
        return replace(
            found,
            profile={part: median(each[part] for each in after) for part in PARTS},
            seconds=rung.seconds / gain.ratio,
            gain=gain,
            part_gain=gain_in(change.part, before, after) if alone else None,
            difference=difference_of(rung.detections, detections),
            validated=self.validate(change.switch, made) if change.declared else None,
        )

    def sample(self, made: LungPipeline, sources: Sequence[Path], detections: list[np.ndarray] | None = None) -> Sample:
        """Seconds a patient of one run, of the whole and of each part; detections are appended.

        In sequence by notebook 10's PartClock, which waits for the device at each border; where several threads work, by spans.
        """
        clock = SpanClock() if overlaps(made.switches) else profiling.PartClock(self.device.torch, PARTS)
        start = time.perf_counter()
        found = [outcome.checked() for outcome in made.run(sources, scans.load, clock)]
        seconds = time.perf_counter() - start  # detections are on the CPU: a GPU is done with them
        if detections is not None:
            detections += found
        if isinstance(clock, SpanClock):
            taken = {part: sum(span.seconds for span in clock.spans if span.what == part) for part in PARTS}
        else:
            taken = clock.seconds
        return {name: value / len(sources) for name, value in {**taken, WHOLE: seconds}.items()}

    def cycled(self, count: int) -> list[Path]:
        """So many patients, from the first on and again from the first."""
        return [self.patients[i % len(self.patients)] for i in range(count)]

    def run(self, made: LungPipeline, count: int) -> None:
        for outcome in made.run(self.cycled(count), scans.load):
            outcome.checked()

    def in_turns(self, below: LungPipeline, made: LungPipeline, seconds: float) -> tuple[list[Sample], list[Sample]]:
        """Samples of two pipelines in turns; `below` takes about so many seconds a patient."""

        def stream(pipeline: LungPipeline, count: int) -> int:
            return max(count, self.plan.stream) if overlaps(pipeline.switches) else count

        count = stream(below, max(1, round(self.plan.sample_seconds / seconds)))
        if seconds < self.plan.sample_seconds:  # cheap enough: both take as many patients as a stream needs
            count = stream(made, count)
        return in_turns(
            partial(self.sample, below, self.cycled(count)),
            partial(self.sample, made, self.cycled(stream(made, count))),
            turns=self.plan.turns,
            seconds=lambda sample: sample[WHOLE],
        )

    def total(self, switches: PipelineSwitches, slow: PipelineRung) -> SpeedUp:
        """The speed-up of a pipeline with these switches over the first script."""
        with self.exact():
            return gain_in(WHOLE, *self.in_turns(self.make(slow.switches), self.make(switches), slow.seconds))


def gain_in(name: str, before: Sequence[Sample], after: Sequence[Sample]) -> SpeedUp:
    """The speed-up of a part, or of the whole, in samples A B A B … A."""
    return gain_in_turns([sample[name] for sample in before], [sample[name] for sample in after])


def same_method(rungs: Sequence[PipelineRung]) -> PipelineRung:
    """The last rung that was kept without a declared change of method."""
    return [rung for rung in rungs if rung.kept and not (rung.change and rung.change.declared)][-1]


def by_kind(rungs: Sequence[PipelineRung], kind: tuple[float, float] = EQUAL) -> list[PipelineRung]:
    """The rungs whose change promises the same kind of equality."""
    return [rung for rung in rungs if rung.change and rung.change.bound == kind]
