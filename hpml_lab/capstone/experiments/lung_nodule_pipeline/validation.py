"""Is a changed pipeline still good enough? The same patients through the version before and the version after.

The threshold on the score and the classifier of patients come from the version before, on patients of their own, so that
nothing is chosen on those that are counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from hpml_lab.capstone.lessons import froc
from hpml_lab.capstone.tools import patient_classifier
from hpml_lab.capstone.tools.ct import Scan
from hpml_lab.capstone.tools.lung_pipeline import LungPipeline
from hpml_lab.core.experiment.findings import Row, column

ACCEPTED = 1.0  # false positive per scan, where the threshold is set
FOUND, FALSE = 0.95, 1.10  # of the nodules found before at least, and of the false positives at most


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
    """The patients, and what the version before finds in them; calling it looks at another version."""

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
