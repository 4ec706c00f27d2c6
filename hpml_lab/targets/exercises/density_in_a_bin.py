"""density-in-a-bin: the log-density of targets under a histogram, which a net predicts with a probability for each bin."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import MORE, Judged, Rubric
from hpml_lab.core.judge.same import same

Tensor = torch.Tensor


def right(probabilities: Tensor, targets: Tensor, edges: Tensor) -> Tensor:
    last = len(edges) - 2
    k = torch.bucketize(targets, edges, right=True) - 1
    k = torch.where(targets == edges[-1], last, k)
    outside = (k < 0) | (k > last)
    k = k.clamp(0, last)
    p, width = probabilities.gather(1, k[:, None])[:, 0], edges.diff()[k]
    density = p / width
    found = density.log()
    found = found.masked_fill(outside, -torch.inf)
    return found


def nearest_bins(targets: Tensor, edges: Tensor) -> Tensor:
    """The bin with the nearest center; -1 below the edges, and K above."""
    k = (targets[:, None] - (edges[1:] + edges[:-1]) / 2).abs().argmin(1)
    return torch.where(targets < edges[0], -1, torch.where(targets > edges[-1], len(edges) - 1, k))


RUBRIC = Rubric(
    right,
    """
p / width
    no-width :: p :: A probability is no density: the same probability in a bin half as wide is a density twice as large.
    times-the-width :: p * width :: You multiply by the width: density × width = probability.
edges.diff()[k]
    mean-width :: edges.diff().mean() :: Bins may have different widths: divide by that of the target's own bin, not by the mean
        width.
torch.bucketize(targets, edges, right=True) - 1
    edge-in-the-left-bin :: torch.where(targets == edges[0], 0, torch.bucketize(targets, edges) - 1) :: $EDGE
    nearest-center :: nearest_bins(targets, edges) :: You take the bin whose center is nearest. Next to a narrow bin, another
        one may hold the target.
torch.where(targets == edges[-1], last, k)
    last-edge-missed :: k :: $LAST
density.log()
    finite-log-of-0 :: (density + 1e-8).log() :: $TINY
found.masked_fill(outside, -torch.inf)
    outside-in-the-outermost-bins :: found :: Outside the edges the density is 0, and its logarithm −inf. bucketize over the
        inner edges, or clamp, takes the outermost bins there by itself.
probabilities.gather
    first-row-for-all :: probabilities[:1].expand_as(probabilities).gather :: You use the first row of probabilities for all
        targets; row i belongs to target i.
error
    bin-index-out-of-range :: out of bounds :: $RANGE
    bin-index-out-of-range :: out of range :: $RANGE
only in cases
    edge-in-the-left-bin :: targets on inner edges :: $EDGE
    first-edge-missed :: a target on the first edge :: Only targets on the first edge are wrong: they are in bin 0.
    last-edge-missed :: a target on the last edge :: $LAST
    outside-not-impossible :: targets outside the edges :: $OUTSIDE
    finite-log-of-0 :: a bin of probability 0 :: $TINY
    small-probability-lost :: a probability of 1e-30 :: Only 0 has the logarithm −inf; a probability may be 1e-300.
    wrong-width :: narrow bins :: A width may be 5e-4. Is an edge moved, or something added to a width, or a limit set to it?
    outermost-edges-moved :: a target just outside the edges :: A target that is just outside has the density 0. Have you moved
        an edge by a little? Compare with == instead.
""",
    EDGE="A target on an inner edge belongs to the bin that begins there: bin k holds e_k ≤ t < e_{k+1}.",
    LAST="The last bin holds its upper edge, too: the largest target of a training set lies there, and is not outside.",
    TINY="Where the probability is 0 the density is 0, and its logarithm −inf; with your small constant a target that the net "
    "calls impossible costs a finite amount, which depends on the constant.",
    OUTSIDE="Outside the edges the density is 0, and its logarithm −inf.",
    RANGE="An index of yours is not that of a bin. K + 1 edges make K bins, 0 to K − 1; and a target may lie outside or on the "
    "last.",
)
# What a small constant, added everywhere or set instead of −inf, spoils together.
_OF_A_CONSTANT = {"wrong-width", "finite-log-of-0", "outside-not-impossible", "small-probability-lost", "outermost-edges-moved"}


def _case(edges: list[float], targets: list[float], dtype: torch.dtype = torch.float64, zero: int | None = None) -> tuple:
    made = torch.Generator().manual_seed(len(targets) + len(edges))
    p = torch.rand(len(targets), len(edges) - 1, generator=made, dtype=torch.float64) + 0.1
    if zero is not None:
        p[:, zero] = 0
    return (p / p.sum(1, keepdim=True)).to(dtype), torch.tensor(targets, dtype=dtype), torch.tensor(edges, dtype=dtype)


def _rare(least: float) -> tuple:
    p = torch.tensor([[least, 1.0], [1.0, least]], dtype=torch.float64)
    return p, torch.tensor([0.5, 1.5]).double(), torch.tensor([0.0, 1.0, 2.0]).double()


_UNEVEN = [-1.0, 0.0, 0.25, 1.0, 4.0]


@exercise("density-in-a-bin", notebook="18_targets", takes="probabilities, targets, edges", returns=like("targets"))
def judge_density_in_a_bin(answer: Callable) -> None:
    """log(p_k / (e_{k+1} − e_k)) for the bin k that holds the target; −inf outside and where p_k is 0."""
    cases = {
        "bins of different widths": _case(_UNEVEN, [-0.5, 0.1, 0.3, 0.9, 1.5, 3.9]),
        "bins of width 0.5": _case([0.0, 0.5, 1.0], [0.2, 0.7, 0.4]),
        "one bin": _case([2.0, 4.0], [3.0, 2.5]),
        "one target": _case(_UNEVEN, [0.3]),
        "targets on inner edges": _case(_UNEVEN, [0.0, 0.25, 1.0]),
        "a target on the first edge": _case(_UNEVEN, [-1.0, 0.1]),
        "a target on the last edge": _case(_UNEVEN, [4.0, 0.1]),
        "targets outside the edges": _case(_UNEVEN, [-1.5, 0.1, 4.5, 100.0]),
        "a bin of probability 0": _case(_UNEVEN, [0.5, 0.1, 3.0], zero=2),
        "a probability of 1e-30": _rare(1e-30),
        "a probability of 1e-300": _rare(1e-300),
        "as many bins as targets": _case([0.0, 1.0, 3.0, 3.5], [0.5, 3.2, 2.0]),
        "a target just outside the edges": _case([0.0, 0.5, 1e-3 + 1], [-5e-10, 1e-3 + 1 + 5e-10]),
        "narrow bins": _case([0.0, 5e-4, 1e-3], [7e-4, 2e-4, 6e-4]),
        "float32": _case([0.0, 0.1, 0.7, 2.0], [0.05, 0.5, 1.9, 0.3], dtype=torch.float32),
    }
    RUBRIC.expect(answer, cases, tolerance=1e-5, but=("probabilities",), explain=_explain)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that explains wrong values in several kinds of cases, or else in all."""
    wrong = []
    for case, _, got, wanted in judged:
        if len(wanted) > 1 and got.shape == (len(wanted), len(wanted)):
            hint = "You have a number for each row and each target: probabilities[:, k] takes all columns k of every row."
            hint += " Row i belongs to target i: probabilities[torch.arange(n), k], or gather."
            raise Mistake("every-row-with-every-target", hint)
        if got.shape != wanted.shape:
            return
        if not same(got, wanted, 1e-5):
            wrong.append(case)
    found = [row for case in wrong for row in RUBRIC.only if row.instead in case]
    if wrong and len(found) == len(wrong):
        row = next((row for row in found if row.name == "finite-log-of-0"), found[0])
        raise Mistake(row.name, row.hint if {row.name for row in found} <= _OF_A_CONSTANT else f"{row.hint} {MORE}")
    _explain_density(answer)


def _explain_density(answer: Callable) -> None:
    """Raise the Mistake that says which property of a histogram the values lack, two targets being in each bin."""
    p, targets, edges = _case(_UNEVEN, [-0.75, -0.25, 0.125, 0.1875, 0.5, 0.75, 2.0, 3.0])
    order = torch.tensor([6, 1, 4, 3, 0, 7, 2, 5])

    def densities(p: Tensor, targets: Tensor) -> Tensor:
        return answer(p.clone(), targets.clone(), edges.clone()).exp()

    together = densities(p[order], targets[order])[order.argsort()]
    alone = torch.cat([densities(p[i : i + 1], targets[i : i + 1]) for i in range(len(targets))])
    if not same(together, alone, 1e-5):
        hint = "Your value for one target changes with the other targets that are given; each has a density of its own."
        raise Mistake("depends-on-the-others", hint)
    p = p[:1].expand(len(targets), -1).clone()
    together = densities(p, targets)
    if not same(together[0::2], together[1::2], 1e-5):
        hint = "Your density is not the same everywhere in a bin; a histogram's is constant there, and jumps at the edges."
        raise Mistake("not-constant-in-a-bin", hint)
    widths, others = ((q[0] / densities(q, targets)[0::2]) for q in (p, p.flip(1)))
    factors = edges.diff() / widths
    alike = same(widths, others, 1e-5) and same(factors, factors[:1].expand(len(factors)), 1e-6)
    if alike and not same(factors[0], 1.0, 1e-5):
        raise Mistake("wrong-factor", f"In every bin your density is {factors[0]:.6g} times the right one.")
    if same(widths, others, 1e-5) and not same(widths, edges.diff(), 1e-5):
        k = next(k for k, (a, b) in enumerate(zip(widths, edges.diff(), strict=True)) if not same(a, b, 1e-5))
        low, high = edges[k : k + 2].tolist()
        hint = f"Your density is p / width with another width: from {low:g} to {high:g} you divide by {widths[k]:.6g}."
        raise Mistake("wrong-width", hint)
