"""newton-schulz: X = g / max(‖g‖, ε), then X = a X + (b A + c A²) X with A = X Xᵀ of the smaller side, step by step."""

from collections.abc import Callable

import torch
from torch.utils.flop_counter import FlopCounterMode

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Judged, Rubric
from hpml_lab.core.judge.same import numbers, same
from hpml_lab.large_batch.lessons.orthogonalization import CLASSICAL, MUON, Coefficients

Tensor = torch.Tensor
Steps = list[Coefficients]


def right(g: Tensor, coefficients: Steps, eps: float) -> Tensor:
    x = g.T if g.size(0) > g.size(1) else g
    x = x / x.norm().clamp(min=eps)
    for a, b, c in coefficients:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if g.size(0) > g.size(1) else x


def polar(g: Tensor, coefficients: Steps, eps: float) -> Tensor:
    U, _, Vh = torch.linalg.svd(g, full_matrices=False)
    return U @ Vh


RUBRIC = Rubric(
    right,
    """
g.size(0) > g.size(1)
    larger-side :: False :: $SMALLER
    larger-side :: g.size(0) < g.size(1) :: $SMALLER
x / x.norm().clamp(min=eps)
    not-normalized :: x :: Before the first step g is divided by its norm: the polynomial leads to 1 only from below about 1.26.
    epsilon-added :: x / (x.norm() + eps) :: ε is a floor under the norm, max(‖g‖, ε), and is not added to it.
    no-floor :: x / x.norm() :: Where ‖g‖ is below ε the division is by ε: so a g of zeros stays 0 and is not nan.
    spectral-norm :: x / torch.linalg.matrix_norm(x, 2).clamp(min=eps) :: ‖g‖ is the root of the sum of the squares of all
        elements. The largest singular value would need an SVD.
    norm-of-each-row :: x / x.norm(dim=1, keepdim=True).clamp(min=eps) :: $ONE
    norm-of-each-row :: x / x.norm(dim=0, keepdim=True).clamp(min=eps) :: $ONE
    squared-norm :: x / x.square().sum().clamp(min=eps) :: A norm is the root of the sum of squares.
    largest-element :: x / x.abs().max().clamp(min=eps) :: ‖g‖ is the root of the sum of squares, not the largest element.
    norm-at-most-epsilon :: x / x.norm().clamp(max=eps) :: max(‖g‖, ε) is at least ε: `clamp(min=…)` sets the least value.
in coefficients
    step-left-out :: in coefficients[1:] :: $EACH
    step-left-out :: in coefficients[:-1] :: $EACH
    same-coefficients :: in coefficients[:1] * len(coefficients) :: $EACH
    same-coefficients :: in coefficients[-1:] * len(coefficients) :: $EACH
    reversed :: in reversed(coefficients) :: The steps are taken in the order of the list.
a * x + (b * gram + c * gram @ gram) @ x
    no-fifth-power :: a * x + b * gram @ x :: The polynomial has three terms, a s + b s³ + c s⁵: A X has the third powers, A² X
        the fifth.
    no-third-power :: a * x + c * gram @ gram @ x :: The polynomial has three terms, a s + b s³ + c s⁵: the one of b is b A X.
    no-linear-term :: (b * gram + c * gram @ gram) @ x :: The polynomial has three terms, a s + b s³ + c s⁵: a X is the first.
    added-to-x :: x + a * x + (b * gram + c * gram @ gram) @ x :: The new X is a X + (b A + c A²) X: the old one is in it
        a times, and not once more.
    swapped :: a * x + (c * gram + b * gram @ gram) @ x :: b belongs to A and c to A².
    powers-of-elements :: a * x + b * x**3 + c * x**5 :: The powers are those of singular values, which matrix products give:
        the elements' own powers turn the singular vectors.
c * gram @ gram
    squares-of-elements :: c * gram * gram :: A² is the matrix product A A; `*` and `**` square each element.
    cube :: c * gram @ gram @ gram :: A² has two factors: A³ X would be the seventh power of the singular values.
x.T if g.size(0) > g.size(1) else x
    not-transposed-back :: x :: The result has the shape of g: what was transposed before the steps is transposed back
        after them.
whole answer
    polar-factor :: polar :: The result is what the given steps make of g: with these coefficients, and few steps, the singular
        values are near 1 at best.
    not-iterated :: lambda g, coefficients, eps: right(g, coefficients[:1], eps) :: $EACH
    normalized-in-each-step :: normalized_in_each_step :: g is divided by its norm once, before the first step.
""",
    SMALLER="X Xᵀ is as large as X has rows: transpose a matrix with more rows than columns first, and no other.",
    ONE="One number divides the whole matrix: its norm over all elements. Else the singular vectors turn.",
    EACH="There is one step for each triple of the list, with the coefficients of that triple.",
)


def normalized_in_each_step(g: Tensor, coefficients: Steps, eps: float) -> Tensor:
    for step in coefficients:
        g = right(g, [step], eps)
    return g


def _drawn(seed: int, rows: int, columns: int, size: float = 1.0) -> Tensor:
    return size * torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


ROUNDED = 0.15  # of the largest element: what five steps in bfloat16 may be off, because the polynomial is steep
MIXED: Steps = [(3.0, -3.2, 1.2), MUON, (2.0, -1.5, 0.5)]
CASES = {
    "g of 3 × 5, Muon's coefficients five times": (_drawn(0, 3, 5), [MUON] * 5, 1e-7),
    "g of 6 × 2, three different steps": (_drawn(1, 6, 2, 0.01), MIXED, 1e-7),
    "g of 4 × 4, two classical steps": (_drawn(2, 4, 4, 30.0), [CLASSICAL] * 2, 1e-7),
    "g of 2 × 6, three different steps": (_drawn(3, 2, 6), MIXED, 1e-7),
    "g of 2 × 3 with ‖g‖ far below ε = 0.5": (_drawn(4, 2, 3, 1e-3), MIXED, 0.5),
    "g of 3 × 2 with ‖g‖ somewhat above ε = 0.5": (_drawn(5, 3, 2, 0.5), [MUON], 0.5),
    "g of 3 × 2, all zeros": (torch.zeros(3, 2, dtype=torch.float64), [MUON] * 2, 1e-7),
    "g of 1 × 4, one step": (_drawn(6, 1, 4), [MUON], 1e-7),
    "g of 5 × 3, no steps": (_drawn(7, 5, 3), [], 1e-7),
    "g of 3 × 4, diagonal, Muon's coefficients five times": (torch.eye(3, 4, dtype=torch.float64), [MUON] * 5, 1e-7),
}


@exercise("newton-schulz", notebook="15_large_batch", takes="g, coefficients, eps", returns=like("g", new=True))
def judge_newton_schulz(answer: Callable) -> None:
    """U p(… p(S / max(‖g‖, ε))) Vᵀ for g = U S Vᵀ, with a polynomial for each step, and no product larger than it needs."""
    RUBRIC.expect(answer, CASES, explain=_explain)
    for rows, columns in ((40, 4), (4, 40)):
        with FlopCounterMode(display=False) as counter:
            answer(_drawn(8, rows, columns), MIXED, 1e-7)
        m, n = sorted((rows, columns))
        if counter.get_total_flops() > 2 * len(MIXED) * (6 * m * m * n + 2 * m**3):  # twice what three products of m × n need
            hint = f"The numbers are right, but a matrix of {rows} × {columns} takes products of {n} × {n}. || "
            raise Mistake("larger-side", hint + RUBRIC.edits[0][1].hint)


def _explain(answer: Callable, judged: list[Judged]) -> None:
    """Raise the Mistake that says what became of the precision, of the singular vectors, or of which singular value."""
    results = [numbers(row.got) for row in judged]
    if any(own is None or own.shape != row.wanted.shape for own, row in zip(results, judged, strict=True)):
        return
    if all(own.eq(own.bfloat16()).all() and _off(own, row.wanted) < ROUNDED for own, row in zip(results, judged, strict=True)):
        hint = (
            "Your numbers have the three digits of bfloat16. || The steps are taken in the dtype of g, which is float64 here."
        )
        raise Mistake("low-precision", hint)
    for (case, (g, *_), _, wanted), own in zip(judged, results, strict=True):
        if same(own, wanted) or not own.isfinite().all():
            continue
        U, S, Vh = torch.linalg.svd(g, full_matrices=False)
        turned, kept = (U.T @ x.double() @ Vh.T for x in (own, wanted))
        if _off(own, U * turned.diagonal() @ Vh) > ROUNDED:
            hint = (
                f"For {case}, the singular vectors of your result are not those of g. || Each step multiplies X by a polynomial"
            )
            raise Mistake("other-singular-vectors", f"{hint} in A = X Xᵀ only, which keeps them.")
        at = (turned - kept).diagonal().abs().argmax()
        become = f"becomes {turned[at, at]:.6g} in your result, and {kept[at, at]:.6g} by the steps."
        raise Mistake("other-singular-values", f"For {case}, the singular value {S[at]:.4g} of g {become}")


def _off(own: Tensor, wanted: Tensor) -> float:
    """The largest difference of two elements, relative to the largest element; nan where there is one."""
    return ((own.double() - wanted).abs().max() / wanted.abs().max().clamp(min=1e-300)).item()
