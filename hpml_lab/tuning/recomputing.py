"""What to checkpoint in a chain of MLP blocks: several choices, right and wrong, and single operators to choose from."""

import functools
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

recompute = functools.partial(checkpoint, use_reentrant=False)


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


def operators_to_recompute(batch: int, width: int, device: torch.device) -> dict[str, tuple[Callable[[], torch.Tensor], bool]]:
    """Single operators on x (batch, width): {name: (the operator, whether it is a matrix product)}."""
    x = torch.randn(batch, width, device=device, requires_grad=True)
    image = x.view(batch, 1, 1, width)
    thin = torch.randn(batch, 8, device=device, requires_grad=True)
    shallow, deep = nn.Linear(8, width, device=device), nn.Linear(width, width, device=device)
    return {
        "ReLU": (lambda: F.relu(x), False),
        "GELU": (lambda: F.gelu(x), False),
        "sigmoid": (lambda: torch.sigmoid(x), False),
        "dropout": (lambda: F.dropout(x, 0.5), False),
        "layer norm": (lambda: F.layer_norm(x, (width,)), False),
        "batch norm": (lambda: F.batch_norm(x, None, None, training=True), False),
        "upsampling ×4": (lambda: F.interpolate(image, scale_factor=2), False),
        "product, depth 8": (lambda: shallow(thin), True),
        f"product, depth {width}": (lambda: deep(x), True),
    }
