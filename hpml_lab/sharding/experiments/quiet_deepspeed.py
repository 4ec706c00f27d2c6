"""DeepSpeed on ranks that end soon, because it sets much up."""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from hpml_lab.sharding.lessons.train import prepare_deepspeed


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
