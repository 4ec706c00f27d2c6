"""LAMB: AdamW's direction, scaled in each layer to the norm of that layer's weights."""

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import number, zeros
from hpml_lab.optim.machinery.layerwise import LayerwiseOptimizer, layer_number, norm, trust_ratio
from hpml_lab.optim.machinery.tensor_stand_ins import of_type

OF_ALL_GROUPS = ("max_grad_norm", "pre_normalize")  # the norm of all gradients is one


class LAMB(LayerwiseOptimizer):
    """LAMB; options choose among the forms that papers and libraries call by this name.

    bias_correction         True: the paper's first version on arXiv, timm, Apex; False: its third, which is ICLR's
    pre_normalize           True: NVLAMB, which first divides all gradients by their common norm
    max_grad_norm           a number: they are divided only where their common norm exceeds it; timm and Apex have 1 by default
    always_adapt            False: a group without weight decay takes Adam's steps, as in timm and Apex by default
    decoupled_weight_decay  True: the decay stands outside the trust ratio, as in pytorch_optimizer; False: inside, as published
    """

    exact_numbers = ("trust_ratio",)
    symbols = {"m": "exp_avg", "v": "exp_avg_sq", "r": "trust_ratio"}

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
        max_grad_norm: float | None = None,
        pre_normalize: bool = False,
        always_adapt: bool = True,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def add_param_group(self, param_group):
        """Like torch's method, but the norm of all gradients is one, so a group cannot treat it in a way of its own."""
        of_all = self.param_groups[0] if self.param_groups else self.defaults  # a loaded file may have changed them
        for name in OF_ALL_GROUPS if isinstance(param_group, dict) else ():
            if param_group.setdefault(name, of_all[name]) != of_all[name]:
                raise ValueError(f"{name} belongs to all groups together: give it to {type(self).__name__} itself")
        super().add_param_group(param_group)

    def start(self, theta, g, group):
        moments = {"exp_avg": zeros(theta), "exp_avg_sq": zeros(theta)}
        return {"step": number(0.0), **moments, "trust_ratio": layer_number(theta, 1.0)}

    def before_updates(self):
        """The divisor of all gradients in this step, from the norm ‖G‖ of all of them together."""
        self._divisor, options = None, {tuple(group[name] for name in OF_ALL_GROUPS) for group in self.param_groups}
        if len(options) > 1:
            raise ValueError(f"{' and '.join(OF_ALL_GROUPS)} belong to all groups together: set them to one value in each")
        [(largest, pre_normalize)] = options
        if pre_normalize or largest is not None:
            gradients = [p.grad for group in self.param_groups for p in group["params"] if p.grad is not None]
            if any(g.is_sparse for g in gradients):
                raise RuntimeError(self._sparse_error_message())
            norms = [norm(g).to(gradients[0].device) for g in gradients]
            total = norm(torch.stack(norms)) if norms else None
            if total is not None:
                self._divisor = torch.where(total > 0, total, 1.0) if largest is None else (total / largest).clamp(min=1.0)

    def numbers(self, state, group, new):
        return {**super().numbers(state, group, new), "divisor": self._divisor}

    @staticmethod
    def update(
        theta, g, m, v, r, *, t, divisor, lr, beta1, beta2, eps, weight_decay, bias_correction, always_adapt,
        decoupled_weight_decay,
    ):  # fmt: skip
        """u is AdamW's direction. The step r u has the norm of θ, so that each layer moves by the same share α of its norm.

            g = g / ‖G‖ for NVLAMB, g / max(1, ‖G‖ / c) with a limit c = max_grad_norm
            m = β₁ m + (1 − β₁) g
            v = β₂ v + (1 − β₂) g²
            c₁, c₂ = 1 − β₁ᵗ, 1 − β₂ᵗ, or 1, 1 without bias correction
            u = m / c₁ / (√v / √c₂ + ε)
            u = u + λ θ
            r = ‖θ‖ / ‖u‖, or 1 where a norm is 0
            θ = θ − α r u
        You et al. 2019, Algorithm 2, with φ(z) = z; Sreenivas et al. 2019 for NVLAMB.
        """
        if divisor is not None: g = g.div(divisor)  # fmt: skip
        m.lerp_(g, 1 - of_type(m, beta1))
        v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
        c1, c2 = (1 - beta1**t, 1 - beta2**t) if bias_correction else (1, 1)
        u = m.div(c1).div_(v.sqrt().div_(c2**0.5).add_(eps))
        if weight_decay and not decoupled_weight_decay: u = u.add(theta, alpha=weight_decay)  # fmt: skip
        if always_adapt or weight_decay: r.copy_(trust_ratio(norm(theta), norm(u)))  # fmt: skip
        theta.add_(u.mul(r), alpha=-lr)
