"""Answers to `density-in-a-bin`: log-densities of targets under predicted histograms."""

import torch
from edited_source import wrong_answers


def solution(probabilities, targets, edges):
    k = torch.bucketize(targets, edges[1:-1], right=True)
    p = probabilities.gather(1, k[:, None])[:, 0]
    density = p / edges.diff()[k]
    outside = (targets < edges[0]) | (targets > edges[-1])
    return density.masked_fill(outside, 0.0).log()


BINS = "torch.bucketize(targets, edges[1:-1], right=True)"
EQUAL = "((targets - edges[0]) / (edges[-1] - edges[0]) * (len(edges) - 1)).long().clamp(0, len(edges) - 2)"
P = "probabilities.gather(1, k[:, None])[:, 0]"
DENSITY = "p / edges.diff()[k]"
LOG = "density.masked_fill(outside, 0.0).log()"

WRONG = [
    *wrong_answers(
        solution,
        [
            ("not-constant-in-a-bin", (BINS, EQUAL), (DENSITY, "p / edges.diff().mean()")),
            ("first-edge-missed", ("targets < edges[0]", "targets <= edges[0]")),
            ("bin-index-out-of-range", (BINS, "torch.bucketize(targets, edges)")),
            ("every-row-with-every-target", (P, "probabilities[:, k]")),
            ("outside-not-impossible", (LOG, "density.log().masked_fill(outside, -100.0)")),
            ("wrong-width", (DENSITY, "p / edges[1:][k]")),
            ("wrong-width", (DENSITY, "p / edges.diff()[k].clamp(min=1e-3)")),
        ],
    ),
    ("finite-log-of-0", lambda p, t, e: solution(p.clamp(min=1e-12), t, e)),
    ("wrong-shape", lambda *given: solution(*given)[:, None]),
    ("depends-on-the-others", lambda p, t, e: solution(p, t.sort().values, e)),
    ("small-probability-lost", lambda p, t, e: solution(torch.where(p > 1e-6, p, 0.0), t, e)),
    ("small-probability-lost", lambda p, t, e: solution(torch.where(p**2 > 0, p, 0.0), t, e)),
    ("outermost-edges-moved", lambda p, t, e: solution(p, t, torch.cat([e[:-1], e[-1:] + 1e-6]))),
    ("wrong-factor", lambda p, t, e: solution(p / (p.sum(1, keepdim=True) + 1e-4), t, e)),
]


def by_logs(probabilities, targets, edges):
    k = torch.searchsorted(edges[1:-1].contiguous(), targets, side="right")
    found = probabilities.log()[range(len(k)), k] - torch.log(edges[1:] - edges[:-1])[k]
    found[(targets < edges[0]) | (targets > edges[-1])] = -float("inf")
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
