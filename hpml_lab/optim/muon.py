"""Muon: the momentum of a matrix, with all its singular values brought near 1."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, zeros


class Muon(Optimizer):
    """Muon (torch.optim.Muon), for the matrices of hidden layers; all other parameters need another optimizer.

    ns_coefficients  (a, b, c) of the polynomial a x + b x³ + c x⁵, which is applied to the singular values
    ns_steps         how often it is applied
    adjust_lr_fn     how the rate depends on the shape: "original" (as None), "match_rms_adamw" or "spectral_unclamped"
    """

    symbols = {"m": "momentum_buffer"}
    started_by = {"momentum_buffer": None}
    takes_lists = False
    decay = None

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        weight_decay: float = 0.1,
        momentum: float = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: float = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, locals())

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Like torch's method, but a parameter that is no matrix is refused in every group, not only in the first ones."""
        super().add_param_group(param_group)
        for p in self.param_groups[-1]["params"]:
            if p.ndim != 2:
                self.param_groups.pop()
                raise ValueError(f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    def start(self, theta, g, group):
        return {"momentum_buffer": zeros(g)}

    def numbers(self, state, group, new):
        return {}

    def _require_taken(self, p):
        if p.is_complex():
            raise RuntimeError("Muon does not support complex parameters")
        super()._require_taken(p)

    @staticmethod
    def update(theta, g, m, *, lr, weight_decay, momentum, nesterov, ns_coefficients, eps, ns_steps, adjust_lr_fn):
        """X has the singular vectors of d; its singular values are at most 1, and the Newton–Schulz steps bring them near 1.

            m = μ m + (1 − μ) g
            d = μ m + (1 − μ) g for Nesterov, m otherwise
            X = d / ‖d‖ in bfloat16, transposed if it has more rows than columns
            X = a X + (b A + c A²) X with A = X Xᵀ, k times
            θ = θ − α λ θ
            θ = θ − α √max(1, rows / columns) X, or another factor by adjust_lr_fn
        Jordan et al. 2024; Liu et al. 2025 for "match_rms_adamw", Bernstein 2025 for "spectral_unclamped".
        """
        m.lerp_(g, 1 - momentum)
        d = g.lerp(m, momentum) if nesterov else m
        x = normalized(d, eps)
        for _ in range(ns_steps):
            x = newton_schulz_step(x, *ns_coefficients)
        theta.mul_(1 - lr * weight_decay)
        theta.add_(x if x.shape == theta.shape else x.T, alpha=-lr * shape_factor(*theta.shape, adjust_lr_fn))


def normalized(d: Tensor, eps: float = 1e-7) -> Tensor:
    """d / ‖d‖ in bfloat16, so that no singular value is above 1; as a view with at most as many rows as columns."""
    x = d.to(torch.bfloat16, copy=True)
    x = x.T if d.size(0) > d.size(1) else x
    return x.div_(x.norm().clamp(min=eps))


def newton_schulz_step(x: Tensor, a: float = 3.4445, b: float = -4.775, c: float = 2.0315) -> Tensor:
    """a X + (b A + c A²) X with A = X Xᵀ: each singular value x becomes a x + b x³ + c x⁵, the singular vectors stay."""
    gram = x @ x.T
    return torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)


def shape_factor(rows: int, columns: int, rule: str | None = None) -> float:
    """The factor on the learning rate of a matrix; `rule` is the option adjust_lr_fn."""
    if rule == "match_rms_adamw":
        return 0.2 * math.sqrt(max(rows, columns))
    ratio = rows / columns
    return math.sqrt(ratio if rule == "spectral_unclamped" else max(1, ratio))
