"""Adadelta: a step in the parameter's own unit."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number, zeros


class Adadelta(Optimizer):
    """Adadelta (torch.optim.Adadelta)."""

    complex_step = True
    symbols = {"E_g2": "square_avg", "E_delta2": "acc_delta"}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        capturable: bool = False,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        return {"step": number(0.0), "square_avg": zeros(theta), "acc_delta": zeros(theta)}

    @staticmethod
    def update(theta, g, E_g2, E_delta2, *, lr, rho, eps):
        """The root of past squared steps over the root of past squared gradients.

            E[g²] = ρ E[g²] + (1 − ρ) g²
            Δ = √(E[Δ²] + ε) / √(E[g²] + ε) · g
            E[Δ²] = ρ E[Δ²] + (1 − ρ) Δ²
            θ = θ − α Δ
        Zeiler 2012, Algorithm 1; lecture 0.
        """
        E_g2.mul_(rho).addcmul_(g, g, value=1 - rho)
        delta = E_delta2.add(eps).sqrt_().div_(E_g2.add(eps).sqrt_()).mul_(g)
        E_delta2.mul_(rho).addcmul_(delta, delta, value=1 - rho)
        theta.add_(delta, alpha=-lr)
