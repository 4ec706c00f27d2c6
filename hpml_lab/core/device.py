"""Which device and which number format to use, each with its reason."""

import os
from dataclasses import dataclass

import torch

from hpml_lab.core.errors import LabError

# The note of an experiment that shows more on a GPU.
NO_CUDA = "No CUDA GPU here: {what}; run `hpml-lab run {slug} --size full` on a machine with one."


@dataclass(frozen=True)
class Device:
    """A device, why it was chosen, and the dtype that mixed precision should use on it."""

    torch: torch.device
    reason: str
    dtype: torch.dtype
    dtype_reason: str

    @property
    def is_cuda(self) -> bool:
        return self.torch.type == "cuda"

    def __str__(self) -> str:
        return str(self.torch)


def _dtype_for(device: torch.device) -> tuple[torch.dtype, str]:
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        if major >= 8:
            return torch.bfloat16, f"compute capability {major}.{minor} has bfloat16 tensor cores"
        if major >= 7:
            return torch.float16, f"compute capability {major}.{minor} has float16 tensor cores, but none for bfloat16"
        return torch.float32, f"compute capability {major}.{minor} has no tensor cores"
    has_bf16 = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    if has_bf16:
        return torch.bfloat16, "this processor multiplies bfloat16 directly (AVX512_BF16)"
    return torch.float32, "this processor has no instructions for 16-bit floats that torch reports"


def choose_device(requested: str | None = None) -> Device:
    """The device to run on: `requested`, else the environment variable `HPML_DEVICE`, else a CUDA GPU, else the CPU.

    Raises LabError for a device that does not exist here.
    """
    name = requested or os.environ.get("HPML_DEVICE")
    if not name:  # `HPML_DEVICE= hpml-lab …` is how a shell unsets it for one command
        # torch.accelerator.current_accelerator() answers `cuda` on a CUDA build without a GPU: ask for a usable one.
        if torch.cuda.is_available():
            device, reason = torch.device("cuda:0"), "a CUDA GPU is usable here"
        else:
            build = f"a CUDA {torch.version.cuda} build" if torch.version.cuda else "a build without CUDA"
            device, reason = torch.device("cpu"), f"no CUDA GPU is usable here (torch is {build})"
        return Device(device, reason, *_dtype_for(device))
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda"):
        raise LabError(f"{name!r} is not a valid device.", "Use cpu, cuda, or cuda:N.")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        device = torch.device("cuda", device.index or 0)
        if device.index >= count:
            raise LabError(
                f"{name!r} was asked for, but torch sees {count} CUDA GPUs here.",
                "Use --device cpu, or run `hpml-lab doctor` to see why.",
            )
    return Device(device, "it was asked for", *_dtype_for(device))
