"""Exercise: a whole training loop, with the loss of each step."""

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from hpml_lab.core.judge.asked import drawn
from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.rubric import Rubric
from hpml_lab.core.judge.steps import Steps
from hpml_lab.nets.lessons.batched_xor import INPUTS, TARGETS, stack_of_nets
from hpml_lab.nets.lessons.networks import XorNet

CASES = {  # steps, the optimizer's options, the size of the inputs: above 1 the net has ReLUs, so that its gradients grow
    "6 steps": (6, {"lr": 0.3}, 1.0),
    "3 steps with momentum": (3, {"lr": 0.05, "momentum": 0.8}, 1.0),
    "4 steps that are too long": (4, {"lr": 10.0}, 1.0),
    "3 steps with inputs up to 100": (3, {"lr": 0.001}, 100.0),
    "40 steps with labels that are all 1": (40, {"lr": 1.0}, 1.0),  # its loss falls to a tenth
}
DRAWN = "a training that was drawn for this check"


def _case(words: str) -> tuple[int, dict[str, float], float, int]:
    """Steps, options, size of the inputs, and the seed of the weights."""
    if words == DRAWN:
        draw = drawn()
        return draw.randint(2, 7), {"lr": draw.uniform(0.1, 0.5), "momentum": draw.uniform(0, 0.5)}, 1.0, draw.randint(2, 99)
    return *CASES[words], 1


def right(net, optimizer, x, y, steps):
    losses = []
    for _ in range(steps):
        loss = F.binary_cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class _Trained:
    """The losses and the steps of a training."""

    def __init__(self, train: Callable, words: str) -> None:
        steps, options, size, seed = _case(words)
        net = XorNet(activation=torch.relu if size > 1 else torch.sigmoid)
        with torch.no_grad():
            for parameter, value in zip(net.parameters(), stack_of_nets([seed]), strict=True):
                parameter.copy_(value[0])
        optimizer = torch.optim.SGD(net.parameters(), **options)
        self.steps = Steps(net, optimizer)
        labels = torch.ones_like(TARGETS) if "all 1" in words else TARGETS.clone()
        self.losses = train(net, optimizer, size * INPUTS, labels, steps)
        self.path = [*self.steps.gradients, self.steps.end]


RUBRIC = Rubric(
    right,
    """
optimizer.zero_grad()
    accumulates :: pass :: Each backward adds its gradient to those of the steps before.
F.binary_cross_entropy(net(x), y)
    wrong-loss :: F.mse_loss(net(x), y) :: That is the mean squared error; take cross-entropy.
    wrong-loss :: F.binary_cross_entropy_with_logits(net(x), y) :: Your loss takes a sigmoid, but the net's output is a
        probability already: it has gone through one.
    wrong-loss :: F.binary_cross_entropy(net(x), y, reduction="sum") :: You trained on the sum over the samples; the loss is
        their mean.
loss.item()
    loss-after-step :: F.binary_cross_entropy(net(x), y).item() :: These are the losses after each step; keep the loss that
        backward was called on.
    losses-rounded :: round(loss.item(), 4) :: Your losses are rounded.
return losses
    last-loss-only :: return [loss.item()] * steps :: All losses are the last one: append a number, not a tensor that changes.
error
    one-forward :: second time :: A graph belongs to the weights of its forward pass. Compute output and loss in each step.
    changed-before-backward :: inplace operation :: A weight has changed between a forward pass and its backward. Each step has
        a forward pass of its own, and its step comes last.
    arguments-swapped :: elements of target :: The loss takes the prediction first, the target second.
    no-graph :: does not require grad :: The loss has no graph: is the forward pass inside no_grad, or the loss detached?
only in cases
    clipped-gradients :: up to 100 :: Your weights are right while gradients are small. With larger inputs the gradients' norm
        is 17, and the weights differ: are gradients clipped in your loop? The optimizer should use them as they are.
""",
    wrap=lambda train: lambda words: (lambda found: (found.path, found.losses))(_Trained(train, words)),
)


@exercise("training-loop", notebook="03_nets", takes="net, optimizer, x, y, steps", returns={float})
def judge_training_loop(answer: Callable) -> None:
    RUBRIC.expect(answer, {words: (words,) for words in CASES}, tolerance=1e-5, explain=lambda *_: _explain(answer))
    losses = _Trained(answer, "6 steps").losses
    if any(getattr(loss, "requires_grad", False) for loss in losses):
        hint = "Each tensor in your list keeps its graph in memory. || A list of numbers does not: take each loss's number."
        raise Mistake("keeps-graphs", hint)
    if any(isinstance(loss, torch.Tensor | np.ndarray) for loss in losses):
        hint = "The losses are right, but they are tensors or arrays. || Plain numbers are asked for."
        raise Mistake("tensors-in-the-list", hint)
    got, wanted = _Trained(answer, DRAWN), _Trained(right, DRAWN)
    alike = zip(got.path, wanted.path, strict=False)  # by their norms: single elements may cancel almost
    if len(got.path) != len(wanted.path) or any((a - b).norm() > 1e-4 * b.norm() for a, b in alike):
        hint = "Right for the weights, rates and steps that everybody gets, and not for some that were drawn for this check."
        raise Mistake("made-for-the-cases", f"{hint} || All that your loop needs are its arguments.")


def _explain(answer: Callable) -> None:
    """Raise the Mistake that the first wrong case shows."""
    for words in CASES:
        got, wanted = _Trained(answer, words), _Trained(right, words)
        got.steps.explain(wanted.steps)
        step = got.steps.first_difference(wanted.steps)
        if step is not None:
            factor = got.steps.factor(step, wanted.steps)
            hint = (
                f"For {words}, the gradient of your step {step} (from 0) is {factor} that of F.binary_cross_entropy(net(x), y)."
            )
            raise Mistake("wrong-loss", f"{hint} Is it another loss, or of another input?")
        if len(got.losses) != len(wanted.losses):
            hint = f"The net has taken {len(wanted.losses)} steps, and your list has {len(got.losses)} losses."
            raise Mistake("wrong-count", hint)
        anew = _Trained(lambda *given: given, words).losses  # the arguments, with a net that is not trained yet
        case = f"{words} (the net is right) the list of losses:"
        expect(got.losses, wanted.losses, case=case, tolerance=1e-5, given=anew)
