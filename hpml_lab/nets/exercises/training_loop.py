"""Exercise: a whole training loop, with the loss of each step."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from hpml_lab.core.judge.exercises import exercise
from hpml_lab.core.judge.expect import expect
from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import same
from hpml_lab.nets.lessons.batched_xor import INPUTS, TARGETS, stack_of_nets
from hpml_lab.nets.lessons.networks import XorNet

NOTEBOOK = "03_nets"
ARGUMENTS = "The loss takes the prediction first, the target second."
TORCH_ERRORS = {  # part of the message: (mistake, hint)
    "second time": ("one-forward", "A graph belongs to the weights of its forward pass. Compute output and loss in each step."),
    "inplace operation": (
        "step-before-backward",
        "The weights changed between a forward pass and its backward: the step comes last.",
    ),
    "greater than input size": ("arguments-swapped", ARGUMENTS),
    "elements of target": ("arguments-swapped", ARGUMENTS),
    "elements of input": (
        "not-probabilities",
        "The loss takes what the net returns: for this net that is a probability already.",
    ),
    "does not require grad": ("no-graph", "The loss has no graph: is the forward pass inside no_grad, or the loss detached?"),
}


LossOf = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
MakeOptimizer = Callable[[list[torch.Tensor]], torch.optim.Optimizer]


def _sgd(parameters: list[torch.Tensor], lr: float = 0.3) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=lr)


def _momentum(parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.8)


class _Training:
    """A net with the weights of seed 1, an optimizer for it, and a record of what is done: "zero", "backward" and "step".

    size  of the inputs; above 1 the net has ReLUs, so that its gradients are as much larger
    """

    def __init__(self, make: MakeOptimizer, size: float = 1.0) -> None:
        self.net, self.events = XorNet(activation=torch.relu if size > 1 else torch.sigmoid), []
        self.x = size * INPUTS
        with torch.no_grad():
            for parameter, value in zip(self.net.parameters(), stack_of_nets([1]), strict=True):
                parameter.copy_(value[0])
        self.optimizer = make(list(self.net.parameters()))
        next(self.net.parameters()).register_hook(lambda _: self.events.append("backward"))
        self._noted("zero_grad", "zero")
        self._noted("step", "step")
        clear = self.net.zero_grad  # clears the same gradients
        self.net.zero_grad = lambda *given, **options: (self.events.append("zero"), clear(*given, **options))[1]

    def _noted(self, method: str, event: str) -> None:
        call = getattr(self.optimizer, method)

        def noted(*given: object, **options: object) -> object:
            self.events.append(event)
            return call(*given, **options)

        setattr(self.optimizer, method, noted)

    @property
    def weights(self) -> torch.Tensor:
        return torch.cat([parameter.detach().flatten() for parameter in self.net.parameters()])


def _trained(
    make: MakeOptimizer, steps: int, size: float, clear: bool = True, loss_of: LossOf = F.binary_cross_entropy
) -> tuple[torch.Tensor, list[float]]:
    """Weights and losses of the right loop; or of a loop without zero_grad, with another number of steps or another loss."""
    training, losses = _Training(make, size), []
    for _ in range(steps):
        loss = loss_of(training.net(training.x), TARGETS)
        losses.append(loss.item())
        if clear:
            training.optimizer.zero_grad()
        loss.backward()
        training.optimizer.step()
    return training.weights, losses


@exercise("training-loop", notebook=NOTEBOOK, takes="net, optimizer, x, y, steps", returns=[float])
def judge_training_loop(answer: Callable) -> None:
    _judge(answer, _sgd, 6)
    _judge(answer, _momentum, 3)
    _judge(answer, lambda parameters: _sgd(parameters, lr=10), 4)  # too large: the losses rise
    _judge(answer, lambda parameters: _sgd(parameters, lr=0.001), 3, size=100.0)  # the gradients' norm is 17


def _judge(answer: Callable, make: MakeOptimizer, steps: int, size: float = 1.0) -> None:
    training = _Training(make, size)
    before, x, y = training.weights, training.x.clone(), TARGETS.clone()
    try:
        losses = answer(training.net, training.optimizer, x, y, steps)
    except (RuntimeError, ValueError) as error:
        # The first step was right, and then the weights were no longer those of the only forward pass.
        if "inplace operation" in str(error) and training.events[:3] == ["zero", "backward", "step"]:
            raise Mistake(*TORCH_ERRORS["second time"]) from error
        for text, mistake in TORCH_ERRORS.items():
            if text in str(error):
                raise Mistake(*mistake) from error
        raise
    if torch.equal(training.weights, before):
        raise _not_trained(training.events)
    if "step" not in training.events:
        raise Mistake(
            "another-optimizer",
            "The net was trained, but not by the optimizer that you were given, which made no step. || All steps are "
            "made by the optimizer that is given.",
        )
    right, right_losses = _trained(make, steps, size)
    _judge_weights(training, right, make, steps, size)
    if losses is None:
        raise Mistake("returns-nothing", "The net is trained correctly. || Return the losses, too.")
    if isinstance(losses, list | tuple) and any(getattr(loss, "requires_grad", False) for loss in losses):
        raise Mistake(
            "keeps-graphs",
            "Each tensor in your list keeps its graph in memory. || A list of numbers does not: take the number out of each "
            "loss.",
        )
    if isinstance(losses, list | tuple) and any(isinstance(loss, torch.Tensor) for loss in losses):
        raise Mistake("tensors-in-the-list", "The losses are right, but they are tensors. || Plain numbers are asked for.")
    if not hasattr(losses, "__len__") or getattr(losses, "ndim", 1) == 0:  # a tensor of one number has a __len__ that raises
        raise Mistake("one-loss", f"Return a list with the loss of each of the {steps} steps.")
    if len(losses) != steps:
        raise Mistake("wrong-count", f"The net has taken {steps} steps, and your list has {len(losses)} losses.")
    wrong = {
        "loss-after-step": (
            _trained(make, steps + 1, size)[1][1:],
            "These are the losses after each step; keep the loss that backward was called on.",
        ),
        "losses-reversed": (right_losses[::-1], "The losses are in the reverse order."),
        "losses-added-up": (torch.tensor(right_losses).cumsum(0).tolist(), "Each of your losses contains those before it."),
        "losses-rounded": ([round(loss, 4) for loss in right_losses], "Your losses are rounded."),
        "last-loss-only": (
            [right_losses[-1]] * steps,
            "All losses are the last one: append a number, not a tensor that changes.",
        ),
    }
    # On XOR's plateau a step lowers the loss by 1e-5 only: a smaller tolerance distinguishes before from after.
    expect(list(losses), right_losses, case="the losses", tolerance=1e-6, mistakes=wrong)
    if not (torch.equal(x, training.x) and torch.equal(y, TARGETS)):
        raise Mistake(
            "inputs-changed", "The net is trained correctly, but your function changed x or y. || x and y belong to the caller."
        )


def _not_trained(events: list[str]) -> Mistake:
    """Why the weights are as they were."""
    if "backward" not in events:
        return Mistake(
            "no-backward",
            "The net has not changed, and no gradient ever reached it. || Without backward there are no gradients, and "
            "without gradients no step.",
        )
    if "step" not in events:
        return Mistake(
            "never-steps",
            "The net has not changed, though it has gradients. || Gradients alone change nothing: a step has to use them.",
        )
    if "zero" in events and events[events.index("step") - 1] == "zero" and events.index("backward") < events.index("step"):
        return Mistake(
            "zeroed-before-step",
            "The net has not changed: the gradients were cleared after backward. || Clear them before it, so that step can "
            "use them.",
        )
    return Mistake(
        "never-steps",
        "The net has not changed. || Whenever step is called, it uses the gradients that are there: which call makes them?",
    )


def _judge_weights(training: _Training, right: torch.Tensor, make: MakeOptimizer, steps: int, size: float) -> None:
    def bce_of_logits(z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.binary_cross_entropy_with_logits(z, y)

    sigmoid_twice = "Your loss takes a sigmoid, but the net's output is a probability already: it has gone through one."
    mistakes = {
        "accumulates": (
            _trained(make, steps, size, clear=False)[0],
            "Each backward adds its gradient to those of the steps before.",
        ),
        "wrong-loss": (
            _trained(make, steps, size, loss_of=F.mse_loss)[0],
            "That is the mean squared error; take cross-entropy.",
        ),
        "wrong-loss, of logits": (_trained(make, steps, size, loss_of=bce_of_logits)[0], sigmoid_twice),
        "wrong-loss, summed": (
            _trained(make, steps, size, loss_of=lambda p, y: F.binary_cross_entropy(p, y, reduction="sum"))[0],
            "You trained on the sum over the samples; the loss is their mean.",
        ),
    }
    counted = training.events.count("step")
    if counted != steps and same(training.weights, _trained(make, counted, size)[0], 1e-5):
        name = "one-step-short" if counted == steps - 1 else "wrong-number-of-steps"
        raise Mistake(name, f"The weights have taken {counted} steps instead of {steps}.")
    step_first = training.events.index("step") < training.events.index("backward")
    if step_first and not same(training.weights, right, 1e-5):
        raise Mistake(
            "step-before-backward",
            "Your first step comes before the first backward. || A step uses the gradients of this pass: backward has to "
            "come first.",
        )
    if size > 1 and not same(training.weights, right, 1e-5):
        hint = (
            "Your weights are right while gradients are small. With larger inputs the gradients' norm is 17, and the weights "
            "differ: are gradients clipped in your loop? The optimizer should use them as they are."
        )
        raise Mistake("clipped-gradients", hint)
    expect(training.weights, right, case=f"the weights after {steps} steps", tolerance=1e-5, mistakes=mistakes)
