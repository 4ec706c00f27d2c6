"""Exercise fix-the-backward: the gradients of a division that broadcasts."""

from collections.abc import Callable

import torch

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.same import same


@exercise("fix-the-backward", notebook="02_autograd")
def judge_fix_the_backward(answer: Callable) -> None:
    """(∂L/∂a, ∂L/∂b) of y = a / b, a (N, F) and b (F,) broadcast."""
    a = torch.tensor([[1.0, -2.0], [3.0, 0.5], [-1.5, 4.0]], dtype=torch.float64)
    b = torch.tensor([2.0, -4.0], dtype=torch.float64)
    g = torch.tensor([[0.5, 1.0], [-1.0, 2.0], [2.0, -0.5]], dtype=torch.float64)
    _judge(answer, g, a, b, "")
    _judge(answer, g[:2], a[1:], b, " in a square batch, 2 × 2")
    _judge(answer, g[:1, :1], a[1:2, :1], b[:1], " in a batch of one number")
    wide = torch.cat([a, a + 1], dim=1)
    _judge(answer, torch.cat([g, -2 * g], dim=1), wide, torch.tensor([2.0, -4.0, 0.3, 1.0], dtype=torch.float64), " in 3 × 4")


def _judge(answer: Callable, g: torch.Tensor, a: torch.Tensor, b: torch.Tensor, where: str) -> None:
    """One batch; the mistakes' values differ in the first one, 3 × 2."""
    given = g.clone(), a.clone(), b.clone()
    got = answer(*given)
    if got is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Mistake("not-a-pair", "backward returns one gradient for each input of forward: the pair (for a, for b).")
    grad_a, each_use = g / b, -g * a / b**2
    grad_b = each_use.sum(0)
    if same(got, (grad_a, (g * a / b).mean(0))):
        raise Mistake(
            "untouched", "That is Divide's backward as it was. Its gradient of b has three mistakes: differentiate a / b by b."
        )
    if same(got[0], grad_b) and same(got[1], grad_a):
        raise Mistake("swapped", "Both gradients are right, in the wrong order: the first belongs to a.")
    if same(got[0], 1 / b) or same(got[0], (1 / b).expand_as(a)):
        raise Mistake("upstream-missing", "1/b is the slope. The chain rule multiplies it by g, the gradient that arrives.")
    expect(
        got[0],
        grad_a,
        case=f"the gradient of a{where}",
        mistakes={
            "multiplied": (g * b, "∂(a/b)/∂a is 1/b, not b."),
            "summed-where-not-repeated": (grad_a.sum(0), "a was not broadcast: every element of a has a gradient of its own."),
        },
    )
    expect(
        got[1],
        grad_b,
        case=f"the gradient of b{where}",
        mistakes={
            "sign": (-grad_b, "The right size with the wrong sign: when b grows, a/b shrinks."),
            "not-summed": (
                each_use,
                "b is (F,), and so is its gradient. Each element was used in all N rows: their contributions add up.",
            ),
            "sums-multiplied": (
                -g.sum(0) * a.sum(0) / b**2,
                "You sum g and a before you multiply them. In each row g meets its own a: multiply first, then sum.",
            ),
            "averaged": (
                each_use.mean(0),
                "Contributions of the rows are added, not averaged: the rule is a sum over all uses.",
            ),
            "summed-to-one-number": (each_use.sum(), "You summed over everything. b was repeated along one axis only."),
            "square-missing": ((-g * a / b).sum(0), "b appears squared: ∂(1/b)/∂b = -1/b²."),
            "upstream-missing": ((-a / b**2).sum(0), "The slope is right, but g, the gradient that arrives, is missing."),
            "still-averaged": (
                (-g * a / b).mean(0),
                "Only the sign is fixed. b appears squared in ∂(a/b)/∂b, and the rows' contributions are added, not averaged.",
            ),
            "still-averaged, sign": (
                (g * a / b**2).mean(0),
                "Only the square is fixed. Mind the sign, and the rows' contributions are added, not averaged.",
            ),
            "square-missing, sign": (
                (g * a / b).sum(0),
                "Only the sum is fixed. ∂(1/b)/∂b = -1/b²: a sign and a square are missing.",
            ),
            "a-missing": ((-g / b**2).sum(0), "∂(a/b)/∂b contains a as well."),
            "summed-along-the-wrong-axis": (
                each_use.sum(1),
                "You summed over the features and kept the rows. b was repeated in each row: sum over the rows.",
            ),
            "not-reduced-to-its-shape": (each_use.sum(0, keepdim=True), "b is (F,), its gradient too: without keepdim."),
            "first-row-only": (each_use[0], "Only the first row's use of b is counted: all N rows used it."),
        },
    )
    if not same(given, (g, a, b)):
        raise Mistake(
            "inputs-changed", "The gradients are right, but your function changed g, a or b: autograd still needs them."
        )
