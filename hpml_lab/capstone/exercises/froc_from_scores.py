"""froc-from-scores: the points of a FROC curve from scores and what each detection hit."""

from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import numbers

Array = np.ndarray


def right(scores: Array, hits: Array, scans: int, nodules: int) -> Any:
    points = []
    for score in sorted(set(scores.tolist()), reverse=True):
        counted = hits[scores >= score]
        found, false = len(set(counted[counted >= 0].tolist())), (counted < 0).sum()
        points.append([false / scans, found / nodules])
    return points


def one_by_one(
    keep: Callable[[list], list] = list, once: bool = True, key: Callable[[float, int], Any] = lambda score, hit: -score
) -> Callable[..., Any]:
    """Detections in order of score, equal ones one after the other; of the points of a score `keep` says which stay."""

    def points_of(scores: Array, hits: Array, scans: int, nodules: int) -> Any:
        counted, points = [], {}
        for i in sorted(range(len(scores)), key=lambda i: key(scores[i], hits[i])):
            counted.append(int(hits[i]))
            found = [hit for hit in counted if hit >= 0]
            recall = len(set(found) if once else found) / nodules
            points.setdefault(float(scores[i]), []).append([counted.count(-1) / scans, recall])
        return [point for of_score in points.values() for point in keep(of_score)]

    return points_of


def without_repeats(scores: Array, hits: Array, scans: int, nodules: int) -> Any:
    left: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]):
        if hits[i] < 0 or hits[i] not in hits[left]:
            left.append(i)
    return right(scores[left], hits[left], scans, nodules)


RUBRIC = Rubric(
    right,
    """
len(set(counted[counted >= 0].tolist())), (counted < 0).sum()
    nodule-0-left-out :: len(set(counted[counted > 0].tolist())), (counted <= 0).sum() :: Nodules count from 0: nodule 0 is no
        false positive; only −1 marks one.
(counted < 0).sum()
    repeats-are-false :: len(counted) - len(set(counted[counted >= 0].tolist())) :: You count all detections that find nothing
        new. || $REPEATED
found / nodules
    nodules-counted-twice :: (counted >= 0).sum() / nodules :: $REPEATED
    of-the-found :: found / max(len(set(hits[hits >= 0].tolist())), 1) :: You divide by the nodules that were hit at all. Those
        that no detection hits are missed too: divide by all.
return points
    starts-at-0 :: return [[0.0, 0.0], *points] :: One point for each different score: the point (0, 0) belongs to none.
whole answer
    equal-scores-one-by-one :: one_by_one() :: $TIE
    equal-scores-one-by-one :: one_by_one(lambda points: points[:1]) :: $TIE
    equal-scores-one-by-one :: one_by_one(key=lambda score, hit: (-score, hit)) :: $TIE
    equal-scores-one-by-one :: one_by_one(key=lambda score, hit: (-score, -hit)) :: $TIE
    nodules-counted-twice :: one_by_one(once=False) :: $REPEATED And: $TIE
    repeats-removed :: without_repeats :: You remove further hits, or points that equal the one before. Each different score has
        its point.
""",
    REPEATED="A nodule that is hit several times is found once, and the further hits are no false positives: it is there.",
    TIE="Detections of equal score count together: no threshold separates them. You let them in one after the other.",
)
_DRAW = np.random.default_rng(0)
CASES = {
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
    "scores that differ by little": (
        np.array([0.3002, 2e-5, 0.3001, 0.9, 0.9 - 1e-9, 1e-5, 1.0, 2.5]),
        np.array([-1, 1, 299, -1, 0, -1, 43, -1]),
        2,
        300,
    ),
    "80 detections": (_DRAW.integers(0, 30, 80) / 30, _DRAW.integers(-6, 12, 80).clip(-1), 9, 12),
}


@exercise("froc-from-scores", notebook="19_capstone", takes="scores, hits, scans, nodules", returns={(float, float)})
def judge_froc_from_scores(answer: Callable) -> None:
    """[false positives per scan, recall] for each different score, the largest first; repeated hits count once."""
    RUBRIC.expect(answer, CASES, but=("mixed",), explain=_explain)
    nothing = np.array([]), np.array([], int), 2, 3
    expect_function(lambda *given: list(answer(*given)), right, {"no detection at all": nothing})


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says how many points are missing, or what is wrong with them."""
    for case, _, got, wanted in judged:
        points, wanted = numbers(got), np.array(wanted)
        if points is None:
            return
        if len(points) != len(wanted):
            name = "points-missing" if len(points) < len(wanted) else "too-many-points"
            raise Mistake(
                name, f"For {case} there are {len(wanted)} different scores, and as many rows; yours are {len(points)}."
            )
        right_columns = [np.allclose(points[:, k], wanted[:, k], atol=1e-6) for k in (0, 1)]
        if right_columns == [True, False]:
            raise Mistake("other-recall", f"For {case} your false positives per scan are right; your recall is not.")
        if right_columns == [False, True]:
            raise Mistake("other-false-positives", f"For {case} your recall is right; your false positives per scan are not.")
