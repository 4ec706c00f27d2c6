"""Answers to `quantile-edges`: edges at the quantiles of the targets, each once."""

import torch
from edited_source import wrong_answers


def solution(targets, bins):
    shares = torch.linspace(0, 1, bins + 1, dtype=targets.dtype)
    return torch.unique(torch.quantile(targets, shares))


def widened(targets, bins):
    edges = solution(targets, bins)
    edges[0] -= 1e-3
    edges[-1] += 1e-3
    return edges


SHARES = "torch.linspace(0, 1, bins + 1, dtype=targets.dtype)"
QUANTILES = "torch.quantile(targets, shares)"
EDGES = "torch.unique(torch.quantile(targets, shares))"

WRONG = [
    *wrong_answers(
        solution,
        [
            ("shares-of-another-type", (SHARES, "torch.linspace(0, 1, bins + 1)")),
            ("width-0", (EDGES, QUANTILES)),
            ("does-not-hold-all", (SHARES, "(torch.arange(bins + 1, dtype=targets.dtype) + 0.5) / (bins + 1)")),
            ("other-number-of-edges", (SHARES, "torch.linspace(0, 1, 5, dtype=targets.dtype)")),
            ("moved-apart", (EDGES, f"{QUANTILES} + 1e-9 * torch.arange(bins + 1, dtype=targets.dtype)")),
            ("not-increasing", (EDGES, f"{EDGES}.flip(0)")),
            ("wrong-shape", (EDGES, f"{EDGES}[:, None]")),
        ],
    ),
    ("widened", widened),
]


def by_consecutive(targets, bins):
    return torch.unique_consecutive(torch.quantile(targets, torch.arange(bins + 1).to(targets) / bins))


def with_the_library(targets, bins):
    from hpml_lab.targets.lessons.bins import cdf_edges

    return cdf_edges(targets, bins)


ALSO_RIGHT = [by_consecutive, with_the_library]
