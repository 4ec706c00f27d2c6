"""What an epoch costs: of one XOR net in the lecture's loop, and of one or many in the batched program."""

from collections.abc import Callable

import torch
from torch import nn
from torch.optim import SGD

from hpml_lab.core.measure.noise import SpeedUp, speed_up_of
from hpml_lab.core.measure.timing import PLACEBO, Timing, interleaved
from hpml_lab.nets.batched_xor import INPUTS, TARGETS, batched_gradients, stack_of_nets
from hpml_lab.nets.networks import XorNet

LOOP, ONE, ALL = "the lecture's loop, one net", "the batched program, one net", "the batched program, all nets"


def epoch_times(seeds: range, device: torch.device) -> dict[str, Timing]:
    """One epoch of the lecture's loop for one net, and of the batched program for one net and for all."""
    net = XorNet().to(device)
    x, y, criterion = INPUTS.to(device), TARGETS.to(device), nn.BCELoss()
    optimizer = SGD(net.parameters(), lr=0.1)

    def loop() -> None:
        loss = criterion(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def batched(seeds: range) -> Callable[[], None]:
        stack = stack_of_nets(seeds, device=device)
        descent = SGD(stack, lr=0.1)

        def epoch() -> None:
            for parameter, gradient in zip(stack, batched_gradients(stack, x, y[:, 0]), strict=True):
                parameter.grad = gradient
            descent.step()

        return epoch

    return interleaved({LOOP: loop, ONE: batched(seeds[:1]), ALL: batched(seeds)}, samples=9, placebo=ONE)


def gain_of_batching(times: dict[str, Timing], nets: int) -> SpeedUp:
    """How many times as fast all nets train together as one after the other, by the same program."""
    alone, again = ([nets * seconds for seconds in times[name].samples] for name in (ONE, PLACEBO))
    return speed_up_of(alone, times[ALL].samples, again)
