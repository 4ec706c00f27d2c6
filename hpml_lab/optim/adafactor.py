"""Adafactor: the second moment of a matrix kept as one number for each row and one for each column."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number, zeros


class Adafactor(Optimizer):
    """Adafactor (torch.optim.Adafactor). It needs norms of whole tensors, so `foreach` too takes one after the other.

    lr           the largest relative step: a share of the root mean square of the parameter's elements
    beta2_decay  the power of t with which new squares enter the averages
    eps          (ε₁, ε₂): a gradient's smallest root mean square, and a parameter's; ε₁ = None: the spacing of its dtype at 1,
                 in a group of several dtypes that of the first parameter with a gradient
    d            the largest root mean square of an update
    """

    symbols = {"R": "row_var", "C": "col_var", "V": "variance"}
    takes_lists = False
    decay = None

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        beta2_decay: float = -0.8,
        eps: tuple[float | None, float] = (None, 1e-3),
        d: float = 1.0,
        weight_decay: float = 0.0,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        state: dict[str, Any] = {"step": number(0.0)}
        if g.ndim < 2:
            return {**state, "variance": zeros(g)}
        *more, rows, columns = g.shape
        return {**state, "row_var": g.new_zeros(*more, rows, 1), "col_var": g.new_zeros(*more, 1, columns)}

    def _require_taken(self, p):
        if p.is_complex():
            raise RuntimeError("Adafactor does not support complex parameters")
        super()._require_taken(p)

    def before_updates(self):
        """ε₁ = None is one number for each group, as in torch.optim: by the dtype of its first parameter with a gradient."""
        first = {id(group): next((p for p in group["params"] if p.grad is not None), None) for group in self.param_groups}
        self._eps1 = {group: torch.finfo(p.dtype).eps for group, p in first.items() if p is not None}

    def numbers(self, state, group, new):
        eps1, eps2 = group["eps"]
        return {**super().numbers(state, group, new), "eps": (self._eps1[id(group)] if eps1 is None else eps1, eps2)}

    @staticmethod
    def update(theta, g, R=None, C=None, V=None, *, t, lr, beta2_decay, eps, d, weight_decay):
        """R and C are means of g² over rows and columns; a vector has V, as in Adam. The step is relative to θ, and clipped.

            ε₁, ε₂ = eps
            r = max(ε₂, RMS(θ)) min(α, 1 / √t)
            θ = θ − α λ θ
            R = R + t^τ (means of g² over the rows − R), for a matrix
            C = C + t^τ (means of g² over the columns − C), for a matrix
            V = V + t^τ (g² − V), for a vector
            V̂ = R C / max(ε₁, mean of R) for a matrix, V for a vector
            u = g / max(ε₁, √V̂)
            θ = θ − r / max(1, RMS(u) / d) u
        Shazeer and Stern 2018, Algorithms 4 and 5, with ε₁ where torch.optim.Adafactor has it; τ is beta2_decay.
        """
        eps1, eps2 = eps
        r = max(eps2, rms(theta)) * min(lr, 1 / t**0.5)
        if weight_decay:
            theta.mul_(1 - lr * weight_decay)
        if V is None:
            R.lerp_(mean_square(g, -1), t**beta2_decay)
        if V is None:
            C.lerp_(mean_square(g, -2), t**beta2_decay)
        if V is not None:
            V.lerp_(g * g, t**beta2_decay)
        v_hat = V.clone() if V is not None else (R @ C).div_(R.mean(dim=-2, keepdim=True).clamp_(min=eps1))
        u = v_hat.clamp_(min=eps1 * eps1).rsqrt_().mul_(g)
        theta.add_(u, alpha=-r / max(1.0, rms(u, d)))


def rms(x: Tensor, unit: float = 1.0) -> float:
    """The root mean square of the elements, in multiples of `unit`; 0 if there are none."""
    return x.norm(2).item() / ((x.numel() or 1) ** 0.5 * unit)


def mean_square(g: Tensor, dim: int) -> Tensor:
    """The mean of g² along one dimension, which stays, of length 1."""
    return torch.linalg.vector_norm(g, dim=dim, keepdim=True).square_().div_(g.size(dim))
