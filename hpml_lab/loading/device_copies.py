"""Copies from the host's memory to a GPU: their time, when the call returns, and what hides behind compute."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from hpml_lab.core.timeline import CLOCK
from hpml_lab.core.timing import event_seconds

WARM_UP = 3  # copies before the first one that counts


def copy_seconds(source: torch.Tensor, target: torch.Tensor, repeats: int = 10) -> tuple[float, float]:
    """Median seconds of a copy to the GPU by CUDA's events, and median seconds until the call returned, after a warm-up."""
    copies, calls = [], []

    def copy() -> None:
        start = CLOCK()
        target.copy_(source, non_blocking=True)
        calls.append(CLOCK() - start)

    for _ in range(repeats + WARM_UP):
        torch.cuda.synchronize(target.device)
        copies.append(event_seconds(copy, target.device))
    return median(copies[WARM_UP:]), median(calls[WARM_UP:])


@dataclass(frozen=True)
class CopyDuringCompute:
    """Seconds of a copy, of compute, and of both begun at once."""

    copy: float
    compute: float
    both: float


def copy_during_compute(source: torch.Tensor, device: torch.device) -> CopyDuringCompute:
    """Time a copy on a side stream, matrix products on the current one that take as long, and both begun at once."""
    target = torch.empty_like(source, device=device)
    side, current = torch.cuda.Stream(device), torch.cuda.current_stream(device)
    a = torch.randn(2048, 2048, device=device)
    out = torch.empty_like(a)

    def copy() -> None:
        side.wait_stream(current)
        with torch.cuda.stream(side):
            target.copy_(source, non_blocking=True)

    def products(count: int) -> None:
        for _ in range(count):
            torch.mm(a, a, out=out)

    alone = _wall_seconds(copy, device)
    count = max(1, round(alone / (_wall_seconds(lambda: products(20), device) / 20)))
    compute = _wall_seconds(lambda: products(count), device)
    return CopyDuringCompute(alone, compute, _wall_seconds(lambda: (copy(), products(count)), device))


def _wall_seconds(work: Callable[[], object], device: torch.device) -> float:
    """Median seconds of `work()` on all streams of the device, which events on one stream do not see."""
    taken = []
    for _ in range(9):
        torch.cuda.synchronize(device)
        start = CLOCK()
        work()
        torch.cuda.synchronize(device)
        taken.append(CLOCK() - start)
    return median(taken[2:])
