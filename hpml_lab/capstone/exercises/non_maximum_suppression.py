"""non-maximum-suppression: which of many overlapping candidates are kept, the largest score first."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric

Array = np.ndarray
Near = Callable[[int, int], bool]


def right(centers: Array, scores: Array, apart: float) -> Any:
    order = sorted(range(len(scores)), key=lambda i: -scores[i])
    kept = greedy(order, lambda i, j: length(centers[i] - centers[j]) <= apart)
    return kept


def length(v: Array) -> float:
    return float(np.sqrt((v * v).sum()))


def greedy(order: list[int], near: Near) -> list[int]:
    kept: list[int] = []
    for i in order:
        if not any(near(i, j) for j in kept):
            kept.append(i)
    return kept


def all_better(order: list[int], near: Near) -> list[int]:
    return [i for k, i in enumerate(order) if not any(near(i, j) for j in order[:k])]


def last_kept(order: list[int], near: Near) -> list[int]:
    kept: list[int] = []
    for i in order:
        if not kept or not near(i, kept[-1]):
            kept.append(i)
    return kept


def one_before(order: list[int], near: Near) -> list[int]:
    return [i for k, i in enumerate(order) if k == 0 or not near(i, order[k - 1])]


def only_the_best(order: list[int], near: Near) -> list[int]:
    return list(order[:1]) + [i for i in order[1:] if not near(i, order[0])]


def lonely(order: list[int], near: Near) -> list[int]:
    return [i for i in order if not any(near(i, j) for j in order if j != i)]


def best_of_each_chain(order: list[int], near: Near) -> list[int]:
    """Of all that are connected by near neighbors the first."""
    left, kept = list(order), []
    while left:
        kept.append(left[0])
        group = [left.pop(0)]
        for i in group:
            new = [j for j in left if near(i, j)]
            group += new
            left = [j for j in left if j not in new]
    return kept


def removed_while_going_through(order: list[int], near: Near) -> list[int]:
    left, kept = list(order), []
    for i in left:
        kept.append(i)
        for j in left:
            if j != i and near(i, j):
                left.remove(j)
    return kept


def counting_in_the_rest(centers: Array, scores: Array, apart: float) -> list[int]:
    kept = []
    while len(scores):
        best = int(scores.argmax())
        kept.append(best)
        left = [length(center - centers[best]) > apart for center in centers]
        centers, scores = centers[left], scores[left]
    return kept


def none_better_near(centers: Array, scores: Array, apart: float) -> list[int]:
    def near(i: int) -> bool:
        return any(scores[j] > scores[i] and length(centers[i] - centers[j]) <= apart for j in range(len(scores)))

    return [i for i in right(centers, scores, -1.0) if not near(i)]


def each_score_once(centers: Array, scores: Array, apart: float) -> list[int]:
    return greedy(right(centers, scores, -1.0), lambda i, j: length(centers[i] - centers[j]) <= apart or scores[i] == scores[j])


RUBRIC = Rubric(
    right,
    """
sorted(range(len(scores)), key=lambda i: -scores[i])
    last-of-equal-scores :: sorted(range(len(scores)), key=lambda i: scores[i])[::-1] :: Of equal scores the first candidate
        wins. Sorting upward and then reversing reverses the equal ones too.
length(centers[i] - centers[j])
    largest-coordinate :: abs(centers[i] - centers[j]).max() :: Distances are Euclidean: √(dz² + dy² + dx²). You compare each
        coordinate by itself, a cube and no ball.
<= apart
    exactly-apart-kept :: < apart :: At a distance of exactly `apart` a candidate is still suppressed: <=, not <.
    far-ones-removed :: > apart :: Your comparison is the wrong way round: far candidates are removed, near ones kept.
greedy(
    suppressed-ones-suppress :: all_better( :: $SUPPRESSED In a chain the third is kept again.
    last-kept-only :: last_kept( :: You compare with the last one kept only; compare with every one that was kept.
    one-before-only :: one_before( :: You compare with the candidate before in the order only; compare with every one that was
        kept.
    best-only :: only_the_best( :: Only what is near the very best is removed. Go on with the best of the rest, until none is
        left.
    all-near-ones-removed :: lonely( :: You remove every candidate that has a neighbor, the best ones too. The best of a group
        stays.
    groups-by-chains :: best_of_each_chain( :: You make one group of all that are connected by near neighbors, and keep its
        best. In a chain the third is near to the second, not to the first: it is kept.
    removed-while-going-through :: removed_while_going_through( :: You remove from the list while you go through it, so that the
        loop skips what follows each removal.
return kept
    indices-after-sorting :: return [order.index(i) for i in kept] :: Your indices count in the sorted order. Give those of the
        candidates as they were handed to you.
    sorted-by-index :: return sorted(kept) :: The right candidates, but by index; the largest score comes first.
    small-scores-dropped :: return [i for i in kept if scores[i] > 0] :: You drop scores of 0 and below, or end there. No score
        is too small: only a better one nearby suppresses.
whole answer
    indices-of-the-rest :: counting_in_the_rest :: Your indices count in what is left after each removal; keep those of the
        candidates as they were handed to you.
    suppressed-ones-suppress :: none_better_near :: $SUPPRESSED And of equal scores near each other only the first is kept.
    equal-scores-dropped :: each_score_once :: Of equal scores you keep one in the whole scan. Candidates far from each other
        may have the same score.
""",
    SUPPRESSED="A candidate that was suppressed suppresses nobody: compare only with those that were kept.",
)


def _case(rows: list[tuple], apart: float) -> tuple[Array, Array, float]:
    given = np.array(rows, float).reshape(-1, 4)
    return given[:, :3].copy(), given[:, 3].copy(), apart


def _random(seed: int, count: int, apart: float, of_a_score: int = 1) -> tuple[Array, Array, float]:
    """Candidates at random places; so many have each score."""
    draw = np.random.default_rng(seed)
    return draw.uniform(-40, 40, (count, 3)), draw.permutation(count) // of_a_score / count, apart


CASES = {
    "two near and one far": _case([(0, 0, 0, 0.5), (0, 3, 4, 0.9), (50, 0, 0, 0.7)], 6.0),
    "a chain: each near the next": _case([(0, 0, 0, 0.9), (0, 0, 8, 0.8), (0, 0, 16, 0.7), (0, 0, 24, 0.6)], 10.0),
    "exactly `apart` from each other": _case([(3, 0, 4, 0.6), (0, 0, 0, 0.8), (0, 0, -5, 0.3)], 5.0),
    "equal scores": _case([(0, 0, 0, 0.4), (1, 0, 0, 0.7), (0, 1, 0, 0.7), (30, 0, 0, 0.7)], 4.0),
    "one above the other": _case([(0, 5, 5, 0.8), (20, 5, 5, 0.9), (40, 5, 5, 0.7)], 10.0),
    "side by side": _case([(5, 5, 0, 0.8), (5, 5, 20, 0.9), (5, 5, 40, 0.7)], 10.0),
    "at the corner of a cube": _case([(0, 0, 0, 0.2), (4, 4, 4, 0.3), (20, 20, 20, 0.1), (26, 26, 20, 0.4)], 6.5),
    "apart less than 1 mm": _case([(0, 0, 0, 0.9), (0, 0, 0.7, 0.8), (0, 0.3, 0, 0.1)], 0.5),
    "the same center twice": _case([(1, 2, 3, 0.3), (1, 2, 3, 0.6), (-1, -2, -3, 0.5)], 2.0),
    "scores that are negative, too": _case([(0, 0, 0, -3.0), (0, 0, 2, -1.0), (30, 0, 0, 2.0), (30, 0, 3, -2.5)], 5.0),
    "scores and distances that differ by little": _case(
        [(200.1, 0, 0, 0.90001), (200.1, 0, 1, 0.90002), (200.1, 0, 6.0004, 0.3)], 5.0
    ),
    "one candidate": _case([(1, 2, 3, 0.3)], 5.0),
    "40 candidates": _random(0, 40, 20.0),
    "60 candidates": _random(1, 60, 15.0),
    "60 candidates with three scores": _random(2, 60, 12.0, of_a_score=20),
    # |a|² + |b|² − 2ab is a small difference of large numbers here.
    "far from the origin": _case([(1e4, 1e4, 1e4, 0.9), (1e4, 1e4, 10_002, 0.8), (1e4, 1e4, 10_005, 0.7)], 2.5),
}


@exercise("non-maximum-suppression", notebook="19_capstone", takes="centers, scores, apart", returns=[int])
def judge_non_maximum_suppression(answer: Callable) -> None:
    """Indices of the candidates that no better kept one is near to, the largest score first."""
    RUBRIC.expect(answer, CASES, explain=_explain)
    expect_function(answer, right, {"no candidates": _case([], 5.0)})


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says what is wrong with the first selection that is."""
    for case, (centers, scores, apart), got, wanted in judged:
        kept = [int(i) for i in got]
        if kept == wanted:
            continue
        if any(i not in range(len(scores)) for i in kept):
            raise Mistake("not-indices", f"For {case} your result holds {kept}: not all are indices of the candidates.")
        for i, j in itertools.combinations(kept, 2):
            if (distance := length(centers[i] - centers[j])) <= apart:
                hint = f"For {case} you keep {i} and {j}, {distance:.3g} mm from each other, with `apart` {apart:g}."
                raise Mistake("near-ones-kept", hint)
        for i in range(len(scores)):
            if all(length(centers[i] - centers[j]) > apart for j in kept):
                hint = f"For {case} candidate {i} is missing, though none that you keep is near to it."
                raise Mistake("far-one-missing", hint)
        own, first = next(pair for pair in zip(kept, wanted, strict=False) if pair[0] != pair[1])
        if scores[own] == scores[first]:
            hint = f"For {case} you choose {own} where {first} has the same score. Of equal scores the first candidate wins."
            raise Mistake("last-of-equal-scores", f"{hint} || An order that is reversed, or not stable, does not keep it.")
        if sorted(kept) == sorted(wanted):
            raise Mistake("not-the-largest-first", f"For {case} you keep the right ones; return the largest score first.")
        raise Mistake("better-one-missing", f"For {case} you keep a candidate though a better one is near to it.")
