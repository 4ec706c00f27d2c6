"""A training by the student's own function, watched: the steps, the gradients, and what is in memory at once."""

from collections.abc import Callable, Sequence

import torch
from torch import nn

from hpml_lab.core.judge.mistake import Mistake

Batch = tuple[torch.Tensor, torch.Tensor]
Train = Callable[[nn.Module, torch.optim.Optimizer, list[Batch], int], None]

RATE = 0.5


def small_net() -> nn.Module:
    """A small net in float64, the same each time."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    made = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=made, dtype=torch.float64))
    return net


def small_batches(sizes: Sequence[int]) -> list[Batch]:
    made = torch.Generator().manual_seed(2)
    return [(torch.randn(n, 3, generator=made).double(), torch.randint(3, (n,), generator=made)) for n in sizes]


class WatchedTraining:
    """A training that is watched: the parameters after each step, and the gradient that each step took.

    left       True if a gradient of something else is in the parameters at first
    most       samples in one forward pass
    at_once    True if two forward passes were kept until a backward: F F B B instead of F B F B
    rates      the optimizer's rate in each step; RATE as given
    mode       True if the net was in training mode, as it was given, in each forward pass
    """

    def __init__(self, train: Train, batches: list[Batch], k: int, left: bool = False) -> None:
        self.points: list[torch.Tensor] = []
        self.gradients: list[torch.Tensor] = []
        self.rates: list[float] = []
        self.most, self.at_once, self.mode, self._last = 0, False, True, ""
        net = small_net()
        start = _flat(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE, momentum=0.5)
        optimizer.register_step_post_hook(lambda *_: self._stepped(net, optimizer))
        net.register_forward_hook(self._forward)
        for parameter in net.parameters() if left else ():
            parameter.grad = torch.ones_like(parameter)
        train(net, optimizer, batches, k)
        if not self.points and not torch.equal(_flat(net), start):
            hint = "The net was trained, but not by the optimizer that you were given: it made no step."
            raise Mistake("another-optimizer", hint)

    def _stepped(self, net: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.rates.append(optimizer.param_groups[0]["lr"])
        self.points.append(_flat(net))
        self.gradients.append(torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None] or [torch.empty(0)]))

    def _forward(self, net: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        self.most, self._last = max(self.most, len(output)), "forward"
        self.mode = self.mode and net.training
        if output.requires_grad:
            output.register_hook(self._backward)

    def _backward(self, _: torch.Tensor) -> None:
        self.at_once, self._last = self.at_once or self._last == "backward", "backward"


def _flat(net: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in net.parameters()])
