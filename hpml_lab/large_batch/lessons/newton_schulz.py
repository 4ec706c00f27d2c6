"""Newton–Schulz: make all singular values of a gradient about 1 by matrix products alone, without a singular value decomposition.

    G = U S Vᵀ,    its polar factor U Vᵀ: the same singular vectors, every singular value 1

Each step applies an odd polynomial, p(s) = a s + b s³ + c s⁵, to all singular values at once.

Sources: the coefficients of MUON, K. Jordan et al., Muon: An optimizer for hidden layers in neural networks (2024); why such a
step is steepest descent, J. Bernstein and L. Newhouse, Old Optimizer, New Norm: An Anthology (2024).
"""

import torch

Coefficients = tuple[float, float, float]
MUON: Coefficients = (3.4445, -4.7750, 2.0315)  # steep at 0, so that small singular values grow fast; 1 is not a fixed point
CLASSICAL: Coefficients = (1.5, -0.5, 0.0)  # Newton–Schulz as in textbooks: 1 is its fixed point, and it gets there
STEPS = 5


def polynomial(s: torch.Tensor, coefficients: Coefficients, steps: int) -> torch.Tensor:
    """What `steps` steps make of a singular value s: p(p(… p(s)))."""
    a, b, c = coefficients
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return s


def newton_schulz(
    G: torch.Tensor, steps: int = STEPS, coefficients: Coefficients = MUON, eps: float = 1e-7
) -> torch.Tensor:
    """G = U S Vᵀ with the polynomial on S: U p(… p(S / ‖G‖)) Vᵀ.

    X = G / max(‖G‖, ε), so that no singular value is above 1
    A = X Xᵀ
    X = a X + (b A + c A²) X, `steps` times
    A tall matrix is transposed first: A then has the smaller side.
    """
    a, b, c = coefficients
    X = G.T if G.size(0) > G.size(1) else G
    X = X / X.norm().clamp(min=eps)
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if G.size(0) > G.size(1) else X


def newton_schulz_flops(rows: int, columns: int, steps: int = STEPS) -> int:
    """Of the matrix products: X Xᵀ and (…) X with 2 m² n each, A A with 2 m³, for m = the smaller side and n = the larger."""
    m, n = sorted((rows, columns))
    return steps * (4 * m * m * n + 2 * m**3)
