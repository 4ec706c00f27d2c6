"""Answers to `non-maximum-suppression`: indices of the candidates that are kept, the largest score first."""

import math

import numpy as np
from edited_source import wrong_answers


def solution(centers, scores, apart):
    order = np.argsort(-scores, kind="stable")
    kept = []
    while len(order):
        best = order[0]
        kept.append(int(best))
        distance = np.linalg.norm(centers[order] - centers[best], axis=1)
        order = order[distance > apart]
    return kept


def compared_with_the_kept(centers, scores, apart):
    kept = []
    for i in np.argsort(-scores, kind="stable").tolist():
        if all(math.dist(centers[i], centers[j]) > apart for j in kept):
            kept.append(i)
    return kept


def with_a_matrix(centers, scores, apart):
    near = ((centers[:, None] - centers[None]) ** 2).sum(-1) <= apart**2
    dead, kept = set(), []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if i not in dead:
            kept.append(i)
            dead |= set(np.flatnonzero(near[i]).tolist())
    return tuple(kept)


def by_an_order_that_is_not_stable(centers, scores, apart):
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], 7 * i % 11))
    moved = solution(centers[order], np.arange(len(order), 0.0, -1.0), apart)
    return [order[i] for i in moved]


WRONG = [
    *wrong_answers(
        solution,
        [
            ("not-indices", ("return kept", "return [i + 1 for i in kept]")),
            ("not-the-largest-first", ("return kept", "return kept[::-1]")),
            ("wrong-value", ("return kept", "return kept or [0]")),
        ],
    ),
    ("near-ones-kept", lambda centers, scores, apart: solution(centers, scores, 0.9 * apart)),
    ("far-one-missing", lambda centers, scores, apart: solution(centers, scores, 1.3 * apart)),
    ("last-of-equal-scores", by_an_order_that_is_not_stable),
    ("better-one-missing", lambda centers, scores, apart: solution(centers, scores.astype(np.float16), apart)),
]


def with_loops(centers, scores, apart):
    left = list(range(len(scores)))
    kept = []
    while left:
        best = left[0]
        for i in left:
            if scores[i] > scores[best]:
                best = i
        kept.append(best)
        left = [
            i for i in left if i != best and math.sqrt(sum((a - b) ** 2 for a, b in zip(centers[i], centers[best]))) > apart
        ]
    return kept


def with_a_tree(centers, scores, apart):
    from scipy.spatial import KDTree

    if not len(scores):
        return []
    tree, dead, kept = KDTree(centers), np.zeros(len(scores), bool), []
    for i in np.argsort(-scores, kind="stable"):
        if not dead[i]:
            kept.append(i)
            dead[tree.query_ball_point(centers[i], apart)] = True
    return kept


def recursive(centers, scores, apart, left=None):
    left = list(range(len(scores))) if left is None else left
    if not left:
        return []
    best = max(left, key=lambda i: (scores[i], -i))
    return [best, *recursive(centers, scores, apart, [i for i in left if math.dist(centers[i], centers[best]) > apart])]


ALSO_RIGHT = [compared_with_the_kept, with_loops, with_a_matrix, with_a_tree, recursive]
