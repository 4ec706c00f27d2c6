"""Tensor parallelism: each rank keeps a slice of every weight and computes its part of every layer, for the whole batch.

    Y = act(X A) B               A = [A_1 A_2] is cut by columns, B = [B_1; B_2] by rows, one slice for each of n ranks
    Y = g(act(f(X) A_r) B_r)     on rank r

    f   hands X on; backward it adds up the gradients of X, of which each rank has the part of its slice
    g   adds up the ranks' parts of Y; backward it hands the gradient on, which every rank has as a whole

The activation acts on each number alone, so nothing is sent between the two products. In attention each head is such a pair:
columns of Q, K and V, and rows of the product behind them. Attention and MLP cost an all-reduce of B · N · d numbers each, and
one in the backward pass, however wide they are inside. Between g and the next f all ranks compute the same norm.
With sequence parallelism each does so for its n-th of the sequence: f is an all-gather and g a reduce-scatter, which together
send what an all-reduce sends. A norm's weight then has a part of its gradient on each rank, and these are added up.
Sources: Shoeybi et al. 2019 (Megatron-LM), section 3; Korthikanti et al. 2022, section 4.2.
"""

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.nn import functional as F

from hpml_lab.core.system.errors import LabError


class Adjoint(torch.autograd.Function):
    """`forward` of a tensor, whose gradient is `backward` of the gradient."""

    @staticmethod
    def forward(ctx, x: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.of_gradient = backward
        return forward(x)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        return ctx.of_gradient(gradient), None, None


def identity(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    return x.view_as(x)


def all_reduced(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """The sum over the ranks of a group (None: all), on each of them."""
    x = x.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(x, group=group)
    return x


def all_gathered(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """(B, N/n, d) of each rank to (B, N, d) on each rank."""
    ranks = dist.get_world_size(group)
    whole = x.new_empty(ranks * len(x), *x.shape[1:])
    dist.all_gather_into_tensor(whole, x.contiguous(), group=group)
    return torch.cat(whole.chunk(ranks), 1)


def reduce_scattered(x: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    """The sum over the ranks of (B, N, d), of which each rank gets its part (B, N/n, d) of the sequence."""
    parts = x.chunk(dist.get_world_size(group), 1)
    own = torch.empty_like(parts[0], memory_format=torch.contiguous_format)
    dist.reduce_scatter_tensor(own, torch.cat(parts), group=group)
    return own


TENSOR_PARALLEL, SEQUENCE_PARALLEL = "tensor parallel", "with sequence parallelism"
PAIRS = {  # f and g: what each does forward, and backward
    TENSOR_PARALLEL: ((identity, all_reduced), (all_reduced, identity)),
    SEQUENCE_PARALLEL: ((all_gathered, reduce_scattered), (reduce_scattered, all_gathered)),
}


class HeadAttention(nn.Module):
    """Causal attention of H heads: softmax(Q Kᵀ / √d_h) V of each, and a product that joins them; x has the shape (B, N, d)."""

    f = g = (identity, identity)  # on one process

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.together = width // heads  # columns that cannot be parted
        self.query, self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        x = Adjoint.apply(x, *self.f)
        q, k, v = (net(x).unflatten(-1, (-1, self.together)).transpose(1, 2) for net in (self.query, self.key, self.value))
        heads = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return Adjoint.apply(self.out(heads.transpose(1, 2).flatten(2)), *self.g)


class GatedMLP(nn.Module):
    """(silu(x G) · x U) D."""

    f = g = (identity, identity)
    together = 1

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = Adjoint.apply(x, *self.f)
        return Adjoint.apply(self.down(F.silu(self.gate(x)) * self.up(x)), *self.g)


CUT = dict.fromkeys(("query", "key", "value", "gate", "up"), 0) | {"out": 1, "down": 1}  # Linear keeps Aᵀ: 0 cuts A by columns


def slice_of(layer: nn.Module, kind: str = TENSOR_PARALLEL, group: dist.ProcessGroup | None = None) -> nn.Module:
    """This rank's part of a HeadAttention or GatedMLP that the ranks of a group share (None: all ranks).

    Raises LabError where its heads or hidden units do not divide.
    """
    rank, ranks = dist.get_rank(group), dist.get_world_size(group)
    part = copy.deepcopy(layer)
    part.f, part.g = (tuple(partial(function, group=group) for function in pair) for pair in PAIRS[kind])
    for name, product in part.named_children():
        units = product.weight.shape[CUT[name]] // layer.together
        if units % ranks:
            raise LabError(f"{units} heads or hidden units do not divide among {ranks} ranks.", f"Use a multiple of {ranks}.")
        product.weight = nn.Parameter(product.weight.detach().chunk(ranks, CUT[name])[rank].clone())
    return part


def torch_plan(name: str, layer: nn.Module, between: object, is_input_prepared: bool = True) -> dict[str, object]:
    """For parallelize_module: a HeadAttention or GatedMLP called `name`, cut as by `slice_of`.

    between  the layout of what the layers hand on: Replicate(), or Shard(1) with sequence parallelism
    """
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel

    plan = {
        f"{name}.{product}": ColwiseParallel() if CUT[product] == 0 else RowwiseParallel(output_layouts=between)
        for product, _ in layer.named_children()
    }
    if is_input_prepared:
        plan[name] = PrepareModuleInput(input_layouts=(between,), desired_input_layouts=(Replicate(),))
    return plan
