"""Profile, change, assess: takes the first script up a ladder, one change per rung, each chosen from the profile before it."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn

from hpml_lab import profiling
from hpml_lab.capstone import scans
from hpml_lab.capstone.ct import Scan
from hpml_lab.capstone.lung_pipeline import PARTS, LungPipeline, PipelineSwitches, SpanClock
from hpml_lab.capstone.pipeline_changes import EQUAL, NETWORK, PipelineChange, applicable, difference_of, next_change, overlaps
from hpml_lab.capstone.validation import Validated, Validation
from hpml_lab.core.measure.noise import SpeedUp, speed_up_of
from hpml_lab.core.system.device import Device

CLEAR = 1.25  # a gain whose whole interval is above it needs no further turn
WHOLE = "whole"


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
    gain        the speed-up over the rung below, timed in turns; None at the bottom
    part_gain   the same of the part that the change attacks; None where it attacks a lane or idle cores
    difference  the largest of positions in mm and of scores against the rung below
    validated   of a change of method: what it finds in patients of known nodules
    """

    change: PipelineChange | None
    switches: PipelineSwitches
    profile: dict[str, float]
    seconds: float
    detections: list[np.ndarray]
    gain: SpeedUp | None = None
    part_gain: SpeedUp | None = None
    difference: tuple[float, float] = (0.0, 0.0)
    validated: Validated | None = None

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
        """Whether the change stays: the whole is faster beyond noise, and detections are as promised or, of a declared change
        of method, pass the validation."""
        if self.gain is None:
            return True
        good = self.validated is not None and self.validated.passed if self.change.declared else self.same
        return self.gain.faster and good

    def share(self, part: str) -> float:
        """What part of the profile's time `part` takes, 0 to 1."""
        return self.profile[part] / sum(self.profile.values())


class PipelineLadder:
    """Climbs: profile, take the largest part's next change, assess; a change that is wrong or no faster is taken back."""

    def __init__(
        self, network: nn.Module, patients: Sequence[Path], device: Device, plan: ClimbPlan, *, compile: bool = False,
        validation: tuple[Sequence[Scan], Sequence[Scan]],
    ) -> None:  # fmt: skip
        """validation  scans that set the threshold and fit the classifier, and scans that are counted"""
        self.network, self.patients, self.device, self.plan = network, list(patients), device, plan
        self.changes = applicable(device, compile)
        self.notes: list[str] = []
        self.classifier = None
        with self.exact():
            self.validate = Validation(lambda: self.make(PipelineSwitches()), *validation)
        self.classifier = self.validate.classifier

    def exact(self) -> contextlib.AbstractContextManager:
        """On a GPU: sums in a fixed order, and no TF32, so that detections can be compared."""
        if not self.device.is_cuda:
            return contextlib.nullcontext()
        return torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)

    def make(self, switches: PipelineSwitches) -> LungPipeline:
        return LungPipeline(self.network, switches, self.device.torch, self.device.dtype, self.classifier)

    def climb(self) -> Iterator[PipelineRung]:
        """The rungs from the first script up, those that were taken back among them."""
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
        detections: list[np.ndarray] = []
        sample = self.sample(made, self.patients, detections)
        profile = {part: sample[part] for part in PARTS}
        found = PipelineRung(change, made.switches, profile, sum(profile.values()), detections)
        if change is None:
            return found
        alone = change.part in PARTS and not overlaps(made.switches)
        before, after = self.in_turns(below, made, rung.seconds)
        gain = gain_in(WHOLE, before, after)
        part_gain = gain_in(change.part, before, after) if alone else None
        return replace(
            found,
            profile={part: median(each[part] for each in after) for part in PARTS},
            seconds=rung.seconds / gain.ratio,
            gain=gain,
            part_gain=part_gain,
            difference=difference_of(rung.detections, detections),
            validated=self.validate(change.switch, made) if change.declared else None,
        )

    def sample(
        self, made: LungPipeline, sources: Sequence[Path], detections: list[np.ndarray] | None = None
    ) -> dict[str, float]:
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

    def stream(self, made: LungPipeline, count: int) -> int:
        """How many patients a sample takes: `count`, or more where stages overlap."""
        return max(count, self.plan.stream) if overlaps(made.switches) else count

    def cycled(self, count: int) -> list[Path]:
        """So many patients, from the first on and again from the first."""
        return [self.patients[i % len(self.patients)] for i in range(count)]

    def run(self, made: LungPipeline, count: int) -> None:
        for outcome in made.run(self.cycled(count), scans.load):
            outcome.checked()

    def in_turns(
        self, below: LungPipeline, made: LungPipeline, seconds: float
    ) -> tuple[list[dict[str, float]], list[dict[str, float]]]:
        """Samples of two pipelines in turns, A B A B … A; `below` takes about so many seconds a patient.

        They end early where even the least of three is a clear gain.
        """
        count = self.stream(below, max(1, round(self.plan.sample_seconds / seconds)))
        if seconds < self.plan.sample_seconds:  # cheap enough: both take as many patients as a stream needs
            count = self.stream(made, count)
        sources, others = self.cycled(count), self.cycled(self.stream(made, count))
        before, after = [self.sample(below, sources)], []
        while True:
            after.append(self.sample(made, others))
            before.append(self.sample(below, sources))
            gain = gain_in(WHOLE, before, after)
            clear = len(after) >= 3 and gain.faster and gain.low > CLEAR
            if clear or len(after) >= self.plan.turns:
                return before, after

    def total(self, switches: PipelineSwitches, slow: PipelineRung) -> SpeedUp:
        """The speed-up of a pipeline with these switches over the first script."""
        with self.exact():
            return gain_in(WHOLE, *self.in_turns(self.make(slow.switches), self.make(switches), slow.seconds))


def gain_in(name: str, before: Sequence[dict[str, float]], after: Sequence[dict[str, float]]) -> SpeedUp:
    """The speed-up of a part, or of the whole, in samples A B A B … A: each A is the placebo of the one before."""
    a, b = ([each[name] for each in samples] for samples in (before, after))
    return speed_up_of(a[:-1], b, a[1:])


def same_method(rungs: Sequence[PipelineRung]) -> PipelineRung:
    """The last rung that was kept without a declared change of method."""
    return [rung for rung in rungs if rung.kept and not (rung.change and rung.change.declared)][-1]


def by_kind(rungs: Sequence[PipelineRung], kind: tuple[float, float] = EQUAL) -> list[PipelineRung]:
    """The rungs whose change promises the same kind of equality."""
    return [rung for rung in rungs if rung.change and rung.change.bound == kind]
