"""The memories of a machine: the sizes of its caches, and how fast data moves between host and GPU."""

from dataclasses import dataclass
from pathlib import Path

import torch

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.timing.clock import measure
from hpml_lab.tensors.experiments.cpu_vs_gpu.rows import Transfer, times_of

CPU0 = Path("/sys/devices/system/cpu/cpu0/cache")
PAGEABLE, PINNED, BETWEEN = "pageable host to GPU", "pinned host to GPU", "GPU to GPU, one way"
UNITS = {"K": 1 << 10, "M": 1 << 20}


@dataclass
class Cache(Row):
    """One cache; `used` is what all cores that compute have of it together."""

    device: str = column("device")
    name: str = column("cache")
    bytes: int = column("size", "bytes")
    cores: int = column("cores that share it")
    used: int = column("size for the cores used", "bytes")


def caches(device: torch.device, threads: int, folder: Path = CPU0) -> list[Cache]:
    """The data caches of `device`, smallest first; none where the system does not report them (outside Linux)."""
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        return [Cache(str(device), "L2", properties.L2_cache_size, properties.multi_processor_count, properties.L2_cache_size)]
    found = []
    try:
        for index in sorted(folder.glob("index*")):
            kind, level, size, shared = ((index / name).read_text(encoding="utf-8").strip() for name in NAMES)
            if kind != "Instruction":
                found.append((int(level), int(size[:-1]) * UNITS[size[-1]], _count(shared)))
    except (OSError, ValueError, KeyError):
        return []  # a file of another system's form: better no cache than a wrong one
    siblings = min((shared for *_, shared in found), default=1)  # the threads of one core share its first cache
    rows = [(level, size, max(1, shared // siblings)) for level, size, shared in sorted(found)]
    return [Cache("cpu", f"L{level}", size, cores, size * -(-threads // cores)) for level, size, cores in rows]


NAMES = ("type", "level", "size", "shared_cpu_list")


def _count(cpus: str) -> int:
    """How many processors a list such as 0-3,8 names."""
    ends = [part.split("-") for part in cpus.split(",")]
    return sum(int(part[-1]) - int(part[0]) + 1 for part in ends)


def transfers(device: torch.device, mib: int) -> list[Transfer]:
    """Bandwidth between host and GPU, pageable and pinned, both ways, and between two GPUs if there are two."""
    host = torch.ones(mib << 18)
    pinned, on_gpu = host.pin_memory(), host.to(device)
    ways = {
        PAGEABLE: lambda: on_gpu.copy_(host),
        PINNED: lambda: on_gpu.copy_(pinned, non_blocking=True),
        "GPU to pinned host": lambda: pinned.copy_(on_gpu, non_blocking=True),
    }
    if torch.cuda.device_count() > 1:
        other = torch.empty_like(on_gpu, device=f"cuda:{(device.index + 1) % torch.cuda.device_count()}")
        ways[BETWEEN] = lambda: other.copy_(on_gpu, non_blocking=True)
    timings = {way: measure(work, bytes=float(host.nbytes)) for way, work in ways.items()}
    return [Transfer(str(device), *times_of(timing), way, timing.gb_per_s) for way, timing in timings.items()]
