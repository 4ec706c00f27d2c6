"""Answers to `density-in-a-bin`: log-densities of targets under predicted histograms."""

import bisect
import math

import numpy as np
import torch
from edited_source import wrong_answers


def solution(probabilities, targets, edges):
    k = torch.bucketize(targets, edges[1:-1], right=True)
    p = probabilities.gather(1, k[:, None])[:, 0]
    density = p / edges.diff()[k]
    outside = (targets < edges[0]) | (targets > edges[-1])
    return density.masked_fill(outside, 0.0).log()


def last_edge_outside(probabilities, targets, edges):
    k = torch.searchsorted(edges, targets, right=True) - 1
    inside = (k >= 0) & (k < len(edges) - 1)
    k = k.clamp(0, len(edges) - 2)
    found = (probabilities[torch.arange(len(k)), k] / edges.diff()[k]).log()
    return torch.where(inside, found, -torch.inf)


def index_minus_one(probabilities, targets, edges):
    k = torch.bucketize(targets, edges, right=True) - 1
    return (probabilities[torch.arange(len(k)), k] / edges.diff()[k]).log()


def nearest(probabilities, targets, edges):
    centers = (edges[1:] + edges[:-1]) / 2
    k = (targets[:, None] - centers[None]).abs().argmin(1)
    outside = (targets < edges[0]) | (targets > edges[-1])
    return (probabilities[torch.arange(len(k)), k] / edges.diff()[k]).log().masked_fill(outside, -torch.inf)


def clamped_log(probabilities, targets, edges):
    k = torch.bucketize(targets, edges[1:-1], right=True)
    outside = (targets < edges[0]) | (targets > edges[-1])
    found = probabilities[torch.arange(len(k)), k].clamp(min=1e-12).log() - edges.diff()[k].log()
    return found.masked_fill(outside, -torch.inf)


def renormalized(probabilities, targets, edges):
    density = probabilities / edges.diff()
    k = torch.bucketize(targets, edges[1:-1], right=True)
    return (density / density.sum(1, keepdim=True))[torch.arange(len(k)), k].log()


def interpolated(probabilities, targets, edges):
    centers = ((edges[1:] + edges[:-1]) / 2).numpy()
    rows = zip(targets.tolist(), (probabilities / edges.diff()).numpy(), strict=True)
    return torch.tensor([np.interp(t, centers, row) for t, row in rows]).log()


def by_pythons_logarithm(probabilities, targets, edges):
    return torch.tensor([math.log(density) for density in solution(probabilities, targets, edges).exp().tolist()])


BINS = "torch.bucketize(targets, edges[1:-1], right=True)"
LEFT = "torch.bucketize(targets, edges[1:-1])"
EQUAL = "((targets - edges[0]) / (edges[-1] - edges[0]) * (len(edges) - 1)).long().clamp(0, len(edges) - 2)"
P = "probabilities.gather(1, k[:, None])[:, 0]"
DENSITY = "p / edges.diff()[k]"
END = "return density.masked_fill(outside, 0.0).log()"
LOG = "density.masked_fill(outside, 0.0).log()"

WRONG = [
    *wrong_answers(
        solution,
        [
            ("no-width", (DENSITY, "p"), (LOG, "density.log()")),
            ("not-constant-in-a-bin", (BINS, EQUAL), (DENSITY, "p / edges.diff().mean()")),
            ("edge-in-the-left-bin", (BINS, LEFT), (LOG, "density.log()")),
            ("first-edge-missed", ("targets < edges[0]", "targets <= edges[0]")),
            ("bin-index-out-of-range", (BINS, "torch.bucketize(targets, edges)")),
            ("every-row-with-every-target", (P, "probabilities[:, k]"), (LOG, "density.log()")),
            ("every-row-with-every-target", (P, "probabilities[:, k]")),
            ("other-bins", (P, "probabilities.amax(1)"), (BINS, "probabilities.argmax(1)")),
            ("outside-not-impossible", (LOG, "density.log().masked_fill(outside, -100.0)")),
            ("returns-nothing", (END, LOG)),
            ("wrong-width", (DENSITY, "p / edges[1:][k]")),
            ("wrong-width", (DENSITY, "p / edges.diff()[k].clamp(min=1e-3)")),
            ("wrong-dtype", (DENSITY, "p / MEMORY.setdefault(len(edges), edges.diff())[k]")),
        ],
    ),
    ("last-edge-missed", last_edge_outside),
    ("bin-index-out-of-range", index_minus_one),
    ("nearest-center", nearest),
    ("finite-log-of-0", clamped_log),
    ("wrong-dtype", interpolated),
    ("other-bins", renormalized),
    ("wrong-dtype", by_pythons_logarithm),
    ("depends-on-the-others", lambda p, t, e: solution(p, t.sort().values, e)),
    ("depends-on-the-others", lambda p, t, e: solution(p.mean(0, keepdim=True).expand_as(p), t, e)),
    ("small-probability-lost", lambda p, t, e: solution(torch.where(p > 1e-6, p, 0.0), t, e)),
    ("outermost-edges-moved", lambda p, t, e: solution(p, t, torch.cat([e[:-1], e[-1:] + 1e-6]))),
    ("wrong-factor", lambda p, t, e: solution(p / (p.sum(1, keepdim=True) + 1e-4), t, e)),
]


def by_logs(probabilities, targets, edges):
    k = torch.searchsorted(edges[1:-1].contiguous(), targets, side="right")
    found = probabilities.log()[range(len(k)), k] - torch.log(edges[1:] - edges[:-1])[k]
    found[(targets < edges[0]) | (targets > edges[-1])] = -float("inf")
    return found


def by_numpy(probabilities, targets, edges):
    p, t, e = probabilities.numpy(), targets.numpy(), edges.numpy()
    k = np.clip(np.digitize(t, e) - 1, 0, len(e) - 2)
    density = p[np.arange(len(t)), k] / np.diff(e)[k]
    density[(t < e[0]) | (t > e[-1])] = 0
    with np.errstate(divide="ignore"):
        return np.log(density)


def by_loops(probabilities, targets, edges):
    e, found = edges.tolist(), []
    for row, t in zip(probabilities.tolist(), targets.tolist(), strict=True):
        if not e[0] <= t <= e[-1]:
            found.append(-math.inf)
            continue
        k = min(bisect.bisect_right(e, t) - 1, len(row) - 1)
        found.append(math.log(row[k] / (e[k + 1] - e[k])) if row[k] else -math.inf)
    return found


def by_masks(probabilities, targets, edges):
    t = targets[:, None]
    held = (t >= edges[:-1]) & (t < edges[1:])
    held[:, -1] |= targets == edges[-1]
    return (held * probabilities / edges.diff()).sum(1).log()


def by_padding(probabilities, targets, edges):
    density = torch.nn.functional.pad(probabilities / edges.diff(), (1, 1))
    k = torch.bucketize(targets, edges, right=True)
    k = torch.where(targets == edges[-1], k - 1, k)
    return torch.log(torch.take_along_dim(density, k[:, None], 1).squeeze(1))


def by_a_categorical(probabilities, targets, edges):
    k = torch.bucketize(targets, edges[1:-1], right=True)
    inside = (targets >= edges[0]) & (targets <= edges[-1])
    chosen = -torch.nn.functional.nll_loss(probabilities.log(), k, reduction="none")
    return torch.where(inside, chosen - edges.diff().log()[k], torch.full_like(targets, -torch.inf))


def with_the_library(probabilities, targets, edges):
    from hpml_lab.targets.lessons.bins import log_likelihood

    inside = (targets >= edges[0]) & (targets <= edges[-1])
    found = torch.full_like(targets, -torch.inf)
    found[inside] = log_likelihood(probabilities[inside].log(), targets[inside], edges)
    return found


ALSO_RIGHT = [by_logs, by_masks, by_padding, by_a_categorical, with_the_library]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", by_numpy),
    ("wrong-type", by_loops),
]
