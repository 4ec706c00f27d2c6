"""Answers to `froc-from-scores`: [false positives per scan, recall] for each different score, the largest first."""

import itertools

import numpy as np
import torch


def solution(scores, hits, scans, nodules):
    points = []
    for threshold in np.unique(scores)[::-1]:
        counted = hits[scores >= threshold]
        found = set(counted[counted >= 0].tolist())
        points.append([np.sum(counted < 0) / scans, len(found) / nodules])
    return points


def with_points(make):
    """An answer that makes each point from the hits counted so far."""

    def points(scores, hits, scans, nodules):
        return [make(hits[scores >= threshold], scans, nodules) for threshold in np.unique(scores)[::-1]]

    return points


def found(hits):
    return len(np.unique(hits[hits >= 0]))


def cumulative(scores, hits, scans, nodules):
    order = np.argsort(-scores, kind="stable")
    hit = hits[order] >= 0
    return np.column_stack([np.cumsum(~hit) / scans, np.cumsum(hit) / nodules])


def one_by_one(scores, hits, scans, nodules):
    order, seen, false, points = np.argsort(-scores, kind="stable"), set(), 0, []
    for i in order:
        if hits[i] < 0:
            false += 1
        else:
            seen.add(hits[i])
        points.append((false / scans, len(seen) / nodules))
    return points


def first_of_equal(scores, hits, scans, nodules):
    points = one_by_one(scores, hits, scans, nodules)
    ordered = np.sort(scores)[::-1]
    return [point for i, point in enumerate(points) if i == 0 or ordered[i] != ordered[i - 1]]


def separate_points(scores, hits, scans, nodules):
    points = []
    for threshold in sorted(scores, reverse=True):
        counted = hits[scores >= threshold]
        points.append([np.sum(counted < 0) / scans, found(counted) / nodules])
    return points


def upward(scores, hits, scans, nodules):
    return solution(scores, hits, scans, nodules)[::-1]


def unsorted(scores, hits, scans, nodules):
    points = []
    for threshold in dict.fromkeys(scores.tolist()):
        counted = hits[scores >= threshold]
        points.append([np.sum(counted < 0) / scans, found(counted) / nodules])
    return points


def strict(scores, hits, scans, nodules):
    points = []
    for threshold in np.unique(scores)[::-1]:
        counted = hits[scores > threshold]
        points.append([np.sum(counted < 0) / scans, found(counted) / nodules])
    return points


def of_this_score(scores, hits, scans, nodules):
    points = []
    for threshold in np.unique(scores)[::-1]:
        counted = hits[scores == threshold]
        points.append([np.sum(counted < 0) / scans, found(counted) / nodules])
    return points


def per_own_counts(scores, hits, scans, nodules):
    return [
        [np.sum(hits[scores >= t] < 0) / scans, found(hits[scores >= t]) / max(found(hits), 1)] for t in np.unique(scores)[::-1]
    ]


def fixed_thresholds(scores, hits, scans, nodules):
    points = []
    for threshold in np.linspace(1, 0, 11):
        counted = hits[scores >= threshold]
        points.append([np.sum(counted < 0) / scans, found(counted) / nodules])
    return points


def marks_repeats_as_misses(scores, hits, scans, nodules):
    hits = hits.copy()
    seen = set()
    for i in np.argsort(-scores, kind="stable"):
        if hits[i] in seen:
            hits[i] = -1
        elif hits[i] >= 0:
            seen.add(hits[i])
    return solution(scores, hits, scans, nodules)


def sorts_in_place(scores, hits, scans, nodules):
    points = solution(scores, hits, scans, nodules)
    scores.sort()
    return points


def as_dictionary(scores, hits, scans, nodules):
    return {float(t): p for t, p in zip(np.unique(scores)[::-1], solution(scores, hits, scans, nodules), strict=True)}


def per_all_detections(scores, hits, scans, nodules):
    return solution(scores, hits, max(len(hits), 1), nodules)


def without_false_hits(scores, hits, scans, nodules):
    """A set of those that are true, of which -1 is one and 0 is none."""
    points = []
    for threshold in np.unique(scores)[::-1]:
        counted = hits[scores >= threshold].tolist()
        points.append([counted.count(-1) / scans, len({hit for hit in counted if hit}) / nodules])
    return points


def as_given(scores, hits, scans, nodules):
    seen = [hits[: k + 1] for k in range(len(hits))]
    return [[np.sum(counted < 0) / scans, found(counted) / nodules] for counted in seen]


def without_repeats(scores, hits, scans, nodules):
    left, seen = [], set()
    for i in np.argsort(-scores, kind="stable"):
        if hits[i] < 0 or hits[i] not in seen:
            left.append(i)
        seen.add(hits[i])
    return solution(scores[left], hits[left], scans, nodules)


def rows_of_hits_alone(scores, hits, scans, nodules):
    thresholds = np.unique(scores[hits >= 0])[::-1]
    return [solution(scores, hits, scans, nodules)[np.unique(scores)[::-1].tolist().index(s)] for s in thresholds]


WRONG = [
    ("no-row-for-misses", rows_of_hits_alone),
    (
        "nodules-counted-twice",
        with_points(lambda h, scans, nodules: [(h < 0).sum() / scans, min(1.0, (h >= 0).sum() / nodules)]),
    ),
    ("recall-per-scan", with_points(lambda h, scans, nodules: [(h < 0).sum() / scans, len(set(h[h >= 0].tolist())) / scans])),
    (
        "nodule-0-left-out",
        with_points(lambda h, scans, nodules: [(h <= 0).sum() / scans, len(set(h[h > 0].tolist())) / nodules]),
    ),
    (
        "nodules-counted-twice",
        with_points(lambda hits, scans, nodules: [(hits < 0).sum() / scans, (hits >= 0).sum() / nodules]),
    ),
    ("misses-are-a-nodule", with_points(lambda hits, scans, nodules: [(hits < 0).sum() / scans, len(set(hits)) / nodules])),
    (
        "nodule-0-left-out",
        with_points(lambda hits, scans, nodules: [(hits < 0).sum() / scans, len(set(hits[hits > 0])) / nodules]),
    ),
    ("repeats-are-false", with_points(lambda hits, scans, nodules: [(len(hits) - found(hits)) / scans, found(hits) / nodules])),
    ("repeats-are-false", marks_repeats_as_misses),
    ("all-detections", with_points(lambda hits, scans, nodules: [len(hits) / scans, found(hits) / nodules])),
    ("hits-for-misses", with_points(lambda hits, scans, nodules: [(hits >= 0).sum() / scans, found(hits) / nodules])),
    ("nodule-0-is-false", with_points(lambda hits, scans, nodules: [(hits <= 0).sum() / scans, found(hits) / nodules])),
    ("not-per-scan", with_points(lambda hits, scans, nodules: [(hits < 0).sum(), found(hits) / nodules])),
    ("per-detection", with_points(lambda hits, scans, nodules: [(hits < 0).mean(), found(hits) / nodules])),
    ("per-nodule", with_points(lambda hits, scans, nodules: [(hits < 0).sum() / nodules, found(hits) / nodules])),
    ("found-not-shared", with_points(lambda hits, scans, nodules: [(hits < 0).sum() / scans, found(hits)])),
    ("of-the-found", per_own_counts),
    ("precision", with_points(lambda hits, scans, nodules: [(hits < 0).sum() / scans, found(hits) / len(hits)])),
    ("percent", with_points(lambda hits, scans, nodules: [(hits < 0).sum() / scans, 100 * found(hits) / nodules])),
    ("missed-share", with_points(lambda hits, scans, nodules: [(hits < 0).sum() / scans, 1 - found(hits) / nodules])),
    ("columns-swapped", with_points(lambda hits, scans, nodules: [found(hits) / nodules, (hits < 0).sum() / scans])),
    ("recall-only", with_points(lambda hits, scans, nodules: found(hits) / nodules)),
    ("equal-scores-one-by-one", one_by_one),
    ("equal-scores-one-by-one", first_of_equal),
    ("nodules-counted-twice", cumulative),
    ("equal-scores-separately", separate_points),
    ("smallest-score-first", upward),
    ("in-the-order-given", unsorted),
    ("own-score-left-out", strict),
    ("not-cumulative", of_this_score),
    ("last-score-missing", lambda *given: solution(*given)[:-1]),
    ("starts-at-0", lambda *given: [[0, 0], *solution(*given)]),
    ("transposed", lambda *given: np.array(solution(*given)).reshape(-1, 2).T),
    ("fixed-thresholds", fixed_thresholds),
    ("not-rows", as_dictionary),
    ("inputs-changed", sorts_in_place),
    ("returns-nothing", lambda *given: None),
    ("no-detections", lambda scores, *rest: solution(scores, *rest) if len(scores) else [[0, 0]]),
    ("transposed", lambda *given: tuple(np.array(solution(*given)).reshape(-1, 2).T)),
    (
        "per-miss",
        lambda scores, hits, scans, nodules: solution(scores, hits, 1, nodules) / np.array([max(sum(hits < 0), 1), 1]),
    ),
    ("per-detection", per_all_detections),
    ("of-the-found", lambda scores, hits, scans, nodules: solution(scores, hits, scans, max(hits.max(initial=0) + 1, 1))),
    ("nodule-0-left-out", without_false_hits),
    ("rounded-down", lambda *given: np.floor(np.array(solution(*given))).reshape(-1, 2)),
    ("not-ordered", as_given),
    ("hits-left-behind", lambda scores, *others: solution(np.sort(scores)[::-1], *others)),
    ("scores-rounded", lambda scores, *others: solution(scores.round(1), *others)),
    ("divisors-swapped", lambda scores, hits, scans, nodules: solution(scores, hits, nodules, scans)),
    ("repeats-removed", without_repeats),
    ("repeats-removed", lambda *given: np.unique(np.array(solution(*given)).reshape(-1, 2), axis=0)),
    ("not-rows", lambda *given: dict(zip(np.unique(given[0])[::-1].tolist(), solution(*given), strict=True))),
    ("not-rows", lambda *given: np.c_[np.unique(given[0])[::-1], np.array(solution(*given)).reshape(-1, 2)]),
    ("no-detections", lambda scores, *others: solution(scores, *others) if scores.max() else None),
]


def by_sorting(scores, hits, scans, nodules):
    order = np.argsort(-scores, kind="stable")
    scores, hits = scores[order], hits[order]
    first = np.zeros(len(hits), bool)
    first[np.unique(hits, return_index=True)[1]] = True
    last = np.append(np.diff(scores) != 0, True)[: len(scores)]
    return np.stack([np.cumsum(hits < 0)[last] / scans, np.cumsum(first & (hits >= 0))[last] / nodules], axis=1)


def with_torch(scores, hits, scans, nodules):
    scores, hits = torch.as_tensor(scores), torch.as_tensor(hits)
    rows = []
    for threshold in scores.unique().flip(0):
        counted = hits[scores >= threshold]
        rows.append(torch.stack([(counted < 0).sum() / scans, counted[counted >= 0].unique().numel() / torch.tensor(nodules)]))
    return torch.stack(rows) if rows else []


def with_groups(scores, hits, scans, nodules):
    pairs = sorted(zip(scores.tolist(), hits.tolist(), strict=True), reverse=True)
    seen, false, points = set(), 0, []
    for _, group in itertools.groupby(pairs, key=lambda pair: pair[0]):
        for _, hit in group:
            false += hit == -1
            seen.add(hit)
        points.append((false / scans, len(seen - {-1}) / nodules))
    return tuple(points)


def with_a_matrix(scores, hits, scans, nodules):
    levels = np.unique(scores)[::-1]
    counted = scores[None] >= levels[:, None]
    reached = (counted[:, :, None] & (hits[None, :, None] == np.arange(nodules))).any(1)
    return np.column_stack([(counted & (hits == -1)).sum(1) / scans, reached.sum(1) / nodules])


def with_best_scores(scores, hits, scans, nodules):
    best = {}
    for score, hit in zip(scores, hits, strict=True):
        if hit >= 0:
            best[hit] = max(best.get(hit, -np.inf), score)
    misses = scores[hits < 0]
    levels = sorted(set(scores), reverse=True)
    return [[(misses >= level).sum() / scans, sum(score >= level for score in best.values()) / nodules] for level in levels]


def with_loops(scores, hits, scans, nodules):
    points = []
    for level in sorted({float(score) for score in scores})[::-1]:
        false, seen = 0, []
        for i in range(len(scores)):
            if scores[i] < level:
                continue
            if hits[i] == -1:
                false = false + 1
            elif hits[i] not in seen:
                seen.append(hits[i])
        points.append((false / scans, len(seen) / nodules))
    return points


ALSO_RIGHT = [by_sorting, with_torch, with_groups, with_a_matrix, with_best_scores, with_loops]


def found_in_all_calls(scores, hits, scans, nodules, seen=set()):  # noqa: B006
    points = []
    for threshold in np.unique(scores)[::-1]:
        counted = hits[scores >= threshold]
        seen |= set(counted[counted >= 0].tolist())
        points.append([np.sum(counted < 0) / scans, len(seen) / nodules])
    return points


def ordered_as_text(scores, hits, scans, nodules):
    points = []
    for text in sorted(set(map(str, scores.tolist())), reverse=True):
        points += solution(np.where(scores >= float(text), 1.0, 0.0), hits, scans, nodules)[:1]
    return points


WRONG += [
    ("wrong-value", ordered_as_text),
    ("remembers-calls", found_in_all_calls),
    ("points-missing", lambda scores, *more: solution(scores.astype(np.float16), *more)),
    ("points-missing", lambda scores, *more: solution(scores.astype(np.float32), *more)),
    ("points-missing", lambda scores, *more: solution(scores.round(3), *more)),
    ("points-missing", lambda scores, hits, *more: solution(scores[scores < 1], hits[scores < 1], *more)),
]
