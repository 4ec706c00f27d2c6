"""SparseAdam: Adam for the rows that a sparse gradient names; moments of the other rows wait."""

import math

import torch
from torch import Tensor

from hpml_lab.optim.base import Optimizer, zeros


class SparseAdam(Optimizer):
    """SparseAdam (torch.optim.SparseAdam), for gradients such as those of nn.Embedding(sparse=True)."""

    symbols = {"m": "exp_avg", "v": "exp_avg_sq"}
    takes_sparse = True

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, maximize=False):
        super().__init__(params, locals())  # first: later local variables would count as options
        for value, text in ((lr, "learning rate"), (eps, "epsilon value")):
            if value == 0:
                raise ValueError(f"Invalid {text}: {value}")
        places = [(i, j, p) for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"])]
        if sparse := [[i, j] for i, j, p in places if p.is_sparse]:
            raise ValueError(f"Sparse params at indices {sparse}: SparseAdam requires dense parameter tensors")
        if complex_ := [[i, j] for i, j, p in places if p.is_complex()]:
            raise ValueError(f"Complex params at indices {complex_}: SparseAdam does not support complex parameters")

    def start(self, theta, g, group):
        return {"step": 0, "exp_avg": zeros(theta), "exp_avg_sq": zeros(theta)}

    def numbers(self, state, group, new):
        state["step"] += 1
        return {"t": state["step"]}

    def _part(self, p, group):
        if not p.grad.is_sparse:
            raise RuntimeError("SparseAdam does not support dense gradients, please consider Adam instead")
        return super()._part(p, group)

    @staticmethod
    def update(theta, g, m, v, *, t, lr, beta1, beta2, eps):
        """Adam on the named elements. m and v of the others do not fade, so a rare row is not forgotten while it is away.

            g = each element once
            m₀, v₀ = m, v of the named elements
            dm, dv = (1 − β₁)(g − m₀), (1 − β₂)(g² − v₀)
            m = m + dm
            v = v + dv
            d = −α √(1 − β₂ᵗ) / (1 − β₁ᵗ) · m / (√v + ε)
            θ = θ + d
        After torch.optim.SparseAdam; the mathematics is Kingma and Ba's.
        """
        g = g.coalesce()
        m0, v0 = m.sparse_mask(g).values(), v.sparse_mask(g).values()
        dm, dv = g.values().sub(m0).mul_(1 - beta1), g.values().pow(2).sub_(v0).mul_(1 - beta2)
        m.add_(with_values(g, dm))
        v.add_(with_values(g, dv))
        d = -(lr * math.sqrt(1 - beta2**t) / (1 - beta1**t)) * (dm.add(m0) / dv.add(v0).sqrt_().add_(eps))
        theta.add_(with_values(g, d))


def with_values(g: Tensor, values: Tensor) -> Tensor:
    """A sparse tensor with other values at the places of the coalesced sparse tensor `g`."""
    return torch.sparse_coo_tensor(g.indices(), values, g.shape, is_coalesced=True, check_invariants=False)
