"""Exercise fix-the-backward: the gradients of a division that broadcasts."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.rubric import Rubric


def divide_backward(g: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    grad_b = -g * a / b**2
    return g / b, grad_b.sum(0)


RUBRIC = Rubric(
    divide_backward,
    """
return g / b,
    upstream-missing :: return 1 / b, :: $SLOPE
    upstream-missing :: return (1 / b).expand_as(a), :: $SLOPE
grad_b = -g * a / b**2
    sign :: grad_b = g * a / b**2 :: Mind the sign of the gradient for b: when b grows, a/b shrinks.
    square-missing :: grad_b = -g * a / b :: b appears squared: ∂(1/b)/∂b = -1/b².
grad_b.sum(0)
    not-summed :: grad_b :: b is (F,), and so is its gradient. Each element was used in all N rows: their contributions add up.
    averaged :: grad_b.mean(0) :: Contributions of the rows are added, not averaged: the rule is a sum over all uses.
    not-reduced-to-its-shape :: grad_b.sum(0, keepdim=True) :: b is (F,), its gradient too: without keepdim.
""",
    SLOPE="1/b is the slope. The chain rule multiplies it by g, the gradient that arrives.",
)


@exercise("fix-the-backward", notebook="02_autograd", takes="g, a, b", returns=(like("a"), like("b")))
def judge_fix_the_backward(answer: Callable) -> None:
    """(∂L/∂a, ∂L/∂b) of y = a / b, a (N, F) and b (F,) broadcast."""
    a = torch.tensor([[1.0, -2.0], [3.0, 0.5], [-1.5, 4.0]], dtype=torch.float64)
    b = torch.tensor([2.0, -4.0], dtype=torch.float64)
    g = torch.tensor([[0.5, 1.0], [-1.0, 2.0], [2.0, -0.5]], dtype=torch.float64)
    wide = torch.cat([g, -2 * g], dim=1), torch.cat([a, a + 1], dim=1), torch.tensor([2.0, -4.0, 0.3, 1.0]).double()
    cases = {
        "3 samples of 2 numbers": (g, a, b),
        "a square batch, 2 × 2": (g[:2], a[1:], b),
        "a batch of one number": (g[:1, :1], a[1:2, :1], b[:1]),
        "3 samples of 4 numbers": wide,
    }
    RUBRIC.expect(answer, cases)
