"""A disk benchmark in plain Python: random and sequential reads and writes, by block size and queue depth.

Each request is one system call, `os.preadv` or `os.pwritev`, that goes past the page cache (O_DIRECT) where the file system
allows it. A thread has one request under way; as many threads as the queue depth keep that many requests outstanding.
Python's threads can do this, because the system calls let go of the GIL while they wait.

Blocks are counted in KiB (1024 bytes), bandwidth in MB/s (10⁶ bytes/s).
"""

import contextlib
import errno
import fcntl
import itertools
import mmap
import os
import shutil
import struct
import tempfile
import threading
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import psutil

from hpml_lab.core.errors import LabError
from hpml_lab.core.paths import RESULTS
from hpml_lab.core.progress import progress

KIB, MIB = 1024, 1024 * 1024
PAGE = 4 * KIB  # the smallest block, and the alignment that O_DIRECT asks for on every common disk
LARGEST = 8 * 1024 * MIB  # bytes of the test file
SPARE = 256 * MIB  # left free on the file system
WRITE_SECONDS = 30.0  # a test file that takes longer to write stays as long as it is by then
STUCK_SECONDS = 60.0  # a disk that does not answer for so long is given up
DRAWS = 32768  # random places drawn for one thread; then they come round again
CHECKED = 32  # blocks read back after each sample of writes
TAG = struct.Struct("<QQ")  # the first 16 bytes of every page: its own number, and the stamp of the last write
NAME = "disk-iops-"
MEMORY = ("tmpfs", "ramfs")

DIRECT = "O_DIRECT"
NOCACHE = "F_NOCACHE"
BUFFERED = "buffered, dropped from the cache after each request"


@dataclass(frozen=True)
class Job:
    """What is asked of the disk: `pattern` "random" or "sequential", `action` "read" or "write", bytes of a block, and the
    queue depth: the number of requests that are outstanding at any time."""

    pattern: str
    action: str
    block: int
    depth: int

    @property
    def mode(self) -> str:
        return f"{self.pattern} {self.action}"


@dataclass(frozen=True)
class Sample:
    """What one run of a job measured.

    iops, bytes_per_s  rates, from separate counts: of calls, and of the bytes that the calls returned
    requests, bytes    those counts
    latencies          seconds of each call
    misplaced          blocks whose tag was not the one of their place, of the `checked` ones
    """

    job: Job
    iops: float
    bytes_per_s: float
    requests: int
    bytes: int
    latencies: np.ndarray
    checked: int = 0
    misplaced: int = 0


@dataclass(frozen=True)
class Point:
    """A job over its samples: medians of the rates, and percentiles over the requests of all samples, in seconds."""

    job: Job
    iops: float
    bytes_per_s: float
    mean: float
    p50: float
    p95: float
    p99: float
    in_flight: float

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> "Point":
        """in_flight is Little's law, L = λ W: arrivals a second × mean seconds in the system, the median over the samples."""
        latencies = np.concatenate([one.latencies for one in samples])
        return cls(
            samples[0].job,
            float(np.median([one.iops for one in samples])),
            float(np.median([one.bytes_per_s for one in samples])),
            float(latencies.mean()),
            *(float(value) for value in np.percentile(latencies, [50, 95, 99])),
            float(np.median([one.iops * one.latencies.mean() for one in samples])),
        )


@dataclass
class DiskFile:
    """The open test file; `disk_file` makes and removes it.

    fd          the descriptor that goes past the page cache as `access` says
    access      DIRECT, NOCACHE (macOS) or BUFFERED
    filesystem  "ext4", "tmpfs", …
    """

    path: Path
    fd: int
    bytes: int
    access: str
    filesystem: str
    _stamps: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _buffers: list[mmap.mmap] = field(default_factory=list)

    @property
    def in_memory(self) -> bool:
        """A file system that lives in memory: its figures are not a disk's."""
        return self.filesystem in MEMORY

    @property
    def label(self) -> str:
        return f"{self.filesystem}{' (this is memory, not a disk)' if self.in_memory else ''}, {self.access}"

    @property
    def direct(self) -> bool:
        return self.access == DIRECT

    def drop(self) -> bool:
        """Write what is dirty and put the file out of the page cache; False where the system has no call for it (macOS)."""
        os.fsync(self.fd)
        if not hasattr(os, "posix_fadvise"):
            return False
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return True

    def write_buffer(self, thread: int) -> mmap.mmap:
        """One MiB of random bytes for a thread, page aligned; the block for a place is cut from it at place mod 1 MiB."""
        while len(self._buffers) <= thread:
            buffer = mmap.mmap(-1, MIB)  # O_DIRECT wants aligned memory, which a bytearray is not
            buffer[:] = _noise()
            self._buffers.append(buffer)
        return self._buffers[thread]

    def misplaced(self, places: Sequence[int], stamp: int | None = None) -> int:
        """Read the pages at `places` (bytes from the start) and count those with another page's bytes or another stamp."""
        noise, wrong = _noise(), 0
        with mmap.mmap(-1, PAGE) as buffer:
            for place in places:
                os.preadv(self.fd, [buffer], place)
                number, seen = TAG.unpack_from(buffer)
                at = place % MIB
                same = buffer[TAG.size : PAGE] == noise[at + TAG.size : at + PAGE]
                wrong += number != place // PAGE or not same or (stamp is not None and seen != stamp)
        return wrong


@cache
def _noise() -> bytes:
    """The same MiB of random bytes each time: nothing that a disk or file system could compress."""
    return np.random.default_rng(0).bytes(MIB)


def _words(buffer: mmap.mmap) -> np.ndarray:
    """The write buffer's pages as rows of 64-bit words; the first two are the tag."""
    return np.frombuffer(buffer, dtype="<u8").reshape(-1, PAGE // 8)


def filesystem_of(folder: Path) -> str:
    """The kind of file system that `folder` lies on, as the system names it; "unknown" where it does not say."""
    folder = folder.resolve()
    mounts = {Path(one.mountpoint): one.fstype for one in psutil.disk_partitions(all=True)}  # of several, the last is on top
    return next((mounts[one] for one in (folder, *folder.parents) if one in mounts), "unknown")


def choose_folder(folder: Path | str | None = None) -> Path:
    """Where the test file goes: the folder given, else `HPML_DISK`, else the project's results/, else the temporary folder.

    Raises LabError for a named folder that is not there or cannot be written.
    """
    named = folder or os.environ.get("HPML_DISK")
    if named:
        chosen = Path(named).expanduser()
        if not chosen.is_dir() or not os.access(chosen, os.W_OK):
            raise LabError(f"{chosen} is not a folder that can be written.", "Name a folder on the disk to be measured.")
        return chosen
    with contextlib.suppress(OSError):
        RESULTS.mkdir(exist_ok=True)
        if os.access(RESULTS, os.W_OK):
            return RESULTS
    return Path(tempfile.gettempdir())


@contextlib.contextmanager
def disk_file(folder: Path | str | None = None, size: int = 64 * MIB) -> Iterator[DiskFile]:
    """Make a test file of `size` bytes (whole MiB), written through to the disk, and remove it afterwards, whatever happens.

    A slow disk gets the part of the file that it can write in 30 s. Raises LabError where there is no room for it.
    """
    folder = choose_folder(folder)
    if size % MIB or not MIB <= size <= LARGEST:
        raise LabError(f"{size} bytes is no size for the test file.", "Use whole MiB, from 1 to 8192.")
    free = shutil.disk_usage(folder).free
    if free < size + SPARE:
        raise LabError(
            f"{folder} has {free // MIB} MiB free; the test file takes {size // MIB} MiB, and {SPARE // MIB} MiB stay free.",
            "Free some space, or set HPML_DISK to a folder on another disk.",
        )
    _remove_leftovers(folder)
    handle, name = tempfile.mkstemp(dir=folder, prefix=NAME, suffix=".part")
    fd = None
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            fd, access = _open_past_the_cache(name)
            file = DiskFile(Path(name), fd, size, access, filesystem_of(folder))
            file.bytes = _fill(file)
            file.drop()
        except OSError as error:
            raise LabError(
                f"The disk of {folder} answered: {error.strerror or error}.", "Set HPML_DISK to a folder on another disk."
            ) from error
        yield file
    finally:
        Path(name).unlink(missing_ok=True)
        os.close(handle)
        if fd is not None:
            os.close(fd)


def _remove_leftovers(folder: Path) -> None:
    """Remove test files of processes that were killed; those of living processes are locked."""
    for left in folder.glob(f"{NAME}*.part"):
        with contextlib.suppress(OSError), open(left, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _open_past_the_cache(name: str) -> tuple[int, str]:
    """Open a file so that its requests go past the page cache, by the best way that works here."""
    if hasattr(os, "O_DIRECT"):
        fd = None
        try:
            fd = os.open(name, os.O_RDWR | os.O_DIRECT)
            with mmap.mmap(-1, PAGE) as buffer:  # some file systems open the file and refuse the first request
                os.pwritev(fd, [buffer], 0)
                os.preadv(fd, [buffer], 0)
            return fd, DIRECT
        except OSError as error:
            if fd is not None:
                os.close(fd)
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP):
                raise
    # A write is over when the disk has it, as with O_DIRECT.
    fd = os.open(name, os.O_RDWR | getattr(os, "O_DSYNC", 0))
    if hasattr(fcntl, "F_NOCACHE"):
        fcntl.fcntl(fd, fcntl.F_NOCACHE, 1)
        return fd, NOCACHE
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)  # no reading ahead of what was asked for
    return fd, BUFFERED


def _fill(file: DiskFile) -> int:
    """Write the file block by block, tags and all, and return how many bytes it has: a slow disk gets a shorter file."""
    buffer, end = file.write_buffer(0), time.perf_counter() + WRITE_SECONDS
    words, pages = _words(buffer), np.arange(MIB // PAGE)
    words[:, 1] = 0
    for place in progress(range(0, file.bytes, MIB), "writing the test file"):
        words[:, 0] = pages + place // PAGE
        if os.pwritev(file.fd, [buffer], place) != MIB:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if time.perf_counter() > end:
            break
    os.fsync(file.fd)
    return place + MIB


def places(job: Job, thread: int, size: int, seed: int) -> list[int]:
    """Where a thread's requests go in a file of `size` bytes, in bytes from the start, in order; then from the first again.

    Random: drawn evenly from the whole file. Sequential: each thread runs through its own stretch, size / depth long.
    """
    blocks = size // job.block
    if job.pattern == "random":
        drawn = np.random.default_rng([seed, thread]).integers(0, blocks, min(blocks, DRAWS))
    else:
        stretch = max(1, blocks // job.depth)
        drawn = (np.arange(stretch) + thread * stretch) % blocks
    return (drawn * job.block).tolist()


class _Worker(threading.Thread):
    """Keeps one request of a job under way: uncounted until `go` is set, then counted for `seconds`."""

    def __init__(self, file: DiskFile, job: Job, number: int, stamp: int, seconds: float, go: threading.Event) -> None:
        super().__init__(name=f"{NAME}{number}", daemon=True)  # a stuck disk must not keep the interpreter alive
        self.file, self.job, self.number, self.stamp, self.seconds, self.go = file, job, number, stamp, seconds, go
        self.places = places(job, number, file.bytes, stamp)
        self.stop = False
        self.latencies = array("q")  # ns of each counted call
        self.bytes = self.misplaced = 0
        self.took = 0.0  # seconds from the first counted request to the end of the last
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            if self.job.action == "read":
                self._reads()
            else:
                self._writes()
        except BaseException as error:  # a thread's exception is the caller's to raise
            self.error = error

    # The loops are written out, on local names: what Python does between two requests is time in which none is outstanding.
    def _reads(self) -> None:
        fd, read, clock, unpack, note = self.file.fd, os.preadv, time.perf_counter_ns, TAG.unpack_from, self.latencies.append
        drop, block = self.file.access == BUFFERED, self.job.block
        moved = misplaced = 0
        order = itertools.cycle(self.places)
        with mmap.mmap(-1, block) as buffer:  # O_DIRECT wants aligned memory, which a bytearray is not
            buffers = [buffer]
            while not self.go.is_set():
                place = next(order)
                read(fd, buffers, place)
                if drop:
                    os.posix_fadvise(fd, place, block, os.POSIX_FADV_DONTNEED)
            begin = end = clock()
            last = begin + int(self.seconds * 1e9)
            for place in order:
                start = clock()
                moved += read(fd, buffers, place)
                end = clock()
                note(end - start)
                if unpack(buffer)[0] * PAGE != place:
                    misplaced += 1
                if end >= last or self.stop:
                    break
                if drop:
                    os.posix_fadvise(fd, place, block, os.POSIX_FADV_DONTNEED)
        self.bytes, self.misplaced, self.took = moved, misplaced, (end - begin) / 1e9

    def _writes(self) -> None:
        fd, write, clock, note = self.file.fd, os.pwritev, time.perf_counter_ns, self.latencies.append
        drop, block = self.file.access == BUFFERED, self.job.block
        buffer, moved = self.file.write_buffer(self.number), 0
        words = _words(buffer)
        words[:, 1] = self.stamp
        heads, pages, slots = words[:, 0], np.arange(block // PAGE, dtype=np.uint64), MIB // block
        parts = [[memoryview(buffer)[at : at + block]] for at in range(0, MIB, block)]
        spans = np.split(heads, slots)
        order = itertools.cycle(self.places)
        begin = end = last = 0
        for place in order:
            slot = place // block % slots
            if block == PAGE:
                heads[slot] = place // PAGE  # the page's number, into the buffer; the short way
            else:
                np.add(pages, place // PAGE, spans[slot])
            start = clock()
            put = write(fd, parts[slot], place)
            end = clock()
            if begin:
                moved += put
                note(end - start)
                if end >= last or self.stop:
                    break
            elif self.go.is_set():
                begin = clock()
                last = begin + int(self.seconds * 1e9)
            if drop:
                os.posix_fadvise(fd, place, block, os.POSIX_FADV_DONTNEED)
        self.bytes, self.took = moved, (end - begin) / 1e9

    @property
    def requests(self) -> int:
        return len(self.latencies)

    def written(self) -> list[int]:
        """The first and last pages of some blocks that were written."""
        blocks = self.places[: min(self.requests, CHECKED)]
        return [place + at for place in blocks for at in {0, self.job.block - PAGE}]


def sample(file: DiskFile, job: Job, seconds: float = 0.1, warm_up: float = 0.01) -> Sample:
    """Run a job for `seconds` after a warm-up with the same load, and check what was read or written by its tags.

    The rate is the sum over the threads of requests / seconds, each thread by its own clock: IOPS = Σᵢ nᵢ / Tᵢ.
    Raises OSError that the disk answered with, and LabError for a disk that answers nothing; no thread is left behind.
    """
    if job.block % PAGE or not PAGE <= job.block <= MIB:
        raise LabError(f"{job.block} bytes is no block size here.", "Use multiples of 4096, up to 1 MiB.")
    stamp, go = next(file._stamps), threading.Event()
    if job.action == "write":
        file.write_buffer(job.depth - 1)  # made here, not by the threads
    workers = [_Worker(file, job, thread, stamp, seconds, go) for thread in range(job.depth)]
    try:
        for worker in workers:
            worker.start()
        time.sleep(warm_up)
        go.set()
        end = time.monotonic() + seconds + STUCK_SECONDS
        for worker in workers:
            worker.join(max(0.0, end - time.monotonic()))
    finally:  # also for Ctrl-C in the middle
        go.set()
        for worker in workers:
            worker.stop = True
        for worker in workers:
            if worker.ident:
                worker.join(STUCK_SECONDS)
    if any(worker.is_alive() for worker in workers):
        raise LabError(f"The disk has not answered for {STUCK_SECONDS:.0f} s.", "Set HPML_DISK to a folder on another disk.")
    for worker in workers:
        if worker.error:
            raise worker.error
    requests, moved = sum(one.requests for one in workers), sum(one.bytes for one in workers)
    checked, misplaced = requests, sum(one.misplaced for one in workers)
    if job.action == "write":
        back = workers[0].written()
        checked, misplaced = len(back), file.misplaced(back, stamp)
    return Sample(
        job,
        sum(one.requests / one.took for one in workers),
        sum(one.bytes / one.took for one in workers),
        requests,
        moved,
        np.concatenate([np.frombuffer(one.latencies, dtype=np.int64) for one in workers]) / 1e9,
        checked,
        misplaced,
    )


def grid(file: DiskFile, jobs: Sequence[Job], seconds: float, repeats: int) -> dict[Job, list[Sample]]:
    """Take `repeats` samples of every job, in turns: a drift of the disk's speed falls on all of them."""
    taken: dict[Job, list[Sample]] = {job: [] for job in jobs}
    turns = [job for _ in range(repeats) for job in jobs]
    for job in progress(turns, "disk"):
        taken[job].append(sample(file, job, seconds))
    return taken


def kernel_read_bytes() -> int | None:
    """Bytes that the kernel has fetched from storage for this process, from /proc/self/io; None where it does not say.

    What the page cache answers does not count.
    """
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["read_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def page_cache(file: DiskFile, size: int = 64 * MIB, turns: int = 3, limit: float = 10.0) -> list[dict]:
    """What the page cache does to reading and writing the first `size` bytes of the file in blocks of 1 MiB.

    One row a way: MB/s, the median over the turns, and for reads the part of the bytes that the kernel fetched from the disk
    (None where it does not say). After `limit` seconds no further turn is begun.
    """
    size = min(size, file.bytes)
    buffer = file.write_buffer(0)
    heads, pages = _words(buffer)[:, 0], np.arange(MIB // PAGE)
    buffered, target = os.open(file.path, os.O_RDWR), mmap.mmap(-1, MIB)

    def read(fd: int) -> None:
        for place in range(0, size, MIB):
            os.preadv(fd, [target], place)

    def write(fd: int, sync: bool) -> None:
        for place in range(0, size, MIB):
            heads[:] = pages + place // PAGE
            os.pwritev(fd, [buffer], place)
        if sync:
            os.fsync(fd)

    def nothing() -> None:
        pass

    past = file.access
    ways = [
        (f"read, {past}", file.drop, lambda: read(file.fd)),
        ("read, buffered, first time", file.drop, lambda: read(buffered)),
        ("read, buffered, again", nothing, lambda: read(buffered)),
        (f"write, {past}", file.drop, lambda: write(file.fd, False)),
        ("write, buffered", file.drop, lambda: write(buffered, False)),
        ("write, buffered, with fsync", file.drop, lambda: write(buffered, True)),
    ]
    if not file.direct:  # then there is no way past the cache to compare with
        ways = [way for way in ways if past not in way[0]]
    rates: dict[str, list[float]] = {way[0]: [] for way in ways}
    fetched: dict[str, list[float]] = {way[0]: [] for way in ways}
    end = time.perf_counter() + limit
    try:
        for _ in range(turns):
            for name, prepare, work in ways:
                prepare()
                before, start = kernel_read_bytes(), time.perf_counter()
                work()
                seconds = time.perf_counter() - start
                rates[name].append(size / seconds / 1e6)
                if before is not None and name.startswith("read"):
                    fetched[name].append((kernel_read_bytes() - before) / size)
            if time.perf_counter() > end:
                break
        file.drop()
    finally:
        os.close(buffered)
        target.close()
    return [
        {
            "way": name,
            "MB/s": float(np.median(rates[name])),
            "fetched from the disk": float(np.median(fetched[name])) if fetched[name] else None,
        }
        for name in rates
    ]
