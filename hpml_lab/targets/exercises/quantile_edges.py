"""quantile-edges: the edges of bins that hold the same share of the targets each, where values may be repeated."""

import math
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import combined
from hpml_lab.core.judge.same import numbers, same

Tensor = torch.Tensor
Edges = Callable[[Tensor, int], Any]  # (targets (n,), bins) -> edges


def _shares(bins: int) -> Tensor:
    return torch.linspace(0, 1, bins + 1, dtype=torch.float64)


def _quantiles(targets: Tensor, shares: Tensor) -> Tensor:
    return torch.quantile(targets, shares.to(targets))


def _by(interpolation: str) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda targets, shares: torch.quantile(targets, shares.to(targets), interpolation=interpolation)


def _by_count(targets: Tensor, shares: Tensor) -> Tensor:
    """Sorted targets at n·share, without interpolation."""
    ordered = targets.sort().values
    return ordered[(shares * len(ordered)).floor().long().clamp(max=len(ordered) - 1)]


def _unsorted(targets: Tensor, shares: Tensor) -> Tensor:
    return targets[(shares * (len(targets) - 1)).floor().long()]


def _equal(targets: Tensor, shares: Tensor) -> Tensor:
    low, high = targets.aminmax()
    return low + (high - low) * shares.to(targets)


def _without_ties(edges: Tensor) -> Tensor:
    return edges.unique()


def _ties_removed(edges: Tensor) -> Tensor:
    values, counts = edges.unique(return_counts=True)
    return values[counts == 1]


def _nudged(edges: Tensor) -> Tensor:
    """Repeated edges moved apart by a little."""
    edges = edges.clone()
    for k in range(1, len(edges)):
        edges[k] = max(edges[k], edges[k - 1] + 1e-4)
    return edges


def _build(
    data: Callable[[Tensor], Tensor] = lambda targets: targets,
    shares: Callable[[int], Tensor] = _shares,
    quantiles: Callable[[Tensor, Tensor], Tensor] = _quantiles,
    ties: Callable[[Tensor], Tensor] = _without_ties,
    end: Callable[[Tensor], Any] = lambda edges: edges,
) -> Edges:
    return lambda targets, bins: end(ties(quantiles(data(targets), shares(bins))))


right = _build()
_REPEATED = (
    "Where a value is repeated often, several quantiles are equal, and the bin between them has width 0: its density is \
infinite. Keep each edge once."
)
_APART = (
    "You move equal edges apart by a little: such a bin has a tiny width and a huge density, which depends on the step that \
you chose. Keep each edge once; then there are fewer bins."
)
_COUNT = "K bins have K + 1 edges, at the shares 0, 1/K, 2/K, …, 1."
_HOLD = (
    "Your outermost edges do not hold all targets: those outside have density 0. The quantiles 0 and 1 are the smallest and \
the largest target."
)
_BETWEEN = "Between two targets the quantile is interpolated linearly, as torch.quantile and numpy.quantile do by default."
_WIDENED = "Your outermost edges lie outside the targets; the smallest and the largest target are asked for."
MISTAKES = combined(
    _build,
    {
        "data": {
            "ties-removed-too-early": (
                lambda targets: targets.unique(),
                "You remove repeated targets before you take quantiles. A value that occurs often counts often; only the edges "
                "are made unique.",
            )
        },
        "quantiles": {
            "equal-widths": (
                _equal,
                "Your bins have equal widths. With quantiles they hold equal shares of the targets, and their widths differ.",
            ),
            "not-sorted": (_unsorted, "Your edges are targets in the order in which they came: sort them first."),
            **{f"no-interpolation, {kind}": (_by(kind), _BETWEEN) for kind in ("lower", "higher", "nearest", "midpoint")},
            "no-interpolation, by count": (_by_count, _BETWEEN),
        },
        "shares": {
            "one-edge-too-few": (lambda bins: _shares(max(bins - 1, 1)), _COUNT + " You have one too few."),
            "one-edge-too-few, at one bin too": (lambda bins: torch.linspace(0, 1, bins, dtype=torch.float64), _COUNT),
            "one-edge-too-many": (lambda bins: _shares(bins + 1), _COUNT + " You have one too many."),
            "last-edge-missing": (lambda bins: _shares(bins)[:-1], _COUNT + " Your last edge is missing."),
            "first-edge-missing": (lambda bins: _shares(bins)[1:], _COUNT + " Your first edge is missing."),
            "does-not-hold-all, inner edges": (lambda bins: _shares(bins)[1:-1], _HOLD),
            "does-not-hold-all, centers": (lambda bins: (torch.arange(bins, dtype=torch.float64) + 0.5) / bins, _HOLD),
            "does-not-hold-all, between": (lambda bins: _shares(bins + 2)[1:-1], _HOLD),
            "does-not-hold-all, 1 % off": (lambda bins: 0.01 + 0.98 * _shares(bins), _HOLD),
            "percent": (
                lambda bins: _shares(bins) / 100,
                "percentile takes 0 to 100, and quantile 0 to 1: all your edges are near the smallest target.",
            ),
        },
        "end": {
            "descending": (lambda edges: edges.flip(0), "Your edges fall; they should rise from the smallest target on."),
            "widths": (lambda edges: edges.diff(), "You return the widths of the bins; their edges are asked for."),
            "centers": (
                lambda edges: (edges[1:] + edges[:-1]) / 2,
                "You return the centers of the bins; the edges are asked for.",
            ),
            "infinite-edges": (
                lambda edges: torch.cat([edges.new_tensor([-math.inf]), edges[1:-1], edges.new_tensor([math.inf])]),
                "A bin that reaches to infinity has density 0 everywhere. End at the smallest and the largest target.",
            ),
        },
        "ties": {
            "width-0": (lambda edges: edges, _REPEATED),
            "ties-removed": (
                _ties_removed,
                "You remove repeated edges altogether; one of each is needed, for its bin begins or ends there.",
            ),
            "moved-apart": (_nudged, _APART),
        },
    },
)


def _case(values: list[float], bins: int, dtype: torch.dtype = torch.float64) -> tuple:
    """Shuffled targets."""
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(len(values)))
    return torch.tensor(values, dtype=dtype)[order], bins


_ERRORS = {
    "must be same dtype": (
        "shares-of-another-type",
        "torch.quantile wants the shares in the type of the targets, which may be float64: dtype=targets.dtype.",
    )
}
_STEPS = [0.0, 1.0, 2.0, 4.0, 7.0, 11.0, 16.0, 22.0, 29.0]
_DRAWN = torch.rand(57, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(4).exp().tolist()


@exercise("quantile-edges", notebook="18_targets")
def judge_quantile_edges(answer: Callable) -> None:
    """unique(quantile(targets, linspace(0, 1, bins + 1)))."""
    cases = {
        "9 targets, 4 bins": _case(_STEPS, 4),
        "10 targets, 3 bins": _case([-3.0, -1.0, 0.0, 0.5, 2.0, 4.0, 8.0, 9.0, 20.0, 50.0], 3),
        "57 skewed targets, 10 bins": _case(_DRAWN, 10),
        "one bin": _case([3.0, 1.0, 2.0, 8.0], 1),
        "half of the targets 0, 5 bins": _case([0.0] * 8 + [0.5, 1.0, 1.5, 2.0, 4.0, 6.0, 8.0, 9.0], 5),
        "many targets at the upper end, 4 bins": _case([0.0, 1.0, 2.0, 3.0, 4.0] + [5.0] * 6, 4),
        "ties in the middle, 6 bins": _case([-2.0, -1.0, *[0.0] * 10, 1.0, 3.0, 4.0, 7.0], 6),
        "three values, 8 bins": _case([1.0] * 4 + [2.0] * 7 + [3.0] * 5, 8),
        "targets near 10,000": _case([1e4 + step * 1e-4 for step in _STEPS], 4),
        "100 targets, 49 bins": _case([step**1.5 for step in range(100)], 49),
        "targets near 0": _case([step * 1e-9 for step in _STEPS], 4),
        "float32": _case([0.1, 0.2, 0.4, 0.8, 1.6], 4, torch.float32),
    }
    try:
        expect_function(answer, right, cases, mistakes=MISTAKES, errors=_ERRORS)
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-shape", "width-0"):  # by rounding, a tiny width is as good as none
            _explain(answer, cases)
        raise


def _explain(answer: Callable, cases: dict[str, tuple]) -> None:
    """Raise the Mistake that says which property of such edges is missing."""
    found = {}
    for case, (targets, bins) in cases.items():
        edges = numbers(answer(targets.clone(), bins))
        if edges is None or edges.ndim != 1:
            return
        found[case] = edges, right(targets, bins), targets, bins
    if all(same(answer(targets.sort().values, bins), wanted) for _, wanted, targets, bins in found.values()):
        raise Mistake("not-sorted", "Your edges are right for sorted targets only, and these come in any order: sort first.")
    wrong = [case for case, (edges, wanted, *_) in found.items() if edges.shape != wanted.shape or not same(edges, wanted)]
    if wrong and all(case.startswith("targets near") and len(found[case][0]) < len(found[case][1]) for case in wrong):
        edges, wanted, *_ = found[wrong[0]]
        hint = f"For {wrong[0]} you have {len(edges)} edges instead of {len(wanted)}: they are near each other, but not equal."
        raise Mistake("near-edges-made-one", f"{hint} Only equal quantiles are one edge; do not round.")
    for case, (edges, wanted, _, bins) in found.items():
        steps = edges.diff()
        apart = (steps > 0) & (steps < 1e-3 * wanted.diff().min())
        if len(wanted) < len(edges) <= bins + 1 and apart.any() and same(edges[1:][~apart], wanted[1:], 1e-2):
            raise Mistake("moved-apart", f"For {case}, your edges are {_some(edges)}. {_APART}")
    for case, (edges, wanted, targets, bins) in found.items():
        if len(edges) and not (edges.diff() >= 0).all():
            raise Mistake("not-increasing", f"For {case}, your edges do not increase: {_some(edges)}.")
        if len(edges) < 2 or edges[0] > targets.min() or edges[-1] < targets.max():
            raise Mistake("does-not-hold-all", f"For {case}, your edges are {_some(edges)}. {_HOLD}")
        if len(wanted) > 2 and same(edges[1:-1], wanted[1:-1]):
            if not same(edges, wanted):
                raise Mistake("widened", f"For {case}, only the outermost edges differ. {_WIDENED}")
        elif len(wanted) == bins + 1 and len(edges) != bins + 1:
            raise Mistake("other-number-of-edges", f"For {case}, you have {len(edges)} edges. {_COUNT}")
    for case, (edges, wanted, targets, bins) in found.items():
        if len(edges) == len(wanted) == bins + 1:
            _explain_positions(case, edges, targets.sort().values)
    for case, (edges, wanted, *_) in found.items():
        if (edges.diff() == 0).any():
            raise Mistake("width-0", f"For {case}, your edges are {_some(edges)}. {_REPEATED}")
        if len(edges) != len(wanted):
            hint = (
                f"For {case}, you have {len(edges)} edges, {_some(edges)}; the quantiles have {len(wanted)} different values."
            )
            raise Mistake("other-number-of-edges", f"{hint} Each of these is one edge.")


def _explain_positions(case: str, edges: Tensor, ordered: Tensor) -> None:
    """Raise the Mistake that says where among the sorted targets, all different, an inner edge lies, and where it should."""
    n, bins = len(ordered), len(edges) - 1
    below = (torch.searchsorted(ordered, edges.to(ordered), right=True) - 1).clamp(0, n - 2)
    places = below + (edges - ordered[below]) / (ordered[below + 1] - ordered[below])
    for k, (place, wanted) in enumerate(zip(places.tolist(), (_shares(bins) * (n - 1)).tolist(), strict=True)):
        if abs(place - wanted) > 1e-3:
            whole = "" if abs(place - round(place)) > 1e-3 or bins > n - 1 else f" {_BETWEEN}"
            hint = f"Of {n} sorted targets, counted from 0, the share {k}/{bins} is at {k}/{bins} · {n - 1} = {wanted:.4g}"
            raise Mistake(
                "another-quantile", f"For {case}, your edge {k} is at the wrong place. {hint}, yours at {place:.4g}.{whole}"
            )


def _some(edges: Tensor) -> str:
    shown = ", ".join(f"{edge:.6g}" for edge in edges[:6].tolist())
    return f"{shown}, …" if len(edges) > 6 else shown
