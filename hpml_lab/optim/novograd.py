"""NovoGrad: momentum over gradients that each layer divides by a running average of their norm."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import zeros
from hpml_lab.optim.machinery.layerwise import LayerwiseOptimizer, average_from_first, layer_number, norm


class NovoGrad(LayerwiseOptimizer):
    """NovoGrad. Its second moment is one number for each tensor, so its state is half of Adam's.

    grad_averaging          True: m is an average, with (1 − β₁) of each new direction, as in Apex by default
    decoupled_weight_decay  True: the decay is subtracted from θ and not added to the direction
    """

    symbols = {"m": "exp_avg", "v": "exp_avg_sq"}
    exact_numbers = ("exp_avg_sq",)

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.95, 0.98),
        eps: float = 1e-8,
        weight_decay: float = 0,
        grad_averaging: bool = False,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        return {"exp_avg": zeros(theta), "exp_avg_sq": layer_number(theta, 0.0)}

    def numbers(self, state, group, new):
        return {}

    @staticmethod
    def update(theta, g, m, v, *, lr, beta1, beta2, eps, weight_decay, grad_averaging, decoupled_weight_decay):
        """v is one number, the average of the squared norm; the first one is taken as it is.

            n = ‖g‖²
            v = n while v is 0, at the first step, and β₂ v + (1 − β₂) n later
            d = g / (√v + ε)
            d = d + λ θ
            m = β₁ m + d, or β₁ m + (1 − β₁) d with averaging
            θ = θ − α m
        Ginsburg et al. 2019, Algorithm 1.
        """
        n = norm(g).square()
        v.copy_(average_from_first(v, n, beta2))
        d = g.div(v.sqrt().add_(eps))
        if weight_decay and not decoupled_weight_decay: d = d.add(theta, alpha=weight_decay)  # fmt: skip
        m.mul_(beta1).add_(d, alpha=1 - beta1 if grad_averaging else 1)
        theta.add_(m, alpha=-lr)
