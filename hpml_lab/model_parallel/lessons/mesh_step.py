"""Training on a mesh of D × P × T ranks: three divisions at once, each along an axis with groups of its own.

    rank = (d · P + p) · T + t        replica d, stage p, slice t

    data      the batch: replica d computes its D-th of it, and gradients are averaged over the ranks with the same p and t
    pipeline  the layers: stage p has L/P of them, and hands activations to p + 1 and gradients back, a micro-batch at a time
    tensor    every weight and, between the layers, every sequence: slices by columns and rows (column_and_row.py)

The tensor axis sends most often, so its ranks are neighbors. The schedule is the simplest: all micro-batches forward, then all
backward. A pipeline that is to keep fewer activations begins with the backward passes earlier (1F1B).
Sources: Narayanan et al. 2021 (Megatron-LM on clusters), section 3; torch.distributed.device_mesh.
"""

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError
from hpml_lab.model_parallel.lessons.column_and_row import SEQUENCE_PARALLEL, GatedMLP, HeadAttention, slice_of

AXES = "data", "pipeline", "tensor"


class ResidualLayer(nn.Module):
    """x + layer(norm(x)), with a norm that has no weights."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(F.rms_norm(x, x.shape[-1:]))


def transformer_blocks(layers: int, width: int, heads: int) -> nn.Sequential:
    """Attention and MLP of each layer: 4 d² and 8 d² parameters."""
    hidden = 8 * width // 3
    pairs = [(HeadAttention(width, heads), GatedMLP(width, hidden)) for _ in range(layers)]
    return nn.Sequential(*(nn.Sequential(*map(ResidualLayer, pair)) for pair in pairs))


def training_mesh(data: int, tensor: int, pipeline: int = 1) -> DeviceMesh:
    """All ranks in a box with three named axes; every row along an axis is a group."""
    return init_device_mesh("cpu", (data, pipeline, tensor), mesh_dim_names=AXES)


def own_stage(blocks: nn.Sequential, mesh: DeviceMesh) -> nn.Sequential:
    """The layers of this rank's stage. Raises LabError where they do not divide."""
    stage, stages = mesh.get_local_rank("pipeline"), mesh["pipeline"].size()
    if len(blocks) % stages:
        raise LabError(f"{len(blocks)} layers do not divide among {stages} stages.", "Use stages that divide the layers.")
    part = len(blocks) // stages
    return blocks[stage * part : (stage + 1) * part]


def own_part(blocks: nn.Sequential, mesh: DeviceMesh) -> nn.Sequential:
    """What this rank trains: its slice of each layer of its stage."""
    group = mesh.get_group("tensor")

    def cut(block: nn.Sequential) -> nn.Sequential:
        return nn.Sequential(*(ResidualLayer(slice_of(residual.layer, SEQUENCE_PARALLEL, group)) for residual in block))

    return nn.Sequential(*map(cut, own_stage(blocks, mesh)))


def own_tokens(x: Tensor, mesh: DeviceMesh) -> Tensor:
    """Of a batch (B, N, d) this rank's sequences, by the data axis, and its part of each, by the tensor axis."""
    for dim, (axis, what) in enumerate((("data", "sequences"), ("tensor", "tokens"))):
        ranks = mesh[axis].size()
        if x.shape[dim] % ranks:
            raise LabError(f"{x.shape[dim]} {what} do not divide among {ranks} ranks.", f"Use a multiple of {ranks}.")
        x = x.chunk(ranks, dim)[mesh.get_local_rank(axis)]
    return x


def mesh_step(part: nn.Module, x: Tensor, target: Tensor, mesh: DeviceMesh, micro_batches: int = 1) -> Tensor:
    """Forward, backward, and the gradients' average: afterwards `part` has its slice of the gradient of the mean squared error.

    x, target  what `own_tokens` gives; only the first stage reads x, only the last the target
    Returns this rank's share of its replica's loss, which is 0 before the last stage.
    """
    if len(x) % micro_batches:
        raise LabError(
            f"{len(x)} sequences make no {micro_batches} equal micro-batches.", "Use a divisor of a replica's batch."
        )
    stage, last, pipeline = mesh.get_local_rank("pipeline"), mesh["pipeline"].size() - 1, mesh.get_group("pipeline")
    shares, kept, loss = micro_batches * mesh["tensor"].size(), [], x.new_zeros(())
    for own, goal in zip(x.chunk(micro_batches), target.chunk(micro_batches), strict=True):
        own = own.detach().clone()
        if stage > 0:
            dist.recv(own, group=pipeline, group_src=stage - 1)
        y = part(own.requires_grad_())  # also the first stage: embeddings before it would need their gradient
        if stage < last:
            dist.send(y.detach(), group=pipeline, group_dst=stage + 1)
        else:
            y = (y - goal).square().mean() / shares
            loss += y.detach()
        kept.append((own, y))
    for own, y in kept:
        gradient = torch.ones_like(y)
        if stage < last:
            dist.recv(gradient, group=pipeline, group_src=stage + 1)
        y.backward(gradient)  # adds to the gradients of the part
        if stage > 0:
            dist.send(own.grad, group=pipeline, group_dst=stage - 1)
    average_gradients(part, mesh)
    return loss


def average_gradients(part: nn.Module, mesh: DeviceMesh) -> None:
    """The mean over the replicas, in one message."""
    gradients = [parameter.grad for parameter in part.parameters()]
    together = nn.utils.parameters_to_vector(gradients)
    dist.all_reduce(together, group=mesh.get_group("data"))
    nn.utils.vector_to_parameters(together / mesh["data"].size(), gradients)
