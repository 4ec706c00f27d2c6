"""How fast data moves between the memories of host and GPU, and between two GPUs."""

import torch

from hpml_lab.core.measure.timing import measure
from hpml_lab.tensors.rows import Transfer, times_of

PAGEABLE, PINNED, BETWEEN = "pageable host to GPU", "pinned host to GPU", "GPU to GPU, one way"


def transfers(device: torch.device, mib: int) -> list[Transfer]:
    """Bandwidth between host and GPU, pageable and pinned, both ways, and between two GPUs if there are two."""
    host = torch.ones(mib << 18)
    pinned, on_gpu = host.pin_memory(), host.to(device)
    ways = {
        PAGEABLE: lambda: on_gpu.copy_(host),
        PINNED: lambda: on_gpu.copy_(pinned, non_blocking=True),
        "GPU to pinned host": lambda: pinned.copy_(on_gpu, non_blocking=True),
    }
    if torch.cuda.device_count() > 1:
        other = torch.empty_like(on_gpu, device=f"cuda:{(device.index + 1) % torch.cuda.device_count()}")
        ways[BETWEEN] = lambda: other.copy_(on_gpu, non_blocking=True)
    timings = {way: measure(work, bytes=float(host.nbytes)) for way, work in ways.items()}
    return [Transfer(str(device), *times_of(timing), way, timing.gb_per_s) for way, timing in timings.items()]
