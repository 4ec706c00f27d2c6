"""Pipelines on ranks: trained in every way and compared with one process, and timed with tasks of a known length.

A task computes and then sleeps until its time is over, as if the stage were a device of its own: so ranks that share cores, and
layers of any size, show the timetable. Messages, waiting and the order of the tasks are real.
"""

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.nn import functional as F

from hpml_lab.core.system.placement import device_of_rank, wait_for
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.counting import saved_tensors
from hpml_lab.core.timing.rank_turns import in_turns_on_ranks
from hpml_lab.sharding.lessons.pipeline import (
    FORWARD,
    SCHEDULES,
    PipelineGroups,
    Slot,
    Task,
    average_over_replicas,
    pipeline_groups,
    pipeline_step,
    split_layers,
)

LAYERS, WIDTH, SAMPLES, MICRO_BATCHES = 8, 16, 64, 8  # of the comparison with one process
TORCHS = {"GPipe": ScheduleGPipe, "1F1B": Schedule1F1B}
AGAIN = "GPipe again"


@dataclass
class StageOfStep:
    """One step on one rank: the losses, on the last stage only, and the gradient of the stage's parameters."""

    losses: list[torch.Tensor]
    gradient: torch.Tensor


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(LAYERS))).to(dtype)


def batch(samples: int = SAMPLES, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(samples, WIDTH, generator=generator, dtype=torch.float64).to(dtype) for _ in range(2))


def flat_gradient(net: nn.Module) -> torch.Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in net.parameters()])


def one_process(parts: int) -> StageOfStep:
    """The step without ranks, on the batch in `parts` micro-batches whose gradients add up."""
    net, losses = network(), []
    for x, y in zip(*(tensor.chunk(parts) for tensor in batch()), strict=True):
        losses.append(F.mse_loss(net(x), y))
        (losses[-1] / parts).backward()
    return StageOfStep([loss.detach() for loss in losses], flat_gradient(net))


# ---- on each rank --------------------------------------------------------------------------------------------------------


def train_each_way(device_type: str) -> dict[str, StageOfStep]:
    """{way: this rank's part of one step}; each way begins with the same network."""
    device = device_of_rank(device_type, dist.get_rank())
    found, ranks = {}, dist.get_world_size()
    whole, two = pipeline_groups(ranks), pipeline_groups(2)
    for name in SCHEDULES:
        found[f"{name}, this package"] = _own_step(name, whole, device)
        found[f"{name}, torch.distributed.pipelining"] = _torchs_step(name, whole, device)
        if name == "1F1B":
            found[f"{name} on {ranks // 2} × 2 ranks, with data parallelism"] = _own_step(name, two, device)
    return found


def _own_step(schedule: str, groups: PipelineGroups, device: torch.device) -> StageOfStep:
    index, stages = dist.get_rank(groups.activations), dist.get_world_size(groups.activations)
    stage = split_layers(network(), stages)[index].to(device)
    replicas = dist.get_world_size(groups.replicas)
    x, y = (tensor.to(device).chunk(replicas)[dist.get_rank(groups.replicas)].chunk(MICRO_BATCHES) for tensor in batch())
    losses = pipeline_step(stage, SCHEDULES[schedule](index, stages, MICRO_BATCHES), x, y, F.mse_loss, groups)
    average_over_replicas(stage, groups)
    return StageOfStep(losses, flat_gradient(stage))


def _torchs_step(schedule: str, groups: PipelineGroups, device: torch.device) -> StageOfStep:
    index, stages = dist.get_rank(groups.activations), dist.get_world_size(groups.activations)
    module = split_layers(network(), stages)[index].to(device)
    x, y = (tensor.to(device) for tensor in batch())
    stage = PipelineStage(module, index, stages, device, group=groups.activations)
    steps, losses = TORCHS[schedule](stage, MICRO_BATCHES, loss_fn=F.mse_loss), []
    if index == 0:
        steps.step(x)
    elif index == stages - 1:
        steps.step(target=y, losses=losses)
    else:
        steps.step()
    return StageOfStep([loss.detach() for loss in losses], flat_gradient(module))


@dataclass
class StageClock:
    """Times the tasks of a stage, makes them last as planned, and counts the bytes that autograd keeps for backward passes."""

    stage: int
    module: nn.Module
    device: torch.device
    pass_seconds: float
    slots: list[Slot] = field(default_factory=list)
    kept: dict[int, int] = field(default_factory=dict)  # bytes, by micro-batch
    peak: int = 0

    @contextlib.contextmanager
    def during(self, task: Task) -> Iterator[None]:
        kind, i = task
        start = CLOCK()
        with saved_tensors(self.module.parameters()) if kind == FORWARD else contextlib.nullcontext({}) as saved:
            yield
        wait_for(self.device)
        self.kept[i] = sum(saved.values())  # 0 after the backward pass
        self.peak = max(self.peak, sum(self.kept.values()))
        planned = self.pass_seconds * (1 if kind == FORWARD else 2)
        time.sleep(max(0.0, planned - (CLOCK() - start)))
        self.slots.append(Slot(self.stage, kind, i, start, CLOCK()))


@dataclass
class TimedStep:
    """What a rank saw of a schedule: the tasks of each of its turns, and the most bytes of activations that it kept."""

    turns: list[list[Slot]] = field(default_factory=list)
    peak: int = 0


def time_schedules(device_type: str, numbers: list[int], placebo: int, turns: int, seconds: float) -> dict:
    """{(schedule, micro-batches): TimedStep} on this rank; each micro-batch has four samples. GPipe with `placebo` twice."""
    device = device_of_rank(device_type, dist.get_rank())
    index, stages, groups = dist.get_rank(), dist.get_world_size(), pipeline_groups(dist.get_world_size())
    module = split_layers(network(torch.float32), stages)[index].to(device)
    names = [(schedule, number) for number in numbers for schedule in SCHEDULES] + [(AGAIN, placebo)]
    found = {name: TimedStep() for name in names}

    def step(name: tuple[str, int]) -> None:
        schedule, number = name
        clock = StageClock(index, module, device, seconds)
        x, y = ([part.clone() for part in tensor.to(device).chunk(number)] for tensor in batch(4 * number, torch.float32))
        tasks = SCHEDULES["GPipe" if schedule == AGAIN else schedule](index, stages, number)
        pipeline_step(module, tasks, x, y, F.mse_loss, groups, clock.during)
        found[name].turns.append(clock.slots)
        found[name].peak = clock.peak

    in_turns_on_ranks({name: partial(step, name) for name in names}, turns, device, until_all=True)
    for timed in found.values():
        del timed.turns[0]  # the warm-up
    return found
