"""Exercise: the mean squared error of an output (N, 1) and a target (N,)."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect, expect_function

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
    "halved": (
        lambda output, target: errors(output, target).square().mean() / 2,
        "That is half of it: the mean itself is asked for, without the 1/2 of some textbooks.",
    ),
    "not-squared": (
        lambda output, target: errors(output, target).mean(),
        "These are the differences without the square: positive and negative ones cancel.",
    ),
    "divided-twice": (
        lambda output, target: errors(output, target).square().mean() / len(target),
        "You divided by N twice: mean does it already.",
    ),
    "sorted": (
        lambda output, target: (output[:, 0].sort().values - target.sort().values).square().mean(),
        "Sorting separates the outputs from their targets: sample i belongs to sample i.",
    ),
    "first-sample-only": (
        lambda output, target: errors(output, target)[0].square(),
        "That is the first sample alone. output[0] is one sample, output[:, 0] is one column.",
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
        "output (7, 1) and target (7,)": (torch.linspace(-1, 1, 7)[:, None], torch.tensor([0.0, 3, 1, 0, 2, 2, 5])),
    }

    def one_number(function: Callable) -> Callable:
        """The function with a loss of shape () for one of shape (1,), from which backward can start as well."""

        def loss_of(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            loss = function(output, target)
            return loss.reshape(()) if isinstance(loss, torch.Tensor) and loss.numel() == 1 else loss

        return loss_of

    loss_of, mistakes = one_number(answer), {name: (one_number(wrong), hint) for name, (wrong, hint) in MISTAKES.items()}
    unequal = {
        "invalid for input": ("one-size-only", "The number of samples is not always the same: take it from the tensors.")
    }
    expect_function(loss_of, lambda output, target: F.mse_loss(output[:, 0], target), cases, mistakes=mistakes, errors=unequal)
    leaf = output.clone().requires_grad_()
    loss = loss_of(leaf, target.clone())
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
        raise Mistake("detached", "The number is right, but detached from the graph: backward could not reach the net.")
    loss.backward()
    if leaf.grad is None:
        raise Mistake(
            "detached", "The number is right, but computed from a copy of the output: backward does not reach the net."
        )
    expect(leaf.grad[:, 0], 2 * errors(output, target) / 4, case="the gradient of the output")
