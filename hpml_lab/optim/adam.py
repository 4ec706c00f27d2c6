"""Adam: running averages of the gradient and of its square, corrected for their start at zero."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number, zeros
from hpml_lab.optim.machinery.tensor_stand_ins import largest_, of_type


class Adam(Optimizer):
    """Adam (torch.optim.Adam), with AMSGrad, and with L2 or decoupled weight decay."""

    symbols = {"m": "exp_avg", "v": "exp_avg_sq", "v_max": "max_exp_avg_sq"}
    started_by = {"max_exp_avg_sq": "amsgrad"}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        state = {"step": number(0.0), "exp_avg": zeros(theta), "exp_avg_sq": zeros(theta)}
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros(theta)
        return state

    def _sparse_error_message(self):
        return "Adam does not support sparse gradients, please consider SparseAdam instead"

    @staticmethod
    def update(theta, g, m, v, v_max=None, *, t, lr, beta1, beta2, eps, amsgrad):
        """m̂ = m / (1 − β₁ᵗ) and v̂ = v / (1 − β₂ᵗ) are never stored: their divisors are applied where they cost least.

            m = β₁ m + (1 − β₁) g
            v = β₂ v + (1 − β₂) g²
            v̄ = max(v̄, v) for AMSGrad, v otherwise
            s = √v̄ / √(1 − β₂ᵗ) + ε
            θ = θ − α / (1 − β₁ᵗ) · m / s
        Kingma and Ba 2015, Algorithm 1; Reddi et al. 2018 for AMSGrad; lecture 0.
        """
        m.lerp_(g, 1 - of_type(m, beta1))
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        v_bar = largest_(v_max, v) if amsgrad else v
        s = v_bar.sqrt().div_((1 - beta2**t) ** 0.5).add_(eps)
        theta.addcdiv_(m, s, value=-(lr / (1 - beta1**t)))
