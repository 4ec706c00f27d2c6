"""Pipeline parallelism: each rank keeps some of the layers, a *stage*, and a batch passes the stages in micro-batches.

    stage 0   F0 F1 F2 F3             B0 B1 B2 B3        F0 is the forward pass of micro-batch 0,
    stage 1      F0 F1 F2 F3       B0 B1 B2 B3           B0 its backward pass
    stage 2         F0 F1 F2 F3 B0 B1 B2 B3

With p stages and m micro-batches a step lasts as long as m + p − 1 micro-batches on one stage, and each stage works on m. The
share of the time in which it waits, the **bubble**, is (p − 1) / (m + p − 1), however long a pass takes.

GPipe (2019) runs all forward passes first, so a stage keeps the activations of all m micro-batches. 1F1B (PipeDream, 2019)
starts each backward pass as soon as it can: stage s keeps those of at most p − s, and the bubble is the same.
"""

import contextlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import distributed as dist
from torch import nn

from hpml_lab.core.system.errors import LabError

FORWARD, BACKWARD = "F", "B"
Task = tuple[str, int]  # a pass, and the number of its micro-batch
Schedule = Callable[[int, int, int], list[Task]]


# ---- what each stage does, in order --------------------------------------------------------------------------------------


def gpipe(stage: int, stages: int, micro_batches: int) -> list[Task]:
    """All forward passes, then all backward passes; the same on every stage."""
    return [(FORWARD, i) for i in range(micro_batches)] + [(BACKWARD, i) for i in range(micro_batches)]


def one_forward_one_backward(stage: int, stages: int, micro_batches: int) -> list[Task]:
    """1F1B: a forward pass for each stage that follows, then one forward and one backward pass in turns, then the rest."""
    ahead = min(stages - 1 - stage, micro_batches)
    tasks = [(FORWARD, i) for i in range(ahead)]
    for i in range(micro_batches - ahead):
        tasks += [(FORWARD, ahead + i), (BACKWARD, i)]
    return tasks + [(BACKWARD, i) for i in range(micro_batches - ahead, micro_batches)]


SCHEDULES: dict[str, Schedule] = {"GPipe": gpipe, "1F1B": one_forward_one_backward}


def most_kept(tasks: Iterable[Task]) -> int:
    """For how many micro-batches at once a stage keeps activations: forward is done, backward is not."""
    return max(accumulate(1 if kind == FORWARD else -1 for kind, _ in tasks))


def too_few(stages: int, micro_batches: int) -> str:
    """What it costs to have fewer micro-batches than stages, as a sentence; "" if there are enough."""
    if micro_batches >= stages:
        return ""
    some = f"{micro_batches} micro-batch{'es' * (micro_batches > 1)}"
    return f"{some} for {stages} stages: at most {micro_batches} of them can work at the same time."


# ---- on a virtual clock --------------------------------------------------------------------------------------------------


class Slot(NamedTuple):
    """A task of a stage, and when it runs."""

    stage: int
    kind: str
    micro_batch: int
    start: float
    end: float


def timetable(schedule: Schedule, stages: int, micro_batches: int, forward: float = 1, backward: float = 2) -> list[Slot]:
    """When each task runs, if a stage does its tasks in order, each as soon as its input is there; messages take no time.

    forward, backward  how long a pass of one micro-batch through one stage takes
    Raises LabError for a schedule whose stages wait for each other forever.
    """
    queues = [deque(schedule(stage, stages, micro_batches)) for stage in range(stages)]
    ended: dict[tuple[int, str, int] | None, float] = {None: 0}
    free, slots = [0] * stages, []
    while any(queues):
        ready = [(s, *queue[0]) for s, queue in enumerate(queues) if queue and _needs(s, *queue[0], stages) in ended]
        if not ready:
            waits = ", ".join(f"stage {s} for the input of {q[0][0]}{q[0][1]}" for s, q in enumerate(queues) if q)
            raise LabError(f"This schedule never ends: {waits}.", "Run each task after the one that its input comes from.")
        for stage, kind, i in ready:
            queues[stage].popleft()
            start = max(free[stage], ended[_needs(stage, kind, i, stages)])
            free[stage] = ended[stage, kind, i] = start + (forward if kind == FORWARD else backward)
            slots.append(Slot(stage, kind, i, start, free[stage]))
    return slots


def _needs(stage: int, kind: str, i: int, stages: int) -> tuple[int, str, int] | None:
    """The task that a task's input comes from: an activation of the stage before, or a gradient of the stage after."""
    if kind == FORWARD:
        return (stage - 1, FORWARD, i) if stage > 0 else None
    return (stage + 1, BACKWARD, i) if stage < stages - 1 else (stage, FORWARD, i)


def bubble(slots: Sequence[Slot]) -> Fraction:
    """The share of the stages' time in which they wait, from the first start to the last end."""
    stages = 1 + max(slot.stage for slot in slots)
    lasts = Fraction(max(slot.end for slot in slots)) - Fraction(min(slot.start for slot in slots))
    return 1 - sum(Fraction(slot.end) - Fraction(slot.start) for slot in slots) / (stages * lasts)


# ---- on ranks ------------------------------------------------------------------------------------------------------------


class PipelineGroups(NamedTuple):
    """The groups of a rank: its pipeline twice, for activations and for gradients, and the ranks with the same stage.

    Two for one pipeline, because NCCL delivers the messages of a group in order: an activation that no one receives yet would
    hold up the gradient that its receiver waits for.
    """

    activations: dist.ProcessGroup
    gradients: dist.ProcessGroup
    replicas: dist.ProcessGroup


def pipeline_groups(stages: int) -> PipelineGroups:
    """On every rank: rank r is stage r mod p of pipeline r div p. LabError where the ranks are not a multiple of the stages."""
    ranks = dist.get_world_size()
    if ranks % stages:
        raise LabError(f"{ranks} ranks make no pipelines of {stages} stages.", f"Use a multiple of {stages} ranks.")
    pipelines = torch.arange(ranks).view(-1, stages)
    chosen = [dist.new_subgroups_by_enumeration(rows.tolist())[0] for rows in (pipelines, pipelines, pipelines.T)]
    return PipelineGroups(*chosen)


def split_layers(layers: nn.Sequential, stages: int) -> list[nn.Sequential]:
    """The layers in equal parts, one for each stage. Raises LabError where they do not divide."""
    if stages < 1 or len(layers) % stages:
        fitting = [str(n) for n in range(1, len(layers) + 1) if len(layers) % n == 0]
        raise LabError(f"{len(layers)} layers do not divide among {stages} stages.", f"Use {', '.join(fitting)} stages.")
    part = len(layers) // stages
    return [layers[start : start + part] for start in range(0, len(layers), part)]


def pipeline_step(
    stage: nn.Module,
    tasks: Iterable[Task],
    inputs: Sequence[torch.Tensor],
    targets: Sequence[torch.Tensor],
    loss_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    groups: PipelineGroups,
    during: Callable[[Task], AbstractContextManager] = lambda task: contextlib.nullcontext(),
) -> list[torch.Tensor]:
    """On each rank of a pipeline: the tasks of one step, after which its parameters have the gradient of the mean loss.

    inputs, targets  one for each micro-batch; only the first stage reads the inputs, only the last the targets. What stages
                     send to each other has an input's shape, as between the layers of a transformer
    during           a context for the computation of each task, such as a clock's
    Returns the losses of the micro-batches on the last stage, and nothing on the others.
    """
    rank, last = dist.get_rank(groups.activations), dist.get_world_size(groups.activations) - 1
    kept, sent, losses = {}, [], []
    for kind, i in tasks:
        if kind == FORWARD:
            x = inputs[i]
            if rank > 0:
                x = torch.empty_like(x).requires_grad_()
                dist.recv(x.detach(), group=groups.activations, group_src=rank - 1)
            with during((kind, i)):
                y = stage(x)
                if rank == last:
                    losses.append(loss_of(y, targets[i]))
                    y = losses[-1] / len(inputs)
            if rank < last:
                sent.append(dist.isend(y.detach(), group=groups.activations, group_dst=rank + 1))  # does not wait
            kept[i] = x, y
        else:
            x, y = kept.pop(i)
            gradient = torch.ones_like(y)
            if rank < last:
                dist.recv(gradient, group=groups.gradients, group_src=rank + 1)
            with during((kind, i)):
                y.backward(gradient)  # adds to the gradients of this stage's parameters
            if rank > 0:
                sent.append(dist.isend(x.grad, group=groups.gradients, group_dst=rank - 1))
    for message in sent:
        message.wait()
    return [loss.detach() for loss in losses]


def average_over_replicas(stage: nn.Module, groups: PipelineGroups) -> None:
    """Data parallelism between pipelines: the mean gradient of the ranks that keep the same stage."""
    for parameter in stage.parameters():
        dist.all_reduce(parameter.grad, group=groups.replicas)
        parameter.grad /= dist.get_world_size(groups.replicas)
