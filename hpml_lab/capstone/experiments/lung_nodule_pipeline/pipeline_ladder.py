"""The pipeline's ladder: how a rung is profiled, timed in turns with the one below, and compared; how a version is watched."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from torch import nn

from hpml_lab import profiling
from hpml_lab.capstone.experiments.lung_nodule_pipeline.pipeline_changes import (
    EQUAL,
    NETWORK,
    SAME_BITS,
    PipelineChange,
    applicable,
    difference_of,
    next_change,
    overlaps,
)
from hpml_lab.capstone.lessons import froc
from hpml_lab.capstone.tools import patient_classifier, scans
from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.capstone.tools.lung_pipeline import PARTS, LungPipeline, PipelineSwitches
from hpml_lab.core.experiment import Params, Row, column
from hpml_lab.core.system.machine import cores
from hpml_lab.core.timing.ladder import Ladder, Rung, gain_in_turns, in_turns
from hpml_lab.core.timing.noise import SpeedUp
from hpml_lab.core.timing.timeline import SpanClock, busy, rows

WHOLE = "whole"
ACCEPTED = 1.0  # false positive per scan, where the threshold is set
FOUND, FALSE = 0.95, 1.10  # of the nodules found before at least, and of the false positives at most
RATE = 50.0  # samples of the monitor a second
Sample = dict[str, float]  # seconds a patient, of the whole and of each part


@dataclass(frozen=True)
class Validated(Row):
    """What one version finds in the patients that are counted."""

    version: str = column("version")
    scans: int = column("scans")
    nodules: int = column("nodules")
    found: int = column("found")
    recall: float = column("recall")
    false: int = column("false positives")
    rate: float = column("a scan")
    right: int = column("patients classified rightly")
    passed: bool = column("good enough")


class Validation:
    """Is a changed pipeline still good enough? The patients, and what the version before finds in them; call it with another.

    The threshold on the score and the classifier of patients come from the version before, on patients of their own, so that
    nothing is chosen on those that are counted.
    """

    def __init__(self, make: Callable[[], LungPipeline], fitting: Sequence[Scan], scans: Sequence[Scan]) -> None:
        """make  () -> the pipeline before, whose detections in `fitting` set the threshold and fit the classifier"""
        found = detections(make(), fitting)
        self.scans = list(scans)
        self.score = froc.scored(found, [scan.nodules for scan in fitting]).score_at(ACCEPTED)
        self.classifier = patient_classifier.fit_patients(found, [len(scan.nodules) > 0 for scan in fitting])
        self.before = self("before", make())

    def __call__(self, version: str, pipeline: LungPipeline) -> Validated:
        ours = detections(pipeline, self.scans)
        nodules = [scan.nodules for scan in self.scans]
        run = froc.scored(ours, nodules)
        counted = run.scores >= self.score
        found, false, known = (int(part.sum()) for part in (run.found[counted], run.false[counted], run.nodules))
        sick = np.array([len(truth) > 0 for truth in nodules])
        right = int((patient_classifier.classify_patients(self.classifier, ours) == sick).sum())
        passed = version == "before" or good_enough(self.before, found, false)
        return Validated(version, len(nodules), known, found, found / known, false, false / len(nodules), right, passed)


def good_enough(before: Validated, found: int, false: int) -> bool:
    """At least 95 % of the nodules that were found before, and at most 10 % more false positives."""
    return found >= FOUND * before.found and false <= FALSE * before.false


def detections(pipeline: LungPipeline, scans: Sequence[Scan]) -> list[np.ndarray]:
    """The detections of scans that are in memory."""
    return [outcome.checked() for outcome in pipeline.run(scans, lambda scan: scan)]


@dataclass(frozen=True)
class PipelineRung(Rung):
    """One rung of the pipeline; the profile and the seconds are those of a patient.

    profile     once stages overlap, parts of different patients go on at the same time
    seconds     at the bottom the sum of the profile, above it divided by each gain that was kept, so that two rungs compare
                as they did in turns
    detections  of each patient, (n, 5)
    part_gain   None where the change attacks a lane or idle cores
    difference  the largest of positions in mm and of scores against the rung below
    validated   of a change of method: what it finds in patients of known nodules
    """

    detections: list[np.ndarray] = field(default_factory=list)
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
        self, network: nn.Module, patients: Sequence[Path], params: Params, validation: tuple[Sequence[Scan], Sequence[Scan]]
    ) -> None:
        """
        params      the pipeline runs at most `turns` turns, each over as many patients as take `sample_seconds`, and over at
                    least `stream` of them once stages overlap
        validation  scans that set the threshold and fit the classifier, and scans that are counted. What the first script finds
                    in them is found with SAME_BITS: the ladder shows that these changes alter no bit of a detection
        """
        super().__init__(params.device, applicable(params.device, params.compile))
        self.network, self.patients, self.plan = network, list(patients), params
        self.classifier = None
        with self.exact():
            self.validate = Validation(lambda: self.make(SAME_BITS), *validation)
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
        before, after = self.in_turns(below, made, seconds=rung.seconds)
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
        taken = {**dict.fromkeys(PARTS, 0.0), **clock.seconds, WHOLE: seconds}
        return {name: value / len(sources) for name, value in taken.items()}

    def cycled(self, count: int) -> list[Path]:
        """So many patients, from the first on and again from the first."""
        return [self.patients[i % len(self.patients)] for i in range(count)]

    def run(self, made: LungPipeline, count: int) -> None:
        for outcome in made.run(self.cycled(count), scans.load):
            outcome.checked()

    def in_turns(self, below: LungPipeline, *made: LungPipeline, seconds: float) -> tuple[list[Sample], ...]:
        """Samples of a pipeline and of others in turns; `below` takes about so many seconds a patient."""

        def stream(pipeline: LungPipeline, count: int) -> int:
            return max(count, self.plan.stream) if overlaps(pipeline.switches) else count

        count = stream(below, max(1, round(self.plan.sample_seconds / seconds)))
        if seconds < self.plan.sample_seconds:  # cheap enough: all take as many patients as a stream needs
            count = max(stream(pipeline, count) for pipeline in made)
        return in_turns(
            partial(self.sample, below, self.cycled(count)),
            *(partial(self.sample, pipeline, self.cycled(stream(pipeline, count))) for pipeline in made),
            turns=self.plan.turns,
            seconds=lambda sample: sample[WHOLE],
        )

    def totals(self, versions: Sequence[PipelineSwitches], slow: PipelineRung) -> list[SpeedUp]:
        """The speed-up of pipelines with these switches over the first script, which has one turn for all of them."""
        with self.exact():
            before, *found = self.in_turns(self.make(slow.switches), *map(self.make, versions), seconds=slow.seconds)
        return [gain_in(WHOLE, before, after) for after in found]


def gain_in(name: str, before: Sequence[Sample], after: Sequence[Sample]) -> SpeedUp:
    """The speed-up of a part, or of the whole, in samples A B A B … A."""
    return gain_in_turns([sample[name] for sample in before], [sample[name] for sample in after])


def same_method(rungs: Sequence[PipelineRung]) -> PipelineRung:
    """The last rung that was kept without a declared change of method."""
    return [rung for rung in rungs if rung.kept and not (rung.change and rung.change.declared)][-1]


def by_kind(rungs: Sequence[PipelineRung], kind: tuple[float, float] = EQUAL) -> list[PipelineRung]:
    """The rungs whose change promises the same kind of equality."""
    return [rung for rung in rungs if rung.change and rung.change.bound == kind]


# ---- what the machine does ---------------------------------------------------------------------------------------------


@dataclass
class MachineUse(Row):
    """One version of the pipeline, watched by notebook 10's monitor.

    points  (time in s, cores that the run keeps busy); spans: what each thread did when
    """

    version: str = column("version")
    patients: int = column("patients")
    ms: float = column("a patient", "ms")
    core_percent: float = column("processor, of one core", "%")
    all_percent: float = column("of all cores", "%")
    network_percent: float = column("network at work", "% of the time")
    gpu_percent: float | None = column("GPU, by NVML", "%", default=None)
    points: list[tuple[float, float]] = field(default_factory=list)
    spans: list[dict[str, Any]] = field(default_factory=list)


def watched(version: str, pipeline: LungPipeline, patients: Sequence[Path], shown: int) -> MachineUse:
    """Run a pipeline under the monitor.

    shown  how many of the last patients keep their spans, for the chart
    """
    clock = SpanClock(pipeline.device, awaited=("network", "boxes"))
    with profiling.Monitor(RATE) as monitor:
        start = time.perf_counter()
        for outcome in pipeline.run(patients, scans.load, clock):
            outcome.checked()
        seconds = time.perf_counter() - start
    used = sum(sample.process_cpu for sample in monitor.samples) / monitor.seconds
    gpus = [gpu.utilization for sample in monitor.samples for gpu in sample.gpus if gpu.utilization is not None]
    network = busy(span for span in clock.spans if span.what == "network") / seconds
    spans = sorted(clock.spans, key=lambda span: span.start)
    # The chart begins where the patients that are shown do: those before them have filled the pipeline.
    reads = [span.start for span in spans if span.what == "read"]
    since = reads[max(0, len(reads) - shown)]
    return MachineUse(
        version, len(patients), 1e3 * seconds / len(patients), 100 * used, 100 * used / cores(), 100 * network,
        mean(gpus) if gpus and pipeline.device.type == "cuda" else None,
        [(sample.at, sample.process_cpu / max(sample.seconds, 1e-9)) for sample in monitor.samples],
        rows(span for span in spans if span.start >= since),
    )  # fmt: skip
