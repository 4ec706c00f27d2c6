"""density-in-a-bin: the log-density of targets under a histogram, which a net predicts with a probability for each bin."""

import math
from collections.abc import Callable
from typing import Any

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect_function
from hpml_lab.core.judge.mistakes import MORE, combined
from hpml_lab.core.judge.same import numbers, same

Tensor = torch.Tensor
LogDensity = Callable[[Tensor, Tensor, Tensor], Any]  # (probabilities (n, K), targets (n,), edges (K + 1,))
Bins = Callable[[Tensor, Tensor], Tensor]  # (targets, edges) -> index of the bin, which may be -1 or K


def _bins(targets: Tensor, edges: Tensor) -> Tensor:
    """e_k ≤ t < e_{k+1}; −1 below the edges and K above."""
    k = torch.bucketize(targets, edges, right=True) - 1
    return torch.where(targets == edges[-1], len(edges) - 2, k)


def _equal_bins(targets: Tensor, edges: Tensor) -> Tensor:
    count = len(edges) - 1
    k = ((targets - edges[0]) / (edges[-1] - edges[0]) * count).floor().long()
    return torch.where(targets == edges[-1], count - 1, k)


def _nearest_bins(targets: Tensor, edges: Tensor) -> Tensor:
    centers = (edges[1:] + edges[:-1]) / 2
    inside = (targets >= edges[0]) & (targets <= edges[-1])
    k = (targets[:, None] - centers).abs().argmin(1)
    return torch.where(inside, k, torch.where(targets < edges[0], -1, len(centers)))


def _first_not_held(targets: Tensor, edges: Tensor) -> Tensor:
    """Edges belong to the bin on their left, so that no bin holds the first."""
    return torch.bucketize(targets, edges) - 1


def _left_bins(targets: Tensor, edges: Tensor) -> Tensor:
    return torch.where(targets == edges[0], 0, _first_not_held(targets, edges))


def _minus_infinity(values: Tensor, outside: Tensor, k: Tensor) -> Tensor:
    return values.masked_fill(outside, -math.inf)


def _build(
    bins: Bins = _bins,
    width: Callable[[Tensor, Tensor], Any] = lambda edges, k: edges.diff()[k],
    density: Callable[[Tensor, Any], Tensor] = lambda p, width: p / width,
    log: Callable[[Tensor], Tensor] = torch.log,
    outside: Callable[[Tensor, Tensor, Tensor], Tensor] = _minus_infinity,
    given: Callable[[Tensor], Tensor] = lambda p: p,
    end: Callable[[Tensor], Any] = lambda values: values,
) -> LogDensity:
    def log_density(probabilities: Tensor, targets: Tensor, edges: Tensor) -> Any:
        count, k = len(edges) - 1, bins(targets, edges)
        without = (k < 0) | (k >= count)
        k = k.clamp(0, count - 1)
        p = given(probabilities).gather(1, k[:, None])[:, 0]
        return end(outside(log(density(p, width(edges, k))), without, k))

    return log_density


right = _build()
_NO_WIDTH = "A probability is no density: the same probability in a bin half as wide is a density twice as large."
_EDGE = "A target on an inner edge belongs to the bin that begins there: bin k holds e_k ≤ t < e_{k+1}."
_TINY = "Where the probability is 0 the density is 0, and its logarithm −inf; with your small constant a target that the net \
calls impossible costs a finite amount, which depends on the constant."
_OUTSIDE = "Outside the edges the density is 0, and its logarithm −inf."
MISTAKES = combined(
    _build,
    {
        "density": {
            "no-width": (lambda p, width: p, _NO_WIDTH),
            "times-the-width": (lambda p, width: p * width, "You multiply by the width: density × width = probability."),
            "width-inverted": (lambda p, width: width / p, "Your fraction is upside down: density = probability / width."),
        },
        "width": {
            "mean-width": (
                lambda edges, k: (edges[-1] - edges[0]) / (len(edges) - 1),
                "You divide by the mean width. Bins may have different widths; divide by that of the target's own bin.",
            ),
            "whole-width": (
                lambda edges, k: edges[-1] - edges[0],
                "You divide by the distance of the outermost edges; divide by the width of the target's own bin.",
            ),
            "width-of-the-next-bin": (
                lambda edges, k: edges.diff()[(k + 1).clamp(max=len(edges) - 2)],
                "Probability and width come from different bins: yours is the width of the bin after.",
            ),
            "width-of-the-bin-before": (
                lambda edges, k: edges.diff()[k - 1],
                "Probability and width come from different bins: yours is the width of the bin before.",
            ),
            "width-of-the-first-bin": (
                lambda edges, k: edges[1] - edges[0],
                "You divide by the width of the first bin; divide by that of the target's own bin.",
            ),
        },
        "bins": {
            "edge-in-the-left-bin": (_left_bins, _EDGE),
            "edge-in-the-left-bin, the first in none": (_first_not_held, _EDGE + " And the first edge is in bin 0."),
            "last-edge-missed": (
                lambda targets, edges: torch.bucketize(targets, edges, right=True) - 1,
                "The last bin holds its upper edge, too: the largest target of a training set lies there, and is not outside.",
            ),
            "equal-widths-assumed": (
                _equal_bins,
                "You compute the bin as if all had the same width. Look for it among the edges: torch.bucketize, searchsorted.",
            ),
            "nearest-center": (
                _nearest_bins,
                "You take the bin whose center is nearest. Next to a narrow bin, another one may hold the target.",
            ),
            "bin-before": (
                lambda targets, edges: _bins(targets, edges) - 1,
                "You take the bin before: is the index of the next edge, or of the bin, one larger than you think?",
            ),
            "bin-after": (
                lambda targets, edges: _bins(targets, edges) + 1,
                "You take the bin after: bucketize over all edges counts from 1, as bin 0 begins at edge 0.",
            ),
        },
        "log": {
            "not-a-logarithm": (lambda x: x, "These are densities; their natural logarithm is asked for."),
            "log2": (torch.log2, "Your logarithm has base 2; nats need the natural one."),
            "log10": (torch.log10, "Your logarithm has base 10; nats need the natural one."),
            "log1p": (torch.log1p, "log1p(x) is ln(1 + x): a density is not small."),
            "finite-log-of-0": (lambda x: (x + 1e-8).log(), _TINY),
        },
        "outside": {
            "outside-in-the-outermost-bins": (
                lambda values, outside, k: values,
                _OUTSIDE + " You use the outermost bins there, as bucketize over the inner edges, or clamp, does by itself.",
            ),
            "outside-0": (
                lambda values, outside, k: values.masked_fill(outside, 0.0),
                _OUTSIDE + " Yours is 0, a density of 1.",
            ),
            "outside-nan": (lambda values, outside, k: values.masked_fill(outside, math.nan), _OUTSIDE),
            "outside-infinite": (
                lambda values, outside, k: values.masked_fill(outside, math.inf),
                _OUTSIDE + " Mind the sign.",
            ),
            "outside-dropped": (
                lambda values, outside, k: values[~outside],
                _OUTSIDE + " You leave such targets out, which makes any model look better.",
            ),
        },
        "given": {
            "softmax-again": (
                lambda p: p.softmax(1),
                "You apply a softmax to the probabilities: they are probabilities already, each row sums to 1.",
            ),
            "cumulative": (lambda p: p.cumsum(1), "You use cumulated probabilities; the density is that of the one bin."),
            "first-row-for-all": (
                lambda p: p[:1].expand_as(p),
                "You use the first row of probabilities for all targets; row i belongs to target i.",
            ),
        },
        "end": {
            "negative": (lambda values: -values, "You return the negative: that is the loss; the log-density is asked for."),
            "mean": (torch.mean, "You return one number, the mean; one log-density for each target is asked for."),
            "sum": (torch.sum, "You return one number, the sum; one log-density for each target is asked for."),
        },
    },
)


MISTAKES = {  # before the pairs of mistakes, of which it would be one: outside the edges 0 is the density
    "not-a-logarithm, 0 outside": (
        _build(log=lambda x: x, outside=lambda values, outside, k: values.masked_fill(outside, 0.0)),
        MISTAKES["not-a-logarithm"][1],
    )
} | MISTAKES
_ALL_PAIRS = "You have a number for each row and each target: probabilities[:, k] takes all columns k of every row. Row i \
belongs to target i: probabilities[torch.arange(n), k], or gather."


def _case(edges: list[float], targets: list[float], dtype: torch.dtype = torch.float64, zero: int | None = None) -> tuple:
    made = torch.Generator().manual_seed(len(targets) + len(edges))
    p = torch.rand(len(targets), len(edges) - 1, generator=made, dtype=torch.float64) + 0.1
    if zero is not None:
        p[:, zero] = 0
    return (p / p.sum(1, keepdim=True)).to(dtype), torch.tensor(targets, dtype=dtype), torch.tensor(edges, dtype=dtype)


def _rare() -> tuple:
    p = torch.tensor([[1e-30, 1.0], [1.0, 1e-30]], dtype=torch.float64)
    return p, torch.tensor([0.5, 1.5]).double(), torch.tensor([0.0, 1.0, 2.0]).double()


_UNEVEN = [-1.0, 0.0, 0.25, 1.0, 4.0]


@exercise("density-in-a-bin", notebook="18_targets")
def judge_density_in_a_bin(answer: Callable) -> None:
    """log(p_k / (e_{k+1} − e_k)) for the bin k that holds the target; −inf outside and where p_k is 0."""
    cases = {
        "bins of different widths": _case(_UNEVEN, [-0.5, 0.1, 0.3, 0.9, 1.5, 3.9]),
        "bins of width 0.5": _case([0.0, 0.5, 1.0], [0.2, 0.7, 0.4]),
        "one bin": _case([2.0, 4.0], [3.0, 2.5]),
        "targets on inner edges": _case(_UNEVEN, [0.0, 0.25, 1.0]),
        "a target on the first edge": _case(_UNEVEN, [-1.0, 0.1]),
        "a target on the last edge": _case(_UNEVEN, [4.0, 0.1]),
        "targets outside the edges": _case(_UNEVEN, [-1.5, 0.1, 4.5, 100.0]),
        "a bin of probability 0": _case(_UNEVEN, [0.5, 0.1, 3.0], zero=2),
        "a probability of 1e-30": _rare(),
        "as many bins as targets": _case([0.0, 1.0, 3.0, 3.5], [0.5, 3.2, 2.0]),
        "a target just outside the edges": _case([0.0, 0.5, 1e-3 + 1], [-5e-10, 1e-3 + 1 + 5e-10]),
        "narrow bins": _case([0.0, 5e-4, 1e-3], [7e-4, 2e-4, 6e-4]),
        "float32": _case([0.0, 0.1, 0.7, 2.0], [0.05, 0.5, 1.9, 0.3], dtype=torch.float32),
    }
    try:
        expect_function(answer, right, cases, mistakes=MISTAKES, errors=_ERRORS, tolerance=1e-5)
    except Mistake as mistake:
        if mistake.name in ("wrong-value", "wrong-shape"):
            _explain(answer, cases)
        raise


_RANGE = (
    "bin-index-out-of-range",
    "An index of yours is not that of a bin. K + 1 edges make K bins, 0 to K − 1; and a target may lie outside or on the last.",
)
_LOG_OF_0 = (
    "raises-for-0",
    "math.log(0) raises an error. A probability may be 0, and the density is 0 outside the edges: the answer there is −inf.",
)
_ERRORS = {"out of bounds": _RANGE, "out of range": _RANGE, "math domain": _LOG_OF_0, "expected a positive": _LOG_OF_0}
_PLACES = {
    "targets on inner edges": ("edge-in-the-left-bin", _EDGE),
    "a target on the first edge": ("first-edge-missed", "Targets on the first edge are in bin 0."),
    "a target on the last edge": ("last-edge-missed", MISTAKES["last-edge-missed"][1]),
    "targets outside the edges": ("outside-not-impossible", _OUTSIDE),
    "a bin of probability 0": ("finite-log-of-0", _TINY),
    "a probability of 1e-30": ("small-probability-lost", "Only 0 has the logarithm −inf; a probability may be 1e-30."),
    "narrow bins": (
        "wrong-width",
        "A width may be 5e-4. Is an edge moved, or something added to a width, or a limit set to it?",
    ),
    "a target just outside the edges": (
        "outermost-edges-moved",
        "A target that is just outside has the density 0. Have you moved an edge by a little? Compare with == instead.",
    ),
}


# What a small constant, added everywhere or set instead of −inf, spoils together.
_OF_A_CONSTANT = {"wrong-width", "finite-log-of-0", "outside-not-impossible", "small-probability-lost", "outermost-edges-moved"}


def _explain(answer: Callable, cases: dict[str, tuple]) -> None:
    """Raise the Mistake of the first kind of target that is wrong, if only targets of such kinds are."""
    wrong = []
    for case, given in cases.items():
        got, wanted = numbers(answer(*(tensor.clone() for tensor in given))), right(*given)
        if got is not None and len(wanted) > 1 and got.shape == (len(wanted), len(wanted)):
            raise Mistake("every-row-with-every-target", _ALL_PAIRS)
        if got is None or got.shape != wanted.shape:
            return
        if not same(got, wanted, 1e-5):
            wrong.append(case)
    if wrong and all(case in _PLACES for case in wrong):
        found = dict(_PLACES[case] for case in wrong)
        name = "finite-log-of-0" if "finite-log-of-0" in found else next(iter(found))
        if len(found) == 1:
            raise Mistake(name, f"{found[name]} Only there your values are wrong.")
        raise Mistake(name, found[name] if found.keys() <= _OF_A_CONSTANT else f"{found[name]} {MORE}")
    _explain_density(answer)


def _explain_density(answer: Callable) -> None:
    """Raise the Mistake that says which property of a histogram the values lack, two targets being in each bin."""
    p, targets, edges = _case(_UNEVEN, [-0.75, -0.25, 0.125, 0.1875, 0.5, 0.75, 2.0, 3.0])
    order = torch.tensor([6, 1, 4, 3, 0, 7, 2, 5])

    def densities(p: Tensor, targets: Tensor) -> Tensor:
        return numbers(answer(p.clone(), targets.clone(), edges.clone())).double().exp()

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
    _explain_bins(p, targets, edges, densities)


def _explain_bins(p: Tensor, targets: Tensor, edges: Tensor, densities: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Raise the Mistake that says which bins' probabilities a target's value changes with, unless it is its own alone."""
    before = densities(p, targets)
    halved = [densities(torch.where(torch.arange(p.shape[1]) == j, p / 2, p), targets) for j in range(p.shape[1])]
    for i, own in enumerate(_bins(targets, edges).tolist()):
        bins = [j for j, after in enumerate(halved) if not same(after[i], before[i], 1e-5)]
        if bins != [own]:
            yours = f"on that of bin {', '.join(map(str, bins))}" if bins else "on none"
            hint = f"A target of {targets[i]:g} is in bin {own}, and its density depends on the probability of that bin alone"
            raise Mistake("other-bins", f"{hint}; your value depends {yours}. Bins count from 0.")
