"""Samples processors, memory, disk and GPUs while a `with` block runs: `with Monitor(rate=10) as m: train()`.

Each figure of use is a difference of two readings of a counter, so it is the exact average over the time between them. A
thread reads, not a process: a reading takes a fraction of a millisecond, and a second interpreter would cost its start and as
much of a core (`tests/bench_monitor.py` measures both).
"""

import contextlib
import csv
import io
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import IO, Any

import psutil

from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.readers import TABLE, reader, text_of
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.profilers.nvml import MIB, GpuReading, Gpus

# As `nvidia-smi --query-gpu=timestamp,pci.bus_id,utilization.gpu,utilization.memory,… --format=csv` heads its columns.
GPU_COLUMNS = ("pci.bus_id", "utilization.gpu [%]", "utilization.memory [%]", "memory.used [MiB]", "power.draw [W]")
LIVE_SECONDS = 0.5  # between two drawings of the live table
FINISHED = "finished"
TRIES = 3  # to read all processes while none of them ends
NOT_GIVEN = "[N/A]"  # nvidia-smi's word for a figure that a GPU does not give


@dataclass(frozen=True)
class MonitorSample:
    """What was used between the sample before and this one, and what stood at its time.

    at            seconds from the start of the block; `seconds` since the sample before
    cores         % of each core's time in use, by whatever process
    process_cpu   seconds of processor time that the watched process took, all its threads together
    rss, memory   MiB: the watched process's resident memory, and what all processes use
    disk_read, disk_written   bytes of all disks; None where the system does not tell
    """

    timestamp: str
    at: float
    seconds: float
    cores: tuple[float, ...]
    process_cpu: float
    rss: float
    memory: float
    disk_read: int | None
    disk_written: int | None
    gpus: tuple[GpuReading, ...]


@dataclass(frozen=True)
class _Counters:
    """Readings that only grow, taken at one time."""

    at: float
    cores: tuple[tuple[float, float], ...]  # seconds idle, seconds in all
    process_cpu: float
    disk: tuple[int, int] | None

    @classmethod
    def read(cls, process_seconds: Callable[[], float] = time.process_time) -> "_Counters":
        cores = tuple((core.idle + getattr(core, "iowait", 0.0), sum(core[:8])) for core in psutil.cpu_times(percpu=True))
        disk = None
        with contextlib.suppress(NotImplementedError, RuntimeError):  # some sandboxes have no /proc/diskstats
            disk = psutil.disk_io_counters()
        return cls(CLOCK(), cores, process_seconds(), disk and (disk.read_bytes, disk.write_bytes))


class _ProcessTree:
    """A process and everything that it has started: their processor time together, and their memory."""

    def __init__(self, process_id: int) -> None:
        self._root = psutil.Process(process_id)
        self._seconds = self.total = 0.0
        self.rss = 0  # bytes at the last reading; a page that several share counts for each

    def cpu_seconds(self) -> float:
        """What all of them took so far, those included that have ended and were waited for: they were perhaps never seen."""
        for _ in range(TRIES):
            seconds, rss, ended, processes = 0.0, 0, False, []
            with contextlib.suppress(psutil.Error):
                processes = [self._root, *self._root.children(recursive=True)]
            for process in processes:
                try:
                    seconds += sum(process.cpu_times()[:4])  # its own, and its children's once it has waited for them
                    rss += process.memory_info().rss
                except psutil.Error:
                    ended |= not process.is_running()
            if not ended:  # else its time was perhaps read neither with it nor with its parent, and would count twice later
                self.total += max(0.0, seconds - self._seconds)  # the time of one for which nobody waits goes with it
                self._seconds, self.rss = seconds, rss
                break
        return self.total


class Monitor:
    """Samples the machine at `rate` per second while its `with` block runs; the last sample is taken at the block's end.

    rate     samples a second
    live     in a notebook, show the latest sample while the block runs
    process_id  watch this process and all that it starts, from its own start on, instead of the block's process
    path     write each sample to this CSV file when it is taken, so that a killed run leaves all samples but the last
    samples  in order; `rows` is the same as a table
    cost     the sampler's own processor time over the block's time
    note     why no GPU is sampled, or ""
    """

    def __init__(
        self, rate: float = 10.0, live: bool = False, process_id: int | None = None, path: Path | str | None = None
    ) -> None:
        if not rate > 0:
            raise LabError(f"{rate!r} is not a valid rate in samples a second.", "Use a number above 0, such as 10.")
        self.rate, self.samples, self.note, self.seconds = rate, [], "", 0.0
        self._live, self._cpu = live, 0.0
        self._process_id, self._path = process_id, path
        self._tree: _ProcessTree | None = None
        self._file: IO[str] | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Monitor":
        if self._thread is not None or self.samples:
            raise LabError("This monitor has run already.", "Make a new one for each run.")
        if self._path is not None:
            self._file = open(self._path, "w", encoding="utf-8")
        self._gpus = Gpus()
        self.note, self._stop = self._gpus.note, threading.Event()
        if self._process_id is None:
            process = psutil.Process()
            self._cpu_seconds, self._rss = time.process_time, lambda: process.memory_info().rss
        else:
            self._tree = tree = _ProcessTree(self._process_id)
            self._cpu_seconds, self._rss = tree.cpu_seconds, lambda: tree.rss
        self._display = _live_display() if self._live else None
        since_start = self._tree is not None  # what a command took before the monitor looked at it counts as well
        self._start = self._before = _Counters.read((lambda: 0.0) if since_start else self._cpu_seconds)
        self._thread = threading.Thread(target=self._sample_on, name="hpml-monitor", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()
        self._thread = None
        try:
            self._sample()
        finally:
            self._gpus.close()
            if self._file:
                self._file.close()
        self.seconds = self._before.at - self._start.at
        if self._display:
            self._display.update(_picture(self, FINISHED), raw=True)

    def _sample_on(self) -> None:
        began, drawn, period = time.thread_time(), 0.0, 1 / self.rate
        due = self._start.at + period
        while not self._stop.wait(max(0.0, due - CLOCK())):
            self._sample()
            if self._display and CLOCK() - drawn >= LIVE_SECONDS:
                drawn = CLOCK()
                self._display.update(_picture(self, "running"), raw=True)
            due = max(due + period, CLOCK())  # what was missed is not made up for
            self._cpu = time.thread_time() - began

    def _sample(self) -> None:
        now, before = _Counters.read(self._cpu_seconds), self._before
        memory = psutil.virtual_memory()
        read, written = (
            (a - b for a, b in zip(now.disk, before.disk, strict=True)) if now.disk and before.disk else (None, None)
        )
        self.samples.append(
            MonitorSample(
                timestamp=datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
                at=now.at - self._start.at,
                seconds=now.at - before.at,
                cores=tuple(_percent(a, b) for a, b in zip(now.cores, before.cores, strict=True)),
                process_cpu=now.process_cpu - before.process_cpu,
                rss=self._rss() / MIB,
                memory=(memory.total - memory.available) / MIB,
                disk_read=read,
                disk_written=written,
                gpus=self._gpus.read(),
            )
        )
        self._before = now
        if self._file:
            self._file.write(self._text(self.samples[-1], header=len(self.samples) == 1))
            self._file.flush()

    def ended(self, cpu_seconds: float) -> None:
        """The watched process has ended, and took so much, with all that it waited for: the last sample has what is missing."""
        if self._tree is not None:
            self._tree.total = max(self._tree.total, cpu_seconds)

    @property
    def cost(self) -> float:
        return self._cpu / self.seconds if self.seconds else 0.0

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row a sample; with several GPUs one row a GPU and sample, which repeats the figures of the machine.

        The names are nvidia-smi's where it has the figure. Without a GPU its columns hold None.
        """
        return [_row(sample, gpu) for sample in self.samples for gpu in sample.gpus or (None,)]

    def to_csv(self, path: Path | str) -> Path:
        """Write the rows as `nvidia-smi --format=csv` writes them, whole or not at all."""
        text = "".join(self._text(sample, header=number == 0) for number, sample in enumerate(self.samples))
        return atomic_write(Path(path), text)

    @staticmethod
    def _text(sample: MonitorSample, header: bool) -> str:
        """A sample's lines of the CSV file, one a GPU, and before the first the names of the columns."""
        rows = [_row(sample, gpu) for gpu in sample.gpus or (None,)]
        lines = [", ".join(rows[0])] if header else []
        lines += [", ".join(_cell(name, value, bool(row["pci.bus_id"])) for name, value in row.items()) for row in rows]
        return "".join(f"{line}\n" for line in lines)


@reader("a table of Monitor.to_csv or of nvidia-smi", "Write it again by `Monitor.to_csv`.")
def read_csv(path: Path | str) -> list[dict[str, Any]]:
    """The rows of a file of `Monitor.to_csv`, or of nvidia-smi's own: numbers without units, None for what is not given."""
    rows = csv.DictReader(io.StringIO(text_of(path, TABLE), newline=""), skipinitialspace=True)
    return [{name: _value(name, cell) for name, cell in row.items()} for row in rows]


def _row(sample: MonitorSample, gpu: GpuReading | None) -> dict[str, Any]:
    figures = (gpu.bus_id, gpu.utilization, gpu.memory_utilization, gpu.memory_used, gpu.power) if gpu else (None,) * 5
    return {
        "timestamp": sample.timestamp,
        **{name: _rounded(value) for name, value in zip(GPU_COLUMNS, figures, strict=True)},
        "elapsed [s]": round(sample.at, 6),
        **{f"utilization.cpu{number} [%]": round(value, 2) for number, value in enumerate(sample.cores)},
        "process.cpu [s]": round(sample.process_cpu, 6),
        "process.rss [MiB]": _rounded(sample.rss),
        "system.memory [MiB]": _rounded(sample.memory),
        "disk.read [B]": sample.disk_read,
        "disk.written [B]": sample.disk_written,
    }


def _rounded(value: Any) -> Any:
    return round(value, 2) if isinstance(value, float) else value


def _unit(name: str) -> str:
    return name.partition(" [")[2].removesuffix("]")


def _cell(name: str, value: Any, has_gpu: bool) -> str:
    if value is None:
        return NOT_GIVEN if has_gpu and name in GPU_COLUMNS else ""
    return f"{value} {_unit(name)}".rstrip()


def _value(name: str, cell: str) -> Any:
    # Besides [N/A] nvidia-smi writes [Unknown Error] and [Insufficient Permissions], and old ones [Not Supported].
    if not cell or (cell.startswith("[") and cell.endswith("]")):
        return None
    if not _unit(name):
        return cell
    number = cell.removesuffix(f" {_unit(name)}")
    return float(number) if "." in number or "e" in number else int(number)


def _percent(now: tuple[float, float], before: tuple[float, float]) -> float:
    idle, all_ = now[0] - before[0], now[1] - before[1]
    if all_ <= 0:  # less than one tick of the system's clock has passed
        return 0.0
    return 100 * min(1.0, max(0.0, 1 - idle / all_))


# ---- live -----------------------------------------------------------------------------------------------------------------


def _live_display() -> Any:
    """A display in the running notebook that can be updated from the thread, or None elsewhere."""
    from IPython import get_ipython
    from IPython.display import display

    if get_ipython() is None:
        return None
    return display(_bundle("<p>Monitor: starts</p>"), raw=True, display_id=True)


def _bundle(html: str) -> dict[str, str]:
    # The text that a notebook stores is the same on every machine; what was measured stands in the table.
    return {"text/plain": "Monitor: its live table", "text/html": html}


def _mean_cores(samples: list[MonitorSample]) -> list[float]:
    """Use of each core over all samples in %, each sample weighted with its seconds."""
    seconds = sum(sample.seconds for sample in samples) or 1.0
    return [sum(use) / seconds for use in zip(*([s.seconds * c for c in s.cores] for s in samples), strict=True)]


def _picture(monitor: Monitor, state: str) -> dict[str, str]:
    """The last sample while the block runs; at its end, when a last sample may cover a few milliseconds, the whole run."""
    last, finished = monitor.samples[-1], state == FINISHED
    samples = monitor.samples if finished else [last]
    lines = [(f"core {number}", value) for number, value in enumerate(_mean_cores(samples))]
    for number in range(len(last.gpus)):
        known = [use for sample in samples if (use := sample.gpus[number].utilization) is not None]
        if known:
            lines.append((f"GPU {number}", mean(known)))
    rows = "".join(
        f"<tr><td>{name}</td><td><div style='width:{value * 1.5:.0f}px;height:0.8em;background:{style.BLUE}'></div></td>"
        f"<td>{value:.0f} %</td></tr>"
        for name, value in lines
    )
    disk = ""
    if last.disk_read is not None:
        read, written = (sum(getattr(sample, name) or 0 for sample in samples) for name in ("disk_read", "disk_written"))
        disk = f", disk {read / 1e6:.1f} MB read, {written / 1e6:.1f} MB written"
    averages = ", averages over the run" if finished else ""
    return _bundle(
        f"<p>Monitor, {state}{averages}: {last.at:.1f} s, {len(monitor.samples)} samples; this process {last.rss:.0f} MiB, "
        f"all {last.memory:.0f} MiB{disk}</p><table>{rows}</table>"
    )
