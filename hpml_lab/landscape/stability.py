"""Where gradient descent, heavy ball and Nesterov converge on a quadratic, and how fast: theory and measured maps.

On an eigendirection with eigenvalue λ the gradient is λ θ, so one step is a fixed 2 × 2 matrix on (θ, b):

    momentum   [[1 − αλ, −αγ], [λ, γ]]               z² − (1 + γ − αλ) z + γ = 0
    Nesterov   [[1 − αλ(1 + γ), −αγ²], [λ, γ]]       z² − (1 + γ)(1 − αλ) z + γ(1 − αλ) = 0

In the long run θ shrinks per step by the larger |z|, the spectral radius. On the whole surface the slowest direction counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from hpml_lab.landscape.surfaces import Number, quadratic
from hpml_lab.landscape.trajectories import run_grid

KINDS = ("momentum", "nesterov")


def update_matrix(kind: str, lr: float, momentum: float, eigenvalue: float) -> torch.Tensor:
    """The matrix (2, 2), float64, that takes (θ, b) to their next values on an eigendirection."""
    _check(kind)
    step = eigenvalue if kind == "momentum" else eigenvalue * (1 + momentum)
    carry = momentum if kind == "momentum" else momentum**2
    return torch.tensor([[1 - lr * step, -lr * carry], [eigenvalue, momentum]], dtype=torch.float64)


def spectral_radius(kind: str, lr: Number, momentum: Number, eigenvalues: Sequence[float]) -> torch.Tensor:
    """The theoretical convergence rate per step: max |z| over `eigenvalues`; lr and momentum broadcast.

    Below 1 the iteration converges, above 1 it diverges.
    """
    _check(kind)
    lr, momentum = (torch.as_tensor(value, dtype=torch.float64) for value in (lr, momentum))
    radii = []
    for eigenvalue in eigenvalues:
        left = 1 - lr * eigenvalue
        trace = momentum + left if kind == "momentum" else (1 + momentum) * left
        determinant = momentum if kind == "momentum" else momentum * left
        root = (trace * trace / 4 - determinant).to(torch.complex128).sqrt()
        radii.append(torch.maximum((trace / 2 + root).abs(), (trace / 2 - root).abs()))
    return torch.stack(torch.broadcast_tensors(*radii)).amax(0)


def largest_stable_rate(kind: str, momentum: Number, eigenvalue: float) -> Number:
    """The learning rate beyond which the iteration diverges, for 0 ≤ γ < 1 and the largest eigenvalue λ.

        momentum  2 (1 + γ) / λ
        Nesterov  2 (1 + γ) / ((1 + 2γ) λ)
    At γ = 0 both are gradient descent's 2 / λ. They follow from z = −1 in the characteristic polynomials above.
    """
    _check(kind)
    return 2 * (1 + momentum) / eigenvalue / (1 if kind == "momentum" else 1 + 2 * momentum)


@dataclass(frozen=True)
class BestSetting:
    """The hyperparameters with which a rule converges fastest on quadratics with eigenvalues from μ to L, and its rate."""

    kind: str
    lr: float
    momentum: float
    rate: float
    source: str


def best_settings(smallest: float, largest: float) -> dict[str, BestSetting]:
    """For eigenvalues from μ = `smallest` to L = `largest`, κ = L / μ:

    gradient descent   α = 2 / (L + μ), rate (κ − 1) / (κ + 1)
    momentum           α = 4 / (√L + √μ)², γ = ((√κ − 1) / (√κ + 1))², rate √γ
    Nesterov, usual    α = 1 / L, γ = (√κ − 1) / (√κ + 1), rate 1 − 1 / √κ
    Nesterov, tuned    α = 4 / (3 L + μ), γ = (√(3κ + 1) − 2) / (√(3κ + 1) + 2), rate 1 − 2 / √(3κ + 1)
    """
    kappa = largest / smallest
    root, root3 = math.sqrt(kappa), math.sqrt(3 * kappa + 1)
    ball, usual = (root - 1) / (root + 1), (root - 1) / (root + 1)
    return {
        "gradient descent": BestSetting("momentum", 2 / (largest + smallest), 0.0, (kappa - 1) / (kappa + 1), "Polyak 1964"),
        "momentum": BestSetting(
            "momentum", (2 / (math.sqrt(largest) + math.sqrt(smallest))) ** 2, ball**2, ball, "Polyak 1964"
        ),
        "Nesterov, usual": BestSetting(
            "nesterov", 1 / largest, usual, 1 - 1 / root, "Nesterov 2004, section 2.2; Sutskever 2013"
        ),
        "Nesterov, tuned": BestSetting(
            "nesterov", 4 / (3 * largest + smallest), (root3 - 2) / (root3 + 2), 1 - 2 / root3, "Lessard, Recht, Packard 2016"
        ),
    }


@dataclass(frozen=True)
class StabilityMap:
    """A grid of settings on a quadratic: rows are momenta, columns rates, all (momenta, rates) in float64."""

    kind: str
    largest: float  # λmax
    lr: torch.Tensor  # (1, rates)
    momentum: torch.Tensor  # (momenta, 1)
    measured: torch.Tensor  # shrinking factor per step, of the iterates
    theory: torch.Tensor  # spectral radius

    @property
    def cells(self) -> int:
        return self.measured.numel()

    @property
    def agreeing(self) -> int:
        """How many cells converge or diverge as the boundary predicts."""
        stable = self.lr < largest_stable_rate(self.kind, self.momentum, self.largest)
        return int(((self.measured < 1) == stable).sum())

    @property
    def errors(self) -> torch.Tensor:
        """|measured / theory − 1| in the cells whose iterates stayed within float64's range."""
        inside = self.measured.isfinite() & (self.measured > 0)
        return (self.measured / self.theory - 1).abs()[inside]


def stability_map(
    kind: str,
    condition: float = 25.0,
    cells: int = 200,
    steps: int = 600,
    skip: int = 200,
    lr_times_largest: float | None = None,
    device: torch.device | str = "cpu",
) -> StabilityMap:
    """Measure how fast `cells` × `cells` settings of (lr, momentum) shrink on quadratic(condition).

    The rate of a cell is measured between two peaks of max(|x|, |y|), because the modes oscillate: one peak within `skip`
    steps from step `skip` on, when only the slowest mode is left, and one within the last `skip` steps. lr goes up to
    `lr_times_largest` / λmax (default: a little beyond the boundary), momentum from 0 to 0.99.
    """
    surface = quadratic(condition)
    reach = lr_times_largest or (4.1 if kind == "momentum" else 2.2)
    lr = (torch.linspace(0, reach, cells + 1, dtype=torch.float64)[1:] / condition)[None]
    momentum = torch.linspace(0, 0.99, cells, dtype=torch.float64)[:, None]
    keep = [*range(skip, 2 * skip), *range(steps - skip + 1, steps + 1)]
    grid = run_grid(surface, kind, steps, (1.0, 1.0), keep, dtype=torch.float64, device=device, lr=lr, momentum=momentum)
    size = grid.kept.abs().amax(1)
    first, first_at = size[:skip].max(0)
    last, last_at = size[skip:].max(0)
    steps_between = (last_at + steps - skip + 1) - (first_at + skip)
    measured = torch.where(last == 0, 0.0, (last / first) ** (1 / steps_between))  # 0 / 0 is no divergence
    measured = measured.nan_to_num(nan=math.inf).cpu()
    theory = spectral_radius(kind, lr, momentum, surface.eigenvalues)
    return StabilityMap(kind, condition, lr, momentum, measured, theory)


def _check(kind: str) -> None:
    if kind not in KINDS:
        raise ValueError(f"the theory here is for {' and '.join(KINDS)}, not {kind!r}")
