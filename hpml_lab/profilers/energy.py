"""Joules that processors have used, from the counters of the system: RAPL of a CPU's packages; NVML's are in `nvml.py`.

RAPL counts µJ, NVML mJ; here all is J. A counter that cannot be read gives None, never 0: a machine that says nothing of its
energy has not used none (codecarbon#1316). Since 2020 only root may read RAPL on most systems, and virtual machines have none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hpml_lab.profilers.beside import cause_of

if TYPE_CHECKING:
    from hpml_lab.profilers.monitor import MonitorSample

POWERCAP = Path("/sys/class/powercap")  # Linux's; it knows AMD's packages under Intel's name, too
MICRO = 1e-6


@dataclass
class _Package:
    """One CPU's counter, which begins at 0 again after `span` µJ, and what it has counted since it was first read."""

    file: Path
    span: int
    last: int
    total: int = 0


class CpuEnergy:
    """All packages of the machine: their cores, caches and memory controllers, whichever program uses them.

    note  why there is no reading, or ""
    """

    def __init__(self, folder: Path = POWERCAP) -> None:
        self.note, self._packages = "", list[_Package]()
        try:
            # Not their parts, intel-rapl:0:1, nor psys, the whole system, nor intel-rapl-mmio:0, a package once more.
            zones = [zone for zone in sorted(folder.glob("intel-rapl:[0-9]*")) if zone.name.count(":") == 1]
            zones = [zone for zone in zones if _text(zone / "name").startswith("package")]
            for zone in zones:
                span, now = int(_text(zone / "max_energy_range_uj")), int(_text(zone / "energy_uj"))
                self._packages.append(_Package(zone / "energy_uj", span, now))
        except (OSError, ValueError) as error:  # without its span a counter that wraps could go backwards (codecarbon#1309)
            self._packages.clear()
            self.note = f"The CPU's energy is not read: {cause_of(error)}."
        if not self._packages and not self.note:
            self.note = "The CPU's energy is not read: the system has no RAPL counter of a package."

    def joules(self) -> float | None:
        """J of all packages since this object was made, None where one of them gives no reading.

        Call it at least once a minute: a counter may wrap in little more at full load, and a second wrap is not seen.
        """
        try:
            readings = [int(_text(package.file)) for package in self._packages]
        except (OSError, ValueError):
            return None
        for package, now in zip(self._packages, readings, strict=True):
            package.total += now - package.last + (package.span if now < package.last else 0)
            package.last = now
        return MICRO * sum(package.total for package in self._packages) if self._packages else None


def moved_joules(now: float | None, before: float | None) -> float | None:
    """What was used between two readings that only grow; None where one is not given, or where the counter was set back."""
    return None if now is None or before is None or now < before else now - before


def used_joules(samples: Sequence["MonitorSample"]) -> tuple[float | None, float | None]:
    """(J of the CPUs, J of all GPUs) over a monitored run; None where a counter gave no reading at its begin or its end."""
    cpu = [sample.cpu_energy for sample in samples]
    gpus = [[sample.gpus[number].energy for sample in samples] for number in range(len(samples[0].gpus) if samples else 0)]
    each = [_sum(column) for column in gpus]
    return _sum(cpu), None if None in each or not each else sum(each)


def _sum(column: list[float | None]) -> float | None:
    """What is missing in between is in the next difference."""
    known = [joules for joules in column if joules is not None]
    return None if not column or None in (column[0], column[-1]) else sum(known)


def _text(path: Path) -> str:
    return path.read_text(encoding="ascii").strip()
