"""A training by its effects: the gradient that each step of the optimizer took, and the parameters after it.

What ran in between is not looked at: `net.forward(x)`, single layers, a checkpoint, a closure, a scheduler and torch.func are
as good as `net(x)`. The optimizer is the real one, whose hooks record.
"""

import weakref
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from hpml_lab.core.judge.mistake import Mistake
from hpml_lab.core.judge.same import same

Batch = tuple[torch.Tensor, torch.Tensor]


def flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """A copy of all numbers of tensors, in one vector."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors])


class Arrival(NamedTuple):
    """A gradient that backward brought to a parameter: the steps before it, whether it is 0, and all parameters at the time."""

    step: int
    is_zero: bool
    parameters: torch.Tensor


class Steps:
    """The steps that an optimizer makes from now on.

    gradients  of all parameters in one vector, for each step as it was taken; 0 where there was none
    points     the parameters after each step
    counts     the numbers whose gradient counts, where not all do; the others are 0 in `gradients`
    """

    def __init__(self, net: nn.Module, optimizer: torch.optim.Optimizer, counts: torch.Tensor | None = None) -> None:
        self.net, self.optimizer, self.counts = net, optimizer, counts
        self.names, self.parameters = zip(*net.named_parameters(), strict=True)
        self.start = flat(self.parameters)
        self.gradients: list[torch.Tensor] = []
        self.points: list[torch.Tensor] = []
        self.rates: list[float] = []
        self.arrived: list[Arrival] = []
        self.in_training = True
        self.left = self._counted()  # the gradient that was there before
        optimizer.register_step_post_hook(self._stepped)  # after a closure, and before the hooks of the answer
        for parameter in self.parameters:
            parameter.register_hook(self._arrived)

    def _arrived(self, gradient: torch.Tensor) -> None:
        self.arrived.append(Arrival(len(self.points), not gradient.any(), flat(self.parameters)))

    def _stepped(self, *_: object) -> None:
        self.gradients.append(self._counted())
        self.points.append(flat(self.parameters))
        self.rates.append(float(self.optimizer.param_groups[0]["lr"]))
        self.in_training = self.in_training and self.net.training

    def gradient(self) -> torch.Tensor:
        """The gradient that is there now."""
        return flat(torch.zeros_like(each) if each.grad is None else each.grad for each in self.parameters)

    def _counted(self) -> torch.Tensor:
        return self.gradient() if self.counts is None else self.gradient() * self.counts

    def _differ(self, own: torch.Tensor, other: torch.Tensor) -> bool:
        """True where parameters differ, among those whose gradient counts."""
        return not (same(own, other, 1e-5) if self.counts is None else same(own * self.counts, other * self.counts, 1e-5))

    @property
    def end(self) -> torch.Tensor:
        """The parameters as they are now."""
        return flat(self.parameters)

    def first_difference(self, right: "Steps") -> int | None:
        """The number of the first step, from 0, whose gradient differs from the right one; None where there is none."""
        pairs = enumerate(zip(self.gradients, right.gradients, strict=False))
        return next((i for i, pair in pairs if not same(*pair, 1e-5)), None)

    def factor(self, step: int, right: "Steps") -> str:
        """In words, how often the right gradient of a step is contained in the one taken: "3 times", or "not" """
        own, wanted = self.gradients[step], right.gradients[step]
        times = (own @ wanted / (wanted @ wanted)).item()
        return f"{times:.3g} times" if same(own, times * wanted, 1e-4) else "not"

    def expect_some(self) -> None:
        """Raise Mistake if the optimizer has made no step."""
        if not self.points and self._differ(self.end, self.start):
            hint = "The net has changed, but not by the optimizer that you were given, which made no step."
            raise Mistake("another-optimizer", f"{hint} || All steps are made by the optimizer that is given.")
        if not self.points:
            raise Mistake("never-steps", "The optimizer that you were given made no step. || What changes the net is its step.")

    def explain(self, right: "Steps") -> None:
        """Raise the Mistake that the record shows, where it shows one: only what was seen is said."""
        self.expect_some()
        none = not any(gradient.any() for gradient in self.gradients)
        reached = [arrival.step for arrival in self.arrived if not arrival.is_zero]
        if none and not self.arrived:
            hint = "No parameter had a gradient at any step, and none ever reached one."
            raise Mistake("no-backward", f"{hint} || backward has to reach the net that was given.")
        if none and not reached:
            hint = "All gradients are exactly 0, so no step changes anything. || Does the loss depend on the net's output?"
            raise Mistake("zero-gradients", hint)
        if reached and reached[0] > 0 and not self.gradients[0].any():
            hint = "At your first step there was no gradient; the first came after it."
            raise Mistake("step-before-backward", f"{hint} || A step uses the gradients of this pass: backward comes first.")
        if none:
            hint = "Gradients reached the parameters, and at each step there was none any more. || Clear them before backward."
            raise Mistake("zeroed-before-step", hint)
        if any(own != rate for own, rate in zip(self.rates, right.rates, strict=False)):
            hint = "You change the optimizer's rate. || With momentum that is not the same as another gradient."
            raise Mistake("changes-the-rate", hint)
        step = self.first_difference(right)
        points = enumerate(zip(self.points[:step], right.points, strict=False))
        if (moved := next((i for i, pair in points if self._differ(*pair)), None)) is not None:
            hint = f"Step {moved} (from 0) took the right gradient, and the parameters after it are others."
            raise Mistake("other-weights", f"{hint} Were the optimizer's state or options changed, or a weight?")
        before = [self.start, *self.points]
        if step is not None and any(self._differ(each.parameters, before[each.step]) for each in self.arrived):
            hint = "Not only the steps change parameters: a backward pass came to others than the step before had left."
            raise Mistake("other-weights", hint)
        if step is None and len(self.points) != len(right.points):
            hint = f"The optimizer that you were given made steps: {len(self.points)} instead of {len(right.points)}."
            raise Mistake("other-number-of-steps", hint)
        if step is None:
            return
        left, whose = (self.gradients[step - 1], "that of the step before") if step else (self.left, "one that was left before")
        if left.any() and same(self.gradients[step], right.gradients[step] + left, 1e-5):
            hint = f"The gradient of step {step} (from 0) has {whose} in it. || backward adds to what is there."
            raise Mistake("accumulates" if step else "not-cleared-at-first", hint)
        if not self.in_training:
            hint = "In evaluation mode dropout and batch norm would not train: leave the net's mode as it is."
            raise Mistake("evaluation-mode", hint)
        sizes = [each.numel() for each in self.parameters]
        parts = zip(self.names, *(each.gradients[step].split(sizes) for each in (self, right)), strict=True)
        if lost := [name for name, own, wanted in parts if not own.any() and wanted.any()]:
            hint = f"In step {step} (from 0) {', '.join(lost)} of the net that was given had no gradient."
            raise Mistake("parameter-without-gradient", f"{hint} Is it frozen, or replaced?")


class Memory(TorchDispatchMode):
    """The memory of what operators make: the most bytes that live at once, and those of the largest tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = self.largest = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        made = operator(*args, **(kwargs or {}))
        given = {each.untyped_storage().data_ptr() for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
        for each in tree_leaves(made):
            if isinstance(each, torch.Tensor) and (storage := each.untyped_storage()).data_ptr() not in given:
                self._add(storage.nbytes())
                weakref.finalize(storage, self._add, -storage.nbytes())
                given.add(storage.data_ptr())
        return made

    def _add(self, count: int) -> None:
        self.now += count
        self.most, self.largest = max(self.most, self.now), max(self.largest, count)


# ---- a net whose training is short ------------------------------------------------------------------------------------


class Tanh(nn.Module):
    """tanh, and another function in evaluation mode: as dropout and batch norm, without chance."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x if self.training else 2 * x)


def small_net(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    """A small net in float64, the same each time."""
    net = nn.Sequential(nn.Linear(inputs, hidden), Tanh(), nn.Linear(hidden, outputs)).double()
    made = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=made, dtype=torch.float64))
    return net


def small_batches(sizes: Iterable[int], inputs: int, seed: int = 2) -> list[Batch]:
    """Batches of these many samples for a small net with three outputs."""
    made = torch.Generator().manual_seed(seed)
    return [(torch.randn(n, inputs, generator=made).double(), torch.randint(3, (n,), generator=made)) for n in sizes]
