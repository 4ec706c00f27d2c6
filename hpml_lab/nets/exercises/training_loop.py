"""Exercise: a whole training loop, with the loss of each step."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from hpml_lab.core.exercises import Mistake, exercise, expect
from hpml_lab.nets.batched_xor import INPUTS, TARGETS, stack_of_nets
from hpml_lab.nets.networks import XorNet

NOTEBOOK = "03_nets"
STEPS = 6
TORCH_ERRORS = {  # part of the message: (mistake, hint)
    "second time": ("one-forward", "A graph can be used for one backward only. Compute output and loss in every step."),
    "inplace operation": (
        "step-before-backward",
        "The weights changed between a forward pass and its backward: the step comes last.",
    ),
    "elements of target": ("arguments-swapped", "The loss takes the prediction first, the target second."),
}


def _net_and_optimizer() -> tuple[XorNet, torch.optim.Optimizer]:
    """A net with the weights of seed 1, and an SGD optimizer for it."""
    net = XorNet()
    with torch.no_grad():
        for parameter, value in zip(net.parameters(), stack_of_nets([1]), strict=True):
            parameter.copy_(value[0])
    return net, torch.optim.SGD(net.parameters(), lr=0.1)


def _weights(net: XorNet) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])


def _trained(
    clear: bool = True, steps: int = STEPS, loss_of: Callable = F.binary_cross_entropy
) -> tuple[torch.Tensor, list[float]]:
    """Weights and losses of the right loop; or of a loop without zero_grad, with another number of steps or another loss."""
    net, optimizer = _net_and_optimizer()
    losses = []
    for _ in range(steps):
        loss = loss_of(net(INPUTS), TARGETS)
        losses.append(loss.item())
        if clear:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return _weights(net), losses


@exercise("training-loop", notebook=NOTEBOOK)
def judge_training_loop(answer: Callable) -> None:
    net, optimizer = _net_and_optimizer()
    before = _weights(net)
    try:
        losses = answer(net, optimizer, INPUTS.clone(), TARGETS.clone(), STEPS)
    except RuntimeError as error:
        for text, mistake in TORCH_ERRORS.items():
            if text in str(error):
                raise Mistake(*mistake) from error
        raise
    after, (right, right_losses) = _weights(net), _trained()
    if torch.equal(after, before):
        if all(parameter.grad is None for parameter in net.parameters()):
            raise Mistake(
                "zeroed-before-step",
                "The net has not changed: the gradients were cleared after backward, before step could use them.",
            )
        raise Mistake("never-steps", "The net has not changed, though it has gradients: no step ever used one.")
    expect(
        after,
        right,
        case=f"the weights after {STEPS} steps",
        tolerance=1e-5,
        mistakes={
            "accumulates": (_trained(clear=False)[0], "Each backward adds its gradient to those of the steps before."),
            "wrong-loss": (_trained(loss_of=F.mse_loss)[0], "That is the mean squared error; take binary cross-entropy."),
            "one-step-short": (_trained(steps=STEPS - 1)[0], f"The weights have taken {STEPS - 1} steps instead of {STEPS}."),
        },
    )
    if losses is None:
        raise Mistake("returns-nothing", "The net is trained correctly. Return the losses, too.")
    if isinstance(losses, list | tuple) and any(getattr(loss, "requires_grad", False) for loss in losses):
        raise Mistake("keeps-graphs", "Each tensor in your list keeps its graph in memory: take the number out of it.")
    if not isinstance(losses, list | tuple) or len(losses) != STEPS:
        raise Mistake("one-loss", f"Return a list with the loss of each of the {STEPS} steps.")
    # On XOR's plateau a step lowers the loss by 1e-5 only: a smaller tolerance distinguishes before from after.
    expect(
        list(losses),
        right_losses,
        case="the losses",
        tolerance=1e-6,
        mistakes={
            "loss-after-step": (
                _trained(steps=STEPS + 1)[1][1:],
                "These are the losses after each step; keep the loss that backward was called on.",
            )
        },
    )
