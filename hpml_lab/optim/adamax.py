"""Adamax: Adam with the largest recent gradient in place of the second moment."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number, zeros
from hpml_lab.optim.machinery.tensor_stand_ins import largest_


class Adamax(Optimizer):
    """Adamax (torch.optim.Adamax); its paper has no ε (rules.paper_adamax)."""

    symbols = {"m": "exp_avg", "u": "exp_inf"}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 2e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        foreach: bool | None = None,
        *,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        return {"step": number(0.0), "exp_avg": zeros(theta), "exp_inf": zeros(theta)}

    @staticmethod
    def update(theta, g, m, u, *, t, lr, beta1, beta2, eps):
        """u fades by β₂ a step until a larger gradient lifts it.

            m = β₁ m + (1 − β₁) g
            u = max(β₂ u, |g| + ε)
            θ = θ − α / (1 − β₁ᵗ) · m / u
        Kingma and Ba 2015, Algorithm 2.
        """
        m.lerp_(g, 1 - beta1)
        u = largest_(u.mul_(beta2), g.abs().add_(eps))
        theta.addcdiv_(m, u, value=-(lr / (1 - beta1**t)))
