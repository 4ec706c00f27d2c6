"""What the ranks do in the experiment `dp-vs-ddp`: one process, DataParallel and DDP take turns on the same network."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.core.system.placement import device_of_rank, wait_for
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.rank_turns import in_turns_on_ranks, meet
from hpml_lab.core.timing.timeline import Span, busy, rows, span
from hpml_lab.distributed.lessons.data_parallel import ThreadedDataParallel, TimedDataParallel

ALONE, THREADS, RANKS, AGAIN = "one process", "DataParallel", "DDP", "one process again"
SMALL, LARGE = "many small layers", "few large layers"
CLASSES = 10


def make_net(layers: int, width: int) -> nn.Sequential:
    torch.manual_seed(0)
    hidden = [layer for _ in range(layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*hidden, nn.Linear(width, CLASSES))


def make_batch(samples: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(samples, width, generator=generator), torch.arange(samples) % CLASSES


def data_parallel(net: nn.Module, workers: int, device: torch.device) -> ThreadedDataParallel | TimedDataParallel:
    """torch's DataParallel on GPUs, or threads of the CPU that stand in for them."""
    if device.type == "cuda":
        return TimedDataParallel(net, device_ids=list(range(workers)))
    return ThreadedDataParallel(net, workers)


def plain_step(net: nn.Module, x: torch.Tensor, y: torch.Tensor) -> None:
    F.cross_entropy(net(x), y).backward()


def compare_ways(device: str, works: dict[str, dict], rounds: int, steps: int) -> dict[str, dict]:
    """On each rank: {work: seconds per step and way, in turns, and the timelines of one step}; rank 0's seconds count."""
    return {name: _compare(device, rounds=rounds, steps=steps, **work) for name, work in works.items()}


def _compare(device: str, layers: int, width: int, batch: int, rounds: int, steps: int) -> dict:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    here = device_of_rank(device, rank)
    net = make_net(layers, width).to(here)
    whole = [part.to(here) for part in make_batch(batch * ranks, width)]
    own = [part.chunk(ranks)[rank] for part in whole]
    alone, ddp = copy.deepcopy(net), DistributedDataParallel(copy.deepcopy(net))
    ways: dict[str, Callable[[], object]] = {RANKS: lambda: plain_step(ddp, *own)}
    dp = None
    if rank == 0:  # the other ranks wait meanwhile
        dp = data_parallel(net, ranks, here)
        ways |= {THREADS: lambda: dp.step(*whole, F.cross_entropy)}
        ways |= dict.fromkeys((ALONE, AGAIN), lambda: plain_step(alone, *own))
    several = {way: partial(_repeat, ways[way], steps) if way in ways else None for way in (ALONE, THREADS, RANKS, AGAIN)}
    samples = in_turns_on_ranks(several, rounds, here)
    seconds = {way: [each.wall / steps for each in found] for way, found in samples.items()}
    _meet(here)
    timelines, at_once = _stages(dp, whole, steps)
    return {"seconds": seconds, THREADS: timelines, RANKS: _ddp_timeline(ddp, own, rank), "at_once": at_once}


def _repeat(step: Callable[[], object], times: int) -> None:
    for _ in range(times):
        step()


def _meet(device: torch.device) -> None:
    wait_for(device)
    meet()


def _stages(
    dp: ThreadedDataParallel | TimedDataParallel | None, batch: list[torch.Tensor], steps: int
) -> tuple[list[list[dict]], dict[str, list[float]]]:
    """The timelines of some steps of DataParallel, and {stage: how many threads computed at once in each step}: their CPU time
    over the wall-clock time. On GPUs the second is empty."""
    timelines, at_once = [], {"forward": [], "backward": []}
    for _ in range(steps if dp is not None else 0):
        dp.spans = []
        dp.step(*batch, F.cross_entropy)
        timelines.append(rows(dp.spans))
        if isinstance(dp, ThreadedDataParallel):
            for stage, found in at_once.items():
                found.append(dp.cpu[stage] / busy(each for each in dp.spans if each.what == stage))
    return timelines, {stage: found for stage, found in at_once.items() if found}


def _ddp_timeline(ddp: nn.Module, batch: list[torch.Tensor], rank: int) -> list[Span]:
    """One step of DDP on this rank, after one that shows when the ranks are in step.

    On a CPU the backward pass ends when the last bucket is ready; from then on the rank waits for the all-reduce.
    """
    device = batch[0].device
    asked: list[float] = []

    def average(_: None, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        asked.append(CLOCK())
        summed = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return summed.get_future().then(lambda future: future.value()[0])

    if device.type == "cpu":
        ddp.register_comm_hook(None, average)
    for _ in range(2):
        spans: list[Span] = []
        _meet(device)
        with span(spans, f"rank {rank}", "forward"):
            loss = F.cross_entropy(ddp(batch[0]), batch[1])
            wait_for(device)
        with span(spans, f"rank {rank}", "backward"):
            loss.backward()
            wait_for(device)
    if asked:
        whole = spans.pop()
        spans.append(replace(whole, end=asked[-1]))
        spans.append(replace(whole, what="all-reduce", start=asked[-1]))
    return spans


# ---- the same gradient -----------------------------------------------------------------------------------------------------


def gradients_on_rank(counts: list[int], width: int) -> list[dict]:
    """On the CPU in float64, for batches of these sizes: the gradients by DataParallel and DDP, and what the former copied."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    found = []
    for samples in counts:
        net = make_net(2, width).double()
        x, y = make_batch(samples, width)
        x = x.double()
        ddp = DistributedDataParallel(copy.deepcopy(net))
        plain_step(ddp, x.chunk(ranks)[rank], y.chunk(ranks)[rank])
        dp = ThreadedDataParallel(net, ranks)
        dp.step(x, y, F.cross_entropy)
        found.append({THREADS: flat_gradient(net), RANKS: flat_gradient(ddp), "copied": dp.copied})
    return found


def whole_gradient(samples: int, width: int) -> torch.Tensor:
    """The gradient of one process on the whole batch."""
    net = make_net(2, width).double()
    x, y = make_batch(samples, width)
    plain_step(net, x.double(), y)
    return flat_gradient(net)


def flat_gradient(net: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
