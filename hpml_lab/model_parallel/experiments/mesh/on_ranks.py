"""What the ranks of `mesh` do: a step of each net on each mesh, compared with one process, counted, and timed in turns."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import parallelize_module

from hpml_lab.core.timing.rank_turns import in_turns_on_ranks
from hpml_lab.model_parallel.experiments.one_process import NUMBER, gradient_difference, on_this_rank
from hpml_lab.model_parallel.lessons.column_and_row import torch_plan
from hpml_lab.model_parallel.lessons.mesh_step import (
    AXES,
    mesh_step,
    own_part,
    own_stage,
    own_tokens,
    training_mesh,
    transformer_blocks,
)
from hpml_lab.model_parallel.tools.communication import Traffic

ALONE, FULLY_SHARDED = "alone", "fully_shard"
Axes = tuple[int, int, int]  # data, tensor, pipeline


@dataclass(frozen=True)
class BlockNet:
    """A net of transformer layers, and its batch: `batch` sequences for all replicas together."""

    name: str
    layers: int
    width: int
    heads: int
    batch: int
    tokens: int


@dataclass
class MeshOnRank:
    """A step of a net on a mesh, on this rank.

    loss       this rank's share of the mean loss of the batch
    gradients  the largest difference from one process, relative to the tensor
    sent       bytes by axis, in the order of AXES
    kept       bytes of weights, gradients and Adam's moments
    """

    loss: float
    gradients: float
    sent: list[int]
    kept: int


@dataclass
class RankOfMeshes:
    """One rank's report.

    losses   {net: the loss on one process}
    steps    {(net, mesh or FULLY_SHARDED): its step}
    seconds  {(net, mesh or ALONE), or the bytes of an all-reduce: wall-clock time of each turn}
    """

    losses: dict[str, float]
    steps: dict[tuple[str, Any], MeshOnRank]
    seconds: dict[Any, list[float]]


def train_on_meshes(
    nets: Sequence[BlockNet], meshes: Sequence[Axes], sharded: Axes, micro_batches: int, sizes: Sequence[int], samples: int
) -> RankOfMeshes:
    """On each rank: every net on every mesh, and on the mesh `sharded` with `fully_shard`, too."""
    boxes = {axes: training_mesh(*axes) for axes in meshes}
    report, works = RankOfMeshes({}, {}, {}), {}
    for net in nets:
        torch.manual_seed(0)
        whole = transformer_blocks(net.layers, net.width, net.heads).double()
        x, target = (torch.randn(net.batch, net.tokens, net.width, dtype=torch.float64) for _ in range(2))
        loss = (whole(x.requires_grad_()) - target).square().mean()
        loss.backward()
        report.losses[net.name] = loss.item()
        for axes, mesh in boxes.items():
            part, count = own_part(whole, mesh), micro_batches if axes[2] > 1 else 1
            step = partial(mesh_step, part, own_tokens(x, mesh), own_tokens(target, mesh), mesh, count)
            report.steps[net.name, axes] = _watched(step, part, whole, mesh)
            works[net.name, axes] = partial(_from_zero, part, step)
        mesh = boxes[sharded]
        part = fully_sharded(whole, mesh)
        step = partial(torch_step, part, own_tokens(x, mesh), own_tokens(target, mesh), mesh)
        report.steps[net.name, FULLY_SHARDED] = _watched(step, part, whole, mesh)
        own = net.batch // dist.get_world_size()
        alone = partial(_alone, copy.deepcopy(whole), x.detach()[:own].requires_grad_(), target[:own])
        works[net.name, ALONE] = alone
    works |= {size: partial(dist.all_reduce, torch.zeros(size // NUMBER, dtype=torch.float64)) for size in sizes}
    found = in_turns_on_ranks(works, samples, torch.device("cpu"))
    report.seconds = {name: [sample.wall for sample in taken] for name, taken in found.items()}
    return report


def fully_sharded(blocks: nn.Sequential, mesh: DeviceMesh) -> nn.Sequential:
    """torch's own way on a mesh of two axes: each weight is cut along the tensor axis, and its slice along the data axis."""
    from torch.distributed.fsdp import fully_shard

    blocks = copy.deepcopy(blocks)
    for block in blocks:
        for residual in block:
            parallelize_module(residual, mesh["tensor"], torch_plan("layer", residual.layer, Shard(1)))
        fully_shard(block, mesh=mesh["data"])
    return fully_shard(blocks, mesh=mesh["data"])


def torch_step(part: nn.Module, x: Tensor, target: Tensor, mesh: DeviceMesh) -> Tensor:
    """As `mesh_step`, where hooks in the module do what it does by hand."""
    loss = (part(x.detach().requires_grad_()) - target).square().mean() / mesh["tensor"].size()
    loss.backward()
    return loss.detach()


def _watched(step: partial, part: nn.Module, whole: nn.Sequential, mesh: DeviceMesh) -> MeshOnRank:
    optimizer = torch.optim.Adam(part.parameters(), lr=0.0)  # the nets stay as they are
    with Traffic() as traffic:
        loss = step()
    sent = [traffic.sent_in(mesh.get_group(axis)) for axis in AXES]
    rows = mesh.get_group("data") if isinstance(next(part.parameters()), DTensor) else None
    gradients = gradient_difference(part, own_stage(whole, mesh), mesh.get_group("tensor"), rows)
    optimizer.step()
    return MeshOnRank(loss.item() / mesh["data"].size(), gradients, sent, _bytes_kept(optimizer))


def _from_zero(part: nn.Module, step: partial) -> None:
    part.zero_grad()
    step()


def _alone(whole: nn.Module, x: Tensor, target: Tensor) -> None:
    whole.zero_grad()
    (whole(x) - target).square().mean().backward()


def _bytes_kept(optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the storages of weights, gradients and moments, each storage once: gradients may share one."""
    kept = {}
    for parameter in optimizer.param_groups[0]["params"]:
        for tensor in (parameter, parameter.grad, *optimizer.state[parameter].values()):
            if tensor.dim():  # Adam also counts its steps
                storage = on_this_rank(tensor).untyped_storage()
                kept[storage.data_ptr()] = storage.nbytes()
    return sum(kept.values())
