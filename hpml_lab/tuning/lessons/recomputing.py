"""What to checkpoint in a chain of MLP blocks: the blocks, and four choices, right and wrong."""

import functools

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

recompute = functools.partial(checkpoint, use_reentrant=False)


class MlpBlock(nn.Module):
    """x (batch, width) → W₂ gelu(W₁x + b₁) + b₂, of the same shape."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.gelu = nn.GELU()
        self.second = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.gelu(self.first(x)))


def mlp_blocks(blocks: int, width: int) -> nn.Sequential:
    """A chain of `blocks` blocks. For its backward pass each block keeps three tensors of the shape of x."""
    return nn.Sequential(*(MlpBlock(width) for _ in range(blocks)))


def in_segments(net: nn.Sequential, x: torch.Tensor, segments: int) -> torch.Tensor:
    """Run `net` in `segments` equal parts. Autograd keeps only the inputs of the parts and computes the rest again."""
    length = len(net) // segments
    for start in range(0, len(net), length):
        x = recompute(net[start : start + length], x)
    return x


def each_linear(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The wrong choice: each linear layer alone. All it keeps is its input, and checkpointing keeps that too."""
    for block in net:
        x = recompute(block.second, block.gelu(recompute(block.first, x)))
    return x


def gelu_and_next_linear(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The right choice: GELU with the layer that keeps its output. Recomputing stops as soon as that output exists again."""
    for block in net:
        x = recompute(lambda hidden, block=block: block.second(block.gelu(hidden)), block.first(x))
    return x


def keep_products(net: nn.Sequential, x: torch.Tensor) -> torch.Tensor:
    """The same with a policy (selective checkpointing): keep the outputs of matrix products, compute all else again."""
    policy = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.addmm.default])
    for block in net:
        x = recompute(block, x, context_fn=policy)
    return x
