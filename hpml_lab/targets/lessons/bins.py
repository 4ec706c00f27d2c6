"""A continuous target as classes: edges of bins, the density that a classifier's probabilities give, its log-likelihood.

The K + 1 edges e₀ < e₁ < … < e_K make K bins. Bin k holds e_k ≤ t < e_{k+1}, and the last one its upper edge too. A net with K
outputs gives each bin a probability p_k; within a bin the density is constant:

    p(t | x) = p_k(x) / (e_{k+1} − e_k)        for t in bin k, and 0 outside the edges

    edges = cdf_edges(t, 50)
    log_likelihood(net(x), t, edges).mean()
"""

import torch
from torch import Tensor
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError


def cdf_edges(targets: Tensor, bins: int) -> Tensor:
    """Edges (bins + 1,) at the quantiles 0, 1/bins, …, 1 of the targets: each bin holds the same share of them.

    Where a value is repeated often, quantiles coincide. These are one edge here, so there may be fewer bins than asked for.
    """
    targets = _checked(targets, bins)
    return torch.unique(torch.quantile(targets, torch.linspace(0, 1, bins + 1, dtype=targets.dtype, device=targets.device)))


def equal_edges(targets: Tensor, bins: int) -> Tensor:
    """Edges (bins + 1,) from the smallest target to the largest, all bins of the same width."""
    targets = _checked(targets, bins)
    low, high = targets.aminmax()
    share = torch.linspace(0, 1, bins + 1, dtype=targets.dtype, device=targets.device)
    return torch.lerp(low, high, share)


def widened(edges: Tensor, low: float, high: float) -> Tensor:
    """The same edges, but the outermost reach at least from `low` to `high`, for targets that were not in the sample."""
    edges = check_edges(edges).clone()
    edges[0], edges[-1] = edges[0].clamp(max=low), edges[-1].clamp(min=high)
    return edges


def check_edges(edges: Tensor) -> Tensor:
    """The edges; LabError unless they are at least two finite numbers, each larger than the one before."""
    if edges.ndim != 1 or len(edges) < 2:
        raise LabError(f"edges of shape {tuple(edges.shape)} make no bin.", "Give K + 1 edges for K bins, at least two.")
    if not edges.isfinite().all():
        raise LabError(
            "edges are not all finite.", "Take the smallest and the largest value that can occur as outermost edges."
        )
    wrong = (edges.diff() <= 0).nonzero()
    if len(wrong):
        k = wrong[0].item()
        a, b = edges[k].item(), edges[k + 1].item()
        if a == b:
            problem, fix = (
                f"edges {k} and {k + 1} are both {a:g}: a bin of width 0 has an infinite density.",
                "Quantiles coincide where a value is repeated: use torch.unique(edges), which makes fewer bins.",
            )
        else:
            problem, fix = f"edge {k + 1} ({b:g}) is smaller than edge {k} ({a:g}).", "Sort the edges."
        raise LabError(problem, fix)
    return edges


def bin_of(targets: Tensor, edges: Tensor) -> Tensor:
    """The index of each target's bin. Raises LabError for targets that are not numbers, or outside the edges."""
    check_edges(edges)
    if targets.isnan().any():
        raise LabError(
            f"{int(targets.isnan().sum())} targets are NaN.", "Remove these samples, or find out where they come from."
        )
    outside = (targets < edges[0]) | (targets > edges[-1])
    if outside.any():
        raise LabError(
            f"{int(outside.sum())} of {targets.numel()} targets are outside the edges, {edges[0]:g} to {edges[-1]:g}: their "
            "density is 0, and its logarithm −inf.",
            "Widen the outermost edges to what can occur: widened(edges, low, high).",
        )
    return torch.bucketize(targets.contiguous(), edges[1:-1].contiguous(), right=True)


def log_likelihood(logits: Tensor, targets: Tensor, edges: Tensor) -> Tensor:
    """log p(t | x) = log p_k − log(width of bin k) in nats, for logits (…, K) and targets (…)."""
    _same_bins(logits, edges)
    k = bin_of(targets, edges)
    log_p = F.log_softmax(logits, -1).gather(-1, k[..., None])[..., 0]
    return log_p - edges.diff().log()[k]


def density(logits: Tensor, edges: Tensor, points: Tensor) -> Tensor:
    """p(t | x) (…, T) at the points t (T,), for logits (…, K); 0 outside the edges."""
    _same_bins(logits, check_edges(edges))
    inside = (points >= edges[0]) & (points <= edges[-1])
    k = bin_of(points.clamp(edges[0], edges[-1]), edges)
    return (F.softmax(logits, -1) / edges.diff())[..., k] * inside


def _checked(targets: Tensor, bins: int) -> Tensor:
    """The targets as floating-point numbers in one dimension; LabError if they can have no bins."""
    if bins < 1 or int(bins) != bins:
        raise LabError(f"{bins} is not a valid number of bins.", "Take at least one.")
    targets = torch.as_tensor(targets).flatten()
    targets = targets if targets.is_floating_point() else targets.double()
    if not len(targets) or not targets.isfinite().all():
        problem = "some targets are NaN or infinite" if len(targets) else "there are no targets"
        raise LabError(f"{problem}: they have no quantiles.", "Remove these samples." if len(targets) else "Give some.")
    if targets.min() == targets.max():
        raise LabError(f"all targets are {targets[0]:g}: no bin would have a width.", "A constant needs no net.")
    return targets


def _same_bins(logits: Tensor, edges: Tensor) -> None:
    if logits.shape[-1] != len(edges) - 1:
        raise LabError(
            f"{logits.shape[-1]} logits do not fit {len(edges)} edges, which make {len(edges) - 1} bins.",
            "Where targets repeat, cdf_edges gives fewer bins: make the last layer with len(edges) − 1 outputs.",
        )
