"""Answers to `quantile-edges`: edges at the quantiles of the targets, each once."""

import statistics

import numpy as np
import torch
from edited_source import wrong_answers


def solution(targets, bins):
    shares = torch.linspace(0, 1, bins + 1, dtype=targets.dtype)
    return torch.unique(torch.quantile(targets, shares))


def repeated(targets, bins):
    return torch.quantile(targets, torch.linspace(0, 1, bins + 1, dtype=targets.dtype))


def equal_widths(targets, bins):
    return torch.linspace(targets.min().item(), targets.max().item(), bins + 1)


def equal_widths_by_histogram(targets, bins):
    return np.histogram(targets.numpy(), bins=bins)[1]


def unsorted(targets, bins):
    n = len(targets)
    return torch.stack([targets[int(k * (n - 1) / bins)] for k in range(bins + 1)])


def removes_both(targets, bins):
    values, counts = torch.unique(repeated(targets, bins), return_counts=True)
    return values[counts == 1]


def nudges(targets, bins):
    edges = repeated(targets, bins)
    for k in range(1, len(edges)):
        if edges[k] <= edges[k - 1]:
            edges[k] = edges[k - 1] + 1e-6
    return edges


def widened(targets, bins):
    edges = solution(targets, bins)
    edges[0] -= 1e-3
    edges[-1] += 1e-3
    return edges


def sorts_in_place(targets, bins):
    targets[:] = targets.sort().values
    return solution(targets, bins)


def normal(targets, bins):
    inside = [statistics.NormalDist(targets.mean(), targets.std()).inv_cdf(k / bins) for k in range(1, bins)]
    return torch.tensor([targets.min(), *inside, targets.max()])


SHARES = "torch.linspace(0, 1, bins + 1, dtype=targets.dtype)"
QUANTILES = "torch.quantile(targets, shares)"
END = "return torch.unique(torch.quantile(targets, shares))"
EDGES = "torch.unique(torch.quantile(targets, shares))"

WRONG = [
    *wrong_answers(
        solution,
        [
            ("shares-of-another-type", (SHARES, "torch.linspace(0, 1, bins + 1)")),
            ("width-0", (EDGES, QUANTILES)),
            ("does-not-hold-all", (SHARES, "(torch.arange(bins + 1, dtype=targets.dtype) + 0.5) / (bins + 1)")),
            ("other-number-of-edges", (SHARES, "torch.tensor([*np.arange(0, 1, 1 / bins), 1], dtype=targets.dtype)")),
            ("other-number-of-edges", (SHARES, "torch.linspace(0, 1, 5, dtype=targets.dtype)")),
            ("moved-apart", (EDGES, f"{QUANTILES} + 1e-9 * torch.arange(bins + 1, dtype=targets.dtype)")),
            ("returns-nothing", (END, EDGES)),
            ("wrong-type", (END, f"return None if bins == 1 else ({EDGES}, bins)")),
            ("wrong-dtype", (QUANTILES, "torch.quantile(targets.float(), shares.float())")),
            ("remembers-calls", (EDGES, f"MEMORY.setdefault((len(targets), bins), {EDGES})")),
        ],
    ),
    ("wrong-dtype", equal_widths),
    ("wrong-type", equal_widths_by_histogram),
    ("not-sorted", unsorted),
    ("ties-removed", removes_both),
    ("moved-apart", nudges),
    ("widened", widened),
    ("inputs-changed", sorts_in_place),
    ("does-not-hold-all", lambda targets, bins: repeated(targets, bins)[:-1][repeated(targets, bins).diff() > 0]),
    ("not-increasing", normal),
]


def by_consecutive(targets, bins):
    return torch.unique_consecutive(torch.quantile(targets, torch.arange(bins + 1).to(targets) / bins))


def with_the_library(targets, bins):
    from hpml_lab.targets.lessons.bins import cdf_edges

    return cdf_edges(targets, bins)


ALSO_RIGHT = [by_consecutive, with_the_library]


WRONG += [  # right numbers in another kind than the exercise asks for
]
