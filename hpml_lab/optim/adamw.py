"""AdamW: Adam whose weight decay does not pass through the averages."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.adam import Adam


class AdamW(Adam):
    """AdamW (torch.optim.AdamW): θ shrinks by α λ θ, whatever its gradients. Loshchilov and Hutter 2019, Algorithm 2."""

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state):
        super().__setstate__(state)
        for group in self.param_groups:  # also where Adam's state was loaded
            group["decoupled_weight_decay"] = True
