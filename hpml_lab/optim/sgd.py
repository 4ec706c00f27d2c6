"""Stochastic gradient descent with momentum, in torch's form."""

from hpml_lab.optim.base import Optimizer


class SGD(Optimizer):
    """Stochastic gradient descent with momentum γ, dampening τ and Nesterov's look-ahead (torch.optim.SGD)."""

    symbols = {"b": "momentum_buffer"}
    takes_sparse = True
    complex_as_pairs = False

    def __init__(
        self,
        params,
        lr=1e-3,
        momentum=0,
        dampening=0,
        weight_decay=0,
        nesterov=False,
        *,
        maximize=False,
        foreach=None,
        differentiable=False,
        fused=None,
    ):
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
        Sutskever et al. 2013. Lecture 0 has α inside the velocity: formulas.lecture_momentum.
        """
        if momentum and not first: b.mul_(momentum).add_(g, alpha=1 - dampening)  # fmt: skip
        d = g.add(b, alpha=momentum) if nesterov else b if momentum else g
        theta.add_(d, alpha=-lr)
