"""Nets from one input to several outputs, 1-64-64-n with tanh, trained from several seeds at once as one batched program.

The tensors have a leading axis of nets: the weights of a layer are (S, in, out), a batch is (S, B). Nothing is summed over
nets but their losses, and Adam works on each element alone, so every training is the one that an ordinary loop would give.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from hpml_lab.core.system.errors import LabError

HIDDEN = 64
BATCH = 256
WARM = 0.1  # the share of the steps in which the rate climbs
Loss = Callable[[Tensor, Tensor], Tensor]  # (outputs (S, B, n), targets (S, B)) -> the loss of each sample (S, B)


class Nets:
    """S nets with `outputs` outputs each, from the seeds; two trainings with the same seeds share their initial weights."""

    def __init__(self, seeds: Sequence[int], outputs: int, device: torch.device | str = "cpu") -> None:
        if outputs < 1:
            raise LabError(f"a net with {outputs} outputs predicts nothing.", "Take at least one.")
        self.seeds, widths = list(seeds), [1, HIDDEN, HIDDEN, outputs]
        layers = list(zip(widths, widths[1:], strict=False))
        nets = [_initial(layers, seed) for seed in self.seeds]
        stacked = [torch.stack(same).to(device).requires_grad_() for same in zip(*nets, strict=True)]
        self.weights, self.biases = stacked[0::2], stacked[1::2]
        self.losses = torch.empty(0, len(self.seeds))  # (steps, S): the mean loss of each batch

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs (S, B, n) for inputs (S, B), or (B,) for all nets alike."""
        a = ((x - 0.5) * 4).expand(len(self.seeds), -1)[..., None]  # x is in −0.1 … 1.1: centered, with a spread near 1
        for W, b in zip(self.weights, self.biases, strict=True):
            a = torch.baddbmm(b[:, None], a if W is self.weights[0] else a.tanh(), W)
        return a

    def last_layer(self, s: int) -> tuple[Tensor, Tensor]:
        """The last layer's weight (n, 64) and bias (n,) of the s-th net, as in torch.nn.Linear: views, to initialize."""
        return self.weights[-1].detach()[s].T, self.biases[-1].detach()[s]

    def train(self, x: Tensor, targets: Tensor, loss: Loss, steps: int, rate: float) -> "Nets":
        """Adam on `steps` batches of (x, targets), both (S, N); the rate climbs, then falls to 0 along a cosine wave."""
        if targets.is_floating_point() and not targets.isfinite().all():
            raise LabError("some targets are NaN or infinite.", "Remove these samples, or find out where they come from.")
        optimizer = torch.optim.Adam([*self.weights, *self.biases], lr=rate, fused=True)
        batches = [torch.Generator().manual_seed(7919 * seed + 1) for seed in self.seeds]
        count, rows = x.shape[1], torch.arange(len(self.seeds), device=x.device)[:, None]
        losses = []
        for t in range(steps):
            chosen = torch.stack([torch.randint(count, (BATCH,), generator=g) for g in batches]).to(x.device)
            optimizer.param_groups[0]["lr"] = rate * climb_and_fall(t / steps)
            optimizer.zero_grad()
            of_nets = loss(self(x[rows, chosen]), targets[rows, chosen]).mean(1)
            of_nets.sum().backward()
            optimizer.step()
            losses.append(of_nets.detach())
        self.losses = torch.stack(losses).cpu()
        return self

    @torch.no_grad()
    def outputs(self, x: Tensor) -> Tensor:
        """Outputs (S, B, n) for inputs (B,), without gradients, on the CPU."""
        return self(x.to(self.weights[0])).cpu()


def climb_and_fall(share: float) -> float:
    """The factor of the rate after this share of the steps."""
    return share / WARM + 0.04 if share < WARM else (1 + math.cos(math.pi * (share - WARM) / (1 - WARM))) / 2


def _initial(layers: list[tuple[int, int]], seed: int) -> list[Tensor]:
    """Weight and bias of each layer in ±1/√inputs, as torch initializes a Linear; none depends on the other layers."""
    made = []
    for i, (rows, columns) in enumerate(layers):
        generator, bound = torch.Generator().manual_seed(97 * seed + i), rows**-0.5
        made += [torch.empty(shape).uniform_(-bound, bound, generator=generator) for shape in ((rows, columns), (columns,))]
    return made
