"""non-maximum-suppression: which of many overlapping candidates are kept, the largest score first."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from hpml_lab.core.exercises import Mistake, exercise, expect_function
from hpml_lab.core.mistakes import combined
from hpml_lab.core.same import numbers

Array = np.ndarray


def _euclidean(a: Array, b: Array) -> float:
    return float(np.sqrt(((a - b) ** 2).sum()))


def _by_score(scores: Array) -> list[int]:
    return sorted(range(len(scores)), key=lambda i: -scores[i])


def _greedy(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    kept: list[int] = []
    for i in order:
        if not any(near(i, j) for j in kept):
            kept.append(i)
    return kept


def _all_better(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    return [i for k, i in enumerate(order) if not any(near(i, j) for j in order[:k])]


def _last_kept(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    kept: list[int] = []
    for i in order:
        if not kept or not near(i, kept[-1]):
            kept.append(i)
    return kept


def _one_before(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    return [i for k, i in enumerate(order) if k == 0 or not near(i, order[k - 1])]


def _only_the_best(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    return list(order[:1]) + [i for i in order[1:] if not near(i, order[0])]


def _lonely(order: Sequence[int], near: Callable[[int, int], bool]) -> list[int]:
    return [i for i in order if not any(near(i, j) for j in order if j != i)]


def _build(
    order: Callable[[Array], list[int]] = _by_score,
    distance: Callable[[Array, Array], float] = _euclidean,
    near: Callable[[float, float], bool] = lambda distance, apart: distance <= apart,
    against: Callable[[Sequence[int], Callable[[int, int], bool]], list[int]] = _greedy,
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
            "suppressed-ones-suppress": (_all_better, _SUPPRESSED + " In a chain the third is kept again."),
            "last-kept-only": (_last_kept, "You compare with the last one kept only; compare with every one that was kept."),
            "one-before-only": (
                _one_before,
                "You compare with the candidate before in the order only; compare with every one that was kept.",
            ),
            "best-only": (
                _only_the_best,
                "Only what is near the very best is removed. Go on with the best of the rest, until none is left.",
            ),
            "all-near-ones-removed": (
                _lonely,
                "You remove every candidate that has a neighbor, the best ones too. The best of a group stays.",
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
            "scores-returned": (
                lambda kept, order, centers, scores: scores[kept],
                "You return the scores of those that are kept; their indices are asked for.",
            ),
            "centers-returned": (
                lambda kept, order, centers, scores: centers[kept],
                "You return the centers of those that are kept; their indices are asked for.",
            ),
            "count-returned": (lambda kept, order, centers, scores: len(kept), "You return how many are kept. " + _MASK),
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


def _case(rows: list[tuple], apart: float) -> tuple[Array, Array, float]:
    given = np.array(rows, float).reshape(-1, 4)
    return given[:, :3].copy(), given[:, 3].copy(), apart


def _random(seed: int, count: int, apart: float) -> tuple[Array, Array, float]:
    draw = np.random.default_rng(seed)
    return draw.uniform(-40, 40, (count, 3)), draw.permutation(count) / count, apart


_CASES = {
    "two near and one far": _case([(0, 0, 0, 0.5), (0, 3, 4, 0.9), (50, 0, 0, 0.7)], 6.0),
    "a chain: each near the next": _case([(0, 0, 0, 0.9), (0, 0, 8, 0.8), (0, 0, 16, 0.7), (0, 0, 24, 0.6)], 10.0),
    "exactly `apart` from each other": _case([(3, 0, 4, 0.6), (0, 0, 0, 0.8), (0, 0, -5, 0.3)], 5.0),
    "equal scores": _case([(0, 0, 0, 0.4), (1, 0, 0, 0.7), (0, 1, 0, 0.7), (30, 0, 0, 0.7)], 4.0),
    "one above the other": _case([(0, 5, 5, 0.8), (20, 5, 5, 0.9), (40, 5, 5, 0.7)], 10.0),
    "side by side": _case([(5, 5, 0, 0.8), (5, 5, 20, 0.9), (5, 5, 40, 0.7)], 10.0),
    "at the corner of a cube": _case([(0, 0, 0, 0.2), (4, 4, 4, 0.3), (20, 20, 20, 0.1), (26, 26, 20, 0.4)], 6.5),
    "apart less than 1 mm": _case([(0, 0, 0, 0.9), (0, 0, 0.7, 0.8), (0, 0.3, 0, 0.1)], 0.5),
    "the same center twice": _case([(1, 2, 3, 0.3), (1, 2, 3, 0.6), (-1, -2, -3, 0.5)], 2.0),
    "one candidate": _case([(1, 2, 3, 0.3)], 5.0),
    "40 candidates": _random(0, 40, 20.0),
    "60 candidates": _random(1, 60, 15.0),
}


@exercise("non-maximum-suppression", notebook="16_capstone")
def judge_non_maximum_suppression(answer: Callable) -> None:
    """Indices of the candidates that no better kept one is near to, the largest score first."""

    def indices(*given: Any) -> Any:
        kept = answer(*given)
        found = numbers(kept)
        if found is not None and found.dtype == torch.bool:
            raise Mistake("mask-returned", "You return True or False for each candidate. " + _MASK)
        return kept

    expect_function(indices, right, _CASES, mistakes=MISTAKES, errors=_ERRORS)
    nothing = _case([], 5.0)
    got = answer(*nothing)
    if got is None or not hasattr(got, "__len__") or len(got):
        raise Mistake("no-candidates", f"Without any candidate nothing is kept: an empty list; yours is {got!r}.")
    found = numbers(answer(*_CASES["40 candidates"]))
    if found is not None and found.is_floating_point():
        raise Mistake("not-integers", "Indices are integers, so that centers[kept] works; yours have a fraction.")


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
