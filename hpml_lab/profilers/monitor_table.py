"""The samples of a monitor as a table, in the columns of `nvidia-smi --format=csv` and some more, written as they are taken.

timestamp, pci.bus_id, utilization.gpu [%], utilization.memory [%], memory.used [MiB], power.draw [W]   as of nvidia-smi
elapsed [s]                      from the start of the block
utilization.cpu0 [%], …          of each core, since the sample before
process.cpu [s], process.rss [MiB]        processor time of the watched process since the sample before, and its memory
system.memory [MiB]              what all processes use
disk.read [B], disk.written [B]  of all disks, since the sample before
gpu.energy [J], cpu.energy [J]   what this GPU (NVML) and all CPU packages (RAPL) used since the sample before, for
                                 whatever program; empty or [N/A] where there is no reading, which is not 0
"""

import contextlib
import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.readers import TABLE, reader, text_of
from hpml_lab.profilers.nvml import GpuReading

if TYPE_CHECKING:
    from hpml_lab.profilers.monitor import MonitorSample

# As `nvidia-smi --query-gpu=timestamp,pci.bus_id,utilization.gpu,utilization.memory,… --format=csv` heads its columns.
GPU_COLUMNS = ("pci.bus_id", "utilization.gpu [%]", "utilization.memory [%]", "memory.used [MiB]", "power.draw [W]")
GPU_ENERGY = "gpu.energy [J]"
NOT_GIVEN = "[N/A]"  # nvidia-smi's word for a figure that a GPU does not give


class SampleFile:
    """A CSV file that grows by each sample, so that a killed run leaves all but the last.

    Where a line cannot be written the rest is kept in memory by the caller, and `close` tries to write all of it once more.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._error = path, None
        self._file: IO[str] | None = None
        try:
            self.path = path.absolute()  # the folder may be another one at the end
            self._file = open(path, "w", encoding="utf-8")
        except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
            self._error: Exception | None = error

    def add(self, sample: "MonitorSample", first: bool) -> None:
        if self._file is not None:
            try:
                self._file.write(sample_text(sample, header=first))
                self._file.flush()
            except (OSError, ValueError) as error:
                self._error = error
                self._drop()

    def close(self, samples: "Sequence[MonitorSample]") -> None:
        """Raises what kept the file from being whole."""
        self._drop()
        if self._error is None and self.path.exists():
            return
        if self.path.exists() and not self.path.is_file():  # a device or a pipe has had its lines
            raise self._error
        write_table(samples, self.path)

    def _drop(self) -> None:
        with contextlib.suppress(OSError):  # it tries to write what it has not written
            if self._file is not None:
                self._file.close()
        self._file = None


def write_table(samples: "Sequence[MonitorSample]", path: Path) -> Path:
    """Write all samples, whole or not at all."""
    return atomic_write(path, "".join(sample_text(sample, header=number == 0) for number, sample in enumerate(samples)))


def sample_text(sample: "MonitorSample", header: bool) -> str:
    """A sample's lines of the CSV file, one a GPU, and before the first the names of the columns."""
    rows = [row_of(sample, gpu) for gpu in sample.gpus or (None,)]
    lines = [", ".join(rows[0])] if header else []
    lines += [", ".join(_cell(name, value, bool(row["pci.bus_id"])) for name, value in row.items()) for row in rows]
    return "".join(f"{line}\n" for line in lines)


@reader(
    "a monitor's table", "Name a CSV file of Monitor, `hpml-lab monitor`, or `nvidia-smi --query-gpu=timestamp,… --format=csv`."
)
def read_csv(path: Path | str) -> list[dict[str, Any]]:
    """The rows of a file of `Monitor.to_csv`, or of nvidia-smi's own: numbers without units, None for what is not given.

    A last line that was not written to its end is left out. Raises LabError where the file is no such table.
    """
    lines = [line for line in io.StringIO(text_of(path, TABLE), newline="") if line.strip()]
    rows = [*csv.reader(lines, skipinitialspace=True, strict=True)]
    names = rows[0] if rows else []
    if "timestamp" not in names:
        raise ValueError("its first line does not name a column timestamp")
    if len(rows[-1]) < len(names) and not lines[-1].endswith("\n"):
        rows.pop()
    found: list[dict[str, Any]] = []
    for number, row in enumerate(rows[1:], 2):
        try:
            found.append({name: _value(name, cell) for name, cell in zip(names, row, strict=True)})
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from error
    return found


def row_of(sample: "MonitorSample", gpu: GpuReading | None) -> dict[str, Any]:
    figures = (gpu.bus_id, gpu.utilization, gpu.memory_utilization, gpu.memory_used, gpu.power) if gpu else (None,) * 5
    return {
        "timestamp": sample.timestamp,
        **{name: _rounded(value) for name, value in zip(GPU_COLUMNS, figures, strict=True)},
        "elapsed [s]": round(sample.at, 6),
        **{f"utilization.cpu{number} [%]": _rounded(value) for number, value in enumerate(sample.cores)},
        "process.cpu [s]": None if sample.process_cpu is None else round(sample.process_cpu, 6),
        "process.rss [MiB]": _rounded(sample.rss),
        "system.memory [MiB]": _rounded(sample.memory),
        "disk.read [B]": sample.disk_read,
        "disk.written [B]": sample.disk_written,
        GPU_ENERGY: None if gpu is None or gpu.energy is None else round(gpu.energy, 6),
        "cpu.energy [J]": None if sample.cpu_energy is None else round(sample.cpu_energy, 6),
    }


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


def _unit(name: str) -> str:
    return name.partition(" [")[2].removesuffix("]")


def _cell(name: str, value: Any, has_gpu: bool) -> str:
    if value is None:
        return NOT_GIVEN if has_gpu and name in (*GPU_COLUMNS, GPU_ENERGY) else ""
    return f"{value} {_unit(name)}".rstrip()


def _value(name: str, cell: str) -> Any:
    # Besides [N/A] nvidia-smi writes [Unknown Error] and [Insufficient Permissions], and old ones [Not Supported].
    if not cell or (cell.startswith("[") and cell.endswith("]")):
        return None
    if not _unit(name):
        return cell
    number = cell.removesuffix(f" {_unit(name)}")
    return float(number) if "." in number or "e" in number else int(number)
