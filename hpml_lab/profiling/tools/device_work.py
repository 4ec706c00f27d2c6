"""The GPU's part of the evidence: its time line, and the least time that FLOPs and bytes need at the ceilings."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from hpml_lab.core.timing.clock import ceiling
from hpml_lab.core.timing.counting import operators, synchronize
from hpml_lab.core.timing.timeline import Span, busy

aten = torch.ops.aten
CONVOLUTIONS = (aten.convolution, aten._convolution, aten.convolution_backward, aten.cudnn_convolution)


def device_spans(events: Iterable[dict[str, Any]]) -> list[Span]:
    """Kernels and copies of a profiler's trace as spans; fills of memory count as kernels, copies within the GPU too."""
    spans = []
    for event in events:
        kind = event.get("cat")
        if kind in ("kernel", "gpu_memset", "gpu_memcpy"):
            copies = kind == "gpu_memcpy" and "DtoD" not in event["name"]
            start = event["ts"] / 1e6
            spans.append(Span("GPU", "copy" if copies else "kernel", start, start + event["dur"] / 1e6))
    return spans


def device_evidence(spans: Iterable[Span], seconds: float, compute_seconds: float, memory_seconds: float) -> dict[str, float]:
    """The GPU's part of the evidence, from its time line and the least seconds that FLOPs and bytes need."""
    spans = list(spans)
    kernels = busy(span for span in spans if span.what == "kernel")
    return {
        "kernels": kernels / seconds,
        "copies": (busy(spans) - kernels) / seconds,
        "compute": compute_seconds / kernels if kernels else 0.0,
        "memory": memory_seconds / kernels if kernels else 0.0,
    }


class _Flops(TorchDispatchMode):
    """Sums a device's FLOPs by the type of the operands, and by TF32 or not; torch's own counter keeps neither."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.by_format: dict[tuple[torch.dtype, bool], int] = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func.overloadpacket)
        first = next((value for value in args if isinstance(value, torch.Tensor)), None)
        if count is not None and first is not None and first.device.type == self.device.type:
            key = first.dtype, first.dtype == torch.float32 and multiplied_as_tf32(func.overloadpacket)
            self.by_format[key] = self.by_format.get(key, 0) + count(*args, **(kwargs or {}), out_val=out)
        return out


def multiplied_as_tf32(operator: Any) -> bool:
    """Whether an operator's float32 products run as TF32 on a GPU: by default those of convolutions do, matrix products do not.

    The newer settings are read, for the older ones raise an error once both kinds have been used.
    """
    backend = torch.backends.cudnn.conv if operator in CONVOLUTIONS else torch.backends.cuda.matmul
    return backend.fp32_precision == "tf32"


def least_seconds(loop: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """The least seconds for the FLOPs and for the bytes of what `loop()` computes on the device, at its measured ceilings.

    Tensors of the host count for nothing.
    """
    with _Flops(device) as flops:
        calls = operators(loop, device)
    synchronize(device)
    compute = sum(
        count / (ceiling(device, dtype, tf32=tf32).gflop_per_s * 1e9) for (dtype, tf32), count in flops.by_format.items()
    )
    return compute, sum(call.bytes for call in calls) / (ceiling(device).gb_per_s * 1e9)
