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


def by_masking_scores(centers, scores, apart):
    scores, kept = scores.copy(), []
    while len(scores) and scores.max() > -np.inf:
        best = scores.argmax()
        kept.append(best)
        scores[np.linalg.norm(centers - centers[best], axis=1) <= apart] = -np.inf
    return np.array(kept, dtype=int)


def with_a_matrix(centers, scores, apart):
    near = ((centers[:, None] - centers[None]) ** 2).sum(-1) <= apart**2
    dead, kept = set(), []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if i not in dead:
            kept.append(i)
            dead |= set(np.flatnonzero(near[i]).tolist())
    return tuple(kept)


def sorted_neighbors(centers, scores, apart):
    order = np.argsort(-scores, kind="stable")
    return [i for k, i in enumerate(order) if k == 0 or math.dist(centers[i], centers[order[k - 1]]) > apart]


def pops_from_a_range(centers, scores, apart):
    centers, scores, kept = centers.tolist(), scores.tolist(), []
    while scores:
        best = max(range(len(scores)), key=scores.__getitem__)
        kept.append(best)
        left = [i for i in range(len(scores)) if math.dist(centers[i], centers[best]) > apart]
        centers, scores = [centers[i] for i in left], [scores[i] for i in left]
    return kept


def no_better_one_near(centers, scores, apart):
    kept = [
        i
        for i in range(len(scores))
        if not any(scores[j] > scores[i] and math.dist(centers[i], centers[j]) <= apart for j in range(len(scores)))
    ]
    return sorted(kept, key=lambda i: -scores[i])


def removed_from_the_list_of_the_loop(centers, scores, apart):
    order, kept = sorted(range(len(scores)), key=lambda i: -scores[i]), []
    for i in order:
        kept.append(i)
        for j in order:
            if j != i and math.dist(centers[i], centers[j]) <= apart:
                order.remove(j)
    return kept


def best_of_connected_groups(centers, scores, apart):
    group = list(range(len(scores)))
    for i in range(len(scores)):
        for j in range(len(scores)):
            if math.dist(centers[i], centers[j]) <= apart:
                group = [group[i] if g == group[j] else g for g in group]
    return sorted(
        (max(range(len(scores)), key=lambda i: (group[i] == g, scores[i], -i)) for g in set(group)), key=lambda i: -scores[i]
    )


ORDER = 'np.argsort(-scores, kind="stable")'
WRONG = [
    *wrong_answers(
        solution,
        [
            ("wrong-type", ("return kept", "return np.isin(range(len(scores)), kept)")),
            ("wrong-type", ("return kept", "return set(kept)")),
            ("returns-nothing", ("return kept", "return kept or None")),
            ("returns-nothing", ("return kept", "")),
            ("inputs-changed", ("return kept", "scores[:] = np.sort(scores)\n    return kept")),
            (
                "remembers-calls",
                ("apart):", "apart, known=[]):"),
                ("return kept", "known += kept\n    return list(dict.fromkeys(i for i in known if i < len(scores)))"),
            ),
        ],
    ),
    *wrong_answers(
        compared_with_the_kept,
        [
            ("exactly-apart-kept", ("> apart", ">= apart")),
            ("far-ones-removed", ("> apart", "<= apart")),
            ("equal-scores-dropped", ("> apart", "> apart and scores[i] != scores[j]")),
            ("last-kept-only", ("in kept)", "in kept[-1:])")),
            ("best-only", ("in kept)", "in kept[:1])")),
            ("all-near-ones-removed", ("in kept)", "in range(len(scores)) if j != i)")),
            (
                "indices-after-sorting",
                (f"{ORDER}.tolist()", "range(len(scores))"),
                ("kept = []", f"kept, centers = [], centers[{ORDER}]"),
            ),
        ],
    ),
    *wrong_answers(by_masking_scores, []),
    *wrong_answers(with_a_matrix, [("suppressed-ones-suppress", ("            dead", "        dead"))]),
    *wrong_answers(removed_from_the_list_of_the_loop, [("far-one-missing", ("return kept", "return order"))]),
    ("removed-while-going-through", removed_from_the_list_of_the_loop),
    ("groups-by-chains", best_of_connected_groups),
    ("suppressed-ones-suppress", no_better_one_near),
    ("one-before-only", sorted_neighbors),
    ("indices-of-the-rest", pops_from_a_range),
    ("near-ones-kept", lambda centers, scores, apart: solution(centers, scores, 0.9 * apart)),
    ("far-one-missing", lambda centers, scores, apart: solution(centers, scores, 1.3 * apart)),
    ("better-one-missing", lambda centers, scores, apart: solution(centers, scores.astype(np.float16), apart)),
    ("better-one-missing", lambda centers, scores, apart: solution(centers, scores.round(2), apart)),
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


WRONG += [  # right numbers in another kind than the exercise asks for
]
