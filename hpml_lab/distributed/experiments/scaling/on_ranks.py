"""What the ranks of `scaling` measure: one training step on 1, 2, … ranks, in turns, and all-reduces of several sizes."""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.core.system.placement import device_of_rank
from hpml_lab.core.timing.noise import SpeedUp, speed_up_of
from hpml_lab.core.timing.rank_turns import in_turns_on_ranks

ALONE, AGAIN = "1 rank", "1 rank again"
STRONG, WEAK, COMPUTE_ONLY = "strong", "weak", "no all-reduce"
Samples = dict[tuple[str, int], list[float]]  # {(work, ranks): seconds of each sample}


@dataclass
class RankTimes:
    """One rank's samples, in seconds; a work in which it has no part has no CPU time.

    steps       wall-clock time
    cpu         CPU time of this process, with the threads of its communication
    all_reduce  {bytes: wall-clock time of each sample}
    """

    steps: Samples
    cpu: Samples
    all_reduce: dict[int, list[float]]
    gradient_bytes: int


def network(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(784, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))


def measure_rank(width: int, batch: int, sizes: Sequence[int], samples: int, device: str) -> RankTimes:
    """On each rank: all works in turns, so that a drift of the machine's speed falls on all of them.

    batch  the samples of one step of one rank; strong scaling divides them, weak scaling gives them to each rank
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    here = device_of_rank(device, rank)
    counts = [count for count in (1, 2, 4, 8, 16) if count <= world]
    works = _works(width, batch, counts, here)
    steps = {name: work if rank < name[1] else None for name, work in works.items()}
    messages = {size: torch.zeros(size // 4, device=here) for size in sizes}
    sums = {size: lambda message=message: dist.all_reduce(message) for size, message in messages.items()}
    found = in_turns_on_ranks({**steps, **sums}, samples, here)
    wall = {name: [each.wall for each in taken] for name, taken in found.items()}
    cpu = {name: [each.cpu for each in found[name]] for name in works}
    own, all_reduce = {name: wall[name] for name in works}, {size: wall[size] for size in sizes}
    return RankTimes(own, cpu, all_reduce, sum(p.nbytes for p in network(width).parameters()))


def _works(width: int, batch: int, counts: Sequence[int], here: torch.device) -> dict[tuple[str, int], Callable[[], None]]:
    rank = dist.get_rank()
    x, y = torch.randn(batch, 784, device=here), torch.randint(10, (batch,), device=here)
    plain = network(width).to(here)
    works = {(ALONE, 1): lambda: _step(plain, x, y)}
    for count in counts[1:]:
        group = dist.new_group(list(range(count)))  # all ranks take part in making a group
        if rank >= count:
            nothing = dict.fromkeys([(STRONG, count), (WEAK, count), (COMPUTE_ONLY, count)], lambda: None)
            works |= nothing
            continue
        model, part = DistributedDataParallel(network(width).to(here), process_group=group), batch // count
        works[STRONG, count] = lambda model=model, part=part: _step(model, x[:part], y[:part])
        works[WEAK, count] = lambda model=model: _step(model, x, y)
        works[COMPUTE_ONLY, count] = lambda model=model, part=part: _step(model, x[:part], y[:part], model.no_sync())
    return works | {(AGAIN, 1): works[ALONE, 1]}


def _step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, context: contextlib.AbstractContextManager | None = None) -> None:
    model.zero_grad()
    with context or contextlib.nullcontext():
        nn.functional.cross_entropy(model(x), y).backward()


# ---- all ranks together -----------------------------------------------------------------------------------------------------


def slowest(found: list[RankTimes]) -> Samples:
    """A step takes as long as on its slowest rank."""
    return {name: [max(turn) for turn in zip(*(rank.steps[name] for rank in found), strict=True)] for name in found[0].steps}


def cpu_of_all(found: list[RankTimes]) -> Samples:
    """The CPU time of all ranks: what the processors did, without the time they waited."""
    return {name: [sum(turn) for turn in zip(*(rank.cpu[name] for rank in found), strict=True)] for name in found[0].cpu}


def gains_in(found: list[RankTimes]) -> tuple[dict[tuple[str, int], SpeedUp], SpeedUp]:
    """{(work, ranks): gain in samples per second}, and the gain in CPU time of two ranks that share a batch."""
    wall, cpu = slowest(found), cpu_of_all(found)
    alone, again = (ALONE, 1), (AGAIN, 1)
    gains = {
        name: speed_up_of(wall[alone], [t / (name[1] if name[0] == WEAK else 1) for t in times], wall[again])
        for name, times in wall.items()
        if name not in (alone, again)
    }
    return gains, speed_up_of(cpu[alone], cpu[STRONG, 2], cpu[again])


def fastest_all_reduce(found: list[RankTimes]) -> dict[int, float]:
    """{bytes: seconds}: of the samples, which each take as long as their slowest rank, the fastest."""
    sizes = found[0].all_reduce
    return {size: min(max(turn) for turn in zip(*(rank.all_reduce[size] for rank in found), strict=True)) for size in sizes}
