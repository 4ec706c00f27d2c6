"""Where a data-parallel training step of your own net goes: forward, backward, the all-reduce that is not hidden, optimizer."""

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.placement import device_of_rank, wait_for
from hpml_lab.core.timing.clock import SAMPLES
from hpml_lab.core.timing.rank_turns import in_turns_on_ranks

ALONE = "all-reduce"  # of as many bytes as the gradients have, with nothing to hide behind
DEADLINE = 600.0  # seconds; far above what a loaded machine needs


@dataclass
class StepRow(Row):
    """A training step of some ranks, each with a batch of its own. Times are medians, in milliseconds."""

    ranks: int = column("ranks")
    batch: int = column("batch of a rank")
    step: float = column("step", "ms")
    forward: float = column("forward", "ms")
    backward: float = column("backward", "ms")
    waiting: float = column("all-reduce, not hidden", "ms")
    optimizer: float = column("optimizer", "ms")
    rate: float = column("samples per second")
    speed_up: float = column("speed-up over one rank")
    predicted: float = column("compute + all-reduce", "ms")
    all_reduce: float = column("all-reduce alone", "ms")
    sent: int = column("gradients sent by a rank", "bytes")
    buffers: int = column("buffers broadcast", "bytes")
    busy: float = column("of the link's bandwidth", "%")


class StepLap(NamedTuple):
    """Seconds of the parts of one step on one rank."""

    forward: float
    backward: float
    optimizer: float

    @property
    def compute(self) -> float:
        return self.forward + self.backward


@dataclass
class RankParts:
    """What one rank measured: {(ranks, batch, synchronized): laps}, {ranks: seconds of an all-reduce}, and bytes."""

    laps: dict[tuple[int, int, bool], list[StepLap]]
    alone: dict[int, list[float]]
    gradients: int
    buffers: int


def step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: Any, y: Any, loss: Callable, sync: bool, laps: list[StepLap]
) -> None:
    """One training step, and a lap for its parts; without `sync` DDP sends nothing."""
    device = next(model.parameters()).device
    if isinstance(
        model, DistributedDataParallel
    ):  # which sends buffers if the step before sent gradients; here, if this one does
        model.require_forward_param_sync = sync

    def now() -> float:
        wait_for(device)
        return time.perf_counter()

    times = [now()]
    with contextlib.nullcontext() if sync else model.no_sync():
        value = loss(model(x), y)
        times.append(now())
        value.backward()
    times.append(now())
    optimizer.step()
    optimizer.zero_grad()
    times.append(now())
    laps.append(StepLap(*(b - a for a, b in zip(times, times[1:], strict=False))))


def measure_rank(
    make_net: Callable[[], nn.Module],
    make_batch: Callable[[int], tuple[Any, Any]],
    loss: Callable,
    make_optimizer: Callable,
    counts: Sequence[int],
    batches: Sequence[int],
    samples: int,
    device: str,
) -> RankParts:
    """On each rank: all steps in turns, with and without messages, so that a drift of the machine's speed falls on all."""
    rank = dist.get_rank()
    here = device_of_rank(device, rank)
    found = RankParts({}, {}, 0, 0)
    works: dict[Any, Callable[[], None] | None] = {}
    for count in counts:
        group = dist.new_group(list(range(count))) if count > 1 else None  # all ranks take part in making a group
        torch.manual_seed(0)
        net = make_net().to(here)
        torch.manual_seed(rank)  # each rank has batches of its own
        found.gradients = sum(p.nbytes for p in net.parameters() if p.requires_grad)
        found.buffers = sum(b.nbytes for b in net.buffers())
        takes_part = rank < count
        model = DistributedDataParallel(net, process_group=group) if count > 1 and takes_part else net
        optimizer = make_optimizer(net.parameters())
        for batch in batches:
            x, y = (part.to(here) for part in make_batch(batch))
            for sync in [True, False][: 2 if count > 1 else 1]:
                laps = found.laps[count, batch, sync] = []
                work = functools.partial(step, model, optimizer, x, y, loss, sync, laps)
                works[count, batch, sync] = work if takes_part else None
        if count > 1:
            message = torch.zeros(found.gradients // 4, device=here)
            works[ALONE, count] = functools.partial(dist.all_reduce, message, group=group) if takes_part else None
    times = in_turns_on_ranks(works, samples, here)
    found.alone = {name[1]: [each.wall for each in times[name]] for name in works if name[0] == ALONE}
    found.laps = {name: laps[1:] for name, laps in found.laps.items()}  # the first turn warms up
    return found


def sgd(parameters: Iterable[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01)


def time_step_parts(
    make_net: Callable[[], nn.Module],
    make_batch: Callable[[int], tuple[Tensor, Tensor]],
    *,
    loss: Callable[[Any, Any], Tensor] = nn.functional.cross_entropy,
    make_optimizer: Callable = sgd,
    ranks: Sequence[int] = (1, 2),
    batches: Sequence[int] = (32, 128, 512),
    samples: int = SAMPLES,
    device: torch.device | str = "cpu",
    deadline_seconds: float = DEADLINE,
) -> list[StepRow]:
    """Where a step of your net goes, on 1, 2, … ranks with DDP: a row for each number of ranks and each batch of a rank.

    make_net, make_batch  () → net, and batch size → (x, y); both are called on each rank
    ranks                 from 1 on, each with one thread; on "cuda" one for each GPU
    deadline_seconds      after which the ranks are ended, and a RankError says so

    What is not hidden is the difference between steps with and without DDP's messages, taken in turns. A rank sends
    2 (N − 1) / N times the gradients' bytes, and rank 0 its buffers (batch norm's averages) to all. Each parameter has to get a
    gradient. Raises LabError for ranks, batches or samples that are no such numbers, and RankError where the net fails.
    """
    [samples] = _whole((samples,), "samples")
    counts = sorted({1, *_whole(ranks, "ranks")})
    sizes = sorted(set(_whole(batches, "batches")))
    arguments = make_net, make_batch, loss, make_optimizer, counts, sizes, samples, str(device)
    found = launch(measure_rank, *arguments, ranks=counts[-1], device=device, deadline_seconds=deadline_seconds)
    return step_rows(found, counts, sizes)


def _whole(values: int | Sequence[int], name: str) -> list[int]:
    given = list(values) if isinstance(values, Iterable) else [values]
    if not given or not all(isinstance(value, Integral) and not isinstance(value, bool) and value > 0 for value in given):
        raise LabError(f"{name}={values!r} are no whole numbers from 1 on.", "Give 1, 2, 4 or the like.")
    return [int(value) for value in given]


def step_rows(found: list[RankParts], counts: Sequence[int], batches: Sequence[int]) -> list[StepRow]:
    """The rows of what all ranks measured: a step takes as long as on its slowest rank, its parts are means over the ranks."""
    rows: list[StepRow] = []
    alone: dict[int, float] = {}
    rates: dict[int, float] = {}
    for count in counts:
        members = found[:count]
        for batch in batches:
            turns = list(zip(*(rank.laps[count, batch, True] for rank in members), strict=True))
            quiet = list(zip(*(rank.laps[count, batch, count == 1] for rank in members), strict=True))
            seconds = median(max(sum(lap) for lap in turn) for turn in turns)
            forward, backward = (median(fmean(lap[part] for lap in turn) for turn in quiet) for part in (0, 1))
            waiting = median(
                fmean(a.compute - b.compute for a, b in zip(with_, without, strict=True))
                for with_, without in zip(turns, quiet, strict=True)
            )
            rates[batch] = rates.get(batch, batch / seconds)  # of one rank, the first
            alone.setdefault(batch, seconds)
            link = (
                median(max(turn) for turn in zip(*(rank.alone[count] for rank in members), strict=True)) if count > 1 else 0.0
            )
            sent = 2 * (count - 1) * found[0].gradients // count
            rows.append(
                StepRow(
                    ranks=count,
                    batch=batch,
                    step=1e3 * seconds,
                    forward=1e3 * forward,
                    backward=1e3 * backward,
                    waiting=1e3 * waiting,
                    optimizer=1e3 * median(fmean(lap.optimizer for lap in turn) for turn in turns),
                    rate=count * batch / seconds,
                    speed_up=count * batch / seconds / rates[batch],
                    predicted=1e3 * (alone[batch] + link),
                    all_reduce=1e3 * link,
                    sent=sent,
                    buffers=found[0].buffers if count > 1 else 0,
                    busy=100 * link / seconds,
                )
            )
    return rows
