"""What the ranks do in the experiment `sync-batch-norm`: a step with each kind of batch norm, counted and timed."""

import copy
from collections.abc import Callable
from functools import partial
from unittest.mock import patch

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.core.system.placement import device_of_rank
from hpml_lab.core.timing.rank_turns import in_turns_on_ranks
from hpml_lab.distributed.lessons.batch_norm import AllReduceSum, SyncBatchNorm, convert_batch_norm, merge_moments, moments

PLAIN, AVERAGED, SYNC, TORCHS = "plain batch norm", "averaged variances", "SyncBatchNorm", "torch.nn.SyncBatchNorm"
AGAIN = "again"
EVEN, UNEVEN = "even", "uneven"
CHANNELS = 4


class AveragedVariances(SyncBatchNorm):
    """The known mistake: mean and variance averaged over the ranks."""

    def _moments_of_all_ranks(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        n, mean, squares = moments(x)
        total = AllReduceSum.apply(torch.full_like(mean[:1], n))
        mean, variance = AllReduceSum.apply(torch.stack([mean, squares / n]) / dist.get_world_size())
        return total, mean, variance * total


def _with_averaged_variances(net: nn.Module) -> nn.Module:
    for module in convert_batch_norm(net).modules():
        if isinstance(module, SyncBatchNorm):
            module.__class__ = AveragedVariances
    return net


CONVERT: dict[str, Callable[[nn.Module], nn.Module]] = {
    PLAIN: lambda net: net,
    AVERAGED: _with_averaged_variances,
    SYNC: convert_batch_norm,
    TORCHS: nn.SyncBatchNorm.convert_sync_batchnorm,
}


def make_net() -> nn.Module:
    """A network with one batch norm of CHANNELS channels, always with the same weights."""
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(1, CHANNELS, 3), nn.BatchNorm2d(CHANNELS)
    return nn.Sequential(conv, norm, nn.ReLU(), nn.Flatten(), nn.Linear(36 * CHANNELS, 3)).double()


def make_batch(ranks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """4·N·(N + 1) images that get brighter from the first to the last, as in data that somebody sorted; and their classes."""
    samples = 4 * ranks * (ranks + 1)
    brightness = torch.linspace(0, 4, samples, dtype=torch.float64).view(-1, 1, 1, 1)
    generator = torch.Generator().manual_seed(1)
    return torch.randn(samples, 1, 8, 8, dtype=torch.float64, generator=generator) + brightness, torch.arange(samples) % 3


def sizes(shares: str, ranks: int) -> list[int]:
    """How many samples each rank has: as many as the others, or r + 1 times as many as rank 0."""
    return [4 * (ranks + 1)] * ranks if shares == EVEN else [8 * (rank + 1) for rank in range(ranks)]


def step(net: nn.Module, x: torch.Tensor, y: torch.Tensor, scale: float) -> dict[str, torch.Tensor]:
    """A forward pass and the backward pass of `scale` times the sum of the losses: what came out, on the CPU."""
    output = net(x)
    (F.cross_entropy(output, y, reduction="sum") * scale).backward()
    [norm] = (module for module in net.modules() if hasattr(module, "running_mean"))
    found = {
        "output": output,
        "gradient": torch.cat([parameter.grad.flatten() for parameter in net.parameters()]),
        "running_mean": norm.running_mean,
        "running_var": norm.running_var,
    }
    return {name: value.detach().cpu().clone() for name, value in found.items()}


def on_rank(device: str, norms: list[str], x: torch.Tensor, y: torch.Tensor, rounds: int, steps: int) -> dict:
    """On each rank: a step with each kind of batch norm and both shares, what was sent, how long it took, and torch's own."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    here = device_of_rank(device, rank)
    found = {}
    for shares in (EVEN, UNEVEN):
        own, own_y = (whole.split(sizes(shares, ranks))[rank].to(here) for whole in (x, y))
        for norm in norms:
            net = DistributedDataParallel(CONVERT[norm](make_net().to(here)))
            found[norm, shares] = step(net, own, own_y, scale=ranks / len(x))  # DDP divides by the number of ranks
    return {"found": found, "all_reduces": count_all_reduces(own), "seconds": step_seconds(own.float(), rounds, steps)}


def count_all_reduces(x: torch.Tensor) -> dict[str, list[int]]:
    """How many numbers each all-reduce of one SyncBatchNorm adds, in the forward and in the backward pass."""
    net, counts = convert_batch_norm(make_net().to(x.device)), {}
    with patch.object(dist, "all_reduce", wraps=dist.all_reduce) as calls:
        output = net(x)
        counts["forward"] = [call.args[0].numel() for call in calls.call_args_list]
        calls.reset_mock()
        output.sum().backward()
        counts["backward"] = [call.args[0].numel() for call in calls.call_args_list]
    return counts


def step_seconds(x: torch.Tensor, rounds: int, steps: int) -> dict[str, list[float]]:
    """Seconds of a step with four plain batch norms, with four SyncBatchNorms, and with plain ones again, in turns."""
    torch.manual_seed(0)
    layers = [layer for _ in range(4) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())]
    plain = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), *layers).to(x.device)
    nets = {PLAIN: plain, SYNC: convert_batch_norm(copy.deepcopy(plain)), AGAIN: copy.deepcopy(plain)}
    ways = {name: DistributedDataParallel(net) for name, net in nets.items()}

    def several(net: nn.Module) -> None:
        for _ in range(steps):
            net(x).square().mean().backward()

    found = in_turns_on_ranks({name: partial(several, net) for name, net in ways.items()}, rounds, x.device)
    return {name: [each.wall / steps for each in samples] for name, samples in found.items()}


def variance_errors(x: torch.Tensor, ranks: int) -> tuple[float, float]:
    """The largest relative errors of two float32 variances over ranks: mean of x² minus mean², and merged moments."""
    right = x.double().var(0, correction=0)
    parts = x.chunk(ranks)
    sums, squares = sum(part.sum(0) for part in parts), sum(part.square().sum(0) for part in parts)
    by_sums = squares / len(x) - (sums / len(x)).square()
    counts, means, m2 = zip(*map(moments, parts), strict=True)
    n, _, merged = merge_moments(torch.tensor(counts)[:, None], torch.stack(means), torch.stack(m2))
    by_sums, merged = (float(((found - right) / right).abs().max()) for found in (by_sums, merged / n))
    return by_sums, merged
