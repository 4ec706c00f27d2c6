"""Copies from the host's memory to a GPU: their time, when the call returns, and what hides behind compute."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import torch

from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.timing.clock import interleaved
from hpml_lab.core.timing.noise import SpeedUp, speed_up

SAMPLES = 9
SIDE = 2048  # of the matrices whose products compute during a copy


@dataclass(frozen=True)
class CopyTimes:
    """Seconds of a copy to the GPU from pageable and from pinned memory, by CUDA's events; and until the call returned.

    gain  the speed-up of the pinned copy
    """

    pageable: float
    pinned: float
    pageable_call: float
    pinned_call: float
    gain: SpeedUp


def copy_times(pageable: torch.Tensor, device: torch.device, samples: int = SAMPLES) -> CopyTimes:
    """Copy `pageable` and a pinned tensor like it to `device`, in turns with a second round of pageable copies, the placebo."""
    pinned, target = pageable.pin_memory(), torch.empty_like(pageable, device=device)
    sources = {"pageable": pageable, "pinned": pinned}

    def copying(source: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: target.copy_(source, non_blocking=True)

    times = interleaved(
        {name: copying(source) for name, source in sources.items()}, samples=samples, placebo="pageable", gpu=device
    )
    calls = {name: _call_seconds(copying(source), device, samples) for name, source in sources.items()}
    gain = speed_up(times, "pageable", "pinned")
    return CopyTimes(times["pageable"].seconds, times["pinned"].seconds, calls["pageable"], calls["pinned"], gain)


def _call_seconds(work: Callable[[], object], device: torch.device, samples: int) -> float:
    """Median seconds until the call returns, on an idle GPU: a full queue would make it wait."""
    taken = []
    for _ in range(samples):
        torch.cuda.synchronize(device)
        start = CLOCK()
        work()
        taken.append(CLOCK() - start)
    torch.cuda.synchronize(device)
    return median(taken)


@dataclass(frozen=True)
class CopyDuringCompute:
    """Seconds of a copy, of compute, and of both begun together, turn by turn."""

    copy: tuple[float, ...]
    compute: tuple[float, ...]
    both: tuple[float, ...]

    @property
    def hidden(self) -> tuple[float, ...]:
        """The share of the shorter of the two that ran during the other: 0 one after the other, 1 both at the same time."""
        turns = zip(self.copy, self.compute, self.both, strict=True)
        return tuple((copy + compute - both) / min(copy, compute) for copy, compute, both in turns)


def copy_during_compute(source: torch.Tensor, device: torch.device, samples: int = SAMPLES) -> CopyDuringCompute:
    """Time a copy on a side stream, matrix products on the current one that take as long, and both begun together, in turns."""
    target = torch.empty_like(source, device=device)
    with torch.cuda.device(device):
        side, current = torch.cuda.Stream(), torch.cuda.current_stream()
    a = torch.randn(SIDE, SIDE, device=device)
    out = torch.empty_like(a)

    def copy() -> None:
        side.wait_stream(current)  # it begins with the turn
        with torch.cuda.stream(side):
            target.copy_(source, non_blocking=True)

    def copy_alone() -> None:
        copy()
        current.wait_stream(side)  # the turn's last event is on the current stream: it has to come after the copy

    def products(count: int) -> None:
        for _ in range(count):
            torch.mm(a, a, out=out)

    def both(count: int) -> None:
        copy()
        products(count)
        current.wait_stream(side)

    alone = interleaved({"copy": copy_alone, "products": lambda: products(20)}, samples=3, gpu=device)
    count = max(1, round(20 * alone["copy"].seconds / alone["products"].seconds))
    works = {"copy": copy_alone, "compute": lambda: products(count), "both": lambda: both(count)}
    times = interleaved(works, samples=samples, gpu=device)
    return CopyDuringCompute(*(times[name].samples for name in works))
