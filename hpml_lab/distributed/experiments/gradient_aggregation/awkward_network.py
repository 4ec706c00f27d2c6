"""A network whose parameters are tied, frozen, unused or used by one rank only, trained on ranks and in one process."""

import copy

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.distributed.lessons.ddp import OverlappingDDP


class AwkwardNet(nn.Module):
    """One weight is used by two layers, one layer is frozen, one is never used, and one only where `rare` is true."""

    def __init__(self, inputs: int, width: int = 16) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(inputs, width), nn.Linear(width, 10)
        self.tied, self.again, self.frozen, self.unused, self.rare = (nn.Linear(width, width) for _ in range(5))
        self.again.weight = self.tied.weight
        self.frozen.requires_grad_(False)

    def forward(self, x: torch.Tensor, rare: bool) -> torch.Tensor:
        x = F.relu(self.again(F.relu(self.tied(F.relu(self.first(x))))))
        return self.head(self.frozen(x) + (self.rare(x) if rare else 0))


def train_awkward_network(
    images: torch.Tensor, labels: torch.Tensor, steps: int = 3
) -> tuple[dict[str, bool], dict[str, float]]:
    """Train it with torch's DDP, with OverlappingDDP and in one process on the whole batch; only rank 0 uses the rare layer.

    Returns {what: whether it holds} for OverlappingDDP, and {way: how far its parameters are from those of one process}.
    """
    ranks, rank = dist.get_world_size(), dist.get_rank()

    def fresh(seed: int) -> AwkwardNet:
        torch.manual_seed(seed)
        return AwkwardNet(images.shape[1]).double()

    start = fresh(0)
    ways = {  # every rank starts differently: both have to take rank 0's parameters
        "DDP": DistributedDataParallel(fresh(rank), find_unused_parameters=True),
        "OverlappingDDP": OverlappingDDP(fresh(rank), bucket_mb=0.002),
    }
    alone = copy.deepcopy(start)
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01) for net in (*ways.values(), alone)]
    shares = list(zip(images.chunk(ranks), labels.chunk(ranks), strict=True))
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        x, y = shares[rank]
        for net in ways.values():
            F.cross_entropy(net(x, rare=rank == 0), y).backward()
        ways["OverlappingDDP"].finish_gradient_synchronization()
        for number, (x, y) in enumerate(shares):
            (F.cross_entropy(alone(x, rare=number == 0), y) / ranks).backward()
        for optimizer in optimizers:
            optimizer.step()
    net = ways["OverlappingDDP"].module
    without = {name.split(".")[0] for name, parameter in net.named_parameters() if parameter.grad is None}
    return {
        "only frozen and unused have no gradient": without == {"frozen", "unused"},
        "frozen and unused stay": all(
            torch.equal(a, b)
            for part in ("frozen", "unused")
            for a, b in zip(getattr(net, part).parameters(), getattr(start, part).parameters(), strict=True)
        ),
        "tied stays tied": net.tied.weight is net.again.weight,
        "rare moves": not torch.equal(net.rare.weight, start.rare.weight),
    }, {way: _distance(trained.module, alone) for way, trained in ways.items()}


def _distance(net: nn.Module, other: nn.Module) -> float:
    pairs = zip(net.parameters(), other.parameters(), strict=True)
    return max(relative_difference(a.detach(), b.detach()) for a, b in pairs)


def relative_difference(found: torch.Tensor, right: torch.Tensor) -> float:
    """The largest difference, relative to the largest entry."""
    return ((found - right).abs().max() / right.abs().max()).item()
