"""A block on ranks in every way, compared with the same block on one process, and what each way sends and keeps."""

import copy
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode
from torch.distributed.tensor.parallel import SequenceParallel, loss_parallel, parallelize_module
from torch.nn import functional as F

from hpml_lab.core.timing.counting import saved_tensors
from hpml_lab.model_parallel.experiments.one_process import gradient_difference, on_this_rank, part_of, relative_difference
from hpml_lab.model_parallel.lessons.column_and_row import (
    SEQUENCE_PARALLEL,
    TENSOR_PARALLEL,
    GatedMLP,
    HeadAttention,
    slice_of,
    torch_plan,
)
from hpml_lab.model_parallel.lessons.vocabulary_loss import vocabulary_parallel_loss
from hpml_lab.model_parallel.tools.communication import Sending, Traffic

HAND, HAND_SEQUENCE = "by hand", "by hand, sequence parallel"
TORCH, TORCH_INPUT, TORCH_SEQUENCE = ("parallelize_module", "… with PrepareModuleInput", "… and SequenceParallel")
WAYS = HAND, TORCH, TORCH_INPUT, HAND_SEQUENCE, TORCH_SEQUENCE
SEQUENCE_WAYS = HAND_SEQUENCE, TORCH_SEQUENCE
LAYERS = "attention", "mlp"
LOSS_HAND, LOSS_TORCH = "by hand", "loss_parallel"


class NormedBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)), for x of the shape (B, N, d)."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in LAYERS)
        self.attention, self.mlp = HeadAttention(width, heads), GatedMLP(width, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.mlp(self.norms[1](x))


@dataclass
class BlockOnRank:
    """One step of a block on a rank.

    output, gradients    the largest difference from one process, relative to the tensor
    is_by_hand           whether the output is bitwise that of the same way by hand, in float64 and in float32
    forward, backward    what the rank sent
    collectives          {layer: how many CommDebugMode counts in one step of it alone}
    weights, kept        bytes of the layers' weights, and of what autograd keeps for the backward pass (None: not known)
    """

    output: float
    gradients: float
    is_by_hand: bool
    forward: list[Sending]
    backward: list[Sending]
    collectives: dict[str, int]
    weights: int
    kept: int | None


LossOnRank = tuple[float, float, list[Sending]]  # the loss and its gradient: relative differences; and what the rank sent


def blocks_on_rank(batch: int, length: int, width: int, heads: int, hidden: int) -> tuple[dict[str, BlockOnRank], int]:
    """{way: its step on this rank}, and the bytes that autograd keeps on one process."""
    torch.manual_seed(0)
    whole = NormedBlock(width, heads, hidden).double()
    x, gradient = (torch.randn(batch, length, width, dtype=torch.float64) for _ in range(2))
    x.requires_grad_()
    with saved_tensors([x, *whole.parameters()]) as saved:
        wanted = whole(x)
    kept = sum(saved.values())
    wanted.backward(gradient)
    return {way: _step(way, whole, x, wanted.detach(), gradient) for way in WAYS}, kept


def _step(way: str, whole: NormedBlock, x: Tensor, wanted: Tensor, gradient: Tensor) -> BlockOnRank:
    own, by_hand = partial(_own, way), HAND_SEQUENCE if way in SEQUENCE_WAYS else HAND
    block = _block(way, whole)
    block.zero_grad()
    mine = own(x).requires_grad_()
    with saved_tensors([mine, *block.parameters()]) as saved, Traffic() as traffic:
        output = block(mine)
        forward, kept = len(traffic.sendings), sum(saved.values())
        output.backward(own(gradient))
    if way == HAND_SEQUENCE:  # a norm has seen this rank's part of the sequence; torch's gradients add up when read
        for parameter in block.norms.parameters():
            dist.all_reduce(parameter.grad)
    return BlockOnRank(
        output=relative_difference(output, own(wanted)),
        gradients=max(relative_difference(mine.grad, own(x.grad)), gradient_difference(block, whole)),
        is_by_hand=all(map(torch.equal, _outputs(way, whole, x), _outputs(by_hand, whole, x))),
        forward=traffic.sendings[:forward],
        backward=traffic.sendings[forward:],
        collectives={name: _counted(getattr(block, name), own(x), own(gradient)) for name in LAYERS},
        weights=sum(on_this_rank(p).nbytes for name in LAYERS for p in getattr(block, name).parameters()),
        kept=kept if way in (HAND, HAND_SEQUENCE) else None,  # a DTensor does not say which storage it keeps
    )


def _own(way: str, tensor: Tensor) -> Tensor:
    """What this rank has of a tensor (B, N, d) between the layers."""
    return (part_of(tensor, None, 1) if way in SEQUENCE_WAYS else tensor).detach().clone()


def _outputs(way: str, whole: NormedBlock, x: Tensor) -> list[Tensor]:
    """In float64 and in float32."""
    dtypes = torch.float64, torch.float32
    return [_block(way, copy.deepcopy(whole).to(dtype))(_own(way, x.to(dtype))) for dtype in dtypes]


def _block(way: str, whole: NormedBlock) -> NormedBlock:
    block = copy.deepcopy(whole)
    if way in (HAND, HAND_SEQUENCE):
        for name in LAYERS:
            setattr(block, name, slice_of(getattr(whole, name), SEQUENCE_PARALLEL if way == HAND_SEQUENCE else TENSOR_PARALLEL))
        return block
    between = Shard(1) if way == TORCH_SEQUENCE else Replicate()
    plan = {}
    for name in LAYERS:
        plan |= torch_plan(name, getattr(whole, name), between, is_input_prepared=way != TORCH)
    if way == TORCH_SEQUENCE:
        plan |= {f"norms.{number}": SequenceParallel(use_local_output=True) for number in range(len(LAYERS))}
    return parallelize_module(block, init_device_mesh("cpu", (dist.get_world_size(),)), plan)


def _counted(layer: nn.Module, x: Tensor, gradient: Tensor) -> int:
    x.requires_grad_()
    with CommDebugMode() as counter:
        layer(x).backward(gradient)
    return counter.get_total_counts()


def losses_on_rank(batch: int, length: int, vocabulary: int) -> dict[str, LossOnRank]:
    """{way: the loss of each token and its gradient, from this rank's part of the scores}."""
    torch.manual_seed(0)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    scores = (10 * torch.randn(batch, length, vocabulary, dtype=torch.float64)).requires_grad_()
    target = torch.randint(vocabulary, (batch, length))
    wanted = F.cross_entropy(scores.flatten(0, 1), target.flatten(), reduction="none").view(batch, length)
    wanted.sum().backward()
    goal, found = scores.grad.chunk(ranks, -1)[rank], {}
    mine = scores.detach().chunk(ranks, -1)[rank].clone()

    own = mine.clone().requires_grad_()
    with Traffic() as traffic:
        loss = vocabulary_parallel_loss(own, target)
        loss.sum().backward()
    found[LOSS_HAND] = relative_difference(loss, wanted), relative_difference(own.grad, goal), traffic.sendings

    mesh = init_device_mesh("cpu", (ranks,))
    cut = DTensor.from_local(mine.flatten(0, 1), mesh, [Shard(1)]).requires_grad_()
    with Traffic() as traffic, loss_parallel():
        loss = F.cross_entropy(cut, target.flatten(), reduction="sum")
        loss.backward()
    gradient = cut.grad.to_local().view(goal.shape)
    far = relative_difference(loss.to_local(), wanted.sum())
    found[LOSS_TORCH] = far, relative_difference(gradient, goal), traffic.sendings
    return found
