"""RMSprop: the gradient divided by a running average of its recent magnitude."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number, zeros


class RMSprop(Optimizer):
    """RMSprop (torch.optim.RMSprop), with momentum γ and the centred form; ρ is torch's `alpha`."""

    symbols = {"v": "square_avg", "b": "momentum_buffer", "g_mean": "grad_avg"}
    started_by = {"momentum_buffer": "momentum", "grad_avg": "centered"}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0,
        momentum: float = 0,
        centered: bool = False,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        state = {"step": number(0.0), "square_avg": zeros(theta)}
        if group["momentum"]:
            state["momentum_buffer"] = zeros(theta)
        if group["centered"]:
            state["grad_avg"] = zeros(theta)
        return state

    @staticmethod
    def update(theta, g, v, b=None, g_mean=None, *, lr, alpha, eps, momentum, centered):
        """v follows g²; centred, its variance divides: less where gradients agree. ε stands outside the root.

            v = ρ v + (1 − ρ) g²
            ḡ = ρ ḡ + (1 − ρ) g, if centred
            s = √(v − ḡ²) + ε if centred, √v + ε if not
            b = γ b + g / s, with momentum
            θ = θ − α b with momentum, θ − α g / s without
        Hinton's lecture 6e; Graves 2013 for the centred form.
        """
        v.mul_(alpha).addcmul_(g, g, value=1 - alpha)
        if centered: g_mean.lerp_(g, 1 - alpha)  # fmt: skip
        s = (v.addcmul(g_mean, g_mean, value=-1) if centered else v).sqrt().add_(eps)
        if momentum: b.mul_(momentum).addcdiv_(g, s)  # fmt: skip
        theta.add_(b, alpha=-lr) if momentum else theta.addcdiv_(g, s, value=-lr)
