"""quantile-edges: the edges of bins that hold the same share of the targets each, where values may be repeated."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import same

Tensor = torch.Tensor


def right(targets: Tensor, bins: int) -> Tensor:
    shares = torch.linspace(0, 1, bins + 1, dtype=torch.float64)
    edges = torch.quantile(targets, shares.to(targets))
    edges = edges.unique()
    return edges


_REPEATED = (
    "Where a value is repeated often, several quantiles are equal, and the bin between them has width 0: its density is "
    "infinite. Keep each edge once."
)
_APART = (
    "You move equal edges apart by a little: such a bin has a tiny width and a huge density, which depends on the step that "
    "you chose. Keep each edge once; then there are fewer bins."
)
_COUNT = "K bins have K + 1 edges, at the shares 0, 1/K, 2/K, …, 1."
_HOLD = (
    "Your outermost edges do not hold all targets: those outside have density 0. The quantiles 0 and 1 are the smallest and "
    "the largest target."
)
RUBRIC = Rubric(
    right,
    """
torch.quantile(targets, shares.to(targets))
    ties-removed-too-early :: torch.quantile(targets.unique(), shares.to(targets)) :: A value that occurs often counts often:
        quantiles are those of all targets, the repeated ones too; only the edges are made unique.
    not-sorted :: targets[(shares * (len(targets) - 1)).long()] :: Your edges are targets in the order in which they came: sort
        them first.
    no-interpolation :: torch.quantile(targets, shares.to(targets), interpolation="lower") :: $BETWEEN
    no-interpolation :: torch.quantile(targets, shares.to(targets), interpolation="higher") :: $BETWEEN
    no-interpolation :: torch.quantile(targets, shares.to(targets), interpolation="nearest") :: $BETWEEN
    no-interpolation :: torch.quantile(targets, shares.to(targets), interpolation="midpoint") :: $BETWEEN
    no-interpolation :: targets.sort().values[(shares * len(targets)).long().clamp(max=len(targets) - 1)] :: $BETWEEN
    equal-widths :: targets.min() + shares.to(targets) * (targets.max() - targets.min()) :: Your bins are equally wide. Bins
        that hold equally many targets are narrow where targets are dense.
edges.unique()
    ties-removed :: torch.stack([edge for edge in edges if (edges == edge).sum() == 1] or [edges[0]]) :: Of repeated edges one
        of each is needed, for its bin begins or ends there.
whole answer
    not-sorted :: lambda targets, bins: targets[[int(k * (len(targets) - 1) / bins) for k in range(bins + 1)]] :: Your edges are
        targets in the order in which they came: sort them first.
error
    shares-of-another-type :: must be same dtype :: torch.quantile wants the shares in the type of the targets, which may be
        float64: dtype=targets.dtype.
""",
    BETWEEN="Between two targets the quantile is interpolated linearly, as torch.quantile and numpy.quantile do by default.",
)


def _case(values: list[float], bins: int, dtype: torch.dtype = torch.float64) -> tuple:
    """Shuffled targets."""
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(len(values)))
    return torch.tensor(values, dtype=dtype)[order], bins


_STEPS = [0.0, 1.0, 2.0, 4.0, 7.0, 11.0, 16.0, 22.0, 29.0]
_DRAWN = torch.rand(57, generator=torch.Generator().manual_seed(0), dtype=torch.float64).mul(4).exp().tolist()


@exercise("quantile-edges", notebook="18_targets", takes="targets, bins", returns=like("targets"))
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
    RUBRIC.expect(answer, cases, explain=_explain)


def _explain(_: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says which property of such edges is missing."""
    if any(row.got.ndim != 1 for row in judged):
        return
    for case, (_, bins), edges, wanted in judged:
        steps = edges.diff()
        apart = (steps > 0) & (steps < 1e-3 * wanted.diff().min())
        if len(wanted) < len(edges) <= bins + 1 and apart.any() and same(edges[1:][~apart], wanted[1:], 1e-2):
            raise Mistake("moved-apart", f"For {case}, your edges are {_some(edges)}. {_APART}")
    for case, (targets, bins), edges, wanted in judged:
        if len(edges) and not (edges.diff() >= 0).all():
            raise Mistake("not-increasing", f"For {case}, your edges do not increase: {_some(edges)}.")
        if len(edges) < 2 or edges[0] > targets.min() or edges[-1] < targets.max():
            raise Mistake("does-not-hold-all", f"For {case}, your edges are {_some(edges)}. {_HOLD}")
        if len(wanted) > 2 and same(edges[1:-1], wanted[1:-1]):
            if not same(edges, wanted):
                raise Mistake("widened", f"For {case}, only the outermost edges differ: they lie outside the targets.")
        elif len(wanted) == bins + 1 and len(edges) != bins + 1:
            raise Mistake("other-number-of-edges", f"For {case}, you have {len(edges)} edges. {_COUNT}")
    for case, _, edges, _ in judged:
        if (edges.diff() == 0).any():
            raise Mistake("width-0", f"For {case}, your edges are {_some(edges)}. {_REPEATED}")


def _some(edges: Tensor) -> str:
    shown = ", ".join(f"{edge:.6g}" for edge in edges[:6].tolist())
    return f"{shown}, …" if len(edges) > 6 else shown
