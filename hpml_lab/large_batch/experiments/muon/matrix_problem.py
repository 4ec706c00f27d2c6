"""What a plane cannot show: ‖A W B − C‖² over matrices W, with the singular values of W and of each update.

C = A W* B, so that the least loss is 0. A and B are ill-conditioned: many directions of W hardly change the loss, and are
hardly in the gradient. On the CPU, in float64: the matrices are small.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from statistics import median

import torch

from hpml_lab.core.experiment import Row, column
from hpml_lab.large_batch.lessons.rate_scaling import warmed_up
from hpml_lab.optim import SGD, AdamW, Muon

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "momentum": partial(SGD, momentum=0.9),
    "AdamW": partial(AdamW, weight_decay=0.0),
    "Muon": partial(Muon, weight_decay=0.0),
}
# Five peak rates for each, a factor of 2 apart, with the best in between; the largest of momentum is beyond its limit.
RATES = {
    "momentum": (6.0, 3.0, 1.5, 0.75, 0.375),
    "AdamW": (0.25, 0.125, 0.0625, 0.03125, 0.015625),
    "Muon": (0.5, 0.25, 0.125, 0.0625, 0.03125),
}
KEPT = 33  # steps of which the figure has singular values


@dataclass
class MatrixDescent(Row):
    """One optimizer at the best of its rates, over all problems."""

    optimizer: str = column("optimizer")
    rate: float = column("peak rate")
    half: float = column("loss after half of the steps, median")
    loss: float = column("loss at the end, median")
    highest: float = column("highest")
    first_rank: float = column("stable rank of the first update, median")
    rank: float = column("stable rank of all updates, median")
    by_problem: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class MatrixProblems:
    """Several problems at once: A, B, C and the solution W* are (S, n, n)."""

    A: torch.Tensor
    B: torch.Tensor
    C: torch.Tensor
    solution: torch.Tensor

    def loss(self, W: torch.Tensor) -> torch.Tensor:
        """‖A W B − C‖² / ‖C‖² of each problem: 1 at W = 0."""
        return (self.A @ W @ self.B - self.C).square().sum((-2, -1)) / self.C.square().sum((1, 2))

    def gradient(self, W: torch.Tensor) -> torch.Tensor:
        """Aᵀ (A W B − C) Bᵀ, of half of ‖A W B − C‖²."""
        return self.A.mT @ (self.A @ W @ self.B - self.C) @ self.B.mT


def matrix_problems(size: int, condition: float, count: int) -> MatrixProblems:
    """Drawn from one seed: the singular values of A and B fall from 1 to 1 / condition, W* has normal elements."""
    made = torch.Generator().manual_seed(0)
    S = torch.logspace(0, -math.log10(condition), size, dtype=torch.float64)

    def drawn() -> torch.Tensor:
        return torch.randn(count, size, size, dtype=torch.float64, generator=made)

    A, B = (torch.linalg.qr(drawn()).Q * S @ torch.linalg.qr(drawn()).Q for _ in range(2))
    W = drawn() / size**0.5
    return MatrixProblems(A, B, A @ W @ B, W)


def descent(problems: MatrixProblems, name: str, rate: float, steps: int) -> Iterator[torch.Tensor]:
    """W (S, n, n) before the first step and after each, from 0, with a rate that falls from `rate` to 0 in a straight line."""
    params = [torch.zeros_like(W).requires_grad_() for W in problems.solution]
    optimizer, schedule = OPTIMIZERS[name](params, lr=rate), warmed_up(rate, 0, steps, decay=True)
    yield torch.stack(params).detach()
    for t in range(steps):
        optimizer.param_groups[0]["lr"] = schedule(t)
        for p, g in zip(params, problems.gradient(torch.stack(params).detach()), strict=True):
            p.grad = g
        optimizer.step()
        yield torch.stack(params).detach()


def stable_rank(x: torch.Tensor) -> torch.Tensor:
    """‖x‖² / σ₁²: in how many directions matrices are about as long as in their longest one."""
    S = torch.linalg.svdvals(x)
    return S.square().sum(-1) / S[..., 0].square()


def descend(problems: MatrixProblems, name: str, steps: int) -> tuple[MatrixDescent, dict[str, list]]:
    """The optimizer at the rate of the least final loss, median over the problems; and what the figure shows of that run.

    In the figure's arrays are all losses (steps + 1, S), and of KEPT steps, for the first problem, the singular values of W
    before the step and those of the update.
    """
    finals = {}
    for rate in RATES[name]:
        [W] = deque(descent(problems, name, rate, steps), maxlen=1)
        finals[rate] = problems.loss(W).nan_to_num(nan=torch.inf).median().item()
    rate = min(finals, key=lambda rate: finals[rate])
    W = torch.stack(list(descent(problems, name, rate, steps)))
    losses, updates = torch.stack([problems.loss(w) for w in W]), W.diff(dim=0)
    ranks, final = stable_rank(updates), losses[-1].tolist()
    row = MatrixDescent(
        name,
        rate,
        losses[steps // 2].median().item(),
        median(final),
        max(final),
        ranks[0].median().item(),
        ranks.median().item(),
        final,
    )
    kept = torch.linspace(0, steps - 1, KEPT).round().long()
    return row, {
        "losses": rounded(losses),
        "steps": kept.tolist(),
        "W": rounded(torch.linalg.svdvals(W[kept, 0])),
        "updates": rounded(torch.linalg.svdvals(updates[kept, 0])),
    }


def rounded(x: torch.Tensor) -> list:
    """To four digits: a recorded run travels with the project."""
    return [rounded(row) if row.ndim else float(f"{row:.4g}") for row in x]
