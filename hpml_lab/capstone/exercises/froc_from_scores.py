"""froc-from-scores: the points of a FROC curve from scores and what each detection hit."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.capstone.exercises.froc_cases import CASES
from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import numbers

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
    per: Callable[..., float] = lambda false, hits, every, scans, nodules: false / scans,
    share: Callable[..., float] = lambda found, hits, every, nodules: found / nodules,
    end: Callable[[list], Any] = lambda points: points,
) -> Callable[..., Any]:
    def points_of(scores: Array, hits: Array, scans: int, nodules: int) -> Any:
        scores, hits = np.asarray(scores, float), np.asarray(hits, int)
        points = []
        for threshold in thresholds(scores):
            here = hits[counted(scores, threshold)]
            points.append([per(false(here), here, hits, scans, nodules), share(found(here), here, hits, nodules)])
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
            "nodule-0-left-out, as False": (
                lambda hits: len(set(hits[hits != 0].tolist())),
                "0 is as good as False in Python, and −1 as True: `if hit` leaves out nodule 0 and counts misses.",
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
                lambda false, hits, every, scans, nodules: float(false),
                "You give the number of false positives in all scans; divide by the number of scans.",
            ),
            "per-detection": (
                lambda false, hits, every, scans, nodules: false / max(len(hits), 1),
                "You divide by the number of detections, which gives 1 − precision; FROC divides by the number of scans.",
            ),
            "per-detection, of all": (
                lambda false, hits, every, scans, nodules: false / max(len(every), 1),
                "You divide by the number of all detections; FROC divides by the number of scans.",
            ),
            "per-miss": (
                lambda false, hits, every, scans, nodules: false / max((every < 0).sum(), 1),
                "You divide by all false positives, as for ROC; FROC divides by the number of scans.",
            ),
            "per-nodule": (
                lambda false, hits, every, scans, nodules: false / nodules,
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
            "of-the-found, by their largest index": (
                lambda found, hits, every, nodules: found / max(every.max(initial=0) + 1, 1),
                "You take the number of nodules from the hits. Some may be hit by none: `nodules` says how many there are.",
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
            "transposed, two arrays": (
                lambda points: tuple(np.array(points, float).reshape(-1, 2).T),
                "You return the columns one by one: one row [false positives, recall] per score.",
            ),
            "rounded-down": (
                lambda points: np.floor(np.array(points, float)).reshape(-1, 2),
                "Your quotients are whole numbers: // cuts off the fraction, / does not.",
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


def _one_by_one(
    keep: Callable[[list], list], once: bool = True, key: Callable[[float, int], Any] = lambda score, hit: -score
) -> Callable[..., Any]:
    """Detections in order of score, equal ones one after the other; of the points of a score `keep` says which stay."""

    def points_of(scores: Array, hits: Array, scans: int, nodules: int) -> Any:
        order = sorted(range(len(scores)), key=lambda i: key(scores[i], hits[i]))
        counted, points = [], {}
        for i in order:
            counted.append(int(hits[i]))
            found = [hit for hit in counted if hit >= 0]
            recall = len(set(found) if once else found) / nodules
            points.setdefault(float(scores[i]), []).append([counted.count(-1) / scans, recall])
        return [point for of_score in points.values() for point in keep(of_score)]

    return points_of


def _as_given(scores: Array, hits: Array, scans: int, nodules: int) -> list[list[float]]:
    counted = [hits[: k + 1] for k in range(len(hits))]
    return [[(hits < 0).sum() / scans, _hit_once(hits) / nodules] for hits in counted]


def _at_some(chosen: Array) -> Callable[..., Any]:
    """Rows at the scores of some detections."""
    return lambda scores, *given: _build(thresholds=lambda _: _distinct(scores[chosen]))(scores, *given)


def _repeats_removed(scores: Array, hits: Array, scans: int, nodules: int) -> list[list[float]]:
    left: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        if hits[i] < 0 or hits[i] not in hits[left]:
            left.append(i)
    return right(scores[left], hits[left], scans, nodules)


MISTAKES |= {
    "equal-scores-one-by-one": (_one_by_one(lambda points: points), _TIE),
    "equal-scores-one-by-one, the first": (_one_by_one(lambda points: points[:1]), _TIE),
    "equal-scores-one-by-one, misses first": (_one_by_one(list, key=lambda score, hit: (-score, hit)), _TIE),
    "equal-scores-one-by-one, hits first": (_one_by_one(list, key=lambda score, hit: (-score, -hit)), _TIE),
    "nodule-0-left-out, and nodule-0-is-false": (  # one mistake, though two parts are wrong
        _build(found=lambda hits: len(set(hits[hits > 0].tolist())), false=lambda hits: (hits <= 0).sum()),
        "Nodules count from 0: you take nodule 0 for a false positive; only −1 marks one.",
    ),
    "not-ordered": (_as_given, "You count the detections in the order given; the largest score comes first."),
    "hits-left-behind": (
        lambda scores, hits, scans, nodules: right(np.sort(scores)[::-1], hits, scans, nodules),
        "You sort the scores alone: each hit belongs to its score. Sort both by the same order.",
    ),
    "scores-rounded": (
        lambda scores, hits, scans, nodules: right(np.round(scores, 1), hits, scans, nodules),
        "You round the scores: two different ones become one point.",
    ),
    "recall-per-scan": (
        lambda scores, hits, scans, nodules: right(scores, hits, scans, scans),
        "You divide the nodules that are found by the scans, too. Recall is a share of the nodules.",
    ),
    "nodules-counted-twice, at most all": (
        lambda scores, hits, scans, nodules: [
            [false, min(share, 1.0)] for false, share in MISTAKES["nodules-counted-twice"][0](scores, hits, scans, nodules)
        ],
        f"{_REPEATED} Your recall counts every hit, up to 1.",
    ),
    "no-row-for-misses": (
        lambda scores, hits, scans, nodules: _at_some(hits >= 0)(scores, hits, scans, nodules),
        "You have rows for the scores of hits alone. A score that only false positives have is one of the scores, too.",
    ),
    "no-row-for-hits": (
        lambda scores, hits, scans, nodules: _at_some(hits < 0)(scores, hits, scans, nodules),
        "You have rows for the scores of false positives alone. A score that only hits have is one of the scores, too.",
    ),
    "divisors-swapped": (
        lambda scores, hits, scans, nodules: right(scores, hits, nodules, scans),
        "False positives are divided by the scans, nodules found by the nodules; yours is the other way round.",
    ),
    "repeats-removed": (
        _repeats_removed,
        "You remove further hits, or points that equal the one before. Each different score has its point.",
    ),
    "nodules-counted-twice, one by one": (_one_by_one(lambda points: points, once=False), f"{_REPEATED} And: {_TIE}"),
}


@exercise("froc-from-scores", notebook="19_capstone")
def judge_froc_from_scores(answer: Callable) -> None:
    """[false positives per scan, recall] for each different score, the largest first; repeated hits count once."""
    try:
        expect_function(answer, right, CASES, mistakes=MISTAKES, errors=_ERRORS, tolerance=1e-6)
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-shape", "wrong-type"):
            _explain(answer)
        raise
    try:
        got = numbers(answer(np.array([]), np.array([], int), 2, 3))
    except Exception as error:
        hint = f"Without any detection yours raises {type(error).__name__}; there is no score then, and so no point."
        raise Mistake("no-detections", hint) from error
    if got is None or got.numel():
        raise Mistake("no-detections", "Without any detection there is no score, and so no point: an empty list.")


def _explain(answer: Callable) -> None:
    """Raise the Mistake that says how many points are missing, or what is wrong with them."""
    for case, given in CASES.items():
        got, wanted = answer(*copy.deepcopy(given)), np.array(right(*given))
        if isinstance(got, dict | set):
            raise Mistake("not-rows", f"For {case} you return a {type(got).__name__}; return rows, in the order of the scores.")
        points = numbers(got)
        if points is None:
            return
        if points.ndim != 2 or points.shape[1] != 2:
            hint = f"For {case} your result has the shape {tuple(points.shape)}; one row has two numbers, one row each score."
            raise Mistake("not-rows", hint)
        if len(points) != len(wanted):
            less, hint = len(points) < len(wanted), f"For {case} there are {len(wanted)} different scores"
            raise Mistake(
                "points-missing" if less else "too-many-points", f"{hint}, and as many rows; yours are {len(points)}."
            )
        right_columns = [np.allclose(points[:, k], wanted[:, k], atol=1e-6) for k in (0, 1)]
        if right_columns == [True, False]:
            raise Mistake("other-recall", f"For {case} your false positives per scan are right; your recall is not.")
        if right_columns == [False, True]:
            raise Mistake("other-false-positives", f"For {case} your recall is right; your false positives per scan are not.")


_ERRORS = {
    "division by zero": (
        "divides-by-zero",
        "You divide by a number that may be 0. The number of scans and that of nodules never are.",
    ),
    "out of range": ("index-out-of-range", "A hit is the index of a nodule, and −1 is none: are your lists long enough?"),
    "out of bounds": ("index-out-of-range", "A hit is the index of a nodule, and −1 is none: are your arrays long enough?"),
    "ambiguous": ("truth-of-an-array", "An array has no single truth: compare element by element, or say `.any()`."),
}
