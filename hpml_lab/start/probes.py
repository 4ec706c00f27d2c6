"""The doctor's probes: small functions that each look at one thing and return a Finding.

`uses` of an experiment names findings. Nothing here imports torch: what needs it runs in a process of its own
(`torch_probe.py`), so the probes work where torch is missing, old or broken. No finding holds a path of this machine, because
reports are stored in notebooks.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpml_lab.core import machine
from hpml_lab.core.paths import ROOT

OK, LIMITED, MISSING = "ok", "limited", "missing"
ANSWER_SECONDS = 300  # torch takes a minute to load from a cold disk
PYTHONS = ((3, 11), (3, 13))  # oldest and newest that the workbook is tested with
PARTNERS = {"2.11": "0.26", "2.12": "0.27", "2.13": "0.28", "2.14": "0.29", "2.15": "0.29"}  # torch: torchvision
DALI = ("nvidia-dali-cuda130", "nvidia-dali-cuda120")
REMAKE = "run `make lab` in the project's folder"
CUDA_BUILD = "install a CUDA build of torch: https://docs.pytorch.org has the commands"
NO_GPU = "The notebooks run on the CPU at quick size and show recorded GPU runs beside them."

Told = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Finding:
    """What a probe found.

    state  ok, limited (it works, but shows or holds less), or missing
    value  the fact, short
    means  what follows from it for the reader
    mend   one line that mends it; empty where there is nothing to mend
    """

    name: str
    state: str
    value: str
    means: str = ""
    fix: str = ""


# ---- asking ----------------------------------------------------------------------------------------------------------------


def ask(device: str | None = None) -> Told:
    """What `torch_probe.py` and nvidia-smi tell, {step: facts}; a step that failed has "error".

    device  the one that was asked for; None where the workbook chooses
    """
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))}
    if device is not None:
        environment["HPML_DEVICE"] = device
    # Two processes side by side: torchvision's import takes as long as all the rest.
    groups = (["torch", "device", "experiments", "mnist"], ["torchvision"])
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "hpml_lab.start.torch_probe", *steps],
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for steps in groups
    ]
    told: Told = {}
    for steps, process in zip(groups, running, strict=True):
        try:
            said, _ = process.communicate(timeout=ANSWER_SECONDS)
            end = f"the Python that tried it ended with status {process.returncode}"
        except subprocess.TimeoutExpired:
            process.kill()
            said, _ = process.communicate()
            end = f"no answer within {ANSWER_SECONDS} s"
        for line in said.splitlines():
            if line.startswith('{"step"'):
                told |= {(facts := json.loads(line)).pop("step"): facts}
        for step in steps:
            told.setdefault(step, {"error": end})
    told["nvidia-smi"] = {"gpus": _nvidia_smi()}
    return told


def run(command: list[str], seconds: float = 20) -> str | None:
    """What a tool prints (stdout, else stderr), or None where it is absent, fails or hangs.

    It is looked for on PATH and beside this Python, which is not on PATH when Jupyter was started by `make lab`.
    """
    found = shutil.which(command[0]) or shutil.which(command[0], path=str(Path(sys.executable).parent))
    if found is None:
        return None
    try:
        done = subprocess.run([found, *command[1:]], capture_output=True, text=True, timeout=seconds, errors="replace")
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout.strip() or done.stderr.strip()) if done.returncode == 0 else None


def _nvidia_smi() -> list[dict[str, str]] | None:
    """Name, memory in MiB, compute capability and driver of each GPU that the driver sees; None without a working driver."""
    names = ("name", "memory.total", "compute_cap", "driver_version")
    said = run(["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader,nounits"])
    if said is None:
        return None
    cells = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    return [dict(zip(names, row, strict=True)) for row in cells if len(row) == len(names)]


def gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.1f} GB" if amount >= 1e9 else f"{amount / 1e6:.0f} MB"


# ---- the probes, in the order in which they are shown -----------------------------------------------------------------------


def python(told: Told) -> Finding:
    """The interpreter: too old stops everything, too new is untested."""
    version, (oldest, newest) = sys.version_info[:2], PYTHONS
    span = f"{oldest[0]}.{oldest[1]} to {newest[0]}.{newest[1]}"
    mend = f"install Python {newest[0]}.{newest[1]}, then run `make lab PYTHON=python{newest[0]}.{newest[1]}`"
    if version < oldest:
        return Finding("python", MISSING, platform.python_version(), f"The workbook needs Python {span}.", mend)
    if version > newest:
        return Finding("python", LIMITED, platform.python_version(), f"The workbook was tested with {span} only.", mend)
    return Finding("python", OK, platform.python_version())


def torch(told: Told) -> Finding:
    """PyTorch: installed, new enough, and it loads."""
    facts = told["torch"]
    if "error" in facts:
        version = machine.installed_version("torch")
        value = f"{version} does not work" if version else "not installed"
        mend = facts.get("fix") or f"{REMAKE}: it installs a torch that works"
        return Finding("torch", MISSING, value, facts["error"], mend)
    build = f"A CUDA {facts['cuda']} build." if facts["cuda"] else "A build without CUDA."
    return Finding("torch", OK, facts["version"], build)


def torchvision(told: Told) -> Finding:
    """torchvision beside this torch: `operator torchvision::nms does not exist` means that the two do not fit."""
    facts, version = told["torchvision"], machine.installed_version("torchvision")
    if "error" not in facts:
        return Finding("torchvision", OK, facts["version"], "Its compiled operators run with this torch.")
    if version is None:
        return Finding("torchvision", MISSING, "not installed", "", _partner())
    if "torchvision::nms" in facts["error"]:
        value = f"{version} does not fit torch {machine.installed_version('torch')}"
        return Finding("torchvision", MISSING, value, f"It was built for another torch ({facts['error']}).", _partner())
    return Finding("torchvision", MISSING, f"{version} does not work", facts["error"], _partner())


def _partner() -> str:
    """The command that installs the installed torch again together with its torchvision, so that both come from one place."""
    installed = machine.installed_version("torch")
    if installed is None:
        return REMAKE
    version = ".".join(installed.split(".")[:2])
    if version not in PARTNERS:
        return f"{REMAKE}: it installs a torch and a torchvision that fit"
    return f"pip install --force-reinstall 'torch=={version}.*' 'torchvision=={PARTNERS[version]}.*'"


def packages(told: Told) -> Finding:
    """The other packages that pyproject.toml asks for, by name and lower bound."""
    from importlib.metadata import PackageNotFoundError, requires

    try:
        wanted = requires("hpml-lab") or []
    except PackageNotFoundError:
        return Finding("packages", LIMITED, "hpml-lab is not installed in this Python", "It runs from its folder.", REMAKE)
    absent = []
    for line in wanted:
        name, bound = re.match(r"([\w.-]+)[^>=]*(?:>=([\d.]+))?", line).groups()
        found = machine.installed_version(name)
        if name in ("torch", "torchvision") or "extra ==" in line:
            continue
        if found is None or bound and _numbers(found) < _numbers(bound):
            absent.append(f"{name} {found or ''}".strip())
    if absent:
        return Finding("packages", LIMITED, f"absent or too old: {', '.join(absent)}", "Some cells will not run.", REMAKE)
    return Finding("packages", OK, "all that pyproject.toml asks for")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:3])


def workbook(told: Told) -> Finding:
    """The workbook itself: all experiments can be imported."""
    facts = told["experiments"]
    if "error" in facts:
        mend = "mend torch first" if "error" in told["torch"] else REMAKE
        return Finding("workbook", MISSING, "its experiments do not load", facts["error"], mend)
    return Finding("workbook", OK, f"{len(facts['all'])} experiments load")


def driver(told: Told) -> Finding:
    """NVIDIA's driver, as nvidia-smi tells it."""
    seen = told["nvidia-smi"]["gpus"]
    if seen:
        return Finding("driver", OK, f"{seen[0]['driver_version']} ({len(seen)} GPU{'s' * (len(seen) > 1)})")
    if told["torch"].get("gpus"):
        return Finding(
            "driver",
            LIMITED,
            "torch sees a GPU, but nvidia-smi does not answer",
            "GPU use over time cannot be sampled.",
            "put nvidia-smi on PATH; in Docker: -e NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        )
    if shutil.which("nvidia-smi"):
        return Finding(
            "driver",
            MISSING,
            "nvidia-smi is here but does not answer",
            "The driver is not loaded or does not fit.",
            "restart the machine, or install NVIDIA's driver again",
        )
    return Finding(
        "driver",
        MISSING,
        "no nvidia-smi",
        "",
        "where there is an NVIDIA GPU: install its driver; in Docker: docker run --gpus all",
    )


def cuda(told: Told) -> Finding:
    """GPUs that torch can compute on; where the driver sees one and torch does not, why."""
    facts, seen = told["torch"], told["nvidia-smi"]["gpus"] or []
    gpus = facts.get("gpus") or []
    value = "; ".join(f"{gpu['name']}, {gpu['memory_gb']} GB, compute capability {gpu['capability']}" for gpu in gpus)
    if gpus and not facts["why"]:
        return Finding("cuda", OK, value)
    if gpus:
        return Finding(
            "cuda",
            MISSING,
            f"{value}: not usable by this torch",
            facts["why"],
            "install a torch that was built for this GPU: https://docs.pytorch.org has the commands",
        )
    if not seen:
        return Finding(
            "cuda",
            MISSING,
            "no GPU that torch can use",
            NO_GPU,
            "use a machine with an NVIDIA GPU; in Docker: docker run --gpus all",
        )
    value = "; ".join(f"{gpu['name']}, {gpu['memory.total']} MiB, compute capability {gpu['compute_cap']}" for gpu in seen)
    if "error" in facts:
        return Finding("cuda", MISSING, value, "torch itself does not work here.", "mend torch first")
    if not facts["cuda"]:
        return Finding("cuda", MISSING, f"{value}: torch is a build without CUDA", NO_GPU, CUDA_BUILD)
    if "CUDA_VISIBLE_DEVICES" in os.environ and "No CUDA GPUs" in facts["why"]:
        return Finding(
            "cuda", MISSING, f"{value}: hidden from torch", "CUDA_VISIBLE_DEVICES is set.", "unset CUDA_VISIBLE_DEVICES"
        )
    mend = f"update the driver ({seen[0]['driver_version']}) to one for CUDA {facts['cuda']}"
    return Finding("cuda", MISSING, f"{value}: not usable by torch", facts["why"], mend)


def cudnn(told: Told) -> Finding:
    """NVIDIA's library of convolutions, which comes with torch's CUDA builds."""
    version = told["torch"].get("cudnn")
    if version is None:
        return Finding("cudnn", MISSING, "not part of this torch", "", CUDA_BUILD)
    value = f"{version // 10_000}.{version // 100 % 100}.{version % 100}"
    return (
        Finding("cudnn", OK, value)
        if told["torch"]["gpus"]
        else Finding("cudnn", LIMITED, value, "Installed, but unused without a GPU.")
    )


def device(told: Told) -> Finding:
    """The device and the dtype that experiments take here, with the reasons."""
    facts = told["device"]
    if "error" in facts:
        return Finding("device", MISSING, "none could be chosen", facts["error"], facts.get("fix") or "mend torch first")
    return Finding(
        "device",
        OK,
        f"{facts['device']}, mixed precision in {facts['dtype']}",
        f"{facts['device']}: {facts['reason']}. {facts['dtype']}: {facts['dtype_reason']}.",
    )


def cores(told: Told) -> Finding:
    """Cores that this process may use."""
    mine, all_of_them = machine.cores(), os.cpu_count() or 1
    value = f"{mine}, {machine.cpu_name()}" + (f" ({all_of_them} in the machine)" if mine < all_of_them else "")
    if mine == 1:
        return Finding(
            "cores",
            LIMITED,
            value,
            "Processes and threads take turns on it: nothing gains from a second one.",
            "allow this process more cores (taskset, docker run --cpus)",
        )
    return Finding("cores", OK, value)


def memory(told: Told) -> Finding:
    """Memory of the machine, or of the container where that is less."""
    total = _memory_bytes()
    if total is None:
        return Finding("memory", LIMITED, "unknown", "This system does not tell it without psutil.", "pip install psutil")
    if total < 4e9:
        return Finding(
            "memory",
            LIMITED,
            gigabytes(total),
            "Full sizes may not fit.",
            "close other programs, or give the container more (docker run --memory)",
        )
    return Finding("memory", OK, gigabytes(total))


def _memory_bytes() -> int | None:
    known = []
    try:
        known.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, ValueError, OSError):  # not on Windows
        try:
            import psutil

            known.append(psutil.virtual_memory().total)
        except ImportError:
            pass
    try:
        known.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))  # "max" where a container has no limit
    except (OSError, ValueError):
        pass
    return min(known, default=None)


def shm(told: Told) -> Finding:
    """Shared memory, where tensors lie that processes hand to each other. Docker gives 64 MB."""
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        return Finding(
            "shm",
            LIMITED,
            "no /dev/shm",
            "Processes share tensors by other means here, which cannot be looked at.",
            "use Linux for the notebook on shared memory",
        )
    value = f"{gigabytes(usage.free)} free of {gigabytes(usage.total)}"
    if usage.free < 1e9:
        return Finding(
            "shm",
            LIMITED,
            value,
            "Loader workers may die with a bus error when it is full.",
            "docker run --shm-size=2g, or remove old files from /dev/shm",
        )
    return Finding("shm", OK, value)


def disk(told: Told) -> Finding:
    """Free space where the project lies."""
    free = shutil.disk_usage(ROOT).free
    if free < 2e9:
        return Finding("disk", LIMITED, f"{gigabytes(free)} free", "Downloads may not fit.", "free some space")
    return Finding("disk", OK, f"{gigabytes(free)} free")


def compiler(told: Told) -> Finding:
    """The C++ compiler that torch.compile calls: $CXX, else g++ (clang++ on macOS)."""
    name = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    said = run([*name.split(), "--version"])
    if said is None:
        return Finding(
            "compiler",
            MISSING,
            "no working C++ compiler",
            "torch.compile cannot build its kernels.",
            "Debian, Ubuntu: sudo apt-get install g++; macOS: xcode-select --install; conda install cxx-compiler",
        )
    return Finding("compiler", OK, f"{Path(name.split()[0]).name} {_version_in(said)}")


def graphviz(told: Told) -> Finding:
    """The system's graph layout; without it the workbook draws graphs with its own."""
    less = "Graphs are drawn with the workbook's own, plainer layout."
    return _tool("graphviz", ["dot", "-V"], "no `dot`", less, _packaged("graphviz"))


def fio(told: Told) -> Finding:
    """The disk benchmark that the workbook's own is judged by."""
    return _tool("fio", ["fio", "--version"], "not installed", "The disk is measured without its judge.", _packaged("fio"))


def py_spy(told: Told) -> Finding:
    """The sampling profiler that attaches to a running Python."""
    less = "A running process cannot be profiled."
    return _tool("py-spy", ["py-spy", "--version"], "not installed", less, REMAKE)


def perf(told: Told) -> Finding:
    """Linux's reader of the processor's counters."""
    mend = "Debian: sudo apt-get install linux-perf; Ubuntu: sudo apt-get install linux-tools-generic"
    return _tool("perf", ["perf", "--version"], "not installed", "The processor's counters are not read.", mend)


def nsys(told: Told) -> Finding:
    """NVIDIA Nsight Systems, which draws the timeline of CPU and GPU."""
    mend = "install Nsight Systems from https://developer.nvidia.com/nsight-systems"
    return _tool("nsys", ["nsys", "--version"], "not installed", "torch.profiler draws the timelines instead.", mend)


def dali(told: Told) -> Finding:
    """NVIDIA's data loading library."""
    found = [f"{version} ({name})" for name in DALI if (version := machine.installed_version(name))]
    if found:
        return Finding("dali", OK, found[0])
    return Finding(
        "dali",
        MISSING,
        "not installed",
        "Its pipelines are left out of the comparison of loaders.",
        f"on Linux: pip install {DALI[0]}",
    )


def mnist(told: Told) -> Finding:
    """The real MNIST, which some experiments take at full size; digits, which ship, need nothing."""
    facts = told["mnist"]
    if "error" in facts:
        return Finding("mnist", MISSING, "could not be looked for", facts["error"], "mend torch first")
    if not facts["present"]:
        return Finding(
            "mnist",
            MISSING,
            "not here",
            "The small digits of scikit-learn are used in its place.",
            "hpml-lab data fetch mnist (11 MB), or set HPML_DATA to a folder that has MNIST/raw",
        )
    if facts["damaged"]:
        return Finding(
            "mnist",
            MISSING,
            f"damaged: {', '.join(facts['damaged'])}",
            "It will not be used.",
            "hpml-lab data fetch mnist: it replaces what is damaged",
        )
    return Finding("mnist", OK, "70 000 images, checked")


def _tool(name: str, asked: list[str], absent: str, less: str, fix: str) -> Finding:
    """A program that tells its version, or what is less without it."""
    said = run(asked)
    return Finding(name, OK, _version_in(said)) if said else Finding(name, MISSING, absent, less, mend)


def _packaged(name: str) -> str:
    return f"Debian, Ubuntu: sudo apt-get install {name}; macOS: brew install {name}; conda install {name}"


def _version_in(said: str) -> str:
    found = re.search(r"\d+(\.\d+)+", said)
    return found[0] if found else said.splitlines()[0][:40]


PROBES: tuple[Callable[[Told], Finding], ...] = (
    python,
    torch,
    torchvision,
    packages,
    workbook,
    driver,
    cuda,
    cudnn,
    device,
    cores,
    memory,
    shm,
    disk,
    compiler,
    graphviz,
    fio,
    py_spy,
    perf,
    nsys,
    dali,
    mnist,
)
