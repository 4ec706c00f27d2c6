"""Which device and which number format to use, each with its reason."""

import importlib.util
import os
import re
from dataclasses import dataclass

import torch

from hpml_lab.core.system.errors import LabError

# The note of an experiment that shows more on a GPU.
NO_CUDA = "No CUDA GPU here: {what}; run `hpml-lab run {slug} --size full` on a machine with one."


# The compute capability from which a GPU has tensor cores for bfloat16, TF32, 8-bit floats and 2:4 sparsity, and from which
# Triton compiles for it.
_SINCE = {"bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9), "2:4": (8, 0), "triton": (7, 5)}


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

    def can(self, what: str) -> bool:
        """Whether the device itself has what a lesson needs: "bf16", "tf32", "fp8", "2:4" (structured sparsity) or "triton".

        A CPU has at most bf16. torch answers otherwise where it emulates: `torch.cuda.is_bf16_supported()` is true of a T4.
        """
        least = _SINCE[what]
        if not self.is_cuda:
            return what == "bf16" and self.dtype is torch.bfloat16
        found = torch.cuda.get_device_capability(self.torch) >= least
        return found and (what != "triton" or importlib.util.find_spec("triton") is not None)

    def __str__(self) -> str:
        return str(self.torch)


def _dtype_for(device: torch.device) -> tuple[torch.dtype, str]:
    if device.type == "cuda":
        capability = torch.cuda.get_device_capability(device)
        name = "compute capability {}.{}".format(*capability)
        if capability >= _SINCE["bf16"]:
            return torch.bfloat16, f"{name} has bfloat16 tensor cores"
        if capability >= (7, 0):
            return torch.float16, f"{name} has float16 tensor cores, but none for bfloat16"
        return torch.float32, f"{name} has no tensor cores"
    has_bf16 = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)()
    if has_bf16:
        return torch.bfloat16, "this processor multiplies bfloat16 directly (AVX512_BF16)"
    return torch.float32, "this processor has no instructions for 16-bit floats that torch reports"


def capabilities() -> list[str]:
    """The compute capabilities for which this build of torch has kernels, such as ["7.5", "8.0"]; none for a build without."""
    return [re.sub(r"\D*(\d+)(\d)\D*", r"\1.\2", arch) for arch in torch.cuda.get_arch_list() if arch.startswith("sm_")]


def without_kernels(index: int) -> str:
    """Why this torch cannot run a kernel on the GPU `index`; "" if it can.

    torch reports a P100 as available, and then each kernel fails. A kernel for 8.0 runs on 8.6, too, not on 7.5 or 9.0; what is
    newer than all of them gets one from PTX, if the build has it.
    """
    try:
        major, minor = torch.cuda.get_device_capability(index)
    except RuntimeError as error:  # another process holds it alone, or it has failed
        return f"GPU {index} does not answer: {_first_sentence(error)}"
    built = [tuple(map(int, one.split("."))) for one in capabilities()]
    ptx = any(arch.startswith("compute_") for arch in torch.cuda.get_arch_list())
    if not built or any(m == major and n <= minor for m, n in built) or (ptx and (major, minor) > max(built)):
        return ""
    name = torch.cuda.get_device_name(index)
    return f"{name} has compute capability {major}.{minor}, and torch {torch.__version__} has kernels for " + ", ".join(
        capabilities()
    )


def build(cuda: str | None, hip: str | None) -> str:
    """What a torch was built for, from `torch.version`: AMD's GPUs are `cuda` devices in a ROCm build."""
    return f"a ROCm {hip} build, for AMD's GPUs" if hip else f"a CUDA {cuda} build" if cuda else "a build without CUDA"


def _why_no_gpu() -> str:
    """What torch says if it is asked for a GPU that it does not see: no driver, too old a driver, a build without CUDA."""
    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        return _first_sentence(error)
    return "it sees none"


def _first_sentence(error: Exception) -> str:
    return re.split(r"\.\s|\n", str(error))[0].rstrip(".")


def choose_device(requested: torch.device | str | None = None) -> Device:
    """The device to run on: `requested`, else the environment variable `HPML_DEVICE`, else a CUDA GPU, else the CPU.

    Raises LabError for a device that does not exist here, or for which this build of torch has no kernels.
    """
    name = str(requested or "") or os.environ.get("HPML_DEVICE")
    if not name:  # `HPML_DEVICE= hpml-lab …` is how a shell unsets it for one command
        # torch.accelerator.current_accelerator() answers `cuda` on a CUDA build without a GPU: ask for a usable one.
        reasons = [without_kernels(i) for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
        if "" in reasons:
            device, reason = torch.device("cuda", reasons.index("")), "a CUDA GPU is usable here"
        else:
            why = reasons[0] if reasons else f"torch is {build(torch.version.cuda, torch.version.hip)}"
            if torch.backends.mps.is_available():
                why = "an Apple GPU is here and not used: it has no float64, with which results are compared"
            device, reason = torch.device("cpu"), f"no CUDA GPU is usable here ({why})"
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
        doctor = "Use --device cpu, or run `hpml-lab doctor` to see why."
        if not count:
            raise LabError(f"{name!r} was asked for, but torch sees 0 CUDA GPUs here: {_why_no_gpu()}.", doctor)
        if device.index >= count:
            mig = " A process sees one slice of a GPU that is divided by MIG." * ("MIG" in torch.cuda.get_device_name(0))
            seen = f"{name!r} was asked for, but torch sees {count} CUDA GPUs here.{mig}"
            raise LabError(seen, f"Use cuda:{count - 1}. {doctor}")
        if why := without_kernels(device.index):
            raise LabError(f"{name!r} was asked for, but {why}.", doctor)
    return Device(device, "it was asked for", *_dtype_for(device))
