"""RAdam: Adam that takes plain momentum's steps until its second moment can be relied on."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number, zeros


class RAdam(Optimizer):
    """RAdam (torch.optim.RAdam): a rectified Adam, which needs no warm-up of the learning rate."""

    symbols = {"m": "exp_avg", "v": "exp_avg_sq"}
    decay_as_pairs = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        decoupled_weight_decay: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        return {"step": number(0.0), "exp_avg": zeros(theta), "exp_avg_sq": zeros(theta)}

    @staticmethod
    def update(theta, g, m, v, *, t, lr, beta1, beta2, eps):
        """ρ is how many gradients v averages over; up to five of them, its reciprocal has no finite variance.

            m = β₁ m + (1 − β₁) g
            v = β₂ v + (1 − β₂) g²
            ρ∞ = 2 / (1 − β₂) − 1
            ρ = ρ∞ − 2 t β₂ᵗ / (1 − β₂ᵗ)
            d = α m / (1 − β₁ᵗ)
            d = d √(1 − β₂ᵗ) / (√v + ε), if ρ > 5
            d = d √((ρ − 4) (ρ − 2) ρ∞ / ((ρ∞ − 4) (ρ∞ − 2) ρ)), if ρ > 5
            θ = θ − d
        Liu et al. 2020, Algorithm 2.
        """
        m.lerp_(g, 1 - beta1)
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        rho_inf = 2 / (1 - beta2) - 1
        rho = rho_inf - 2 * t * (beta2**t) / (1 - beta2**t)
        d = m.div(1 - beta1**t).mul(lr)
        if rho > 5:
            d = d.mul(v.sqrt().add_(eps).reciprocal_().mul_((1 - beta2**t) ** 0.5))
        if rho > 5:
            d = d.mul(((rho - 4) * (rho - 2) * rho_inf / ((rho_inf - 4) * (rho_inf - 2) * rho)) ** 0.5)
        theta.add_(d, alpha=-1)
