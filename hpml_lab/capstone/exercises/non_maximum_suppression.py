"""non-maximum-suppression: which of many overlapping candidates are kept, the largest score first."""

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from hpml_lab.capstone.exercises import suppression_ways as ways
from hpml_lab.capstone.exercises.suppression_ways import CASES, NO_CANDIDATES, Array
from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import numbers


def _euclidean(a: Array, b: Array) -> float:
    return float(np.sqrt(((a - b) ** 2).sum()))


def _by_score(scores: Array) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: -scores[i])


def _build(
    order: Callable[[Array], list[int]] = _by_score,
    distance: Callable[[Array, Array], float] = _euclidean,
    near: Callable[[float, float], bool] = lambda distance, apart: distance <= apart,
    against: Callable[[Sequence[int], Callable[[int, int], bool]], list[int]] = ways.greedy,
    end: Callable[..., Any] = lambda kept, order, centers, scores: kept,
) -> Callable[[Array, Array, float], Any]:
    def suppress(centers: Array, scores: Array, apart: float) -> Any:
        centers, scores = np.asarray(centers, float).reshape(-1, 3), np.asarray(scores, float)
        ranks = order(scores)
        kept = against(ranks, lambda i, j: near(distance(centers[i], centers[j]), apart))
        return end(kept, ranks, centers, scores)

    return suppress


right = _build()
_SUPPRESSED = "A candidate that was suppressed suppresses nobody: compare only with those that were kept."
_MASK = "These are not indices in the order of the scores."
MISTAKES = combined(
    _build,
    {
        "order": {
            "not-by-score": (
                lambda scores: list(range(len(scores))),
                "You go through the candidates as given; begin with the best.",
            ),
            "worst-first": (
                lambda scores: sorted(range(len(scores)), key=lambda i: scores[i]),
                "You begin with the smallest score: so the worst of each group survives.",
            ),
            "size-of-the-score": (
                lambda scores: sorted(range(len(scores)), key=lambda i: -abs(scores[i])),
                "You order by the score's size. Scores may be negative, and −3 is below 2.",
            ),
            "last-of-equal-scores": (
                lambda scores: sorted(range(len(scores)), key=lambda i: scores[i])[::-1],
                "Of equal scores the first candidate wins. Sorting upward and then reversing reverses the equal ones too.",
            ),
            "last-of-equal-scores, only there": (
                lambda scores: sorted(range(len(scores)), key=lambda i: (-scores[i], -i)),
                "Of equal scores the first candidate wins; is your sort stable?",
            ),
        },
        "distance": {
            "squared-distance": (
                lambda a, b: float(((a - b) ** 2).sum()),
                "You compare a squared distance with mm: take the root, or square `apart` too.",
            ),
            "city-block": (lambda a, b: float(abs(a - b).sum()), "Distances are Euclidean; yours is |dz| + |dy| + |dx|."),
            "largest-coordinate": (
                lambda a, b: float(abs(a - b).max()),
                "Distances are Euclidean: √(dz² + dy² + dx²). You compare each coordinate by itself, a cube and no ball.",
            ),
            "mean-square": (
                lambda a, b: float(np.sqrt(((a - b) ** 2).mean())),
                "You take the mean of the squares; a distance is the root of their sum.",
            ),
            "two-dimensional": (
                lambda a, b: _euclidean(a[1:], b[1:]),
                "You leave z out: two nodules one above the other are two.",
            ),
            "two-dimensional, without x": (
                lambda a, b: _euclidean(a[:2], b[:2]),
                "You leave x, the last coordinate, out: centers are z, y, x.",
            ),
            "one-dimensional": (lambda a, b: float(abs(a[0] - b[0])), "Your distance has z alone; centers have z, y and x."),
            "rounded-centers": (
                lambda a, b: _euclidean(a.round(), b.round()),
                "You round the centers. They are in mm, and `apart` may be less than one.",
            ),
            "rounded-centers, down": (
                lambda a, b: _euclidean(np.trunc(a), np.trunc(b)),
                "You cut the centers to whole millimeters; `apart` may be less than one.",
            ),
            "from-the-origin": (
                lambda a, b: abs(float(np.linalg.norm(a)) - float(np.linalg.norm(b))),
                "You compare distances from the origin. Take the norm of the difference, not the difference of the norms.",
            ),
        },
        "near": {
            "exactly-apart-kept": (
                lambda distance, apart: distance < apart,
                "At a distance of exactly `apart` a candidate is still suppressed: <=, not <.",
            ),
            "far-ones-removed": (
                lambda distance, apart: distance > apart,
                "Your comparison is the wrong way round: far candidates are removed, near ones kept.",
            ),
            "twice-apart": (lambda distance, apart: distance <= 2 * apart, "Your limit is twice `apart`."),
            "half-apart": (lambda distance, apart: distance <= apart / 2, "Your limit is half of `apart`."),
        },
        "against": {
            "suppressed-ones-suppress": (ways.all_better, _SUPPRESSED + " In a chain the third is kept again."),
            "last-kept-only": (
                ways.last_kept,
                "You compare with the last one kept only; compare with every one that was kept.",
            ),
            "one-before-only": (
                ways.one_before,
                "You compare with the candidate before in the order only; compare with every one that was kept.",
            ),
            "best-only": (
                ways.only_the_best,
                "Only what is near the very best is removed. Go on with the best of the rest, until none is left.",
            ),
            "all-near-ones-removed": (
                ways.lonely,
                "You remove every candidate that has a neighbor, the best ones too. The best of a group stays.",
            ),
            "groups-by-chains": (
                ways.best_of_each_chain,
                "You make one group of all that are connected by near neighbors, and keep its best. In a chain the third is "
                "near to the second, not to the first: it is kept.",
            ),
            "removed-while-going-through": (
                ways.removed_while_going_through,
                "You remove from the list while you go through it, so that the loop skips what follows each removal.",
            ),
            "nothing-removed": (lambda order, near: list(order), "You only sort: nothing was removed."),
        },
        "end": {
            "indices-after-sorting": (
                lambda kept, order, centers, scores: [order.index(i) for i in kept],
                "Your indices count in the sorted order. Give those of the candidates as they were handed to you.",
            ),
            "sorted-by-index": (
                lambda kept, order, centers, scores: sorted(kept),
                "The right candidates, but by index; the largest score comes first.",
            ),
            "suppressed-returned": (
                lambda kept, order, centers, scores: [i for i in order if i not in kept],
                "You return those that were suppressed; the others are asked for.",
            ),
            "suppressed-returned, by index": (
                lambda kept, order, centers, scores: [i for i in range(len(scores)) if i not in kept],
                "You return those that were suppressed; the others are asked for.",
            ),
            "counted-from-1": (lambda kept, order, centers, scores: [i + 1 for i in kept], "Indices count from 0 in Python."),
            "one-only": (
                lambda kept, order, centers, scores: kept[:1],
                "You stop after the best candidate; go on with the best of the rest, until none is left.",
            ),
            "small-scores-dropped": (
                lambda kept, order, centers, scores: [i for i in kept if scores[i] > 0],
                "You drop scores of 0 and below, or end there. No score is too small: only a better one nearby suppresses.",
            ),
            "small-scores-dropped, below a half": (
                lambda kept, order, centers, scores: [i for i in kept if scores[i] >= 0.5],
                "You drop scores below 0.5. No score is too small: only a better one nearby suppresses.",
            ),
            "scores-returned": (
                lambda kept, order, centers, scores: scores[kept],
                "You return the scores of those that are kept; their indices are asked for.",
            ),
            "centers-returned": (
                lambda kept, order, centers, scores: centers[kept],
                "You return the centers of those that are kept; their indices are asked for.",
            ),
            "count-returned": (lambda kept, order, centers, scores: len(kept), "You return how many are kept. " + _MASK),
            "last-missing": (
                lambda kept, order, centers, scores: [i for i in kept if i != order[-1]],
                "You never reach the candidate with the smallest score. It is kept, too, if no better one is near.",
            ),
            "best-missing": (
                lambda kept, order, centers, scores: kept[1:],
                "The best candidate is missing: nothing is better, so it is always kept.",
            ),
        },
    },
)


def _counting_in_the_rest(centers: Array, scores: Array, apart: float) -> list[int]:
    centers, scores, kept = np.asarray(centers, float).reshape(-1, 3), np.asarray(scores, float), []
    while len(scores):
        best = int(scores.argmax())
        kept.append(best)
        left = [_euclidean(center, centers[best]) > apart for center in centers]
        centers, scores = centers[left], scores[left]
    return kept


MISTAKES["indices-of-the-rest"] = (
    _counting_in_the_rest,
    "Your indices count in what is left after each removal; keep those of the candidates as they were handed to you.",
)


def _none_better_near(centers: Array, scores: Array, apart: float) -> list[int]:
    def near(i: int) -> bool:
        return any(scores[j] > scores[i] and _euclidean(centers[i], centers[j]) <= apart for j in range(len(scores)))

    return [i for i in _by_score(scores) if not near(i)]


MISTAKES["suppressed-ones-suppress, equal ones kept"] = (
    _none_better_near,
    _SUPPRESSED + " And of equal scores near each other only the first is kept.",
)


def _each_score_once(centers: Array, scores: Array, apart: float) -> list[int]:
    scores, kept = np.asarray(scores, float), []
    for i in _by_score(scores):
        new = all(_euclidean(centers[i], centers[j]) > apart and scores[i] != scores[j] for j in kept)
        kept += [i] if new else []
    return kept


MISTAKES["equal-scores-dropped"] = (
    _each_score_once,
    "Of equal scores you keep one in the whole scan. Candidates far from each other may have the same score.",
)


@exercise("non-maximum-suppression", notebook="19_capstone")
def judge_non_maximum_suppression(answer: Callable) -> None:
    """Indices of the candidates that no better kept one is near to, the largest score first."""

    def indices(*given: Any) -> Any:
        kept = answer(*given)
        found = numbers(kept)
        if found is not None and found.dtype == torch.bool:
            raise Mistake("mask-returned", "You return True or False for each candidate. " + _MASK)
        if isinstance(kept, set | frozenset):
            raise Mistake("no-order", "You return a set, which has no order; return a list, the largest score first.")
        if isinstance(kept, list | tuple) and kept and all(isinstance(each, np.ndarray) and each.ndim for each in kept):
            return np.array(kept)
        return kept

    try:
        expect_function(indices, right, CASES, mistakes=MISTAKES, errors=_ERRORS)
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-shape"):
            _explain(answer)
        raise
    try:
        got = answer(*copy.deepcopy(NO_CANDIDATES))
    except Exception as error:
        hint = f"Without any candidate yours raises {type(error).__name__}; nothing is kept then: an empty list."
        raise Mistake("no-candidates", hint) from error
    if got is None or not hasattr(got, "__len__") or len(got):
        raise Mistake("no-candidates", f"Without any candidate nothing is kept: an empty list; yours is {got!r}.")
    found = numbers(answer(*CASES["40 candidates"]))
    if found is not None and found.is_floating_point():
        raise Mistake("not-integers", "Indices are integers, so that centers[kept] works; yours have a fraction.")


def _explain(answer: Callable) -> None:
    """Raise the Mistake of a limit for scores, or that says what is wrong with the first selection that is."""
    _expect_all_scores(answer)
    for case, (centers, scores, apart) in CASES.items():
        found = numbers(answer(centers.copy(), scores.copy(), apart))
        wanted = right(centers, scores, apart)
        if found is None or found.ndim != 1 or found.tolist() == wanted:
            continue
        kept = found.tolist()
        if any(i not in range(len(scores)) for i in kept):
            raise Mistake("not-indices", f"For {case} your result holds {kept}: not all are indices of the candidates.")
        kept = [int(i) for i in kept]
        if len(set(kept)) < len(kept):
            raise Mistake("index-twice", f"For {case} an index is in your result more than once.")
        for i, j in itertools.combinations(kept, 2):
            if (distance := _euclidean(centers[i], centers[j])) <= apart:
                hint = f"For {case} you keep {i} and {j}, {distance:.3g} mm from each other, with `apart` {apart:g}."
                raise Mistake("near-ones-kept", hint)
        for i in range(len(scores)):
            if all(_euclidean(centers[i], centers[j]) > apart for j in kept):
                raise Mistake(
                    "far-one-missing", f"For {case} candidate {i} is missing, though none that you keep is near to it."
                )
        if sorted(kept) == sorted(wanted):
            raise Mistake("not-the-largest-first", f"For {case} you keep the right ones; return the largest score first.")
        raise Mistake("better-one-missing", f"For {case} you keep a candidate though a better one is near to it.")


def _expect_all_scores(answer: Callable) -> None:
    """Raise Mistake where all selections are right but for the scores below some limit."""
    missing, least = [], []
    for given in CASES.values():
        found, wanted, scores = numbers(answer(*copy.deepcopy(given))), right(*given), given[1]
        if found is None or found.ndim != 1 or found.tolist() != wanted[: len(found)]:
            return
        missing += [float(scores[i]) for i in wanted[len(found) :]]
        least += [float(scores[i]) for i in wanted[: len(found)]]
    if missing and least and max(missing) < min(least):
        hint = (
            f"Your kept candidates have scores of {min(least):g} and more, and those of {max(missing):g} and less are missing."
        )
        raise Mistake("small-scores-dropped", f"{hint} No score is too small: only a better one nearby suppresses.")


_ERRORS = {
    "out of range": (
        "index-out-of-range",
        "An index is not that of a candidate. Do you remove from a list while you go through it?",
    ),
    "out of bounds": (
        "index-out-of-range",
        "An index is not that of a candidate. Do your indices still count in the full arrays?",
    ),
    "is not in list": (
        "not-in-the-list",
        "You look for a candidate that was removed, or never there: keep indices, not values.",
    ),
    "ambiguous": ("truth-of-an-array", "An array has no single truth: say `.any()`, or compare one distance at a time."),
}
