"""Settings of the platform that change what is measured on it: what each costs, and the command that sets it."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system import machine
from hpml_lab.start.tools.asking import run_tool

SYSTEM = Path("/sys/devices/system")
HIDDEN, NO_GPU = "not shown here (as in many virtual machines)", "no NVIDIA GPU that nvidia-smi sees"


@dataclass
class PlatformSetting(Row):
    """One setting: what it is here, what it costs, and the command that sets it, or shows more."""

    name: str = column("setting")
    found: str = column("here")
    costs: str = column("what it costs")
    command: str = column("command")


# (name, what nvidia-smi says in its own names, cost, command)
OF_GPU = (
    (
        "GPU clock",
        "{clocks.sm} of {clocks.max.sm} MHz now",
        "it moves with heat and load, and so do times; locked, it is lower and steady",
        "sudo nvidia-smi -lgc MHZ; back: sudo nvidia-smi -rgc",
    ),
    (
        "GPU power limit",
        "{power.limit} W, by default {power.default_limit} W",
        "below the default, long kernels run at a lower clock",
        "sudo nvidia-smi -pl WATTS",
    ),
    (
        "GPU persistence",
        "{persistence_mode}",
        "disabled, the driver unloads between programs: the first CUDA call takes seconds",
        "sudo nvidia-smi -pm 1",
    ),
    (
        "PCIe link",
        "generation {pcie.link.gen.current} of {pcie.link.gen.max}, "
        "{pcie.link.width.current} of {pcie.link.width.max} lanes now",
        "half the lanes, or a generation less, halve the rate of copies; an idle GPU shows a lower generation",
        "another slot, or the firmware's settings",
    ),
)
QUERY = [name for _, text, *_ in OF_GPU for name in (part.partition("}")[0] for part in text.split("{")[1:])]


def platform_settings(system: Path = SYSTEM) -> list[PlatformSetting]:
    """The settings of the processor and of the first GPU, as /sys and nvidia-smi show them; what they hide is said."""
    return [*_of_processor(system), *_of_gpu()]


def _of_processor(system: Path) -> Iterator[PlatformSetting]:
    costs = "under any but `performance` the clock rises only after work has begun: short runs are slow, and times scatter"
    governor = _read(system / "cpu/cpu0/cpufreq/scaling_governor") or HIDDEN
    yield PlatformSetting("CPU governor", governor, costs, "sudo cpupower frequency-set -g performance")
    costs = "with several, memory of another node is slower: keep a process, its memory and its GPU on one"
    nodes = len(list((system / "node").glob("node[0-9]*")))
    yield PlatformSetting("NUMA nodes", str(nodes or HIDDEN), costs, "numactl --cpunodebind=0 --membind=0 COMMAND")
    costs = "on, two threads share a core's units: twice the threads are not twice the FLOP/s"
    smt = {"1": "on", "0": "off"}.get(_read(system / "cpu/smt/active"), HIDDEN)
    found = f"{smt}; this process may use {machine.cores()} logical cores"
    yield PlatformSetting("SMT", found, costs, f"echo off | sudo tee {SYSTEM}/cpu/smt/control")


def _of_gpu() -> Iterator[PlatformSetting]:
    said = run_tool(["nvidia-smi", f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits"])
    cells = [cell.strip() for cell in said.splitlines()[0].split(",")] if said else []
    for name, text, costs, command in OF_GPU:
        found = text if len(cells) == len(QUERY) else NO_GPU
        for field, value in zip(QUERY, cells, strict=False):
            found = found.replace(f"{{{field}}}", "(not shown)" if value.startswith("[") else value)
        yield PlatformSetting(name, found, costs, command)
    matrix = run_tool(["nvidia-smi", "topo", "-m"]) or ""
    rows = [cells for cells in map(str.split, matrix.splitlines()) if cells[:1] and cells[0].startswith("GPU") and "X" in cells]
    links = ", ".join(sorted({cell for row in rows for cell in row[1 : len(rows) + 1]} - {"X"}))
    found = f"{len(rows)} GPUs, {links}" if links else "one GPU" if rows else NO_GPU
    costs = "NV# is NVLink, PIX to PHB are PCIe, SYS crosses between processors and is the slowest"
    yield PlatformSetting("GPU topology", found, costs, "nvidia-smi topo -m; CUDA_VISIBLE_DEVICES=0,1 chooses a pair")


def _read(path: Path) -> str:
    """What a file of /sys holds; "" where it is not there or not readable."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""
