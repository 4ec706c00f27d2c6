"""Averaged SGD: gradient descent with a rate that decays, and the average of the points that it has been at."""

from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from hpml_lab.optim.machinery.base import Optimizer, number, scalar, zeros
from hpml_lab.optim.machinery.tensor_stand_ins import of_type


class ASGD(Optimizer):
    """Averaged stochastic gradient descent (torch.optim.ASGD). The average is `ax` in the state: θ itself is not averaged.

    lambd  κ: it shrinks θ, and the larger it is, the faster the rate decays
    alpha  p, the power at which the rate decays
    t0     t₀, the step from which on θ is averaged; until then the average is θ itself
    """

    symbols = {"ax": "ax"}
    explained = ("numbers", "update")
    exact_numbers = ("eta", "mu")
    decay_as_pairs = True

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 1e-2,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0,
        foreach: bool | None = None,
        maximize: bool = False,
        differentiable: bool = False,
        capturable: bool = False,
    ) -> None:
        super().__init__(params, locals())

    def start(self, theta, g, group):
        eta, lr = number(0.0), scalar(group["lr"])
        # In torch's precision, where no derivative by the rate is asked for.
        eta = eta.add(lr if self.defaults.get("differentiable", False) else of_type(eta, lr))
        return {"step": number(0.0), "eta": eta, "mu": number(1.0), "ax": zeros(theta)}

    def numbers(self, state, group, new):
        """The rate η of this step and the weight μ of its θ in the average; a step computes those of the next one.

            t = t + 1
            η, μ = those of this step, at first α and 1
            η⁺ = α / (1 + κ α t)ᵖ
            μ⁺ = 1 / max(1, t − t₀)
        After torch.optim.ASGD.
        """
        t = super().numbers(state, group, new)["t"]
        eta, mu = _taken(state["eta"]), _taken(state["mu"])
        _keep(state, "eta", (lr := scalar(group["lr"])) / (1 + group["lambd"] * lr * t) ** group["alpha"])
        _keep(state, "mu", 1 / max(1, t - group["t0"]))
        return {"eta": eta, "mu": mu}

    @staticmethod
    def update(theta, g, ax, *, eta, mu, lambd):
        """From step t₀ on ā is the mean of all θ since; before, μ = 1 makes it θ itself.

            θ = θ − η κ θ
            θ = θ − η g
            ā = ā + μ (θ − ā)
        Polyak and Juditsky 1992.
        """
        theta.mul_(1 - lambd * eta)
        theta.add_(g, alpha=-eta)
        ax.copy_(theta) if mu == 1 else ax.add_(theta.sub(ax).mul_(mu))


def _taken(kept: Tensor) -> Any:
    """The number in a tensor; the tensor itself where autograd tracks it."""
    return kept if kept.requires_grad else kept.item()


def _keep(state: dict[str, Any], name: str, value: Any) -> None:
    value = torch.as_tensor(value)
    if value.requires_grad:  # the backward pass needs the one before
        state[name] = value
    else:
        state[name].copy_(value)
