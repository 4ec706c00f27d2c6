"""The caches between a processor and its memory: their sizes, as the system and torch report them."""

from dataclasses import dataclass
from pathlib import Path

import torch

from hpml_lab.core.experiment.findings import Row, column

CPU0 = Path("/sys/devices/system/cpu/cpu0/cache")
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
