"""Exercise: the mean squared error of an output (N, 1) and a target (N,)."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from hpml_lab.core.exercises import Mistake, exercise, expect, expect_function

NOTEBOOK = "03_nets"


def errors(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return output[:, 0] - target


MISTAKES = {
    "all-pairs": (
        lambda output, target: (output - target).square().mean(),
        "Still the mean over all 4 × 4 pairs. Print (output - target).shape: "
        "which of the two must get or lose an axis, and at which end?",
    ),
    "all-pairs-divided": (
        lambda output, target: (output - target).square().sum() / len(target),
        "Dividing by N does not help: there are still N² squares. Look at the shapes.",
    ),
    "not-averaged": (
        lambda output, target: errors(output, target).square(),
        "These are the squares of the four samples; the loss is their mean.",
    ),
    "summed": (
        lambda output, target: errors(output, target).square().sum(),
        "This is the sum; return the mean, as nn.MSELoss does.",
    ),
    "absolute": (
        lambda output, target: errors(output, target).abs().mean(),
        "That is the mean absolute error: square the differences.",
    ),
    "root": (
        lambda output, target: errors(output, target).square().mean().sqrt(),
        "That is the root of the mean square: leave the root out.",
    ),
    "means-compared": (
        lambda output, target: errors(output, target).mean().square(),
        "Here differences of opposite sign cancel: square each one first and take the mean last.",
    ),
}


@exercise("fix-the-broadcast", notebook=NOTEBOOK)
def judge_fix_the_broadcast(answer: Callable) -> None:
    output = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    target = torch.tensor([1.0, 3.0, 2.0, 7.0])
    cases = {
        "output (4, 1) and target (4,)": (output.clone().requires_grad_(), target),
        "a last batch of one sample, output (1, 1) and target (1,)": (torch.tensor([[3.0]]), torch.tensor([1.0])),
    }
    expect_function(answer, lambda output, target: F.mse_loss(output[:, 0], target), cases, mistakes=MISTAKES)
    leaf = output.clone().requires_grad_()
    loss = answer(leaf, target.clone())
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
        raise Mistake("detached", "The number is right, but detached from the graph: backward could not reach the net.")
    loss.backward()
    if leaf.grad is None:
        raise Mistake(
            "detached", "The number is right, but computed from a copy of the output: backward does not reach the net."
        )
    expect(leaf.grad[:, 0], 2 * errors(output, target) / 4, case="the gradient of the output")
