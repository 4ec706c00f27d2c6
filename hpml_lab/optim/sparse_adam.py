"""SparseAdam: Adam for the rows that occur in a sparse gradient; the moments of the other rows stay as they are."""

import math

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, zeros


class SparseAdam(Optimizer):
    """SparseAdam (torch.optim.SparseAdam), for gradients such as those of nn.Embedding(sparse=True)."""

    symbols = {"m": "exp_avg", "v": "exp_avg_sq"}
    takes_sparse = True
    plain_numbers = ("step",)
    decay = None  # it has none

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, locals())  # first: later local variables would count as options
        for value, text in ((lr, "learning rate"), (eps, "epsilon value")):
            if value == 0:
                raise ValueError(f"Invalid {text}: {value}")
        indexed = [(i, j, p) for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"])]
        if sparse := [[i, j] for i, j, p in indexed if p.is_sparse]:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        if complex_ := [[i, j] for i, j, p in indexed if p.is_complex()]:
            raise ValueError(f"Complex params at indices {complex_}: SparseAdam does not support complex parameters")

    def start(self, theta, g, group):
        return {"step": 0, "exp_avg": zeros(theta), "exp_avg_sq": zeros(theta)}

    def numbers(self, state, group, new):
        state["step"] += 1
        return {"t": state["step"]}

    def _require_taken(self, p):
        if not p.grad.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        super()._require_taken(p)

    @staticmethod
    def update(theta, g, m, v, *, t, lr, beta1, beta2, eps):
        """Adam on the elements of the gradient. m and v of all others do not fade, so a rare row keeps its moments.

            g = each element once
            m₀, v₀ = m, v of these elements
            dm, dv = (1 − β₁)(g − m₀), (1 − β₂)(g² − v₀)
            m = m + dm
            v = v + dv
            d = −α √(1 − β₂ᵗ) / (1 − β₁ᵗ) · m / (√v + ε)
            θ = θ + d
        After torch.optim.SparseAdam; the formulas are Kingma and Ba's.
        """
        g = g.coalesce()
        m0, v0 = m.sparse_mask(g).values(), v.sparse_mask(g).values()
        dm, dv = g.values().sub(m0).mul_(1 - beta1), g.values().pow(2).sub_(v0).mul_(1 - beta2)
        m.add_(with_values(g, dm))
        v.add_(with_values(g, dv))
        d = -(lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)) * (dm.add(m0) / dv.add(v0).sqrt_().add_(eps))
        theta.add_(with_values(g, d))


def with_values(g: Tensor, values: Tensor) -> Tensor:
    """A sparse tensor with the indices of the coalesced sparse tensor `g` and other values."""
    return torch.sparse_coo_tensor(g.indices(), values, g.shape, is_coalesced=True, check_invariants=False)
