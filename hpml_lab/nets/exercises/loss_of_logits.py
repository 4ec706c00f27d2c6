"""Exercise: the mean binary cross-entropy of logits, right for large logits too."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from hpml_lab.core.exercises import Mistake, exercise, expect, expect_function

NOTEBOOK = "03_nets"


def bce(z: torch.Tensor, y: torch.Tensor, reduction: str = "mean") -> torch.Tensor:
    return F.binary_cross_entropy_with_logits(z, y, reduction=reduction)


MISTAKES = {
    "double-sigmoid": (
        lambda z, y: bce(torch.sigmoid(z), y),
        "The sigmoid is taken twice: the function with logits in its name applies it itself.",
    ),
    "summed": (lambda z, y: bce(z, y, "sum"), "That is the sum over the samples; return the mean."),
    "not-averaged": (lambda z, y: bce(z, y, "none"), "These are the losses of the samples; return their mean."),
    "sign": (lambda z, y: -bce(z, y), "Right except for the sign: a loss is -log of a probability, so it is never negative."),
    "targets-flipped": (lambda z, y: bce(z, 1 - y), "The answers y = 0 and y = 1 are swapped."),
    "half-of-it": (
        lambda z, y: (-y * F.logsigmoid(z)).mean(),
        "Samples with y = 0 cost nothing here: half of the formula is missing.",
    ),
}
ERRORS = {"between 0 and 1": ("not-probabilities", "BCELoss takes probabilities; z is a logit, any number from -∞ to ∞.")}


@exercise("loss-of-logits", notebook=NOTEBOOK)
def judge_loss_of_logits(answer: Callable) -> None:
    z, y = torch.tensor([0.5, -1.0, 2.0, -3.0]), torch.tensor([1.0, 0.0, 0.0, 1.0])
    expect_function(answer, bce, {"z = [0.5, -1, 2, -3], y = [1, 0, 0, 1]": (z, y)}, mistakes=MISTAKES, errors=ERRORS)
    for value in (200.0, -200.0):
        logit = torch.tensor([value], requires_grad=True)
        wrong = torch.tensor([0.0 if value > 0 else 1.0])
        case = f"z = {value:g} with y = {wrong.item():g}, surely wrong"
        loss = torch.as_tensor(answer(logit, wrong))
        if not torch.isfinite(loss).all():
            raise Mistake(
                "overflows",
                f"For {case} the loss is {loss.item()} instead of 200: a number became too "
                "large, or σ(z) was rounded to 0 or 1, before the logarithm was taken.",
            )
        hint = "BCELoss limits the logarithm to at least -100: σ(z) is already rounded to 0 or 1. Start from z."
        expect(loss, 200.0, case=case, mistakes={"clamped": (100.0, hint)})
        if not loss.requires_grad:
            raise Mistake("detached", "The number is right, but detached from the graph: nothing learns from it.")
        loss.backward()
        if logit.grad is None:
            raise Mistake("detached", "The number is right, but computed from a copy of z: backward does not reach z itself.")
        expect(logit.grad, torch.sigmoid(logit.detach()) - wrong, case=f"the gradient for {case}")
