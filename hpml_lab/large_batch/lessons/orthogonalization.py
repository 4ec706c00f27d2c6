"""Newton–Schulz: all singular values of a gradient brought near 1, by matrix products alone.

    G = U S Vᵀ        its polar factor is U Vᵀ: the same singular vectors, and every singular value 1

A step applies an odd polynomial to all singular values at once: p(s) = a s + b s³ + c s⁵.

Sources: K. Jordan et al., Muon: An optimizer for hidden layers in neural networks, 2024 (the coefficients MUON); J. Bernstein
and L. Newhouse, Old Optimizer, New Norm: An Anthology, 2024 (why the polar factor). hpml_lab.optim.Muon computes the same in
bfloat16, with sums and products fused as torch.optim.Muon has them.
"""

import torch

Coefficients = tuple[float, float, float]
MUON: Coefficients = (3.4445, -4.7750, 2.0315)  # p(s) ≈ 3.44 s near 0: small singular values grow fast. But p(1) is 0.70
CLASSICAL: Coefficients = (1.5, -0.5, 0.0)  # p(1) = 1 and p'(1) = 0: it converges to 1, slowly where s is small
STEPS = 5


def polynomial(s: torch.Tensor, coefficients: Coefficients, steps: int) -> torch.Tensor:
    """What becomes of singular values s: p(p(… p(s)))."""
    a, b, c = coefficients
    for _ in range(steps):
        s = a * s + b * s**3 + c * s**5
    return s


def newton_schulz(G: torch.Tensor, steps: int = STEPS, coefficients: Coefficients = MUON, eps: float = 1e-7) -> torch.Tensor:
    """The matrix with G's singular vectors whose singular values are p(… p(s)), of s = S / ‖G‖.

    X = G / max(‖G‖, ε), so that no singular value is above 1
    A = X Xᵀ
    X = a X + (b A + c A²) X
    A matrix with more rows than columns is transposed first, so that A has the smaller side.
    """
    a, b, c = coefficients
    X = G.T if G.size(0) > G.size(1) else G
    X = X / X.norm().clamp(min=eps)
    for _ in range(steps):
        A = X @ X.T
        X = a * X + (b * A + c * A @ A) @ X
    return X.T if G.size(0) > G.size(1) else X


def newton_schulz_flops(rows: int, columns: int, steps: int = STEPS) -> int:
    """FLOPs of the products: X Xᵀ and (…) X have 2 m² n each, A A has 2 m³, where m is the smaller side and n the larger."""
    m, n = sorted((rows, columns))
    return steps * (4 * m * m * n + 2 * m**3)
