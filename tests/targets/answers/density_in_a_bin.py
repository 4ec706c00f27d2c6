"""Answers to `density-in-a-bin`: log-densities of targets under predicted histograms."""

import bisect
import math

import numpy as np
import torch


def solution(probabilities, targets, edges):
    k = torch.bucketize(targets, edges[1:-1], right=True)
    p = probabilities.gather(1, k[:, None])[:, 0]
    density = p / edges.diff()[k]
    outside = (targets < edges[0]) | (targets > edges[-1])
    return density.masked_fill(outside, 0.0).log()


def inner_bins(targets, edges, right=True):
    return torch.bucketize(targets, edges[1:-1], right=right)


def with_parts(bins=inner_bins, value=lambda p, width: (p / width).log(), widths=lambda edges, k: edges.diff()[k], guard=True):
    """The solution with one part replaced."""

    def answer(probabilities, targets, edges):
        k = bins(targets, edges)
        found = value(probabilities[torch.arange(len(targets)), k], widths(edges, k))
        return torch.where((targets < edges[0]) | (targets > edges[-1]), -math.inf, found) if guard else found

    return answer


def no_width(probabilities, targets, edges):
    k = inner_bins(targets, edges)
    outside = (targets < edges[0]) | (targets > edges[-1])
    return probabilities[torch.arange(len(k)), k].log().masked_fill(outside, -torch.inf)


def mean_width(probabilities, targets, edges):
    k = inner_bins(targets, edges)
    outside = (targets < edges[0]) | (targets > edges[-1])
    return (probabilities[torch.arange(len(k)), k] / edges.diff().mean()).log().masked_fill(outside, -torch.inf)


def no_width_and_clamped(probabilities, targets, edges):
    k = inner_bins(targets, edges)
    return probabilities[torch.arange(len(k)), k].log()


def last_edge_outside(probabilities, targets, edges):
    k = torch.searchsorted(edges, targets, right=True) - 1
    inside = (k >= 0) & (k < len(edges) - 1)
    k = k.clamp(0, len(edges) - 2)
    found = (probabilities[torch.arange(len(k)), k] / edges.diff()[k]).log()
    return torch.where(inside, found, -torch.inf)


def all_edges(probabilities, targets, edges):
    k = torch.bucketize(targets, edges)
    return (probabilities[torch.arange(len(k)), k] / edges.diff()[k]).log()


def index_minus_one(probabilities, targets, edges):
    k = torch.bucketize(targets, edges, right=True) - 1
    return (probabilities[torch.arange(len(k)), k] / edges.diff()[k]).log()


def equal_widths(probabilities, targets, edges):
    width = (edges[-1] - edges[0]) / (len(edges) - 1)
    k = ((targets - edges[0]) / width).long().clamp(0, len(edges) - 2)
    outside = (targets < edges[0]) | (targets > edges[-1])
    return (probabilities[torch.arange(len(k)), k] / edges.diff()[k]).log().masked_fill(outside, -torch.inf)


def equal_widths_twice(probabilities, targets, edges):
    width = (edges[-1] - edges[0]) / (len(edges) - 1)
    k = ((targets - edges[0]) / width).long().clamp(0, len(edges) - 2)
    outside = (targets < edges[0]) | (targets > edges[-1])
    return (probabilities[torch.arange(len(k)), k] / width).log().masked_fill(outside, -torch.inf)


def all_columns(probabilities, targets, edges):
    k = inner_bins(targets, edges)
    return (probabilities[:, k] / edges.diff()[k]).log()


def softmax_again(probabilities, targets, edges):
    return solution(torch.softmax(probabilities, 1), targets, edges)


def nearest(probabilities, targets, edges):
    centers = (edges[1:] + edges[:-1]) / 2
    k = (targets[:, None] - centers[None]).abs().argmin(1)
    outside = (targets < edges[0]) | (targets > edges[-1])
    return (probabilities[torch.arange(len(k)), k] / edges.diff()[k]).log().masked_fill(outside, -torch.inf)


def tiny(constant):
    return with_parts(value=lambda p, width: (p / width + constant).log())


def clamped_log(probabilities, targets, edges):
    k = inner_bins(targets, edges)
    outside = (targets < edges[0]) | (targets > edges[-1])
    found = probabilities[torch.arange(len(k)), k].clamp(min=1e-12).log() - edges.diff()[k].log()
    return found.masked_fill(outside, -torch.inf)


def drops_outside(probabilities, targets, edges):
    inside = (targets >= edges[0]) & (targets <= edges[-1])
    return solution(probabilities[inside], targets[inside], edges)


def first_row(probabilities, targets, edges):
    return solution(probabilities[:1].expand(len(targets), -1), targets, edges)


def first_edge_outside(probabilities, targets, edges):
    found = solution(probabilities, targets, edges)
    return found.masked_fill(targets <= edges[0], -torch.inf)


def large_penalty_outside(probabilities, targets, edges):
    outside = (targets < edges[0]) | (targets > edges[-1])
    return solution(probabilities, targets, edges).masked_fill(outside, -100.0)


def renormalized(probabilities, targets, edges):
    density = probabilities / edges.diff()
    k = inner_bins(targets, edges)
    return (density / density.sum(1, keepdim=True))[torch.arange(len(k)), k].log()


def sorted_first(probabilities, targets, edges):
    return solution(probabilities, targets.sort().values, edges)


def interpolated(probabilities, targets, edges):
    centers = ((edges[1:] + edges[:-1]) / 2).numpy()
    rows = zip(targets.tolist(), (probabilities / edges.diff()).numpy(), strict=True)
    return torch.tensor([np.interp(t, centers, row) for t, row in rows]).log()


def upper_edge_as_width(probabilities, targets, edges):
    return with_parts(widths=lambda edges, k: edges[1:][k])(probabilities, targets, edges)


def last_edge_moved(probabilities, targets, edges):
    edges = torch.cat([edges[:-1], edges[-1:] + 1e-6])
    return solution(probabilities, targets, edges)


def bin_after_but_inside(probabilities, targets, edges):
    shifted = probabilities.roll(-1, 1)
    shifted[:, -1] = probabilities[:, -1]
    return solution(shifted, targets, edges)


def likeliest_bin(probabilities, targets, edges):
    k = probabilities.argmax(1)
    found = (probabilities.amax(1) / edges.diff()[k]).log()
    return torch.where((targets >= edges[0]) & (targets <= edges[-1]), found, -torch.inf)


def all_rows_and_a_mask(probabilities, targets, edges):
    k = torch.bucketize(targets, edges[1:-1], right=True)
    found = (probabilities[:, k] / edges.diff()[k]).log()
    return torch.where((targets >= edges[0]) & (targets <= edges[-1]), found, -torch.inf)


def by_pythons_logarithm(probabilities, targets, edges):
    return torch.tensor([math.log(density) for density in solution(probabilities, targets, edges).exp().tolist()])


def tiny_everywhere(probabilities, targets, edges):
    return (solution(probabilities, targets, edges).exp() + 1e-12).log()


WRONG = [
    ("finite-log-of-0", tiny_everywhere),
    ("no-width", no_width),
    ("no-width", no_width_and_clamped),
    ("mean-width", mean_width),
    ("times-the-width", with_parts(value=lambda p, width: (p * width).log())),
    ("times-the-width", with_parts(value=lambda p, width: p.log() + width.log())),
    ("width-inverted", lambda p, t, e: -solution(p, t, e).masked_fill((t < e[0]) | (t > e[-1]), torch.inf)),
    ("whole-width", with_parts(widths=lambda edges, k: edges[-1] - edges[0])),
    ("width-of-the-bin-before", with_parts(widths=lambda edges, k: edges.diff()[k - 1])),
    ("width-of-the-first-bin", with_parts(widths=lambda edges, k: edges[1] - edges[0])),
    ("edge-in-the-left-bin", with_parts(bins=lambda t, e: inner_bins(t, e, right=False))),
    ("edge-in-the-left-bin", with_parts(bins=lambda t, e: inner_bins(t, e, right=False), guard=False)),
    ("last-edge-missed", last_edge_outside),
    ("bin-index-out-of-range", all_edges),
    ("bin-index-out-of-range", index_minus_one),
    ("equal-widths-assumed", equal_widths),
    ("mean-width", equal_widths_twice),
    ("every-row-with-every-target", all_columns),
    ("nearest-center", nearest),
    ("softmax-again", softmax_again),
    ("finite-log-of-0", tiny(1e-8)),
    ("finite-log-of-0", tiny(1e-15)),
    ("finite-log-of-0", clamped_log),
    ("outside-in-the-outermost-bins", with_parts(guard=False)),
    ("outside-dropped", drops_outside),
    ("outside-not-impossible", large_penalty_outside),
    ("outside-0", lambda p, t, e: solution(p, t, e).masked_fill((t < e[0]) | (t > e[-1]), 0.0)),
    ("first-edge-missed", first_edge_outside),
    ("first-row-for-all", first_row),
    ("not-a-logarithm", lambda *given: solution(*given).exp()),
    ("log2", lambda *given: solution(*given) / math.log(2)),
    ("log10", lambda *given: solution(*given) / math.log(10)),
    ("negative", lambda *given: -solution(*given)),
    ("mean", lambda *given: solution(*given).mean()),
    ("sum", lambda *given: solution(*given).sum()),
    ("depends-on-the-others", sorted_first),
    ("not-constant-in-a-bin", interpolated),
    ("wrong-width", upper_edge_as_width),
    ("other-bins", renormalized),
    ("returns-nothing", lambda *given: None),
    ("outermost-edges-moved", last_edge_moved),
    ("other-bins", bin_after_but_inside),
    ("other-bins", likeliest_bin),
    ("every-row-with-every-target", all_rows_and_a_mask),
    ("raises-for-0", by_pythons_logarithm),
    ("not-a-logarithm", lambda *given: solution(*given).exp()),
    ("small-probability-lost", lambda p, t, e: solution(torch.where(p > 1e-6, p, 0.0), t, e)),
    ("depends-on-the-others", lambda p, t, e: solution(p.mean(0, keepdim=True).expand_as(p), t, e)),
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


ALSO_RIGHT = [by_logs, by_numpy, by_loops, by_masks, by_padding, by_a_categorical, with_the_library]


def widths_of_the_first_call(probabilities, targets, edges, kept={}):  # noqa: B006
    widths = kept.setdefault(len(edges), edges.diff())
    return with_parts(widths=lambda edges, k: widths[k])(probabilities, targets, edges)


WRONG += [
    ("remembers-calls", widths_of_the_first_call),
    ("wrong-width", with_parts(widths=lambda edges, k: edges.diff()[k].clamp(min=1e-3))),
    ("wrong-width", with_parts(widths=lambda edges, k: edges.diff()[k] + 1e-5)),
    ("wrong-width", lambda p, t, e: solution(p, t, e.round(decimals=2))),
    ("wrong-factor", lambda p, t, e: solution(p / (p.sum(1, keepdim=True) + 1e-4), t, e)),
]
