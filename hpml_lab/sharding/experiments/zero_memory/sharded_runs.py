"""Ways to shard the memory of training over ranks, each as a run of the same training.

The functions run on the ranks that `launch` starts. torch's sharded classes, which load much, are imported where they are used;
`load_torch_classes` does so before ranks are forked, once instead of on each.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from hpml_lab.sharding.lessons.fsdp import FullyShardedDataParallel
from hpml_lab.sharding.lessons.sharded_optimizer import ShardedOptimizer

RATE, BATCH = 1e-3, 8  # samples per rank: so few that activations hardly count


@dataclass
class Run:
    """One training run on this rank.

    tensors     () -> (parameters, gradients, optimizer state) as this rank holds them now
    forward     x -> output
    backward    loss -> None; the gradients are ready for the update afterwards
    update      one step of the optimizer
    clear       forget the gradients
    keeps_gradients  whether their memory stays when they are cleared, as DDP's buckets do
    whole       () -> {name: whole parameter}, where that is possible
    """

    tensors: Callable[[], tuple[Any, Any, Any]]
    forward: Callable[[torch.Tensor], torch.Tensor]
    backward: Callable[[torch.Tensor], object]
    update: Callable[[], object]
    clear: Callable[[], object]
    keeps_gradients: bool = False
    whole: Callable[[], dict[str, torch.Tensor]] | None = None

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.backward(loss_of(self.forward(x), y))
        self.update()
        self.clear()


def network(width: int, depth: int, device: torch.device | str = "cpu", seed: int = 0) -> nn.Sequential:
    """`depth` linear layers of equal width; the same weights for the same seed, on every rank."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(*layers[:-1]).to(device)


def batch(width: int, device: torch.device | str = "cpu") -> tuple[torch.Tensor, torch.Tensor]:
    """The samples of all ranks, the same on every rank."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, BATCH * dist.get_world_size(), width, generator=generator).to(device)
    return x, y


def own_part(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[dist.get_rank() * BATCH :][:BATCH].clone()


def loss_of(output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(output.float(), y)


def load_torch_classes() -> None:
    import torch.distributed.fsdp
    import torch.distributed.optim  # noqa: F401


# ---- the ways -----------------------------------------------------------------------------------------------------------


def _run(model: nn.Module, optimizer: Any, **options: Any) -> Run:
    """A run in torch's own form: loss.backward(), optimizer.step()."""
    parameters = list(model.parameters())
    inner = getattr(optimizer, "optim", optimizer)  # ZeroRedundancyOptimizer keeps this rank's share there
    return Run(
        tensors=lambda: (
            parameters,
            [parameter.grad for parameter in parameters if parameter.grad is not None],
            dict(inner.state),
        ),
        forward=model,
        backward=lambda loss: loss.backward(),
        update=optimizer.step,
        clear=optimizer.zero_grad,
        **options,
    )


def _ddp(net: nn.Module, make_optimizer: Callable[[Any], Any]) -> Run:
    ddp = DistributedDataParallel(net, gradient_as_bucket_view=True)
    return _run(ddp, make_optimizer(net.parameters()), keeps_gradients=True, whole=lambda: dict(net.named_parameters()))


def adam(parameters: Any) -> torch.optim.Adam:
    return torch.optim.Adam(parameters, lr=RATE)


def ddp(net: nn.Module) -> Run:
    return _ddp(net, adam)


def zero_redundancy_optimizer(net: nn.Module) -> Run:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return _ddp(net, lambda parameters: ZeroRedundancyOptimizer(parameters, torch.optim.Adam, lr=RATE))


def sharded_optimizer(net: nn.Module) -> Run:
    return _ddp(net, lambda parameters: ShardedOptimizer(parameters, torch.optim.Adam, lr=RATE))


def torch_fully_sharded(net: nn.Module, reshard: bool = True, dtype: torch.dtype | None = None) -> Run:
    """torch's FSDP2: called on each layer and on the whole; the parameters become DTensors."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype and torch.float32)
    mesh = init_device_mesh(next(net.parameters()).device.type, (dist.get_world_size(),))
    for layer in [layer for layer in net.modules() if isinstance(layer, nn.Linear)]:
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    fully_shard(net, mesh=mesh, reshard_after_forward=reshard, mp_policy=policy)
    whole = lambda: {name: parameter.full_tensor() for name, parameter in net.named_parameters()}  # noqa: E731
    return _run(net, adam(net.parameters()), whole=whole)


def own_fully_sharded(net: nn.Module, dtype: torch.dtype | None = None) -> Run:
    model = FullyShardedDataParallel(net, dtype)

    def backward(loss: torch.Tensor) -> None:
        loss.backward()
        model.finish_gradient_synchronization()

    return replace(_run(model, adam(model.parameters())), backward=backward, whole=model.gather_full_params)


def deepspeed_run(net: nn.Module, stage: int, dtype: torch.dtype | None = None) -> Run:
    """The network under DeepSpeed, which is loaded, with torch's Adam.

    Buckets are small, because stage 3 allocates the default one of 2 GB at once; whole parameters are not kept longer than
    needed; the clipping to norm 1 that is on by default is off.
    """
    import deepspeed

    bucket = max(parameter.numel() for parameter in net.parameters())
    config = {
        "train_batch_size": BATCH * dist.get_world_size(),
        "gradient_clipping": 0.0,
        "bf16": {"enabled": dtype == torch.bfloat16},
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": bucket,
            "allgather_bucket_size": bucket,
            "stage3_param_persistence_threshold": 0,
            "stage3_max_live_parameters": 1,
            "stage3_max_reuse_distance": 1,
            "stage3_prefetch_bucket_size": 0,
        },
    }
    engine, *_ = deepspeed.initialize(model=net, optimizer=adam(net.parameters()), config=config)

    def tensors() -> tuple[Any, Any, Any]:
        parameters = list(net.parameters())
        own = [parameter.ds_tensor for parameter in parameters if hasattr(parameter, "ds_tensor")]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        inner = optimizer = engine.optimizer
        while hasattr(inner, "optimizer"):
            inner = inner.optimizer
        return parameters + own, [gradients, getattr(optimizer, "averaged_gradients", [])], dict(inner.state)

    return Run(
        tensors=tensors,
        forward=lambda x: engine(x if dtype is None else x.to(dtype)),
        backward=engine.backward,
        update=engine.step,
        clear=lambda: None,  # the engine's step does it
    )
