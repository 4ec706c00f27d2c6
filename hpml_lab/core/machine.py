"""What this machine is: the facts that are shown with every result. Works without torch, so that the doctor can too."""

import functools
import os
import platform
import subprocess
from pathlib import Path
from typing import TypedDict

from hpml_lab.core.errors import LabError

OLDEST_TORCH = (2, 11)


class MachineRecord(TypedDict):
    """What a saved result says about where it ran; None for what this machine does not have or does not tell."""

    cpu: str
    cores: int
    memory_gb: float | None
    gpu: str | None
    gpu_memory_gb: float | None
    system: str | None
    python: str | None
    torch: str
    cuda: str | None
    numpy: str | None


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    if platform.system() == "Darwin":
        done = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    return platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use: fewer than the machine has under `taskset` or in a container."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def installed_version(package: str) -> str | None:
    """The installed version of `package`, or None; reads metadata only, so it is cheap and cannot fail to import."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def require_torch() -> None:
    """Raise LabError unless a torch is installed that the workbook was tested with."""
    found = installed_version("torch")
    oldest = ".".join(map(str, OLDEST_TORCH))
    if found is None:
        raise LabError("PyTorch is not installed in this Python.", "Run `make lab` in the project's folder.")
    if tuple(int(part) for part in found.split("+")[0].split(".")[:2]) < OLDEST_TORCH:
        raise LabError(
            f"PyTorch {found} is too old: the workbook needs {oldest} or newer.",
            f"Run `make lab`, or: pip install --upgrade 'torch>={oldest}' torchvision",
        )


def memory_gb() -> float | None:
    """The machine's memory in GB, or None where the system does not tell, as in a container without /proc."""
    import psutil

    try:
        return round(psutil.virtual_memory().total / 1e9, 1)
    except (OSError, psutil.Error):
        return None


@functools.cache
def describe() -> MachineRecord:
    """Machine and versions as a flat record: what a saved result says about where it ran (no names of users or hosts)."""
    import torch

    gpu = torch.cuda.is_available()
    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_gb": memory_gb(),
        "gpu": torch.cuda.get_device_name(0) if gpu else None,
        "gpu_memory_gb": round(torch.cuda.get_device_properties(0).total_memory / 1e9, 1) if gpu else None,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "numpy": installed_version("numpy"),
    }


def label(machine: dict) -> str:
    """One line that names a recorded machine: its GPU, or else its processor."""
    unit = machine["gpu"] or f"{machine['cpu']}, {machine['cores']} cores"
    return f"{unit} (torch {machine['torch']})"
