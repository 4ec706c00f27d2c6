"""Adagrad: each parameter's learning rate shrinks with the gradients that it has had."""

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number
from hpml_lab.optim.sparse_adam import with_values


class Adagrad(Optimizer):
    """Adagrad (torch.optim.Adagrad). ε stands outside the root; lecture 0 has it inside (rules.lecture_adagrad)."""

    symbols = {"G": "sum"}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0,
        weight_decay: float = 0,
        initial_accumulator_value: float = 0,
        eps: float = 1e-10,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, locals())
        for group in self.param_groups:
            for p in group["params"]:  # now and not at the first step, as in torch.optim
                self.state[p] = self.start(p, p, group)

    def start(self, theta, g, group):
        value = group["initial_accumulator_value"]
        value = complex(value, value) if theta.is_complex() else value
        return {"step": number(0.0), "sum": torch.full_like(theta, value, memory_format=torch.preserve_format)}

    def share_memory(self) -> None:
        """Let processes that train the same parameters share G; each counts its own steps, as in torch.optim.Adagrad."""
        for state in self.state.values():
            state["sum"].share_memory_()

    def _decayed(self, p, g, group):
        if g.is_sparse:
            raise RuntimeError("weight_decay option is not compatible with sparse gradients")
        return super()._decayed(p, g, group)

    @staticmethod
    def update(theta, g, G, *, t, lr, lr_decay, eps):
        """The sum G of squared gradients divides the rate, which may also decay with the step by η = lr_decay.

            αₜ = α / (1 + (t − 1) η)
            G = G + g²
            θ = θ − αₜ g / (√G + ε)
        Duchi et al. 2011; lecture 0.
        """
        rate = lr / (1 + (t - 1) * lr_decay)
        G.addcmul_(g, g, value=1)
        theta.addcdiv_(g, G.sqrt().add_(eps), value=-rate)

    @staticmethod
    def update_sparse(theta, g, G, *, t, lr, lr_decay, eps):
        """The same for the elements of a sparse gradient; all others stay unchanged.

            αₜ = α / (1 + (t − 1) η)
            g = each element once
            G = G + g²
            d = g / (√G + ε)
            θ = θ − αₜ d
        After torch.optim.Adagrad.
        """
        rate = lr / (1 + (t - 1) * lr_decay)
        g = g.coalesce()
        G.add_(with_values(g, g.values().pow(2)))
        d = g.values() / G.sparse_mask(g).values().sqrt().add(eps)
        theta.add_(with_values(g, d), alpha=-rate)
