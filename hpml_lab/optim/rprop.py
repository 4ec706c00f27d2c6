"""Rprop: each parameter has a step size, which grows while its gradient keeps its sign; only that sign counts."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number, scalar, zeros
from hpml_lab.optim.machinery.tensor_stand_ins import pairs


class Rprop(Optimizer):
    """Rprop (torch.optim.Rprop), for gradients of the whole data set. α is only the first size of all steps.

    etas        (η⁻, η⁺), by which a step size shrinks and grows
    step_sizes  its smallest and its largest value
    """

    symbols = {"g_prev": "prev", "size": "step_size"}
    decay = None  # it has none

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        etas: tuple[float, float] = (0.5, 1.2),
        step_sizes: tuple[float, float] = (1e-6, 50),
        *,
        capturable: bool = False,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        size = zeros(g)
        pairs(size).add_(scalar(group["lr"]))
        return {"step": number(0.0), "prev": zeros(theta), "step_size": size}

    @staticmethod
    def update(theta, g, g_prev, size, *, etas, step_sizes):
        """A gradient whose sign has changed counts as 0: no step now, and no change of the step size next time.

            s = sign(g g⁻), where g⁻ is the gradient of the step before
            η = η⁺ where s > 0, η⁻ where s < 0, 1 where s = 0
            Δ = η Δ, at least the smallest and at most the largest step size
            g = 0 where s < 0
            g⁻ = g
            θ = θ − sign(g) Δ
        Riedmiller and Braun 1993, in the form without a step back.
        """
        sign = g.mul(g_prev).sign_()
        eta = sign.masked_fill(sign.gt(0), etas[1]).masked_fill_(sign.lt(0), etas[0]).masked_fill_(sign.eq(0), 1)
        size.mul_(eta).clamp_(*step_sizes)
        g = g.masked_fill(eta.eq(etas[0]), 0)
        g_prev.copy_(g)
        theta.addcmul_(g.sign(), size, value=-1)
