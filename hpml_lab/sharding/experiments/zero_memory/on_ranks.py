"""What each way to shard the memory holds on a rank, how long its step takes, and how much of its communication is hidden."""

import contextlib
import gc
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from hpml_lab.core.system.placement import device_of_rank
from hpml_lab.core.timing.counting import peak_bytes, profiled, trace_events
from hpml_lab.core.timing.rank_turns import in_turns_on_ranks
from hpml_lab.core.timing.timeline import Span, busy, overlap
from hpml_lab.sharding.experiments.zero_memory import sharded_runs as runs
from hpml_lab.sharding.lessons.fsdp import FullyShardedDataParallel
from hpml_lab.sharding.lessons.zero import FLOAT32, MIXED, Footprint, footprint

STEPS = 3  # before the peak is taken
COUNTS = 2  # of bytes and of peaks; the lower holds, as gloo's threads may let go of a tensor a moment after the transfer
HALF = torch.bfloat16
AGAIN = " again"


@dataclass(frozen=True)
class Way:
    """One way to train: how to make its run, and the formula that it should follow.

    twin   torch's way that does the same
    """

    make: Callable[..., runs.Run]
    stage: int
    whole: Footprint = FLOAT32
    twin: str | None = None


DDP, ZERO_1, ZERO_3, ZERO_3_HALF = "DDP", "ZeroRedundancyOptimizer", "fully_shard", "fully_shard, bf16"
WHOLE = "fully_shard, whole until backward"
OURS_1, OURS_3 = "ShardedOptimizer (this package)", "FullyShardedDataParallel (this package)"
WAYS = {
    DDP: Way(runs.ddp, 0),
    ZERO_1: Way(runs.zero_redundancy_optimizer, 1),
    OURS_1: Way(runs.sharded_optimizer, 1, twin=ZERO_1),
    WHOLE: Way(partial(runs.torch_fully_sharded, reshard=False), 3),
    ZERO_3: Way(runs.torch_fully_sharded, 3),
    OURS_3: Way(runs.own_fully_sharded, 3, twin=ZERO_3),
    ZERO_3_HALF: Way(partial(runs.torch_fully_sharded, dtype=HALF), 3),
    f"{OURS_3[:-1]}, bf16)": Way(partial(runs.own_fully_sharded, dtype=HALF), 3, twin=ZERO_3_HALF),
}
BASES = [DDP, *(way.twin for way in WAYS.values() if way.twin)]  # that others are compared with, and timed twice
# DeepSpeed's: stage, number format, and the bytes that one rank alone would keep.
DEEPSPEED = {
    "DeepSpeed 0": (0, None, FLOAT32),
    "DeepSpeed 1": (1, None, FLOAT32),
    "DeepSpeed 2": (2, None, FLOAT32),
    "DeepSpeed 3": (3, None, FLOAT32),
    "DeepSpeed 2, bf16": (2, HALF, MIXED),
    "DeepSpeed 3, bf16": (3, HALF, MIXED),
}


@dataclass
class Weighed:
    """What a run holds on one rank, in bytes, and what it computed.

    before_update  when gradients are ready and the state exists
    after_forward  all of it, when the forward pass is over
    peak           the most at once in a step, with what stays between steps; the lower of two steps
    """

    before_update: Footprint
    after_forward: float
    peak: float
    losses: list[float]


@dataclass
class MemoryReport:
    """What one rank found, by way: what it holds, its weights in the end, seconds of each step, and hidden communication."""

    held: dict[str, Weighed]
    weights: dict[str, list[float]]
    seconds: dict[str, list[float]]
    hidden: dict[str, float]


def weigh_and_time(width: int, depth: int, samples: int, device_type: str) -> MemoryReport:
    """Train each of WAYS on this rank; those in BASES are timed twice, the second time under their name and AGAIN."""
    device = device_of_rank(device_type, dist.get_rank())
    x, y = map(runs.own_part, runs.batch(width, device))
    _freeze()
    held, weights = {}, {}
    for name, way in WAYS.items():
        run = way.make(runs.network(width, depth, device))
        held[name] = weigh(run, x, y)
        # Lists of numbers: a tensor would count as one that training keeps.
        weights[name] = torch.cat([value.detach().flatten() for value in run.whole().values()]).tolist()
        del run
    twice = {name + AGAIN: WAYS[name] for name in BASES}
    steps = {name: partial(way.make(runs.network(width, depth, device)).step, x, y) for name, way in (WAYS | twice).items()}
    timed = in_turns_on_ranks(steps, samples, device, until_all=True)
    seconds = {name: [each.wall for each in found] for name, found in timed.items()}
    return MemoryReport(held, weights, seconds, {name: hidden_share(steps[name], device) for name in WAYS})


def weigh_deepspeed(width: int, depth: int, device_type: str, folder: str) -> dict[str, Weighed]:
    """{way: what it holds} on this rank; what DeepSpeed compiles goes into `folder`."""
    from hpml_lab.sharding.experiments.quiet_deepspeed import load_deepspeed

    device = device_of_rank(device_type, dist.get_rank())
    load_deepspeed(device, folder)
    x, y = map(runs.own_part, runs.batch(width, device))
    weighed = {}
    for name, (stage, dtype, _) in DEEPSPEED.items():
        _freeze()
        weighed[name] = weigh(runs.deepspeed_run(runs.network(width, depth, device), stage, dtype), x, y)
    return weighed


def _freeze() -> None:
    """What is here already is not looked through again each time tensors are counted."""
    gc.collect()
    gc.freeze()


def weigh(run: runs.Run, x: torch.Tensor, y: torch.Tensor) -> Weighed:
    """Train for a few steps and count in the last of them; then take the peak of some more."""
    losses: list[float] = []
    after_forward: list[float] = []
    before_update: list[Footprint] = []
    for step in range(STEPS):
        output, counted = run.forward(x), step >= STEPS - COUNTS
        if counted:
            after_forward.append(_held(run, x, y).total - output.nbytes)
        loss = runs.loss_of(output, y)
        losses.append(loss.item())
        run.backward(loss)
        del output, loss
        if counted:
            before_update.append(_held(run, x, y))
        run.update()
        run.clear()
    least = min(before_update, key=lambda held: held.total)
    between = _held(run, x, y).total + (least.gradients if run.keeps_gradients else 0)
    with _without_messages():
        peak = between + min(peak_bytes(lambda: run.step(x, y), x.device) for _ in range(COUNTS))
    return Weighed(least, min(after_forward), peak, losses)


def _held(run: runs.Run, *ignored: torch.Tensor) -> Footprint:
    return footprint(*run.tensors(), ignored=list(ignored))


@contextlib.contextmanager
def _without_messages():
    """The profiler writes from C++ that it does not know what was allocated before it started."""
    kept = os.dup(2)
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        os.dup2(nowhere.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def hidden_share(step: Callable[[], object], device: torch.device) -> float:
    """The share of the communication during which this rank computed, from a trace of a few steps."""

    def several() -> None:
        for _ in range(STEPS):
            step()

    return share_behind_compute(trace_events(profiled(several, device, acc_events=False)))


def share_behind_compute(events: list[dict[str, Any]]) -> float:
    """From the events of a trace: gloo's transfers and torch's operators on a CPU, NCCL's kernels and all others on a GPU."""
    on_gpu = [event for event in events if event.get("cat") == "kernel"]
    if on_gpu:
        sent = [event for event in on_gpu if event["name"].startswith("nccl")]
        computed = [event for event in on_gpu if not event["name"].startswith("nccl")]
    else:
        sent = [event for event in events if event["name"].startswith("gloo:")]
        threads = {event["tid"] for event in sent}  # of gloo, which copies there
        computed = [event for event in events if event["name"].startswith("aten::") and event["tid"] not in threads]
    transfers, compute = map(_spans, (sent, computed))
    return overlap(compute, transfers) / busy(transfers) if transfers else 0.0


def _spans(events: list[dict[str, Any]]) -> list[Span]:
    return [Span("rank", event["name"], event["ts"] / 1e6, (event["ts"] + event["dur"]) / 1e6) for event in events]


# ---- the first rank of thousands, in one process -------------------------------------------------------------------------
# torch's "fake" backend makes a process rank 0 of a group without the others: collectives return at once and bring nothing. So
# the sizes are right; values are not, and neither are times.

WIDTH, DEPTH = 256, 3  # of the network, whose tensors have WIDTH rows each
COUNT = DEPTH * WIDTH * (WIDTH + 1)  # parameters
SHAPES = [(WIDTH, WIDTH), (WIDTH, 1)] * DEPTH  # rows of each tensor, and numbers in a row
COUNTER = 4  # bytes of Adam's step counter, which each tensor has


def first_of_many(numbers: tuple[int, ...]) -> list[tuple[int, int]]:
    """For each number of ranks the bytes that rank 0 keeps: with torch's fully_shard, and with FullyShardedDataParallel.

    To be called on a rank of its own, which leaves its group.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    gc.collect()
    gc.freeze()  # what is here already is not looked through each time tensors are counted
    found = []
    for ranks in numbers:
        dist.destroy_process_group()
        dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
        by_rows, mesh = runs.network(WIDTH, DEPTH), init_device_mesh("cpu", (ranks,))
        for layer in [layer for layer in by_rows if isinstance(layer, nn.Linear)]:
            fully_shard(layer, mesh=mesh)
        fully_shard(by_rows, mesh=mesh)
        by_numbers = FullyShardedDataParallel(runs.network(WIDTH, DEPTH))
        found.append((_owned(by_rows), _owned(by_numbers)))
    return found


def _owned(model: nn.Module) -> int:
    """Parameters, gradients and state after one step."""
    optimizer = runs.adam(model.parameters())
    model(torch.ones(runs.BATCH, WIDTH)).sum().backward()
    if isinstance(model, FullyShardedDataParallel):
        model.finish_gradient_synchronization()
    optimizer.step()
    parameters = list(model.parameters())
    return footprint(parameters, [parameter.grad for parameter in parameters], dict(optimizer.state)).owned
