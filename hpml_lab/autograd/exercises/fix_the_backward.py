"""Exercise fix-the-backward: the gradients of a division that broadcasts."""

from collections.abc import Callable

import torch

from hpml_lab.core.exercises import Mistake, exercise, expect, same


@exercise("fix-the-backward", notebook="02_autograd")
def judge_fix_the_backward(answer: Callable) -> None:
    """(∂L/∂a, ∂L/∂b) of y = a / b, a (N, F) and b (F,) broadcast."""
    a = torch.tensor([[1.0, -2.0], [3.0, 0.5], [-1.5, 4.0]], dtype=torch.float64)
    b = torch.tensor([2.0, -4.0], dtype=torch.float64)
    g = torch.tensor([[0.5, 1.0], [-1.0, 2.0], [3.0, -0.5]], dtype=torch.float64)
    got = answer(g.clone(), a.clone(), b.clone())
    if got is None:
        raise Mistake("returns-nothing", "Your function returns None: is a `return` missing?")
    if not isinstance(got, tuple | list) or len(got) != 2:
        raise Mistake("not-a-pair", "backward returns one gradient for each input of forward: the pair (for a, for b).")
    grad_a, each_use = g / b, -g * a / b**2
    grad_b = each_use.sum(0)
    if same(got[0], grad_b) and same(got[1], grad_a):
        raise Mistake("swapped", "Both gradients are right, in the wrong order: the first belongs to a.")
    if same(got[0], 1 / b) or same(got[0], (1 / b).expand(3, 2)):
        raise Mistake("upstream-missing", "1/b is the slope. The chain rule multiplies it by g, the gradient that arrives.")
    expect(
        got[0],
        grad_a,
        case="the gradient of a",
        mistakes={
            "multiplied": (g * b, "∂(a/b)/∂a is 1/b, not b."),
            "summed-where-not-repeated": (grad_a.sum(0), "a was not broadcast: every element of a has a gradient of its own."),
        },
    )
    expect(
        got[1],
        grad_b,
        case="the gradient of b",
        mistakes={
            "sign": (-grad_b, "The right size with the wrong sign: when b grows, a/b shrinks."),
            "not-summed": (
                each_use,
                "b is (F,), and so is its gradient. Each element was used in all N rows: their contributions add up.",
            ),
            "averaged": (
                each_use.mean(0),
                "Contributions of the rows are added, not averaged: the rule is a sum over all uses.",
            ),
            "summed-to-one-number": (each_use.sum(), "You summed over everything. b was repeated along one axis only."),
            "square-missing": ((-g * a / b).sum(0), "b appears squared: ∂(1/b)/∂b = -1/b²."),
            "upstream-missing": ((-a / b**2).sum(0), "The slope is right, but g, the gradient that arrives, is missing."),
            "first-row-only": (each_use[0], "Only the first row's use of b is counted: all N rows used it."),
        },
    )
