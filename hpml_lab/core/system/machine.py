"""What this machine is: the facts that are shown with every result. Works without torch, so that the doctor can too."""

import functools
import hashlib
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import TypedDict

from hpml_lab import __version__
from hpml_lab.core.system.cgroups import cpu_quota, memory_left, memory_limit
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import REINSTALL, ROOT, SHIPPED

OLDEST_TORCH = (2, 11)
# Where one is set, OpenMP, which torch loads, binds the main thread to one core, and the process is seen with that mask.
BINDS = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
_FIRST_MASK = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()


class MachineRecord(TypedDict):
    """What a saved result says about where it ran; None for what this machine does not have or does not tell.

    gpus        the number of GPUs that torch sees; `gpu` and the following are of the one that the experiment ran on
    gpu_clocks  the highest, as nvidia-smi gives them
    launch_us   µs to launch a small kernel, measured; ratios of work that is bound by its launches depend on it
    commit      of this project's code, with + where it had changed since
    """

    cpu: str
    cores: int
    memory_gb: float | None
    gpus: int | None
    gpu: str | None
    gpu_memory_gb: float | None
    driver: str | None
    gpu_clocks: str | None
    launch_us: float | None
    system: str | None
    python: str | None
    torch: str
    cuda: str | None
    numpy: str | None
    commit: str | None


def cpu_name() -> str:
    """The processor's name as the system gives it."""
    if name := _cpuinfo("model name"):
        return name
    if platform.system() == "Darwin":
        done = subprocess.run(["sysctl", "-n", "machdep.cpu.brand_string"], capture_output=True, text=True)
        if done.returncode == 0:
            return done.stdout.strip()
    return platform.processor() or platform.machine()


def cpu_description() -> str:
    """The processor's name and, on Linux, its instruction sets: two processors of one description run the same programs."""
    return f"{cpu_name()}: {_cpuinfo('flags', 'Features')}"


def processor_digest() -> str:
    """A short hash of what decides how this processor rounds: its instruction sets, and those of them that torch uses.

    The second are fewer where ATEN_CPU_CAPABILITY lowers them.
    """
    import torch

    content = f"{cpu_description()} {torch.backends.cpu.get_cpu_capability()}"
    return hashlib.sha256(content.encode()).hexdigest()[:12]


def _cpuinfo(*keys: str) -> str:
    """The first value of one of `keys` in /proc/cpuinfo; "" where there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(keys) and ":" in line), "")


def cores() -> int:
    """Cores that this process may use: fewer than the machine has under `taskset` or in a container.

    It is how many threads or processes can run all the time. Of a quota of 2.5 cores (`docker run --cpus=2.5`) that is 2: a
    third would be stopped for half of the time, and the others with it. Of less than one core it is 1.
    """
    mask = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if mask == 1 and any(name in os.environ for name in BINDS):
        torch = sys.modules.get("torch")  # it counted them as it was loaded
        mask = max(mask, len(_FIRST_MASK), torch.get_num_threads() if torch else 1)
    return max(1, int(min(mask, cpu_quota() or mask)))


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
        raise LabError("PyTorch is not installed in this Python.", f"{REINSTALL[0].upper()}{REINSTALL[1:]}.")
    if tuple(int(part) for part in found.split("+")[0].split(".")[:2]) < OLDEST_TORCH:
        raise LabError(
            f"PyTorch {found} is too old: the workbook needs {oldest} or newer.",
            f"pip install --upgrade 'torch>={oldest}' torchvision",
        )


def memory_bytes() -> int | None:
    """Memory that this process may use: the machine's, or less in a container or under `ulimit -v`, as some schedulers set it.

    None where the system does not tell.
    """
    known = _physical("total"), memory_limit(), _address_space()
    return min((found for found in known if found is not None), default=None)


def memory_gb() -> float | None:
    """The same in GB, for a reader."""
    found = memory_bytes()
    return None if found is None else round(found / 1e9, 1)


def free_memory_bytes(of_programs: bool = False) -> int:
    """Memory that this process may still take: what is available in the machine, or is left of what it may use.

    of_programs  that programs may take which it starts: a limit of addresses is one of each of them
    0 where the system does not tell.
    """
    import psutil

    space = None if of_programs else _address_space()
    known = _physical("available"), memory_left(), space and max(0, space - psutil.Process().memory_info().vms)
    return min((found for found in known if found is not None), default=0)


def _physical(which: str) -> int | None:
    """Bytes of memory in this machine, "total" or "available"; None where the system does not tell."""
    try:
        import psutil

        return getattr(psutil.virtual_memory(), which)
    except Exception:  # psutil is not there, or the files that it reads
        pages = {"total": "SC_PHYS_PAGES", "available": "SC_AVPHYS_PAGES"}[which]
        try:
            return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
        except (AttributeError, ValueError, OSError):  # Windows
            return None


def _address_space() -> int | None:
    """Bytes to which the addresses of this process are limited."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit
    except ImportError:  # Windows
        return None
    limit = getrlimit(RLIMIT_AS)[0]
    return None if limit == RLIM_INFINITY else limit


def driver_and_clocks(uuid: str) -> tuple[str | None, str | None]:
    """NVIDIA's driver and the highest clocks of the GPU `uuid`, as nvidia-smi gives them; None where it does not answer."""
    names = "driver_version,clocks.max.sm,clocks.max.memory"
    command = ["nvidia-smi", f"--id=GPU-{uuid}", f"--query-gpu={names}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
        driver, sm, memory = (cell.strip() for cell in done.stdout.strip().split(","))
    except (OSError, subprocess.TimeoutExpired, ValueError):  # absent, hangs, or does not know this GPU, as a slice by MIG
        return None, None
    return driver, f"{sm} SM, {memory} memory"


@functools.cache
def commit() -> str | None:
    """The commit of this code, with + where it has changed since; None where nobody knows, as in a copy without `.git`."""
    head = git("rev-parse", "--short=12", "HEAD")
    if head is None:
        built = SHIPPED / "commit"  # written by hatch_build.py when the package was built
        return built.read_text(encoding="utf-8").strip() or None if built.is_file() else None
    changed = git("status", "--porcelain", "-uno", "hpml_lab")
    return head + "+" * (changed != "")  # also where git did not answer in time


def version() -> str:
    """The version of this package and its commit, which alone tells two states of it apart: "0.1.0 (commit 1a2b3c4d5e6f)"."""
    made_of, changed = (commit() or "unknown").removesuffix("+"), (commit() or "").endswith("+")
    return f"{__version__} (commit {made_of}{', changed since' if changed else ''})"


def git(*words: str) -> str | None:
    """What `git …` prints in this project's checkout; None where there is none, and where git fails."""
    if not (ROOT / ".git").exists():  # installed, maybe into another project's checkout
        return None
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


@functools.cache
def describe(index: int = 0) -> MachineRecord:
    """Machine and versions as a flat record: what a saved result says about where it ran (no names of users or hosts).

    index  the GPU that is described, where there is one
    """
    import torch

    gpu = torch.cuda.get_device_properties(index) if torch.cuda.is_available() else None
    driver, clocks = driver_and_clocks(gpu.uuid) if gpu else (None, None)
    return {
        "cpu": cpu_name(),
        "cores": cores(),
        "memory_gb": memory_gb(),
        "gpus": torch.cuda.device_count() if gpu else 0,
        "gpu": gpu.name if gpu else None,
        "gpu_memory_gb": round(gpu.total_memory / 1e9, 1) if gpu else None,
        "driver": driver,
        "gpu_clocks": clocks,
        "launch_us": None,  # measured by the experiment that uses the GPU
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "numpy": installed_version("numpy"),
        "commit": commit(),
    }


def label(machine: dict, device: str = "cuda") -> str:
    """One line that names a recorded machine by what a run on `device` used of it: its GPUs, or else its processor."""
    on_gpu = machine["gpu"] and device.startswith("cuda")
    unit = gpus_of(machine) if on_gpu else f"{machine['cpu']}, {machine['cores']} core{'s' if machine['cores'] != 1 else ''}"
    return f"{unit} (torch {machine['torch']})"


def gpus_of(machine: dict) -> str:
    """The GPUs of a recorded machine that has some: "2 × NVIDIA H100". Older records do not count them."""
    count = machine.get("gpus") or 1
    return f"{count} × {machine['gpu']}" if count > 1 else machine["gpu"]
