"""FROC: how many nodules are found, by the number of false positives per scan that are accepted, and how sure that is.

With detections of score >= s counted, of N nodules in M scans,

    recall(s) = nodules found / N        false positives per scan(s) = detections that hit no nodule / M

A nodule that is found twice counts once, and the second hit is no false positive. A detection hits a nodule if its center is at
most max(radius, 5 mm) from the nodule's. Free-response ROC is the curve of recall over false positives per scan.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpml_lab.core.system.errors import LabError

HIT = 5.0  # mm: a smaller nodule is hit at this distance too
RATES = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0)  # false positives per scan at which LUNA16 reads the curve, without its 8
REPEAT, MISS = -1, -2


def hits(detections: np.ndarray, nodules: np.ndarray) -> np.ndarray:
    """Of each detection (n, 5), the most certain first: the index of the nodule it finds, REPEAT if found before, or MISS.

    nodules  (m, 4): center z, y, x and radius in mm
    """
    found = np.full(len(detections), MISS)
    if not len(nodules):
        return found
    left = set(range(len(nodules)))
    for i, center in enumerate(detections[:, :3]):
        distance = np.linalg.norm(nodules[:, :3] - center, axis=1)
        within = np.flatnonzero(distance <= np.maximum(nodules[:, 3], HIT))
        within = within[np.argsort(distance[within], kind="stable")]
        new = [k for k in within if k in left]
        if len(within):
            found[i] = new[0] if new else REPEAT
        left -= set(new[:1])
    return found


@dataclass(frozen=True)
class ScoredDetections:
    """All detections of a set of scans, by score, the largest first: what a FROC curve is made of.

    scores, scan  (n,) score, and index of the scan; found, false: (n,) bool, a nodule's first hit, and no hit
    nodules       (scans,) number of nodules in each scan
    """

    scores: np.ndarray
    scan: np.ndarray
    found: np.ndarray
    false: np.ndarray
    nodules: np.ndarray

    def curve(self, times: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """False positives per scan and recall for each different score from the largest down, with the point (0, 0) first.

        times  (scans,) how often each scan counts; by default once. Detections of equal score are counted together.
        """
        times = np.ones(len(self.nodules)) if times is None else times
        weight = times[self.scan]
        last = np.append(self.scores[1:] != self.scores[:-1], True)[: len(self.scores)]  # of its score
        recall = np.cumsum(weight * self.found)[last] / max((times * self.nodules).sum(), 1)
        false = np.cumsum(weight * self.false)[last] / times.sum()
        return np.append(0.0, false), np.append(0.0, recall)

    def recall_at(self, rate: float, times: np.ndarray | None = None) -> float:
        """The highest recall with at most `rate` false positives per scan."""
        false, recall = self.curve(times)
        return float(recall[false <= rate + 1e-12].max())

    def score_at(self, rate: float) -> float:
        """The smallest score that may be counted with at most `rate` false positives per scan; infinite if none may."""
        false, _ = self.curve()
        distinct = np.append(np.inf, np.unique(self.scores)[::-1])
        return float(distinct[false <= rate + 1e-12].min())


def scored(detections: Sequence[np.ndarray], nodules: Sequence[np.ndarray]) -> ScoredDetections:
    """The detections (n, 5) of all scans next to their nodules (m, 4), by score."""
    if not len(nodules) or len(detections) != len(nodules):
        raise LabError(
            f"froc: {len(detections)} scans with detections and {len(nodules)} with nodules.", "Give both for the same scans."
        )
    if not sum(map(len, nodules)):
        raise LabError("froc: no scan has a nodule, so that there is no recall.", "Give scans with annotated nodules too.")
    kinds = np.concatenate([hits(ours, truth) for ours, truth in zip(detections, nodules, strict=True)])
    scan = np.repeat(np.arange(len(nodules)), [len(ours) for ours in detections])
    scores = np.concatenate([ours[:, 4] for ours in detections])
    order = np.argsort(-scores, kind="stable")
    kinds = kinds[order]
    counts = np.array([len(truth) for truth in nodules])
    return ScoredDetections(scores[order], scan[order], kinds >= 0, kinds == MISS, counts)


def recall_interval(
    runs: Sequence[ScoredDetections], rate: float = 1.0, resamples: int = 1000, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Mean recall of several detectors on the same scans, and its bootstrap interval over patients: (recall, low, high).

    Each resample draws as many patients as there are, with replacement, the same for all detectors. A patient brings nodules
    and false positives along, so that the threshold is found anew each time. Source: Efron and Tibshirani, 1993.
    """
    times = drawn_patients(len(runs[0].nodules), resamples)
    times = times[times @ runs[0].nodules > 0]  # without a nodule there is no recall
    means = [np.mean([run.recall_at(rate, row) for run in runs]) for row in times]
    return float(np.mean([run.recall_at(rate) for run in runs])), *_middle(means, confidence)


def mean_interval(values: np.ndarray, resamples: int = 1000, confidence: float = 0.95) -> tuple[float, float, float]:
    """Mean of values (detectors, patients), and its bootstrap interval over patients: (mean, low, high)."""
    times = drawn_patients(values.shape[1], resamples)
    return float(values.mean()), *_middle(times @ values.mean(0) / values.shape[1], confidence)


def drawn_patients(patients: int, resamples: int) -> np.ndarray:
    """(resamples, patients): how often each patient is drawn, of as many draws with replacement as there are patients."""
    draw = np.random.default_rng(0)
    return np.array([np.bincount(draw.integers(patients, size=patients), minlength=patients) for _ in range(resamples)])


def _middle(values: Sequence[float], confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
