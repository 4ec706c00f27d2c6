"""froc-from-scores: the points of a FROC curve from scores and what each detection hit."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.exercises import Mistake, exercise, expect_function
from hpml_lab.core.mistakes import combined
from hpml_lab.core.same import numbers

Array = np.ndarray


def _distinct(scores: Array) -> list[float]:
    return sorted(set(scores.tolist()), reverse=True)


def _hit_once(hits: Array) -> float:
    return len(set(hits[hits >= 0].tolist()))


def _build(
    thresholds: Callable[[Array], list[float]] = _distinct,
    counted: Callable[[Array, float], Array] = lambda scores, threshold: scores >= threshold,
    found: Callable[[Array], float] = _hit_once,
    false: Callable[[Array], float] = lambda hits: (hits < 0).sum(),
    per: Callable[..., float] = lambda false, hits, scans, nodules: false / scans,
    share: Callable[..., float] = lambda found, hits, every, nodules: found / nodules,
    end: Callable[[list], Any] = lambda points: points,
) -> Callable[..., Any]:
    def points_of(scores: Array, hits: Array, scans: int, nodules: int) -> Any:
        scores, hits = np.asarray(scores, float), np.asarray(hits, int)
        points = []
        for threshold in thresholds(scores):
            here = hits[counted(scores, threshold)]
            points.append([per(false(here), here, scans, nodules), share(found(here), here, hits, nodules)])
        return end(points)

    return points_of


right = _build()
_REPEATED = (
    "A nodule that is hit several times is found once, and the further hits are no false positives: the nodule is there."
)
MISTAKES = combined(
    _build,
    {
        "found": {
            "nodules-counted-twice": (lambda hits: (hits >= 0).sum(), _REPEATED + " Your recall counts every hit."),
            "misses-are-a-nodule": (
                lambda hits: len(set(hits.tolist())),
                "−1 stands for no nodule; your set of the nodules that were hit holds it too.",
            ),
            "nodule-0-left-out": (
                lambda hits: len(set(hits[hits > 0].tolist())),
                "Nodules count from 0: hits > 0 leaves nodule 0 out.",
            ),
        },
        "false": {
            "repeats-are-false": (
                lambda hits: len(hits) - _hit_once(hits),
                _REPEATED + " You count all detections that find nothing new.",
            ),
            "all-detections": (len, "You count all detections per scan; only those that hit no nodule are false positives."),
            "hits-for-misses": (
                lambda hits: (hits >= 0).sum(),
                "You count the hits as false positives; −1 marks those that hit nothing.",
            ),
            "nodule-0-is-false": (lambda hits: (hits <= 0).sum(), "Nodules count from 0; only −1 marks a false positive."),
        },
        "per": {
            "not-per-scan": (
                lambda false, hits, scans, nodules: float(false),
                "You give the number of false positives in all scans; divide by the number of scans.",
            ),
            "per-detection": (
                lambda false, hits, scans, nodules: false / max(len(hits), 1),
                "You divide by the number of detections, which gives 1 − precision; FROC divides by the number of scans.",
            ),
            "per-nodule": (
                lambda false, hits, scans, nodules: false / nodules,
                "You divide the false positives by the nodules; divide them by the scans.",
            ),
        },
        "share": {
            "found-not-shared": (
                lambda found, hits, every, nodules: float(found),
                "Recall is a share: divide by the number of all nodules.",
            ),
            "of-the-found": (
                lambda found, hits, every, nodules: found / max(_hit_once(every), 1),
                "You divide by the nodules that were hit at all. Those that no detection hits are missed too: divide by all.",
            ),
            "precision": (
                lambda found, hits, every, nodules: found / max(len(hits), 1),
                "You divide by the number of detections: that is precision. Recall divides by the number of nodules.",
            ),
            "percent": (
                lambda found, hits, every, nodules: 100 * found / nodules,
                "Your recall is in percent; a share is asked for.",
            ),
            "missed-share": (lambda found, hits, every, nodules: 1 - found / nodules, "You give the share that is missed."),
        },
        "thresholds": {
            "equal-scores-separately": (
                lambda scores: sorted(scores.tolist(), reverse=True),
                "One point for each different score, not for each detection.",
            ),
            "smallest-score-first": (
                lambda scores: _distinct(scores)[::-1],
                "The largest score comes first, so that the curve begins with few false positives.",
            ),
            "in-the-order-given": (
                lambda scores: list(dict.fromkeys(scores.tolist())),
                "The points follow the scores, the largest first, and not the order of the detections.",
            ),
            "fixed-thresholds": (
                lambda scores: np.linspace(1, 0, 11).tolist(),
                "You take thresholds at equal distances. Take the scores themselves: only there the curve changes.",
            ),
            "last-score-missing": (lambda scores: _distinct(scores)[:-1], "The point of the smallest score is missing."),
            "first-score-missing": (lambda scores: _distinct(scores)[1:], "The point of the largest score is missing."),
        },
        "counted": {
            "own-score-left-out": (
                lambda scores, threshold: scores > threshold,
                "At a threshold, detections with exactly this score count too: >=, not >.",
            ),
            "below-the-threshold": (
                lambda scores, threshold: scores <= threshold,
                "You count the detections below the threshold; those with at least this score count.",
            ),
            "not-cumulative": (
                lambda scores, threshold: scores == threshold,
                "You count only the detections with exactly this score; those with larger scores count too.",
            ),
        },
        "end": {
            "columns-swapped": (
                lambda points: [point[::-1] for point in points],
                "Your columns are swapped: first false positives per scan, then recall.",
            ),
            "transposed": (
                lambda points: np.array(points).reshape(-1, 2).T,
                "Your rows are columns: one row [false positives, recall] per score.",
            ),
            "starts-at-0": (
                lambda points: [[0.0, 0.0], *points],
                "One point for each different score: the point (0, 0) belongs to none.",
            ),
            "recall-only": (
                lambda points: [point[1] for point in points],
                "You give the recall alone; each point has two numbers.",
            ),
            "last-point-only": (
                lambda points: points[-1:],
                "You give only the last point: one for each different score is asked for.",
            ),
        },
    },
)
_TIE = "Detections of equal score count together: no threshold separates them. You let them in one after the other."


def _one_by_one(keep: Callable[[list], list], once: bool = True) -> Callable[..., Any]:
    """Detections in order of score, equal ones one after the other; of the points of a score `keep` says which stay."""

    def points_of(scores: Array, hits: Array, scans: int, nodules: int) -> Any:
        order = sorted(range(len(scores)), key=lambda i: -scores[i])
        counted, points = [], {}
        for i in order:
            counted.append(int(hits[i]))
            found = [hit for hit in counted if hit >= 0]
            recall = len(set(found) if once else found) / nodules
            points.setdefault(float(scores[i]), []).append([counted.count(-1) / scans, recall])
        return [point for of_score in points.values() for point in keep(of_score)]

    return points_of


MISTAKES |= {
    "equal-scores-one-by-one": (_one_by_one(lambda points: points), _TIE),
    "equal-scores-one-by-one, the first": (_one_by_one(lambda points: points[:1]), _TIE),
    "nodules-counted-twice, one by one": (_one_by_one(lambda points: points, once=False), f"{_REPEATED} And: {_TIE}"),
}
_CASES = {
    "three scores, one miss": (np.array([0.9, 0.8, 0.7]), np.array([0, -1, 1]), 2, 3),
    "a nodule hit twice": (np.array([0.9, 0.8, 0.6, 0.3]), np.array([0, 0, 1, -1]), 2, 2),
    "not sorted": (np.array([0.2, 0.9, 0.5, 0.7, 0.1]), np.array([-1, 1, 0, -1, -1]), 4, 4),
    "equal scores": (np.array([0.9, 0.5, 0.5, 0.5, 0.1]), np.array([2, -1, 0, -1, 1]), 5, 3),
    "equal scores, a hit first": (np.array([0.5, 0.5, 0.2]), np.array([1, -1, 0]), 1, 2),
    "all scores equal": (np.array([0.5, 0.5, 0.5, 0.5]), np.array([0, -1, 1, 0]), 2, 5),
    "nodule 0 only": (np.array([0.6, 0.4]), np.array([0, -1]), 3, 1),
    "nothing but misses": (np.array([0.6, 0.4, 0.3]), np.array([-1, -1, -1]), 2, 2),
    "nothing but hits": (np.array([0.3, 0.6, 0.4]), np.array([2, 1, 0]), 7, 4),
    "one detection": (np.array([0.6]), np.array([0]), 2, 3),
    "a nodule hit again among equal scores": (np.array([0.8, 0.4, 0.4, 0.4, 0.2]), np.array([3, 3, 1, -1, 3]), 3, 4),
}


@exercise("froc-from-scores", notebook="16_capstone")
def judge_froc_from_scores(answer: Callable) -> None:
    """[false positives per scan, recall] for each different score, the largest first; repeated hits count once."""
    cases = dict(_CASES)
    draw = np.random.default_rng(0)
    cases["80 detections"] = (draw.integers(0, 30, 80) / 30, draw.integers(-6, 12, 80).clip(-1), 9, 12)
    expect_function(answer, right, cases, mistakes=MISTAKES, errors=_ERRORS, tolerance=1e-6)
    got = numbers(answer(np.array([]), np.array([], int), 2, 3))
    if got is None or got.numel():
        raise Mistake("no-detections", "Without any detection there is no score, and so no point: an empty list.")


_ERRORS = {
    "division by zero": (
        "divides-by-zero",
        "You divide by a number that may be 0. The number of scans and that of nodules never are.",
    ),
    "out of range": ("index-out-of-range", "A hit is the index of a nodule, and −1 is none: are your lists long enough?"),
    "out of bounds": ("index-out-of-range", "A hit is the index of a nodule, and −1 is none: are your arrays long enough?"),
    "ambiguous": ("truth-of-an-array", "An array has no single truth: compare element by element, or say `.any()`."),
}
