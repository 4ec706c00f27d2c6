"""Loops that a GPU bounds, to judge the classifier by: real ones where there is a GPU, and time lines written down by hand."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn

from hpml_lab.core.timing.timeline import Span
from hpml_lab.profiling.experiments.bottleneck_classes.known_loops import KnownLoop
from hpml_lab.profiling.lessons.bottleneck import CANNOT_TELL, Evidence
from hpml_lab.profiling.tools.device_work import device_evidence


@dataclass(frozen=True)
class KnownTimeline:
    """A GPU's time line that was written down, not measured, with the bound that it was written for."""

    name: str
    truth: str
    evidence: Evidence


def _steps(kernel: float, copy: float, idle: float, count: int = 10) -> list[Span]:
    """`count` times a copy, then a kernel, then nothing, in seconds each."""
    spans, at = [], 0.0
    for _ in range(count):
        spans += [Span("GPU", "copy", at, at + copy), Span("GPU", "kernel", at + copy, at + copy + kernel)]
        at += copy + kernel + idle
    return spans


def _known(name: str, truth: str, spans: list[Span], compute: float, memory: float, **host: float) -> KnownTimeline:
    seconds = 0.5
    return KnownTimeline(name, truth, Evidence(seconds, 8, **host, **device_evidence(spans, seconds, compute, memory)))


_BUSY = dict(cores_wanted=1.0, busiest=1.0)  # waits at work for the GPU, or launches kernels
_TINY = _steps(0.010, 0.001, 0.039)
WRITTEN = (
    _known("written: copies of 40 in 50 ms", "transfer", _steps(0.008, 0.040, 0.002), 0.05, 0.01, unknown_wait=0.7),
    _known("written: kernels at 80 % of the FLOP ceiling", "GPU compute", _steps(0.045, 0.002, 0.003), 0.36, 0.05, **_BUSY),
    _known("written: kernels at 85 % of the bandwidth", "GPU memory", _steps(0.046, 0.001, 0.003), 0.02, 0.39, **_BUSY),
    _known("written: kernels near neither ceiling", CANNOT_TELL, _steps(0.045, 0.0, 0.005), 0.02, 0.03, **_BUSY),
    _known("written: tiny kernels, host busy", "single thread", _TINY, 0.01, 0.01, **_BUSY),
    _known("written: tiny kernels, half of them launched by autograd", "single thread", _TINY, 0.01, 0.01,
           handed_over=0.45, **_BUSY),
    _known("written: GPU waits for the input", "input", _steps(0.006, 0.004, 0.040), 0.01, 0.01, input_wait=0.78),
)  # fmt: skip


def on_gpu(device: torch.device) -> tuple[KnownLoop, ...]:
    """Real loops bound by the GPU in three ways, and one by its launches; each does the same work on every call."""

    def repeat(seconds: float, step: Callable[[], object]) -> Callable[[], object]:
        def loop(count: int) -> None:
            for _ in range(count):
                step()
                torch.cuda.synchronize(device)

        loop(1)  # loads the library's kernels
        start = time.perf_counter()
        loop(3)
        count = max(3, round(3 * seconds / (time.perf_counter() - start)))
        return lambda: loop(count)

    def products(seconds: float) -> Callable[[], object]:
        a = torch.randn(8192, 8192, device=device)
        return repeat(seconds, lambda: [a @ a for _ in range(4)])

    def additions(seconds: float) -> Callable[[], object]:
        a = torch.zeros(1 << 28, device=device)
        return repeat(seconds, lambda: [a.add_(1.0) for _ in range(16)])

    def copies(seconds: float) -> Callable[[], object]:
        batch, target = torch.ones(1 << 26).pin_memory(), torch.empty(1 << 26, device=device)
        return repeat(seconds, lambda: target.copy_(batch, non_blocking=True))

    def small_layers(seconds: float) -> Callable[[], object]:
        net = nn.Sequential(*(nn.Linear(32, 32, device=device) for _ in range(40)))
        batch = torch.ones(32, 32, device=device)

        def step() -> None:  # several hundred kernels of a few microseconds; half of them autograd's thread launches
            net(batch).sum().backward()
            for weight in net.parameters():
                weight.data -= 1e-4 * weight.grad
                weight.grad = None

        return repeat(seconds, step)

    return (
        KnownLoop("a net of many tiny layers on the GPU", "single thread", small_layers),
        KnownLoop("large matrix products on the GPU", "GPU compute", products),
        KnownLoop("sums of large tensors on the GPU", "GPU memory", additions),
        KnownLoop("large batches copied to the GPU", "transfer", copies),
    )
