"""A training run that continues from its snapshot, bitwise identical on 4, 2 or 1 ranks.

`TrainingRun` holds everything that decides the next step. What it holds besides the weights is easily forgotten in a snapshot:
the optimizer's moments, the schedule, the generator, the epoch, and the place in the epoch.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from hpml_lab.sharding.lessons.recovery import average_in_order, my_shards

SHARDS, PER_SHARD, BATCHES = 4, 16, 6  # samples of a shard; batches of an epoch
PARTS = ("net", "optimizer", "scheduler", "generator", "epoch", "batch")  # of a complete snapshot


class TrainingRun:
    """A small network that learns ten classes, with noise on its inputs, dropout, Adam and a schedule."""

    def __init__(self, width: int = 32) -> None:
        torch.manual_seed(0)
        self.x = torch.randn(SHARDS * PER_SHARD * BATCHES, 64)
        self.y = (self.x @ torch.randn(64, 10)).argmax(dim=1)  # a class that a linear map decides
        self.net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Dropout(0.2), nn.Linear(width, 10))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=3e-3)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, step_size=4, gamma=0.9)
        self.generator = torch.Generator().manual_seed(0)
        self.epoch = self.batch = 0

    @property
    def steps(self) -> int:
        """How many steps are done."""
        return self.epoch * BATCHES + self.batch

    def state(self) -> dict[str, Any]:
        """Everything that the next step depends on, and that no rank can compute from anything else."""
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "generator": self.generator.get_state(),
            "epoch": self.epoch,
            "batch": self.batch,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what `state` has; what it has forgotten stays as in a new run."""
        for name, value in state.items():
            if name in ("epoch", "batch"):
                setattr(self, name, int(value))
            elif name == "generator":
                self.generator.set_state(value)
            else:
                getattr(self, name).load_state_dict(value)

    def step(self, average: Callable[[dict[int, torch.Tensor], int], torch.Tensor] = average_in_order) -> float:
        """One step on this rank's shards of the next batch; returns the mean loss of these shards."""
        order = torch.randperm(len(self.x), generator=torch.Generator().manual_seed(self.epoch))
        shards = order[self.batch * SHARDS * PER_SHARD :][: SHARDS * PER_SHARD].view(SHARDS, PER_SHARD)
        seed = int(torch.randint(2**31, (), generator=self.generator))
        losses, gradients = [], {}
        for shard in my_shards(SHARDS):
            torch.manual_seed(seed + shard)  # noise and dropout belong to the step and the shard, not to the rank
            x = self.x[shards[shard]]
            loss = F.cross_entropy(self.net(x + 0.1 * torch.randn_like(x)), self.y[shards[shard]])
            found = torch.autograd.grad(loss, list(self.net.parameters()))
            gradients[shard] = torch.cat([gradient.flatten() for gradient in found])
            losses.append(loss.item())
        parameters = list(self.net.parameters())
        flat = average(gradients, SHARDS).split([parameter.numel() for parameter in parameters])
        for parameter, gradient in zip(parameters, flat, strict=True):
            parameter.grad = gradient.view_as(parameter)
        self.optimizer.step()
        self.scheduler.step()
        self.epoch, self.batch = divmod(self.steps + 1, BATCHES)
        return sum(losses) / len(losses)
