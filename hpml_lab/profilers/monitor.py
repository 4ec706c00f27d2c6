"""Samples processors, memory, disk and GPUs while a `with` block runs: `with Monitor(rate=10) as m: train()`.

Each figure of use is a difference of two readings of a counter, so it is the exact average over the time between them. A
thread reads, not a process: a reading takes a fraction of a millisecond, and a second interpreter would cost its start and as
much of a core (`tests/bench_monitor.py` measures both).
"""

import contextlib
import functools
import os
import threading
import time
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from statistics import mean
from typing import Any

import psutil

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.profilers.beside import Notes
from hpml_lab.profilers.energy import CpuEnergy, moved_joules
from hpml_lab.profilers.monitor_table import SampleFile, row_of, write_table
from hpml_lab.profilers.nvml import MIB, GpuReading, Gpus

LIVE_SECONDS = 0.5  # between two drawings of the live table
FINISHED = "finished"
TRIES = 3  # to read all processes while none of them ends
END_SECONDS = 30.0  # that the last sample may take: a driver may hang, and the block's end must not


@dataclass(frozen=True)
class MonitorSample:
    """What was used between the sample before and this one, and what stood at its time; None where the system does not say.

    at            seconds from the start of the block; `seconds` since the sample before
    cores         % of each core's time in use, by whatever process
    process_cpu   seconds of processor time that the watched process took, all its threads together
    rss, memory   MiB: the watched process's resident memory, and what all processes use
    disk_read, disk_written   bytes of all disks
    gpus          as NVML gives them, but for their energy: J since the sample before
    cpu_energy    J of all CPU packages since the sample before
    """

    timestamp: str
    at: float
    seconds: float
    cores: tuple[float | None, ...]
    process_cpu: float | None
    rss: float | None
    memory: float | None
    disk_read: int | None
    disk_written: int | None
    gpus: tuple[GpuReading, ...]
    cpu_energy: float | None = None


@dataclass(frozen=True)
class _Counters:
    """Readings that only grow, taken at one time; None stands for one that is not given."""

    at: float
    cores: tuple[tuple[float, float], ...] | None  # seconds idle, seconds in all
    process_cpu: float | None
    disk: tuple[int, int] | None
    cpu_energy: float | None

    def filled(self, before: "_Counters") -> "_Counters":
        """With the earlier reading for one that is not given: the next difference has it all."""
        known = {name: value for name, value in vars(self).items() if value is not None}
        return replace(before, **known)


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
    path     write each sample of the last block to this CSV file when it is taken: a killed run leaves all but the last
    samples  in order; `rows` is the same as a table
    cost     the sampler's own processor time over the block's time
    note     why no GPU is sampled, and what else could not be read or written, or "": the block never learns of it
    written  whether the file at `path` has all the samples
    """

    def __init__(
        self, rate: float = 10.0, live: bool = False, process_id: int | None = None, path: Path | str | None = None
    ) -> None:
        if not (isinstance(rate, (int, float)) and 0 < rate < float("inf")):
            raise LabError(f"{rate!r} is not a valid rate in samples a second.", "Use a number above 0, such as 10.")
        if process_id is not None and not (isinstance(process_id, int) and process_id > 0):
            raise LabError(f"{process_id!r} is not the number of a process.", "Use one such as `ps -e` lists.")
        if path is not None and not isinstance(path, (str, os.PathLike)):
            raise LabError(f"{path!r} is not the name of a file.", "Use a path, such as 'run.csv'.")
        self.rate, self.samples, self.seconds = rate, [], 0.0
        self._live, self._cpu, self._cores = live, 0.0, None
        self._process_id, self._path = process_id, path
        self._tree: _ProcessTree | None = None
        self._table: SampleFile | None = None
        self._thread: threading.Thread | None = None
        self._notes, self.written = Notes(), False

    def __enter__(self) -> "Monitor":
        if self._thread is not None:
            raise LabError("This monitor is running.", "Make another one for the block within.")
        began = CLOCK()
        self._stop, self._gpus, self.samples = threading.Event(), Gpus(), []  # anew, where it has run before
        self._notes, self.written = Notes(self._gpus.note), False
        self._table = None if self._path is None else SampleFile(Path(self._path))
        self._cpu_seconds, self._rss = time.process_time, lambda: psutil.Process().memory_info().rss
        if self._process_id is not None:
            tree = self._tree = self._notes.ask("The processes are not watched", lambda: _ProcessTree(self._process_id))
            self._cpu_seconds, self._rss = (tree.cpu_seconds, lambda: tree.rss) if tree else (lambda: None, lambda: None)
        self._display = self._notes.ask("There is no live table", _live_display) if self._live else None
        energy = self._notes.ask("The CPU's energy is not read", CpuEnergy)
        self._cpu_joules = energy.joules if energy else lambda: None
        gpus = self._notes.ask("The GPUs are not read", self._gpus.read) or ()
        self._gpu_energy = {gpu.bus_id: gpu.energy for gpu in gpus}
        self._start = self._counters()
        if self._tree is not None:  # what a command took before the monitor looked at it counts as well
            self._start = replace(self._start, at=began, process_cpu=0.0)
        self._before = self._start
        thread = threading.Thread(target=self._sample_on, name="hpml-monitor", daemon=True)
        with self._notes.step("There is but one sample"):
            thread.start()
            self._thread = thread
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        if self._thread is None:
            self._sample()
        else:
            self._thread.join(END_SECONDS)
        if self._thread is not None and self._thread.is_alive():  # the system does not answer, and would not answer here either
            self._notes.add(f"The samples end early: one took longer than {END_SECONDS:.0f} s.")
        else:
            self._gpus.close()
        if self._table is not None:
            with self._notes.step(f"The samples are not in {self._path}"):
                self._table.close(self.samples)
                self.written = True
        self._thread, self.seconds = None, self._before.at - self._start.at
        self._show(FINISHED)

    @property
    def note(self) -> str:
        return str(self._notes)

    def _sample_on(self) -> None:
        began, drawn, period, stopped = time.thread_time(), 0.0, 1 / self.rate, False
        due = self._start.at + period
        while not stopped:  # the last sample is taken at the block's end
            stopped = self._stop.wait(min(max(0.0, due - CLOCK()), threading.TIMEOUT_MAX))
            self._sample()
            if not stopped and CLOCK() - drawn >= LIVE_SECONDS:
                drawn = CLOCK()
                self._show("running")
            due = max(due + period, CLOCK())  # what was missed is not made up for
            self._cpu = time.thread_time() - began

    def _sample(self) -> None:
        with self._notes.step("A sample is missing"):
            self._take_sample()

    def _take_sample(self) -> None:
        before, read = self._before, self._counters()
        now = read.filled(before)
        pairs = zip(now.cores or (), before.cores or (), strict=True)
        moved = [a - b for a, b in zip(read.disk or (), before.disk or (), strict=False)] or [None, None]
        took = None if read.process_cpu is None or before.process_cpu is None else read.process_cpu - before.process_cpu
        rss = self._notes.ask("The resident memory is not read", self._rss)
        self.samples.append(
            MonitorSample(
                timestamp=datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3],
                at=now.at - self._start.at,
                seconds=now.at - before.at,
                cores=tuple(_percent(*pair) if read.cores else None for pair in pairs),
                process_cpu=took,
                rss=None if rss is None else rss / MIB,
                memory=self._notes.ask("The memory in use is not read", _memory_used),
                disk_read=moved[0],
                disk_written=moved[1],
                gpus=tuple(map(self._with_energy_since, self._gpus.read())),
                cpu_energy=moved_joules(read.cpu_energy, before.cpu_energy),
            )
        )
        self._before = now
        if self._table is not None:
            self._table.add(self.samples[-1], first=len(self.samples) == 1)

    def _counters(self) -> _Counters:
        ask = self._notes.ask
        return _Counters(
            CLOCK(),
            ask("The use of the cores is not read", self._core_seconds),
            ask("The processor time is not read", self._cpu_seconds),
            ask("The disks are not read", _disk_bytes),
            ask("The CPU's energy is not read", self._cpu_joules),
        )

    def _with_energy_since(self, gpu: GpuReading) -> GpuReading:
        """With J since the reading before, in place of J since the driver was loaded."""
        before = self._gpu_energy.get(gpu.bus_id)
        if gpu.energy is not None:  # else the next difference has it all
            self._gpu_energy[gpu.bus_id] = gpu.energy
        return replace(gpu, energy=moved_joules(gpu.energy, before))

    def _core_seconds(self) -> tuple[tuple[float, float], ...]:
        """Seconds idle and in all of each core; raises LookupError where there are not as many as at first."""
        cores = tuple((core.idle + getattr(core, "iowait", 0.0), sum(core[:8])) for core in psutil.cpu_times(percpu=True))
        self._cores = len(cores) if self._cores is None else self._cores
        if len(cores) != self._cores:  # one was switched off: which one is not said
            raise LookupError(f"there were {self._cores} at first, and there are {len(cores)}")
        return cores

    def _show(self, state: str) -> None:
        if self._display and self.samples:
            with self._notes.step("The live table is not drawn"):
                self._display.update(_picture(self, state), raw=True)

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
        return [row_of(sample, gpu) for sample in self.samples for gpu in sample.gpus or (None,)]

    def to_csv(self, path: Path | str) -> Path:
        """Write the rows as `nvidia-smi --format=csv` writes them, whole or not at all."""
        return write_table(self.samples, Path(path))


def _disk_bytes() -> tuple[int, int] | None:
    """Bytes read and written of the disks themselves: volumes and arrays lie on them, and would count the same bytes again."""
    disks = [disk for name, disk in psutil.disk_io_counters(perdisk=True).items() if _is_a_disk(name)]
    disks = disks or [psutil.disk_io_counters()]
    return disks[0] and (sum(disk.read_bytes for disk in disks), sum(disk.write_bytes for disk in disks))


@functools.cache
def _is_a_disk(name: str) -> bool:
    return Path("/sys/block", name, "device").exists()


def _memory_used() -> float:
    memory = psutil.virtual_memory()
    return (memory.total - memory.available) / MIB


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
    means = []
    for number in range(len(samples[-1].cores)):
        known = [(sample.seconds, use) for sample in samples if (use := sample.cores[number]) is not None]
        means.append(sum(seconds * use for seconds, use in known) / (sum(seconds for seconds, _ in known) or 1.0))
    return means


def _picture(monitor: Monitor, state: str) -> dict[str, str]:
    """The last sample while the block runs; at its end, when a last sample may cover a few milliseconds, the whole run."""
    from hpml_lab.core.show import style  # it loads matplotlib, which a monitor without a live table need not have

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
    rss, memory = ("?" if value is None else f"{value:.0f}" for value in (last.rss, last.memory))
    return _bundle(
        f"<p>Monitor, {state}{averages}: {last.at:.1f} s, {len(monitor.samples)} samples; this process {rss} MiB, "
        f"all {memory} MiB{disk}</p><table>{rows}</table>"
    )
