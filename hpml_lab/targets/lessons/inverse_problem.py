"""Bishop's inverse problem: find t from x = t + 0.3 sin(2πt) + noise, where several t may give the same x.

t is uniform on (0, 1) and the noise uniform on (−0.1, 0.1). So the joint density p(x, t) is 1 / 0.2 = 5 on the band
|x − f(t)| < 0.1 and 0 elsewhere, and everything that a net can reach at best is a sum over a grid. Source: C. M. Bishop,
Mixture Density Networks, 1994.
"""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

NOISE = 0.1
STEEP = 5.0  # of the skewed target
FINE = 200_000  # points of t in the sums
Samples = tuple[Tensor, Tensor]  # x and t, each (N,)


def forward(t: Tensor) -> Tensor:
    """f(t) = t + 0.3 sin(2πt), the direction that is a function."""
    return t + 0.3 * torch.sin(2 * math.pi * t)


def draw(count: int, generator: torch.Generator) -> Samples:
    """`count` samples (x, t), as two tensors (count,) in float32."""
    t = torch.rand(count, generator=generator)
    return forward(t) + NOISE * (2 * torch.rand(count, generator=generator) - 1), t


def drawn(seeds: Iterable[int], count: int) -> Samples:
    """Samples of each seed, as two tensors (S, count)."""
    sets = [draw(count, torch.Generator().manual_seed(seed)) for seed in seeds]
    return torch.stack([x for x, _ in sets]), torch.stack([t for _, t in sets])


def everything(points: int = 120) -> Samples:
    """A grid of `points` values of t by `points` values of the noise: means over it are expectations, without chance."""
    middle = _middles(points).float()
    t, noise = torch.meshgrid(middle, NOISE * (2 * middle - 1), indexing="ij")
    return (forward(t) + noise).flatten(), t.flatten()


def skewed(t: Tensor) -> Tensor:
    """y = exp(5 t) / s, with s such that the standard deviation is 1: most values are small, a few are large."""
    return torch.exp(STEEP * t) / _spread()


def unskewed(y: Tensor) -> Tensor:
    """The t of a y."""
    return torch.log(y * _spread()) / STEEP


def log_slope(t: Tensor) -> Tensor:
    """log dy/dt of the skewed target: p(y | x) = p(t | x) / (dy/dt)."""
    return STEEP * t + math.log(STEEP / _spread())


def _spread() -> float:
    mean, square = math.expm1(STEEP) / STEEP, math.expm1(2 * STEEP) / (2 * STEEP)
    return math.sqrt(square - mean**2)


@dataclass(frozen=True)
class Exact:
    """What is known about p(t | x) at the points x: given x, all t with |x − f(t)| < 0.1 are equally probable.

    length          (X,): how long the set of possible t is, so that p(t | x) = 1 / length in it and p(x) = 5 · length
    mean, variance  (X,): of t given x
    """

    x: Tensor
    length: Tensor
    mean: Tensor
    variance: Tensor

    def density(self, t: Tensor) -> Tensor:
        """p(t | x) (X, T) at the points t (T,)."""
        return possible(self.x, t) / self.length[:, None]


def possible(x: Tensor, t: Tensor) -> Tensor:
    """Whether x (X,) may come from t (T,): (X, T)."""
    return (x[:, None] - forward(t.to(x))).abs() < NOISE


@functools.cache
def _ordered() -> tuple[Tensor, Tensor]:
    """A fine grid of t in the order of f(t): f(t) (T,), and the sums of 1, t and t² up to each (3, T + 1)."""
    t = _middles(FINE)
    f, order = forward(t).sort()
    powers = torch.stack([torch.ones_like(t), t[order], t[order].square()])
    return f, torch.nn.functional.pad(powers.cumsum(1), (1, 0))


def exact(x: Tensor) -> Exact:
    """The exact solution at the points x (X,), by sums over a fine grid of t."""
    f, sums = _ordered()
    x = x.to(f)
    count, first, second = sums[:, torch.searchsorted(f, x + NOISE)] - sums[:, torch.searchsorted(f, x - NOISE)]
    mean = first / count
    cell = 1 / (12 * FINE**2)  # the variance within a cell of the grid
    return Exact(x, count / FINE, mean, second / count - mean.square() + cell)


@dataclass(frozen=True)
class Floors:
    """The least that is possible, in expectation.

    nll        E log length, the entropy of t given x in nats: no density that sees only x has a smaller −log-likelihood
    mse        E Var[t | x]: no prediction that sees only x has a smaller squared error
    one_width  −log-likelihood of the best Gaussian whose width is the same for all x, as the squared error assumes
    own_width  −log-likelihood of the best Gaussian whose width depends on x
    """

    nll: float
    mse: float
    one_width: float
    own_width: float


@functools.cache
def floors() -> Floors:
    """The floors, by sums over a grid of x."""
    known = exact(_all_x(20_000))
    known_x = known.length > 0
    length, variance = known.length[known_x], known.variance[known_x]
    share = length / length.sum()  # p(x) dx
    mse = (share @ variance).item()
    own_width = (share @ (2 * math.pi * math.e * variance).log()).item() / 2
    return Floors((share @ length.log()).item(), mse, gaussian_nll(mse), own_width)


@functools.cache
def _below() -> tuple[Tensor, Tensor]:
    """For a grid of x: its share of the samples (X,), and the probability, given x, of the first T cells of t (X, T + 1)."""
    x = _all_x(1000)
    held = torch.nn.functional.pad(possible(x, _middles(4000)).double().cumsum(1), (1, 0))
    length = held[:, -1:]
    return length[:, 0] / length.sum(), held / length


def bins_floor(edges: Tensor, widths: Tensor) -> float:
    """The least −log-likelihood of bins of t with these edges: the probabilities are exact, the shape within a bin is lost.

    edges   the outermost count as 0 and 1
    widths  of the bins; those of y, if the target is a function y(t) and `edges` are the t at which it has its edges
    """
    share, below = _below()
    inner = (edges[1:-1].double() * (below.shape[1] - 1)).round().long()
    p = below[:, [0, *inner.tolist(), -1]].diff()
    return (share @ (torch.special.entr(p) + p * widths.to(p).log()).sum(1)).item()


def gaussian_nll(variance: float) -> float:
    """−E log N(t; μ, σ²) if μ and σ² are right: ½ log(2πe σ²)."""
    return math.log(2 * math.pi * math.e * variance) / 2


def _middles(count: int) -> Tensor:
    return (torch.arange(count, dtype=torch.float64) + 0.5) / count


def _all_x(count: int) -> Tensor:
    """The middles of `count` equal cells of all x that may occur."""
    low, high = _ordered()[0][[0, -1]].tolist()
    return low - NOISE + (high - low + 2 * NOISE) * _middles(count)
