"""One perceptron, p = σ(w·x), with binary cross-entropy: its gradient by hand, by our engine and by torch.

The three functions take weights w (n,), inputs x (n,) and a label y (0 or 1), and return the same record.
"""

from dataclasses import dataclass

import numpy as np
import torch

from hpml_lab.autograd.lessons.engine import Tensor, backward_steps, log, sigmoid, sum_


@dataclass(frozen=True)
class PerceptronPass:
    """The values of one forward pass and the gradients of its backward pass, one step after the other."""

    z: float
    p: float
    loss: float
    dL_dp: float
    dp_dz: float
    dL_dz: float
    dL_dw: np.ndarray


def perceptron_by_hand(w: np.ndarray, x: np.ndarray, y: float) -> PerceptronPass:
    """The lecture's formulas, one line each.

    z = w·x, p = 1/(1 + e⁻ᶻ), L = -(y log p + (1-y) log(1-p)); backward: ∂L/∂p = -(y/p - (1-y)/(1-p)), ∂p/∂z = p(1-p),
    ∂L/∂z = ∂L/∂p · ∂p/∂z (which is p - y), ∂L/∂w = ∂L/∂z · x.
    """
    z = w @ x
    p = 1 / (1 + np.exp(-z))
    loss = -(y * np.log(p) + (1 - y) * np.log(1 - p))
    dL_dp = -(y / p - (1 - y) / (1 - p))
    dp_dz = p * (1 - p)
    dL_dz = dL_dp * dp_dz
    return PerceptronPass(float(z), float(p), float(loss), float(dL_dp), float(dp_dz), float(dL_dz), dL_dz * x)


def perceptron_by_engine(w: np.ndarray, x: np.ndarray, y: float) -> PerceptronPass:
    """The forward pass only; the engine computes the gradients. ∂p/∂z is ∂L/∂z divided by ∂L/∂p."""
    weights = Tensor(w, requires_grad=True, name="w")
    z = sum_(weights * x)
    p = sigmoid(z)
    loss = -(y * log(p) + (1 - y) * log(1 - p))
    gradients = dict(backward_steps(loss))
    dL_dp, dL_dz = gradients[p].item(), gradients[z].item()
    return PerceptronPass(z.item(), p.item(), loss.item(), dL_dp, dL_dz / dL_dp, dL_dz, gradients[weights])


def perceptron_by_torch(w: np.ndarray, x: np.ndarray, y: float, device: torch.device | str | None = None) -> PerceptronPass:
    """torch's sigmoid and BCELoss in float64; `retain_grad` keeps the gradients of p and z."""
    weights = torch.tensor(w, device=device, requires_grad=True)
    z = (weights * torch.tensor(x, device=device)).sum()
    p = torch.sigmoid(z)
    z.retain_grad()
    p.retain_grad()
    loss = torch.nn.BCELoss()(p, torch.tensor(float(y), dtype=p.dtype, device=device))
    loss.backward()
    dL_dp, dL_dz = p.grad.item(), z.grad.item()
    return PerceptronPass(z.item(), p.item(), loss.item(), dL_dp, dL_dz / dL_dp, dL_dz, weights.grad.cpu().numpy())


def three_losses(z: torch.Tensor, y: float) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Loss and ∂L/∂z of each logit z (N,) for the label y, computed in three ways: {name: (loss (N,), gradient (N,))}.

    formula            -(y log p + (1-y) log(1-p)) with p = σ(z), as it is written
    BCELoss            torch's, which clamps the logarithm at -100
    BCEWithLogitsLoss  torch's, which starts from z: max(z, 0) - yz + log(1 + e^{-|z|})
    """
    target = torch.full_like(z, y)

    def formula(z: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(z)
        return -(target * torch.log(p) + (1 - target) * torch.log(1 - p))

    functions = {
        "formula": formula,
        "BCELoss": lambda z: torch.nn.BCELoss(reduction="none")(torch.sigmoid(z), target),
        "BCEWithLogitsLoss": lambda z: torch.nn.BCEWithLogitsLoss(reduction="none")(z, target),
    }
    losses = {}
    for name, function in functions.items():
        logits = z.detach().clone().requires_grad_()
        loss = function(logits)
        loss.sum().backward()  # each loss depends on its own logit only: the sum mixes no gradients
        losses[name] = loss.detach(), logits.grad
    return losses
