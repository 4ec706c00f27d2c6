"""Exercise: the mean binary cross-entropy of logits, right for large logits too."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from hpml_lab.core.judge.declared import like
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric


def right(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    losses = F.softplus(z) - z * y
    return losses.mean()


RUBRIC = Rubric(
    right,
    """
F.softplus(z) - z * y
    double-sigmoid :: F.softplus(z.sigmoid()) - z.sigmoid() * y :: The sigmoid is taken once only: the function with logits in
        its name applies it itself.
    targets-flipped :: F.softplus(z) - z * (1 - y) :: The answers y = 0 and y = 1 are swapped.
    squared-error :: (torch.sigmoid(z) - y).square() :: That is the squared error of σ(z). Cross-entropy is -log of the
        probability of the true answer.
    no-sigmoid :: (z - y).square() :: That is the squared error of z. Cross-entropy is -log of the probability of the true
        answer.
    half-of-it :: -(1 - y) * F.logsigmoid(-z) :: Samples with y = 1 cost nothing here: half of the formula is missing.
    half-of-it :: -y * F.logsigmoid(z) :: Samples with y = 0 cost nothing here: half of the formula is missing.
    arguments-swapped :: F.softplus(y) - z * y :: The loss takes the logits first, the labels second.
    labels-as-signs :: F.softplus(-y * z) :: log(1 + e^(-yz)) is the formula for labels -1 and 1; these are 0 and 1.
    label-term-missing :: F.softplus(z) :: That is log(1 + e^z): where does the label enter?
    sign-of-the-label-term :: F.softplus(z) + z * y :: The label's term has the wrong sign: a large z is good for y = 1.
losses.mean()
    summed :: losses.sum() :: The loss is the mean over the samples, not their sum.
    not-averaged :: losses :: These are the losses of the samples; return their mean.
    sign :: -losses.mean() :: Right except for the sign: a loss is -log of a probability, so it is never negative.
    with-another-base :: losses.mean() / 0.6931471805599453 :: Your logarithm has base 2 (bits); the loss uses the natural
        logarithm.
    divided-twice :: losses.mean() / len(z) :: You divided by N twice: mean does it already.
error
    not-probabilities :: between 0 and 1 :: BCELoss takes probabilities; z is a logit, any number from -∞ to ∞.
""",
)


@exercise("loss-of-logits", notebook="03_nets", takes="z, y", returns=like("z"))
def judge_loss_of_logits(answer: Callable) -> None:
    def loss_of(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = answer(z, y)
        return loss.reshape(()) if isinstance(loss, torch.Tensor) and loss.numel() == 1 else loss  # backward takes (1,), too

    cases = {
        "z = [0.5, -1, 2, -3], y = [1, 0, 0, 1]": (
            torch.tensor([0.5, -1.0, 2.0, -3.0], requires_grad=True),
            torch.tensor([1.0, 0.0, 0.0, 1.0]),
        ),
        "z = [1, 0, -0.5], y = [1, 1, 0]": (torch.tensor([1.0, 0.0, -0.5]), torch.tensor([1.0, 1.0, 0.0])),
    }
    RUBRIC.expect(loss_of, cases, but=("y",))
    for z, y in ((200.0, 0.0), (-200.0, 1.0), (200.0, 1.0), (-200.0, 0.0), (20.0, 0.0)):
        logit, label = torch.tensor([z], requires_grad=True), torch.tensor([y])
        case = f"z = {z:g} with y = {y:g}"
        loss, wanted = torch.as_tensor(loss_of(logit, label)), right(logit.detach(), label)
        if not torch.isfinite(loss).all():
            raise Mistake(
                "overflows",
                f"For {case} the loss is {loss.item()} instead of {wanted:.3g}: a number became too "
                "large, or σ(z) was rounded to 0 or 1, before the logarithm was taken.",
            )
        if wanted > 1 and loss < 0.99 * wanted:
            raise Mistake(
                "clamped",
                f"For {case} the loss is {loss.item():.4g} instead of {wanted:.4g}: z or σ(z) is cut off. (BCELoss limits the "
                "logarithm to at least -100.) σ(z) is already rounded to 0 or 1 there: start from z.",
            )
        expect(loss, wanted, case=case, tolerance=1e-5, given=(logit, label))
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
