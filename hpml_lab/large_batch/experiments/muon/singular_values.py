"""What Newton–Schulz makes of singular values: on a fine grid by the polynomial, on matrices by products, and in bfloat16."""

import math
from dataclasses import dataclass

import torch

from hpml_lab.core.experiment import Result, Row, column
from hpml_lab.large_batch.lessons.orthogonalization import CLASSICAL, MUON, STEPS, Coefficients, newton_schulz, polynomial
from hpml_lab.optim.muon import newton_schulz_step, normalized

SMALLEST, BAND = 0.0016, (0.68, 1.21)
GRID = torch.logspace(math.log10(SMALLEST), 0, 10_001, dtype=torch.float64)
MOST = 30  # steps that are looked at
SHAPES = ((24, 40), (40, 24), (32, 32))


@dataclass
class BandOfSteps(Row):
    """What some steps make of the singular values from SMALLEST to 1."""

    steps: int = column("steps")
    least: float = column("Muon: least")
    largest: float = column("largest")
    classical: float = column("classical: least")
    error: float = column("classical: farthest from 1")


def band_of_steps(steps: int) -> BandOfSteps:
    muon, classical = polynomial(GRID, MUON, steps), polynomial(GRID, CLASSICAL, steps)
    return BandOfSteps(steps, muon.min().item(), muon.max().item(), classical.min().item(), (classical - 1).abs().max().item())


def in_band(low: float, high: float) -> bool:
    return BAND[0] <= low and high <= BAND[1]


def matrix_of(S: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """A matrix with these singular values and singular vectors drawn from one seed."""
    made = torch.Generator().manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(side, len(S), dtype=torch.float64, generator=made)).Q for side in (rows, columns))
    return U * S @ V.T


def off_by_svd(rows: int, columns: int, coefficients: Coefficients, steps: int) -> float:
    """The largest difference of an element between the products and U p(S / ‖S‖) Vᵀ, by an SVD."""
    G = matrix_of(torch.linspace(1, 0.1, min(rows, columns), dtype=torch.float64), rows, columns)
    U, S, Vh = torch.linalg.svd(G, full_matrices=False)
    wanted = U * polynomial(S / S.norm(), coefficients, steps) @ Vh
    return (newton_schulz(G, steps, coefficients) - wanted).abs().max().item()


def in_bfloat16(steps: int = STEPS) -> tuple[list[float], list[float], float]:
    """Singular values s of a matrix, what Muon's steps in bfloat16 made of each, and the largest error of these.

    The singular vectors stay nearly the same, so that each is read in the direction of its own: uᵀ X v.
    """
    S = torch.logspace(0, -2.5, 64, dtype=torch.float64)
    G = matrix_of(S, 64, 96)
    U, S, Vh = torch.linalg.svd(G, full_matrices=False)
    X = normalized(G)
    for _ in range(steps):
        X = newton_schulz_step(X)
    s, after = S / S.norm(), (U.T @ X.double() @ Vh.T).diagonal()
    return s.tolist(), after.tolist(), (after - polynomial(s, MUON, steps)).abs().max().item()


def judge_singular_values(result: Result, bands: list[BandOfSteps]) -> None:
    """Add what the steps do, in float64."""
    five = bands[STEPS - 1]
    slow = next(row.steps for row in bands if row.classical >= BAND[0])
    result.claim(
        f"Five steps bring every singular value from {SMALLEST} to 1 between {BAND[0]} and {BAND[1]}, and further ones keep "
        f"them there without reaching 1; the classical polynomial reaches 1, but needs more than three times the steps",
        all(in_band(row.least, row.largest) for row in bands[STEPS - 1 :])
        and not in_band(bands[STEPS - 2].least, bands[STEPS - 2].largest)
        and min(row.largest - row.least for row in bands) > 0.1
        and bands[-1].error < 1e-12
        and slow > 3 * STEPS,
        f"{five.least:.4f} to {five.largest:.4f} after {STEPS} steps; classical: {slow} steps to {BAND[0]}",
    )
    off = [
        off_by_svd(*shape, coefficients, steps)
        for shape in SHAPES
        for coefficients, steps in ((MUON, STEPS), (CLASSICAL, MOST))
    ]
    result.claim(
        "Products alone do what the polynomial on the singular values of an SVD does: on tall, wide and square matrices the "
        "singular vectors stay",
        max(off) < 1e-9,
        f"elements differ by {max(off):.0e} at most",
    )
    result.key_figure(f"singular values after {STEPS} steps, from {SMALLEST} to 1", f"{five.least:.3f} to {five.largest:.3f}")
