"""DeepSpeed on ranks that end soon, because it sets much up; and its stages of ZeRO as runs that can be weighed."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from hpml_lab.distributed.sharded_runs import BATCH, Run, adam
from hpml_lab.distributed.train import prepare_deepspeed


def load_deepspeed(device: torch.device, folder: str | Path) -> Any:
    """Import DeepSpeed on a rank, which prints nothing from here on; what it compiles goes into `folder`."""
    silence()
    # DeepSpeed decorates its Muon optimizer with torch.compile, which would load torch's compiler for seconds.
    os.environ["TORCHDYNAMO_DISABLE"] = "1"
    prepare_deepspeed(device, Path(folder) / "extensions")
    dist.barrier()  # `connect` came first here, and did not wait for this
    import deepspeed

    return deepspeed


def silence() -> None:
    """Show nothing that this rank prints: DeepSpeed and gloo report from Python and from C++."""
    nothing = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    os.dup2(nothing.fileno(), 1)
    os.dup2(nothing.fileno(), 2)
    sys.stdout = sys.stderr = nothing


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
