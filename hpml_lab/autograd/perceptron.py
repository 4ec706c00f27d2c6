"""One perceptron, p = σ(w·x), with binary cross-entropy: its gradient by hand, by the engine and by torch.

Every function takes weights w (n,), inputs x (n,) and a label y (0 or 1), and returns the same record: z, p,
loss, and the gradients ∂L/∂p, ∂p/∂z, ∂L/∂z, ∂L/∂w (n,).
"""

import numpy as np
import torch

from hpml_lab.autograd.engine import Tensor, backward_steps, log, sigmoid, sum_

Record = dict[str, float | np.ndarray]


def by_hand(w: np.ndarray, x: np.ndarray, y: float) -> Record:
    """The lecture's formulas, one line each.

    z = w·x, p = 1/(1 + e⁻ᶻ), L = -(y log p + (1-y) log(1-p)); backward: ∂L/∂p = -(y/p - (1-y)/(1-p)), ∂p/∂z =
    p(1-p), ∂L/∂z = ∂L/∂p · ∂p/∂z (which is p - y), ∂L/∂w = ∂L/∂z · x.
    """
    z = w @ x
    p = 1 / (1 + np.exp(-z))
    loss = -(y * np.log(p) + (1 - y) * np.log(1 - p))
    dp = -(y / p - (1 - y) / (1 - p))
    slope = p * (1 - p)
    dz = dp * slope
    return {"z": z, "p": p, "L": loss, "∂L/∂p": dp, "∂p/∂z": slope, "∂L/∂z": dz, "∂L/∂w": dz * x}


def by_engine(w: np.ndarray, x: np.ndarray, y: float) -> Record:
    """The forward pass only; the engine finds the gradients. ∂p/∂z is ∂L/∂z divided by ∂L/∂p."""
    weights = Tensor(w, requires_grad=True, name="w")
    z = sum_(weights * x)
    p = sigmoid(z)
    loss = -(y * log(p) + (1 - y) * log(1 - p))
    gradients = dict(backward_steps(loss))
    dp, dz = gradients[p].item(), gradients[z].item()
    return {
        "z": z.item(),
        "p": p.item(),
        "L": loss.item(),
        "∂L/∂p": dp,
        "∂p/∂z": dz / dp,
        "∂L/∂z": dz,
        "∂L/∂w": gradients[weights],
    }


def by_torch(w: np.ndarray, x: np.ndarray, y: float, device: torch.device | None = None) -> Record:
    """torch's sigmoid and BCELoss in float64; `retain_grad` keeps the gradients of p and z."""
    weights = torch.tensor(w, device=device, requires_grad=True)
    z = (weights * torch.tensor(x, device=device)).sum()
    p = torch.sigmoid(z)
    z.retain_grad()
    p.retain_grad()
    loss = torch.nn.BCELoss()(p, torch.tensor(float(y), dtype=p.dtype, device=device))
    loss.backward()
    dp, dz = p.grad.item(), z.grad.item()
    return {
        "z": z.item(),
        "p": p.item(),
        "L": loss.item(),
        "∂L/∂p": dp,
        "∂p/∂z": dz / dp,
        "∂L/∂z": dz,
        "∂L/∂w": weights.grad.cpu().numpy(),
    }


def three_losses(z: torch.Tensor, y: float) -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    """Loss and ∂L/∂z of each logit z (N,) against the label y, computed in three ways: {name: (loss (N,),
    gradient (N,))}.

    formula            -(y log p + (1-y) log(1-p)) with p = σ(z), as it is written
    BCELoss            torch's, which cuts log off at -100
    BCEWithLogitsLoss  torch's, which starts from z: max(z, 0) - yz + log(1 + e^{-|z|})
    """
    target = torch.full_like(z, y)

    def formula(z: torch.Tensor) -> torch.Tensor:
        p = torch.sigmoid(z)
        return -(target * torch.log(p) + (1 - target) * torch.log(1 - p))

    ways = {
        "formula": formula,
        "BCELoss": lambda z: torch.nn.BCELoss(reduction="none")(torch.sigmoid(z), target),
        "BCEWithLogitsLoss": lambda z: torch.nn.BCEWithLogitsLoss(reduction="none")(z, target),
    }
    found = {}
    for name, way in ways.items():
        logits = z.detach().clone().requires_grad_()
        loss = way(logits)
        loss.sum().backward()  # each loss depends on its own logit only: the sum mixes no gradients
        found[name] = loss.detach(), logits.grad
    return found
