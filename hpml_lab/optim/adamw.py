"""AdamW: Adam whose weight decay does not pass through the averages."""

from hpml_lab.optim.adam import Adam


class AdamW(Adam):
    """AdamW (torch.optim.AdamW): θ shrinks by α λ θ, whatever its gradients. Loshchilov and Hutter 2019, Algorithm 2."""

    def __init__(
        self,
        params,
        lr=1e-3,
        betas=(0.9, 0.999),
        eps=1e-8,
        weight_decay=1e-2,
        amsgrad=False,
        *,
        maximize=False,
        foreach=None,
        capturable=False,
        differentiable=False,
        fused=None,
    ):
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
