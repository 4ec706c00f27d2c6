"""SyncBatchNorm: batch normalization with the mean and the variance of all ranks' samples together.

    y = weight · (x − mean) / √(var + ε) + bias

A rank describes its share of a channel by three numbers: how many values n, their mean, and M2 = Σ (x − mean)². Shares merge
without a difference of large numbers (Chan, Golub and LeVeque, 1979):

    n = Σ nᵣ        mean = Σ nᵣ meanᵣ / n        M2 = Σ M2ᵣ + Σ nᵣ (meanᵣ − mean)²

M2 / n normalizes the batch, M2 / (n − 1) goes into running_var. The second sum is the variance between the ranks, which an
average of their variances leaves out. The other formula, mean of x² minus mean², is one sum shorter and cancels: where the mean
is k times the standard deviation, it loses k² times the rounding error.

Each rank writes its numbers into its own row of a table of zeros, and an all-reduce adds the tables: adding zeros is exact, so
every rank has every row. In the backward pass the gradient of the table is all-reduced too, because the loss of every rank
depends on every row.
"""

import torch
from torch import distributed as dist
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _LazyNormBase

from hpml_lab.core.system.errors import LabError


class AllReduceSum(torch.autograd.Function):
    """The sum over all ranks, as a differentiable operation: the gradient is the sum of all ranks' gradients."""

    @staticmethod
    def forward(ctx, x: torch.Tensor) -> torch.Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient: torch.Tensor) -> torch.Tensor:
        return AllReduceSum.apply(gradient)


def moments(x: torch.Tensor) -> tuple[int, torch.Tensor, torch.Tensor]:
    """n, and mean and M2 of each channel, of a batch (samples, channels, …); an empty batch has zeros."""
    n, others = x.numel() // x.shape[1], [axis for axis in range(x.ndim) if axis != 1]
    mean = x.sum(others) / max(n, 1)
    return n, mean, (x - _by_channel(mean, x)).square().sum(others)


def merge_moments(
    counts: torch.Tensor, means: torch.Tensor, squares: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """n, mean and M2 of several shares together: `counts` (shares, 1), `means` and `squares` (M2) (shares, channels)."""
    n = counts.sum()
    mean = (counts * means).sum(0) / n
    return n, mean, squares.sum(0) + (counts * (means - mean).square()).sum(0)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over all ranks, on CPU and GPU, for inputs (samples, channels, …).

    Options, parameters, buffers and state_dict are those of torch.nn.BatchNorm1d to 3d. The ranks may have different numbers
    of samples, or none. In evaluation, and without a process group, it is plain batch normalization.
    """

    def _check_input_dim(self, x: torch.Tensor) -> None:
        if x.ndim < 2 or x.shape[1] != self.num_features:
            raise LabError(
                f"This SyncBatchNorm has {self.num_features} channels; the input has shape {tuple(x.shape)}.",
                "Its second dimension is the channels: (samples, channels, …).",
            )
        if not x.is_floating_point():
            raise LabError(f"SyncBatchNorm normalizes floating-point numbers, not {x.dtype}.", "Convert the input: x.float().")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not (self.training and dist.is_initialized() and dist.get_world_size() > 1):
            return super().forward(x)
        self._check_input_dim(x)
        wide = x.to(torch.promote_types(x.dtype, torch.float32))  # sums of many 16-bit numbers need more digits
        n, mean, squares = self._moments_of_all_ranks(wide)
        if x.numel() < 2 * self.num_features and n < 2:  # in this order: a GPU is asked only where the share is that small
            raise LabError(
                f"All ranks together have {int(n)} values per channel, which have no variance.",
                "Train with at least 2, or call eval().",
            )
        if self.track_running_stats:
            self._update_running(mean, squares / (n - 1))
        y = (wide - _by_channel(mean, x)) * _by_channel(torch.rsqrt(squares / n + self.eps), x)
        if self.affine:
            y = y * _by_channel(self.weight, x) + _by_channel(self.bias, x)
        return y.to(x.dtype)

    def _moments_of_all_ranks(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        n, mean, squares = moments(x)
        row = torch.cat([torch.full_like(mean[:1], n), mean, squares])
        before, after = dist.get_rank(), dist.get_world_size() - dist.get_rank() - 1
        table = AllReduceSum.apply(nn.functional.pad(row[None], (0, 0, before, after)))
        return merge_moments(*table.split([1, self.num_features, self.num_features], dim=1))

    @torch.no_grad()
    def _update_running(self, mean: torch.Tensor, unbiased: torch.Tensor) -> None:
        self.num_batches_tracked.add_(1)
        weight = self.momentum if self.momentum is not None else 1 / int(self.num_batches_tracked)
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), weight)
        self.running_var.lerp_(unbiased.to(self.running_var.dtype), weight)


def _by_channel(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One value per channel, in a shape that broadcasts with x."""
    return values.view(1, -1, *[1] * (x.ndim - 2))


def convert_batch_norm(module: nn.Module) -> nn.Module:
    """`module` with each batch norm in it replaced by a SyncBatchNorm that has the same parameters and buffers."""
    if isinstance(module, _BatchNorm) and not isinstance(module, SyncBatchNorm):
        if isinstance(module, _LazyNormBase):
            raise LabError("A lazy batch norm has no number of channels yet.", "Give the network an input first.")
        if type(module).forward not in (_BatchNorm.forward, nn.SyncBatchNorm.forward):  # as with an activation in it
            problem = f"{type(module).__name__} does more than normalize, which would be lost."
            raise LabError(problem, "Use a batch norm and another layer in its place, or its own library's way to convert it.")
        options = dict(affine=module.affine, track_running_stats=module.track_running_stats)
        made = SyncBatchNorm(module.num_features, module.eps, module.momentum, **options).train(module.training)
        for name in (*made._parameters, *made._buffers):
            if name not in module._parameters | module._buffers:  # it is computed from others before each forward
                problem = f"The {name} of a {type(module).__name__} is pruned or parametrized."
                raise LabError(problem, "Convert the network first, and prune or parametrize then.")
        made._parameters, made._buffers = module._parameters, module._buffers
        return made
    for name, child in module._modules.items():  # a layer under two names, too, which named_children() gives once
        if child is not None:
            module._modules[name] = convert_batch_norm(child)
    return module
