"""Answers to `non-maximum-suppression`: indices of the candidates that are kept, the largest score first."""

import math

import numpy as np
import torch


def solution(centers, scores, apart):
    order = np.argsort(-scores, kind="stable")
    kept = []
    while len(order):
        best = order[0]
        kept.append(int(best))
        distance = np.linalg.norm(centers[order] - centers[best], axis=1)
        order = order[distance > apart]
    return kept


def greedy(centers, scores, near, order=None):
    kept = []
    for i in sorted(range(len(scores)), key=lambda i: -scores[i]) if order is None else order:
        if not any(near(centers[i], centers[j]) for j in kept):
            kept.append(i)
    return kept


def as_given(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: math.dist(a, b) <= apart, range(len(scores)))


def worst_first(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: math.dist(a, b) <= apart, np.argsort(scores, kind="stable").tolist())


def reversed_argsort(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: math.dist(a, b) <= apart, np.argsort(scores, kind="stable")[::-1].tolist())


def squared(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: ((a - b) ** 2).sum() <= apart)


def city_block(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: np.abs(a - b).sum() <= apart)


def cube(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: np.all(np.abs(a - b) <= apart))


def flat(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: np.hypot(a[1] - b[1], a[2] - b[2]) <= apart)


def norms(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: abs(np.linalg.norm(a) - np.linalg.norm(b)) <= apart)


def strict(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: math.dist(a, b) < apart)


def far_removed(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: math.dist(a, b) > apart)


def radius_for_diameter(centers, scores, apart):
    return greedy(centers, scores, lambda a, b: math.dist(a, b) / 2 <= apart)


def matrix_of_all(centers, scores, apart):
    order = np.argsort(-scores, kind="stable")
    distance = np.linalg.norm(centers[order][:, None] - centers[order][None], axis=2)
    worse = np.tril(distance <= apart, -1).any(1)
    return order[~worse]


def sorted_neighbors(centers, scores, apart):
    order = np.argsort(-scores, kind="stable")
    return [i for k, i in enumerate(order) if k == 0 or math.dist(centers[i], centers[order[k - 1]]) > apart]


def last_kept(centers, scores, apart):
    kept = []
    for i in np.argsort(-scores, kind="stable"):
        if not kept or math.dist(centers[i], centers[kept[-1]]) > apart:
            kept.append(i)
    return kept


def one_round(centers, scores, apart):
    best = int(np.argmax(scores))
    rest = [i for i in np.argsort(-scores, kind="stable") if math.dist(centers[i], centers[best]) > apart]
    return [best, *rest]


def without_neighbors(centers, scores, apart):
    distance = np.linalg.norm(centers[:, None] - centers[None], axis=2)
    alone = (distance <= apart).sum(1) == 1
    return [i for i in np.argsort(-scores, kind="stable") if alone[i]]


def only_sorts(centers, scores, apart):
    return np.argsort(-scores, kind="stable")


def in_sorted_order(centers, scores, apart):
    order = np.argsort(-scores, kind="stable")
    moved = centers[order]
    kept = []
    for i in range(len(moved)):
        if all(math.dist(moved[i], moved[j]) > apart for j in kept):
            kept.append(i)
    return kept


def by_index(centers, scores, apart):
    return sorted(solution(centers, scores, apart))


def suppressed(centers, scores, apart):
    kept = solution(centers, scores, apart)
    return [i for i in np.argsort(-scores, kind="stable") if i not in kept]


def removes_while_iterating(centers, scores, apart):
    order = np.argsort(-scores, kind="stable").tolist()
    for i in order:
        for j in order:
            if i != j and math.dist(centers[i], centers[j]) <= apart:
                order.remove(j)
    return order


def pops_from_a_range(centers, scores, apart):
    centers, scores, kept = centers.tolist(), scores.tolist(), []
    while scores:
        best = max(range(len(scores)), key=scores.__getitem__)
        kept.append(best)
        left = [i for i in range(len(scores)) if math.dist(centers[i], centers[best]) > apart]
        centers, scores = [centers[i] for i in left], [scores[i] for i in left]
    return kept


def sorts_in_place(centers, scores, apart):
    kept = solution(centers, scores, apart)
    scores[:] = np.sort(scores)
    return kept


def averages(centers, scores, apart):
    return [centers[np.linalg.norm(centers - centers[i], axis=1) <= apart].mean(0) for i in solution(centers, scores, apart)]


def until_0(centers, scores, apart):
    """A removed candidate has the score 0."""
    scores, kept = scores.copy(), []
    while len(scores) and scores.max() > 0:
        kept.append(int(scores.argmax()))
        scores[np.linalg.norm(centers - centers[kept[-1]], axis=1) <= apart] = 0
    return kept


def each_score_once(centers, scores, apart):
    kept = []
    for i in np.argsort(-scores, kind="stable").tolist():
        if all(math.dist(centers[i], centers[j]) > apart and scores[i] != scores[j] for j in kept):
            kept.append(i)
    return kept


def needs_a_best(centers, scores, apart):
    left, kept = list(range(len(scores))), []
    while True:
        best = max(left, key=lambda i: scores[i])
        kept.append(best)
        left = [i for i in left if math.dist(centers[i], centers[best]) > apart]
        if not left:
            return kept


def no_better_one_near(centers, scores, apart):
    kept = [
        i
        for i in range(len(scores))
        if not any(scores[j] > scores[i] and math.dist(centers[i], centers[j]) <= apart for j in range(len(scores)))
    ]
    return sorted(kept, key=lambda i: -scores[i])


def until_minus_one(centers, scores, apart):
    left, kept = scores.copy(), []
    while left.max(initial=-1) > -1:
        best = int(left.argmax())
        kept.append(best)
        left[np.linalg.norm(centers - centers[best], axis=1) <= apart] = -1
    return kept


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


def without_the_worst(centers, scores, apart):
    worst = sorted(range(len(scores)), key=lambda i: -scores[i])[-1:]
    return [i for i in solution(centers, scores, apart) if i not in worst]


WRONG = [
    ("small-scores-dropped", until_minus_one),
    ("removed-while-going-through", removed_from_the_list_of_the_loop),
    ("groups-by-chains", best_of_connected_groups),
    ("last-missing", without_the_worst),
    ("suppressed-ones-suppress", no_better_one_near),
    ("centers-returned", lambda centers, *given: [centers[i] for i in solution(centers, *given)]),
    ("not-by-score", as_given),
    ("worst-first", worst_first),
    ("last-of-equal-scores", reversed_argsort),
    ("squared-distance", squared),
    ("city-block", city_block),
    ("largest-coordinate", cube),
    ("two-dimensional", flat),
    ("from-the-origin", norms),
    ("exactly-apart-kept", strict),
    ("far-ones-removed", far_removed),
    ("twice-apart", radius_for_diameter),
    ("suppressed-ones-suppress", matrix_of_all),
    ("one-before-only", sorted_neighbors),
    ("last-kept-only", last_kept),
    ("best-only", one_round),
    ("all-near-ones-removed", without_neighbors),
    ("nothing-removed", only_sorts),
    ("indices-after-sorting", in_sorted_order),
    ("sorted-by-index", by_index),
    ("suppressed-returned", suppressed),
    ("scores-returned", lambda centers, scores, apart: scores[solution(centers, scores, apart)]),
    ("centers-returned", lambda centers, scores, apart: centers[solution(centers, scores, apart)]),
    ("mask-returned", lambda centers, scores, apart: np.isin(range(len(scores)), solution(centers, scores, apart))),
    ("count-returned", lambda centers, scores, apart: len(solution(centers, scores, apart))),
    ("returns-nothing", lambda centers, scores, apart: None),
    ("inputs-changed", sorts_in_place),
    ("indices-of-the-rest", pops_from_a_range),
    ("far-one-missing", removes_while_iterating),
    ("wrong-value", averages),
    ("not-integers", lambda centers, scores, apart: np.array(solution(centers, scores, apart), float)),
    ("no-candidates", lambda centers, scores, apart: solution(centers, scores, apart) if len(scores) else None),
    ("size-of-the-score", lambda centers, scores, apart: solution(centers, np.abs(scores), apart)),
    ("small-scores-dropped", until_0),
    ("small-scores-dropped", lambda *given: [i for i in solution(*given) if given[1][i] >= 0.5]),
    ("equal-scores-dropped", each_score_once),
    ("one-dimensional", lambda centers, scores, apart: greedy(centers, scores, lambda a, b: abs(a[0] - b[0]) <= apart)),
    ("rounded-centers", lambda centers, scores, apart: solution(centers.astype(int), scores, apart)),
    ("rounded-centers", lambda centers, scores, apart: solution(centers.round(), scores, apart)),
    ("suppressed-returned", lambda *given: [i for i in range(len(given[1])) if i not in solution(*given)]),
    ("counted-from-1", lambda *given: [i + 1 for i in solution(*given)]),
    ("one-only", lambda *given: solution(*given)[:1]),
    ("no-order", lambda *given: set(solution(*given))),
    ("no-candidates", needs_a_best),
    ("near-ones-kept", lambda centers, scores, apart: solution(centers, scores, 0.9 * apart)),
    ("far-one-missing", lambda centers, scores, apart: solution(centers, scores, 1.3 * apart)),
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


def with_torch(centers, scores, apart):
    centers, scores = torch.as_tensor(centers), torch.as_tensor(scores)
    order = torch.argsort(scores, descending=True, stable=True)
    alive, kept = torch.ones(len(scores), dtype=torch.bool), []
    for i in order:
        if alive[i]:
            kept.append(i)
            alive &= (centers - centers[i]).pow(2).sum(1) > apart**2
    return torch.tensor(kept)


def with_a_matrix(centers, scores, apart):
    near = ((centers[:, None] - centers[None]) ** 2).sum(-1) <= apart**2
    dead, kept = set(), []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        if i not in dead:
            kept.append(i)
            dead |= set(np.flatnonzero(near[i]).tolist())
    return tuple(kept)


def by_masking_scores(centers, scores, apart):
    scores, kept = scores.copy(), []
    while len(scores) and scores.max() > -np.inf:
        best = scores.argmax()
        kept.append(best)
        scores[np.linalg.norm(centers - centers[best], axis=1) <= apart] = -np.inf
    return np.array(kept, dtype=int)


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


ALSO_RIGHT = [with_loops, with_torch, with_a_matrix, by_masking_scores, with_a_tree, recursive]


def kept_in_all_calls(centers, scores, apart, kept=[]):  # noqa: B006
    kept += [i for i in solution(centers, scores, apart) if i not in kept]
    return [i for i in kept if i < len(scores)]


WRONG += [
    ("remembers-calls", kept_in_all_calls),
    ("better-one-missing", lambda centers, scores, apart: solution(centers, scores.astype(np.float16), apart)),
    ("better-one-missing", lambda centers, scores, apart: solution(centers, scores.round(2), apart)),
    ("far-one-missing", lambda centers, scores, apart: solution(centers.astype(np.float16).astype(float), scores, apart)),
    ("far-one-missing", lambda centers, scores, apart: solution(centers, scores, apart + 1e-3)),
]
