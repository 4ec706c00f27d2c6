"""Answers to `quantile-edges`: edges at the quantiles of the targets, each once."""

import itertools
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


def without_the_last(targets, bins):
    return np.unique(np.quantile(targets.numpy(), np.arange(bins) / bins))


def without_the_first(targets, bins):
    return np.unique(np.quantile(targets.numpy(), np.arange(1, bins + 1) / bins))


def unsorted(targets, bins):
    n = len(targets)
    return torch.stack([targets[int(k * (n - 1) / bins)] for k in range(bins + 1)])


def sorted_without_interpolation(targets, bins):
    ordered = sorted(targets.tolist())
    n = len(ordered)
    return sorted({ordered[min(k * n // bins, n - 1)] for k in range(bins + 1)})


def nearest_targets(targets, bins):
    return np.unique(np.quantile(targets.numpy(), np.linspace(0, 1, bins + 1), method="nearest"))


def percent(targets, bins):
    return np.unique(np.percentile(targets.numpy(), np.linspace(0, 1, bins + 1)))


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


def as_a_set(targets, bins):
    return list(dict.fromkeys(reversed(repeated(targets, bins).tolist())))


def sorts_in_place(targets, bins):
    targets[:] = targets.sort().values
    return solution(targets, bins)


def normal(targets, bins):
    inside = [statistics.NormalDist(targets.mean(), targets.std()).inv_cdf(k / bins) for k in range(1, bins)]
    return torch.tensor([targets.min(), *inside, targets.max()])


def numpys(method):
    return lambda targets, bins: np.unique(np.quantile(targets.numpy(), np.linspace(0, 1, bins + 1), method=method))


def near_ones_merged(targets, bins):
    edges = torch.quantile(targets, torch.linspace(0, 1, bins + 1).to(targets)).tolist()
    kept = edges[:1]
    for edge in edges[1:]:
        if not np.isclose(edge, kept[-1]):
            kept.append(edge)
    return kept


def interpolated_unsorted(targets, bins):
    places = torch.linspace(0, len(targets) - 1, bins + 1, dtype=torch.float64)
    below, above = places.floor().long(), places.ceil().long()
    return (targets[below] + (targets[above] - targets[below]) * (places - below)).unique()


def until_there_are_enough(targets, bins):
    for more in range(bins, 50 * bins):
        edges = solution(targets, more)
        if len(edges) > bins:
            break
    return edges[: bins + 1]


def shares_by_adding(targets, bins):
    shares, share = [], 0.0
    while share <= 1:
        shares.append(share)
        share += 1 / bins
    return torch.quantile(targets, torch.tensor(shares, dtype=targets.dtype)).unique()


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
    ("wrong-type", without_the_last),
    ("wrong-type", without_the_first),
    ("not-sorted", unsorted),
    ("wrong-dtype", interpolated_unsorted),
    ("wrong-type", sorted_without_interpolation),
    ("wrong-type", nearest_targets),
    ("wrong-type", percent),
    ("ties-removed", removes_both),
    ("moved-apart", nudges),
    ("widened", widened),
    ("wrong-type", as_a_set),
    ("inputs-changed", sorts_in_place),
    ("does-not-hold-all", lambda targets, bins: repeated(targets, bins)[:-1][repeated(targets, bins).diff() > 0]),
    ("does-not-hold-all", shares_by_adding),
    ("not-increasing", normal),
    ("wrong-type", numpys("hazen")),
    ("wrong-type", numpys("weibull")),
    ("wrong-type", near_ones_merged),
    ("other-number-of-edges", until_there_are_enough),
]


def by_numpy(targets, bins):
    return np.unique(np.quantile(targets.numpy(), np.linspace(0, 1, bins + 1)))


def by_percentiles(targets, bins):
    return sorted(set(np.percentile(targets.numpy(), [100 * k / bins for k in range(bins + 1)]).tolist()))


def by_hand(targets, bins):
    ordered, edges = sorted(targets.tolist()), []
    for k in range(bins + 1):
        whole, rest = divmod(k * (len(ordered) - 1), bins)
        low, high = ordered[whole], ordered[min(whole + 1, len(ordered) - 1)]
        edge = low + (high - low) * rest / bins
        if not edges or edge > edges[-1]:
            edges.append(edge)
    return torch.tensor(edges, dtype=torch.float64)


def by_interpolation(targets, bins):
    ordered = np.sort(targets.numpy().astype(float))
    edges = np.interp(np.linspace(0, len(ordered) - 1, bins + 1), np.arange(len(ordered)), ordered)
    return edges[np.concatenate([[True], np.diff(edges) > 0])]


def by_consecutive(targets, bins):
    return torch.unique_consecutive(torch.quantile(targets, torch.arange(bins + 1).to(targets) / bins))


def by_groups(targets, bins):
    edges = torch.quantile(targets.double(), torch.linspace(0, 1, bins + 1).double()).tolist()
    return tuple(key for key, _ in itertools.groupby(edges))


def with_the_library(targets, bins):
    from hpml_lab.targets.lessons.bins import cdf_edges

    return cdf_edges(targets, bins)


def by_statistics(targets, bins):
    if bins == 1:
        return [min(targets.tolist()), max(targets.tolist())]
    inner_edges = statistics.quantiles(targets.tolist(), n=bins, method="inclusive")
    return sorted({targets.min().item(), *inner_edges, targets.max().item()})


ALSO_RIGHT = [by_consecutive, with_the_library]


WRONG += [  # right numbers in another kind than the exercise asks for
    ("wrong-type", by_numpy),
    ("wrong-type", by_percentiles),
    ("wrong-dtype", by_hand),
    ("wrong-type", by_interpolation),
    ("wrong-type", by_groups),
    ("wrong-type", by_statistics),
]
