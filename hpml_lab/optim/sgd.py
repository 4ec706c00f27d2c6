"""Stochastic gradient descent with momentum, in torch's form."""

from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer


class SGD(Optimizer):
    """Stochastic gradient descent with momentum γ, dampening τ and Nesterov's look-ahead (torch.optim.SGD).

    With `differentiable=True` the derivative also passes through the first velocity, which torch.optim leaves out.
    """

    symbols = {"b": "momentum_buffer"}
    takes_sparse = True
    started_by = {"momentum_buffer": "momentum"}
    complex_as_pairs = False

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        return {"momentum_buffer": g.clone()} if group["momentum"] else {}

    def numbers(self, state, group, new):
        return {"first": new}

    @staticmethod
    def update(theta, g, b=None, *, first, lr, momentum, dampening, nesterov):
        """The learning rate stands outside the velocity b. At the first step b is the gradient itself, undamped.

            b = γ b + (1 − τ) g
            d = g + γ b for Nesterov, b for momentum, g for neither
            θ = θ − α d
        Sutskever et al. 2013. Lecture 0 has α inside the velocity: rules.lecture_momentum.
        """
        if momentum: b.copy_(g) if first else b.mul_(momentum).add_(g, alpha=1 - dampening)  # fmt: skip
        d = g.add(b, alpha=momentum) if nesterov and momentum else b if momentum else g
        theta.add_(d, alpha=-lr)
