"""Answers to `froc-from-scores`: [false positives per scan, recall] for each different score, the largest first."""

import itertools

import numpy as np
import torch
from edited_source import wrong_answers


def solution(scores, hits, scans, nodules):
    points = []
    for threshold in np.unique(scores)[::-1]:
        counted = hits[scores >= threshold]
        found = set(counted[counted >= 0].tolist())
        points.append([np.sum(counted < 0) / scans, len(found) / nodules])
    return points


WRONG = [
    *wrong_answers(
        solution, [("other-false-positives", ("/ scans", "/ (scans + 1)")), ("other-recall", ("/ nodules", "/ (nodules + 1)"))]
    ),
    ("wrong-value", lambda scores, *rest: solution(scores, *rest) if len(scores) else [[0, 0]]),
    ("wrong-type", lambda *given: dict(enumerate(solution(*given)))),
    ("points-missing", lambda scores, *more: solution(scores.astype(np.float32), *more)),
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
