"""Softmax regression with its gradient by hand: the smallest real problem for gradient descent.

    p = softmax(x W)          J = mean of −log p of the right class, plus ½ λ |W|²
    ∇J = xᵀ (p − onehot(y)) / B + λ W

W (…, D, C), x (…, B, D), labels as one-hot (…, B, C): leading axes are seeds or settings that are trained at once.
"""

import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.data import load
from hpml_lab.landscape.stability import best_settings


def real_data(name: str, device: torch.device | str, dtype: torch.dtype = torch.float32, most: int | None = None):
    """Pixels with a column of ones (N, D), one-hot labels (N, 10), the data set's name and a list of notes.

    If MNIST's files are missing, the digits are used, and the note says why.
    """
    note = []
    try:
        data = load(name)
    except LabError as error:
        note, data = [f"The digits are used instead of MNIST: {error}"], load("digits")
    x = data.train_x.flatten(1)[:most].to(device, dtype)
    x = torch.cat([x, torch.ones_like(x[:, :1])], 1)
    return x, torch.nn.functional.one_hot(data.train_y[:most], 10).to(device, dtype), data.name, note


def softmax_loss(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, decay: float = 0.0) -> torch.Tensor:
    """J for each leading index of W, (…)."""
    cost = -(torch.log_softmax(x @ w, -1) * y).sum(-1).mean(-1)
    return cost + 0.5 * decay * w.square().sum((-1, -2))


def softmax_gradient(w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, decay: float = 0.0) -> torch.Tensor:
    """∇J, of W's shape."""
    p = torch.softmax(x @ w, -1)
    return x.mT @ (p - y) / x.shape[-2] + decay * w


def curvature_along(w: torch.Tensor, v: torch.Tensor, x: torch.Tensor, y: torch.Tensor, decay: float = 0.0) -> torch.Tensor:
    """H v: the Hessian of J at W times a direction v of W's shape, computed as d/dε ∇J(W + ε v) without the Hessian itself."""
    p = torch.softmax(x @ w, -1)
    change = x @ v
    change = p * (change - (p * change).sum(-1, keepdim=True))
    return x.mT @ change / x.shape[-2] + decay * v


def largest_eigenvalue(
    w: torch.Tensor, x: torch.Tensor, y: torch.Tensor, decay: float = 0.0, tolerance: float = 1e-10, most: int = 2000
) -> tuple[float, torch.Tensor, float]:
    """λmax of the Hessian at W by power iteration: (λmax, its direction, |H v − λ v| / λ)."""
    v = torch.randn(w.shape, generator=torch.Generator().manual_seed(0), dtype=w.dtype).to(w.device)
    eigenvalue = residual = 0.0
    for _ in range(most):
        v = v / v.norm()
        hv = curvature_along(w, v, x, y, decay)
        eigenvalue = (v * hv).sum().item()
        residual = (hv - eigenvalue * v).norm().item() / eigenvalue
        if residual < tolerance:
            break
        v = hv
    return eigenvalue, v, residual


def softmax_minimum(x: torch.Tensor, y: torch.Tensor, decay: float, steps: int = 400) -> torch.Tensor:
    """The W with ∇J = 0; with λ > 0 there is exactly one.

    Found by momentum with Polyak's settings for eigenvalues from λ to twice λmax at W = 0: the Hessian changes on the way.
    """
    w = torch.zeros(x.shape[1], y.shape[1], dtype=x.dtype, device=x.device)
    best = best_settings(decay, 2 * largest_eigenvalue(w, x, y, decay, tolerance=1e-3)[0])["momentum"]
    b = torch.zeros_like(w)
    for _ in range(steps):
        b = best.momentum * b + softmax_gradient(w, x, y, decay)
        w = w - best.lr * b
    return w
