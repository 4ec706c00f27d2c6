"""ZeRO's third stage: each rank keeps 1/N of every parameter, gradient and state, and borrows the rest while it computes.

    forward of a layer      all-gather its parameters, compute, drop them
    backward of a layer     all-gather those that the derivative needs, compute, drop them
    its gradient            reduce-scatter: rank r gets the mean over the ranks of its own part

A parameter of n numbers is cut, as a flat list, into N parts of ⌈n/N⌉; zeros fill up the last. An element-wise optimizer
updates the parts in float32; with `compute_dtype=torch.bfloat16` parameters travel and layers compute in 16 bits. DDP sends
2(N−1)/N of the model's size for the gradients; two all-gathers and a reduce-scatter send 3(N−1)/N.
"""

import functools
import math
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.utils._pytree import tree_map_only
from torch.utils.weak import TensorWeakRef

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.same_network import check_same_on_all_ranks, take_from_rank_0

IN_FLIGHT = 1  # reduce-scatters while the backward pass goes on: each keeps a whole gradient alive


class Shard:
    """This rank's part of one parameter: `part` is what the optimizer updates."""

    def __init__(self, parameter: nn.Parameter, compute_dtype: torch.dtype | None) -> None:
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.shape, self.size = parameter.shape, math.ceil(parameter.numel() / self.ranks)
        is_float = parameter.is_floating_point()
        self.dtype = compute_dtype if compute_dtype and is_float else parameter.dtype
        master = torch.promote_types(parameter.dtype, torch.float32) if is_float else parameter.dtype
        own = self._padded(parameter.detach().to(master)).view(self.ranks, self.size)[self.rank].clone()
        self.part = nn.Parameter(own, requires_grad=parameter.requires_grad)

    def _padded(self, whole: torch.Tensor) -> torch.Tensor:
        return nn.functional.pad(whole.reshape(-1), (0, self.ranks * self.size - whole.numel()))

    def gather(self, dtype: torch.dtype) -> torch.Tensor:
        """The whole parameter, from all ranks."""
        flat = torch.empty(self.ranks * self.size, dtype=dtype, device=self.part.device)
        dist.all_gather_into_tensor(flat, self.part.detach().to(dtype))
        return flat[: self.shape.numel()].view(self.shape)

    def reduce(self, gradient: torch.Tensor) -> tuple[dist.Work, torch.Tensor]:
        """Start to sum the ranks' gradients into the rank's own part of the mean."""
        part = torch.empty_like(self.part)
        whole = self._padded(gradient.to_dense().to(part.dtype) / self.ranks)  # an embedding's may be sparse
        return dist.reduce_scatter_tensor(part, whole, async_op=True), part


class _Gather(torch.autograd.Function):
    """Forward an all-gather, backward a reduce-scatter."""

    @staticmethod
    def forward(ctx: Any, part: torch.Tensor, shard: Shard, sharded: "FullyShardedDataParallel") -> torch.Tensor:
        ctx.shard, ctx.sharded = shard, sharded
        return shard.gather(shard.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, None, None]:
        ctx.sharded.start_reduction(ctx.shard, gradient)
        return None, None, None  # the gradient of the part comes from finish_gradient_synchronization


class FullyShardedDataParallel(nn.Module):
    """`module`, its parameters partitioned among the ranks; `parameters()` are what this rank's optimizer updates.

        model = FullyShardedDataParallel(module); optimizer = Adam(model.parameters())
        loss(model(x), y).backward(); model.finish_gradient_synchronization(); optimizer.step()

    compute_dtype  in which the layers compute and the parameters travel; None: as the module has them
    modules        types of the layers whose parameters are cut, such as (nn.Linear, nn.Embedding); None: all. The others' stay
                   whole on every rank, in their own dtype, and get the mean of the ranks' gradients
    Every rank runs the same layers in the same order, because each layer's gather needs all ranks. Parameters may be frozen and
    unfrozen later; one that is added, replaced or converted later is an error. A norm of the gradients, as in clip_grad_norm_,
    is that of this rank's parts alone: the whole one is the root of all ranks' squares together. GradScaler would look for an
    overflow in these parts alone, too: use torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler, which asks all ranks.
    """

    def __init__(
        self, module: nn.Module, compute_dtype: torch.dtype | None = None, modules: tuple[type[nn.Module], ...] | None = None
    ) -> None:
        super().__init__()
        self.module, self.compute_dtype = module, compute_dtype
        self._gathered: dict[int, tuple[TensorWeakRef, Shard]] = {}  # by address, while a whole parameter lives
        self._reductions: list[tuple[Shard, dist.Work, torch.Tensor]] = []
        chosen = [child for child in module.modules() if modules is None or isinstance(child, modules)]
        if any(isinstance(child, torch.jit.ScriptModule) for child in chosen):
            raise LabError("A scripted layer reads its parameters in C++, where they are not gathered.", "Give it unscripted.")
        cut = {parameter for child in chosen for parameter in child.parameters(recurse=False)}
        self._kept = [parameter for parameter in module.parameters() if parameter not in cut]
        check_same_on_all_ranks([*module.named_parameters(), *module.named_buffers()])
        take_from_rank_0([*module.buffers(), *module.parameters()])
        # In the module's order, which is the same on all ranks; a tied parameter once.
        shards = {parameter: Shard(parameter, compute_dtype) for parameter in module.parameters() if parameter in cut}
        for child in module.modules():
            own = {name: shards[parameter] for name, parameter in child._parameters.items() if parameter in cut}
            child.__dict__.update(_shards=own, _whole={}, _keeps=False, _sharded=self)
            child._parameters.update({name: shard.part for name, shard in own.items()})
            child.__class__ = _gathering(type(child), tuple(own))
            child.register_forward_pre_hook(_keep)
            child.register_forward_hook(_drop, always_call=True)
        self._kinds = {parameter: (parameter.dtype, parameter.device) for parameter in module.parameters()}

    def forward(self, *inputs: Any, **options: Any) -> Any:
        self._check_parameters()
        _drop(self.module)  # what an interrupted forward has left
        if self.compute_dtype is not None:
            cast = lambda x: x.to(self.compute_dtype) if x.is_floating_point() else x  # noqa: E731
            inputs, options = tree_map_only(torch.Tensor, cast, (inputs, options))
        with torch.autograd.graph.saved_tensors_hooks(self._save, self._load):
            return self.module(*inputs, **options)

    def _check_parameters(self) -> None:
        """Raise LabError for a parameter that no rank knows of, or that has another dtype than the parts had."""
        for name, parameter in self.module.named_parameters():
            if self._kinds.get(parameter) != (parameter.dtype, parameter.device):
                raise LabError(
                    f"{name} was added, replaced or converted after FullyShardedDataParallel was made.",
                    "Make the network as it shall train first.",
                )

    def whole(self, shard: Shard) -> torch.Tensor:
        """The whole parameter, with a gradient that flows to the part."""
        whole = _Gather.apply(shard.part, shard, self)
        self._gathered[whole.untyped_storage().data_ptr()] = TensorWeakRef(whole), shard
        return whole

    def _save(self, tensor: torch.Tensor) -> Any:
        """What autograd keeps for the backward pass: of a whole parameter only how to get it again."""
        found, shard = self._gathered.get(tensor.untyped_storage().data_ptr(), (lambda: None, None))
        if found() is None:  # never gathered, or a tensor whose address was a whole parameter's before
            return tensor
        return shard, tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()

    def _load(self, kept: Any) -> torch.Tensor:
        return kept if isinstance(kept, torch.Tensor) else kept[0].gather(kept[1]).as_strided(*kept[2:])

    def start_reduction(self, shard: Shard, gradient: torch.Tensor) -> None:
        self._wait_until_left(IN_FLIGHT - 1)
        self._reductions.append((shard, *shard.reduce(gradient)))

    def finish_gradient_synchronization(self) -> None:
        """Wait for the parts' gradients, and average those of what is whole; to be called between backward and step."""
        self._wait_until_left(0)
        trained = [parameter for parameter in self._kept if parameter.requires_grad]
        if not trained:
            return
        used = torch.tensor([parameter.grad is not None for parameter in trained], dtype=torch.int32, device=trained[0].device)
        dist.all_reduce(used)  # a rank that did not use a parameter takes part with zeros, unless none has used it
        for parameter, ranks in zip(trained, used.tolist(), strict=True):
            if ranks:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.to_dense()
                gradient = gradient.contiguous()
                dist.all_reduce(gradient)
                parameter.grad = torch.empty_like(parameter).copy_(gradient / dist.get_world_size())

    def _wait_until_left(self, left: int) -> None:
        while len(self._reductions) > left:
            shard, work, part = self._reductions.pop(0)
            work.wait()
            shard.part.grad = part if shard.part.grad is None else shard.part.grad.add_(part)

    def gather_full_params(self) -> dict[str, torch.Tensor]:
        """{name in the module: the whole parameter}, on every rank, in the parts' precision; all ranks have to call it."""
        shards = {f"{at}.{n}".lstrip("."): s for at, child in self.module.named_modules() for n, s in child._shards.items()}
        kept = {name: tensor.detach() for name, tensor in self.module.named_parameters() if name not in shards}
        return {name: shard.gather(shard.part.dtype) for name, shard in shards.items()} | kept


@functools.cache
def _gathering(kind: type[nn.Module], names: tuple[str, ...]) -> type[nn.Module]:
    """The layer's class, but its parameters `names` are gathered when they are read."""
    return type(f"Sharded{kind.__name__}", (kind,), {name: property(functools.partial(_read, name=name)) for name in names})


def _read(layer: nn.Module, name: str) -> torch.Tensor:
    shard, whole = layer._shards[name], layer._whole.get(name)
    with_gradient = shard.part.requires_grad and torch.is_grad_enabled()
    if whole is None or whole.requires_grad != with_gradient:  # one that was read for a log has none
        whole = layer._sharded.whole(shard)
        if layer._keeps:
            layer._whole[name] = whole
    return whole


def _keep(layer: nn.Module, *_: Any) -> None:
    """In a layer's forward keep what is gathered, also of layers in it until they are called. Kept on, it would be stale."""
    for child in layer.modules():
        child._keeps = True


def _drop(layer: nn.Module, *_: Any) -> None:
    """After a layer's forward: let go of its whole parameters, and of those that it read in layers that it did not call."""
    for child in layer.modules():
        child._keeps = False
        child._whole.clear()
