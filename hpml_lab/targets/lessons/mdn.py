"""Mixture density network: the outputs of a net are the weights, means and widths of K Gaussians.

    p(t | x) = Σ_k π_k(x) N(t; μ_k(x), σ_k(x)²)

The net has 3 K outputs: the logits of π, then μ, then what softplus makes σ. The logarithm of the sum is taken by
log-sum-exp, because the densities of a point far from all components underflow to 0, whose logarithm is −inf.

    outputs = net(x)                                     # (…, 3 K)
    loss = -log_likelihood(outputs, t).mean()

Source: C. M. Bishop, Mixture Density Networks, 1994. `start_apart` is what makes it work in every run.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError

LEAST_WIDTH = 0.02  # of a component: a width of 0 on one sample would be an infinite likelihood
START_WIDTH = -2.0  # softplus(−2) = 0.127


def mixture(outputs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(log π, μ, σ), each (…, K), from the outputs (…, 3 K) of a net."""
    if outputs.shape[-1] == 0 or outputs.shape[-1] % 3:
        raise LabError(f"{outputs.shape[-1]} outputs make no mixture.", "K components need 3 K outputs, with K at least 1.")
    logits, mu, width = outputs.chunk(3, dim=-1)
    return F.log_softmax(logits, -1), mu, F.softplus(width) + LEAST_WIDTH


def log_likelihood(outputs: Tensor, t: Tensor) -> Tensor:
    """log p(t | x) in nats, for outputs (…, 3 K) and targets (…).

    log Σ_k exp(log π_k + log N_k) with log N_k = −½ ((t − μ_k) / σ_k)² − log σ_k − ½ log 2π
    """
    log_pi, mu, sigma = mixture(outputs)
    log_normal = -((t[..., None] - mu) / sigma).square() / 2 - sigma.log() - math.log(2 * math.pi) / 2
    return torch.logsumexp(log_pi + log_normal, -1)


def density(outputs: Tensor, points: Tensor) -> Tensor:
    """p(t | x) (…, T) at the points t (T,), for outputs (…, 3 K)."""
    return log_likelihood(outputs[..., None, :], points).exp()


def mean(outputs: Tensor) -> Tensor:
    """E[t | x] (…) of the mixture."""
    log_pi, mu, _ = mixture(outputs)
    return (log_pi.exp() * mu).sum(-1)


def likeliest(outputs: Tensor) -> Tensor:
    """The mean (…) of the component with the largest weight: one of the solutions, where the mean is none."""
    log_pi, mu, _ = mixture(outputs)
    return mu.gather(-1, log_pi.argmax(-1, keepdim=True))[..., 0]


@torch.no_grad()
def start_apart(weight: Tensor, bias: Tensor, targets: Tensor) -> None:
    """Initialize the last layer, weight (3 K, inputs) and bias (3 K), so that the components start apart.

    With the usual initialization all components start in nearly the same place with the same weight, get nearly the same
    gradients, and may remain together: one wide Gaussian. Here the weights are 0, so that at first every x has the same
    mixture: K equal components at the quantiles (k + ½) / K of the targets, narrow enough to tell their parts of the targets
    apart.
    """
    if not len(targets) or not targets.isfinite().all():
        raise LabError("the targets are not all finite numbers: they have no quantiles.", "Remove these samples.")
    logits, mu, width = mixture_rows(bias)
    weight.zero_()
    logits.zero_()
    mu.copy_(torch.quantile(targets.to(mu), (torch.arange(len(mu), device=mu.device, dtype=mu.dtype) + 0.5) / len(mu)))
    width.fill_(START_WIDTH)


def mixture_rows(bias: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The parts of a bias (3 K,) that belong to the logits, the means and the widths: views."""
    if len(bias) == 0 or len(bias) % 3:
        raise LabError(f"a last layer with {len(bias)} outputs makes no mixture.", "K components need 3 K outputs, K ≥ 1.")
    return bias.chunk(3)
