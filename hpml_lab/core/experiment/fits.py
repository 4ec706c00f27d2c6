"""Full size on the GPU at hand: what an experiment needs of its memory, and how it is made smaller until it fits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from hpml_lab.core.system.errors import LabError

SHARE = 0.8  # of the free memory: the allocator's blocks, cuDNN's workspaces and the context take the rest
QUICK = "Close what else uses the GPU (`nvidia-smi` lists it), or use --size quick or --device cpu."
_WORDS = {2: "a half", 4: "a quarter", 8: "an eighth"}
# Only torch's own allocator raises OutOfMemoryError. Next to a nearly full GPU, libraries ask the driver themselves: for a
# handle, a workspace, or a kernel that is loaded when it is first called.
_OUT_OF_MEMORY = (
    "CUDA error: out of memory",
    "CUDA driver error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR",
)


@dataclass(frozen=True)
class Fits:
    """What an experiment at full size needs of a GPU, and which of its parameters makes it smaller.

    bytes  (params) -> bytes at the peak
    scale  the parameter that is halved until it fits; of a tuple, the last entry is left out
    least  the smallest value with which the lesson is still seen; of a tuple, the fewest entries
    """

    bytes: Callable[[Any], float]
    scale: str
    least: int

    def to(self, params: Any, free: float) -> tuple[str, str]:
        """Make `params` small enough for `free` bytes.

        Returns how far, such as "scaled to a quarter", and a note with the figures; "" twice where full size fits. Raises
        LabError where even the least size does not fit.
        """
        whole, need = getattr(params, self.scale), self.bytes(params)
        while self.bytes(params) > SHARE * free:
            value = getattr(params, self.scale)
            smaller = value[:-1] if isinstance(value, tuple) else value // 2
            if (len(smaller) if isinstance(value, tuple) else smaller) < self.least:
                least = _gb(self.bytes(params) / SHARE)
                raise LabError(f"Full size needs at least {least} of GPU memory, and {_gb(free)} are free.", QUICK)
            setattr(params, self.scale, smaller)
        left = getattr(params, self.scale)
        if left == whole:
            return "", ""
        if isinstance(left, tuple):
            share = f"{len(left)} of {len(whole)} sizes"
        else:
            share = _WORDS.get(whole // left, f"1/{whole // left}")
        figures = f"full size needs {_gb(need / SHARE)}, and {_gb(free)} are free"
        return f"scaled to {share}", f"Scaled to {share} ({self.scale} {whole} → {left}): {figures}."


def free_bytes(device: torch.device) -> float:
    """Bytes that this process can still get of a GPU's memory, within the share that it may use."""
    free, total = torch.cuda.mem_get_info(device)
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    allowed = torch.cuda.get_per_process_memory_fraction(device) * total - torch.cuda.memory_allocated(device)
    return min(free + unused, allowed)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the GPU's memory is full: torch's own error, or a library's."""
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OUT_OF_MEMORY)


def out_of_memory(device: torch.device) -> LabError:
    """The error for an experiment that ran out of the GPU's memory although it fitted, as when another process fills it."""
    free, total = torch.cuda.mem_get_info(device)
    return LabError(f"The memory of {device} is full: {_gb(free)} of {_gb(total)} are free.", QUICK)


def _gb(count: float) -> str:
    return f"{count / 1e9:.1f} GB"
