"""LARS: SGD with momentum whose step in each layer is proportional to the norm of that layer's weights."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import zeros
from hpml_lab.optim.machinery.layerwise import LayerwiseOptimizer, layer_number, norm, trust_ratio


class LARS(LayerwiseOptimizer):
    """LARS in the form of the libraries, with the rate outside the velocity; `large_batch.PaperLARS` has it inside.

    trust_coeff   the coefficient η of the trust ratio
    always_adapt  False: a group without weight decay takes plain SGD steps, as in timm by default
    """

    exact_numbers = ("trust_ratio",)
    symbols = {"r": "trust_ratio", "b": "momentum_buffer"}
    started_by = {"momentum_buffer": "momentum"}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1.0,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        trust_coeff: float = 0.001,
        eps: float = 1e-8,
        always_adapt: bool = True,
        *,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        return {"trust_ratio": layer_number(theta, 1.0)} | ({"momentum_buffer": zeros(theta)} if group["momentum"] else {})

    @staticmethod
    def decay(theta, g, lr, weight_decay, decoupled):
        """The update decays: the trust ratio needs the norm of the gradient without λ θ."""
        return g

    def numbers(self, state, group, new):
        return {"first": new}

    @staticmethod
    def update(theta, g, r, b=None, *, first, lr, momentum, dampening, nesterov, weight_decay, trust_coeff, eps, always_adapt):
        """r is the trust ratio of the layer. At the first step b is the scaled gradient itself, undamped.

            w = ‖θ‖
            r = η w / (‖g‖ + λ w + ε), or 1 where a norm is 0
            g = g + λ θ
            g = r g
            b = γ b + (1 − τ) g
            d = g + γ b for Nesterov, b for momentum, g for neither
            θ = θ − α d
        You et al. 2017, equations 3 to 6 and Algorithm 1, there with α inside b.
        """
        w = norm(theta)
        if always_adapt or weight_decay: r.copy_(trust_ratio(w, norm(g), trust_coeff, weight_decay * w + eps))  # fmt: skip
        if weight_decay: g = g.add(theta, alpha=weight_decay)  # fmt: skip
        g = g.mul(r)
        if momentum: b.copy_(g) if first else b.mul_(momentum).add_(g, alpha=1 - dampening)  # fmt: skip
        d = g.add(b, alpha=momentum) if nesterov and momentum else b if momentum else g
        theta.add_(d, alpha=-lr)
