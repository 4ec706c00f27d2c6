"""Exercise: the mean binary cross-entropy of logits, right for large logits too."""

import math
from collections.abc import Callable

import torch
from torch.nn import functional as F

from hpml_lab.core.judge.exercises import Mistake, exercise
from hpml_lab.core.judge.expect import expect, expect_function

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
    "with-another-base": (
        lambda z, y: bce(z, y) / math.log(2),
        "Your logarithm has base 2 (bits); the loss uses the natural logarithm.",
    ),
    "squared-error": (
        lambda z, y: (torch.sigmoid(z) - y).square().mean(),
        "That is the squared error of σ(z). Cross-entropy is -log of the probability of the true answer.",
    ),
    "no-sigmoid": (
        lambda z, y: (z - y).square().mean(),
        "That is the squared error of z. Cross-entropy is -log of the probability of the true answer.",
    ),
    "divided-twice": (lambda z, y: bce(z, y) / len(z), "You divided by N twice: mean does it already."),
    "half-of-it, for y = 0": (
        lambda z, y: (-(1 - y) * F.logsigmoid(-z)).mean(),
        "Samples with y = 1 cost nothing here: half of the formula is missing.",
    ),
    "arguments-swapped": (lambda z, y: bce(y, z), "The loss takes the logits first, the labels second."),
    "labels-as-signs": (
        lambda z, y: F.softplus(-y * z).mean(),
        "log(1 + e^(-yz)) is the formula for labels -1 and 1; these are 0 and 1.",
    ),
    "exponent-without-absolute-value": (
        lambda z, y: (z.clamp(min=0) - z * y + torch.exp(-z).log1p()).mean(),
        "max(z, 0) - zy + log(1 + e^(-z)) is right only for z ≥ 0: the exponent is -|z|.",
    ),
    "label-term-missing": (lambda z, y: F.softplus(z).mean(), "That is log(1 + e^z): where does the label enter?"),
    "sign-of-the-label-term": (
        lambda z, y: (F.softplus(z) + z * y).mean(),
        "The label's term has the wrong sign: a large z is good for y = 1.",
    ),
    "half-of-it": (
        lambda z, y: (-y * F.logsigmoid(z)).mean(),
        "Samples with y = 0 cost nothing here: half of the formula is missing.",
    ),
}
ERRORS = {"between 0 and 1": ("not-probabilities", "BCELoss takes probabilities; z is a logit, any number from -∞ to ∞.")}


@exercise("loss-of-logits", notebook=NOTEBOOK)
def judge_loss_of_logits(answer: Callable) -> None:
    def loss_of(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = answer(z, y)
        return loss.reshape(()) if isinstance(loss, torch.Tensor) and loss.numel() == 1 else loss  # backward takes (1,), too

    cases = {
        "z = [0.5, -1, 2, -3], y = [1, 0, 0, 1]": (torch.tensor([0.5, -1.0, 2.0, -3.0]), torch.tensor([1.0, 0.0, 0.0, 1.0])),
        "z = [1, 0, -0.5], y = [1, 1, 0]": (torch.tensor([1.0, 0.0, -0.5]), torch.tensor([1.0, 1.0, 0.0])),
    }
    expect_function(loss_of, bce, cases, mistakes=MISTAKES, errors=ERRORS)
    for z, y in ((200.0, 0.0), (-200.0, 1.0), (200.0, 1.0), (-200.0, 0.0), (20.0, 0.0)):
        logit, label = torch.tensor([z], requires_grad=True), torch.tensor([y])
        case = f"z = {z:g} with y = {y:g}"
        loss, right = torch.as_tensor(loss_of(logit, label)), bce(logit.detach(), label)
        if not torch.isfinite(loss).all():
            raise Mistake(
                "overflows",
                f"For {case} the loss is {loss.item()} instead of {right:.3g}: a number became too "
                "large, or σ(z) was rounded to 0 or 1, before the logarithm was taken.",
            )
        if right > 1 and loss < 0.99 * right:
            raise Mistake(
                "clamped",
                f"For {case} the loss is {loss.item():.4g} instead of {right:.4g}: z or σ(z) is cut off. (BCELoss limits the "
                "logarithm to at least -100.) σ(z) is already rounded to 0 or 1 there: start from z.",
            )
        expect(loss, right, case=case, tolerance=1e-5)
        if not loss.requires_grad:
            raise Mistake("detached", "The number is right, but detached from the graph: nothing learns from it.")
        loss.backward()
        if logit.grad is None:
            raise Mistake("detached", "The number is right, but computed from a copy of z: backward does not reach z itself.")
        if not logit.grad.isfinite().all():
            raise Mistake(
                "gradient-overflows",
                f"For {case} the loss is right, but its gradient is {logit.grad.item()}: torch.where, max and products by 0 "
                "choose between numbers, and backward still goes through the one that overflowed.",
            )
        expect(logit.grad, torch.sigmoid(logit.detach()) - label, case=f"the gradient for {case}", tolerance=1e-5)
