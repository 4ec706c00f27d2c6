"""A disk benchmark in plain Python: random and sequential reads and writes, by block size and queue depth.

Each request is one system call, `os.preadv` or `os.pwritev`, on the test file of uncached_file.py. A thread has one request
under way; as many threads as the queue depth keep that many requests outstanding. Python's threads can do this, because
the system calls release the GIL while they wait.
"""

import itertools
import mmap
import os
import threading
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.errors import LabError
from hpml_lab.storage.tools.uncached_file import BUFFERED, MIB, NAME, PAGE, TAG, DiskFile, page_words

STUCK_SECONDS = 60.0  # a disk that does not answer for so long is given up
DRAWS = 32768  # random offsets drawn for one thread; then they come round again
CHECKED = 32  # blocks read back after each run of writes


@dataclass(frozen=True)
class DiskJob:
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
class DiskSample:
    """What one run of a job measured.

    iops, bytes_per_s  rates, from separate counts: of calls, and of the bytes that the calls returned
    requests, bytes    those counts
    latencies          seconds of each call
    misplaced          blocks whose tag was not the one of their offset, of the `checked` ones
    """

    job: DiskJob
    iops: float
    bytes_per_s: float
    requests: int
    bytes: int
    latencies: np.ndarray
    checked: int = 0
    misplaced: int = 0


@dataclass(frozen=True)
class DiskRate:
    """A job over its runs: medians of the rates, and latencies in seconds over all requests; from our samples or from fio.

    requests, bytes  separate counts over all runs
    """

    job: DiskJob
    iops: float
    bytes_per_s: float
    requests: int
    bytes: int
    mean: float
    p50: float
    p95: float
    p99: float

    @property
    def in_flight(self) -> float:
        """Little's law, L = λ W: requests a second × mean seconds of a request."""
        return self.iops * self.mean

    @classmethod
    def of(cls, samples: Sequence[DiskSample]) -> "DiskRate":
        latencies = np.concatenate([sample.latencies for sample in samples])
        return cls(
            samples[0].job,
            float(np.median([sample.iops for sample in samples])),
            float(np.median([sample.bytes_per_s for sample in samples])),
            sum(sample.requests for sample in samples),
            sum(sample.bytes for sample in samples),
            float(latencies.mean()),
            *(float(value) for value in np.percentile(latencies, [50, 95, 99])),
        )


def offsets(job: DiskJob, thread: int, size: int, seed: int) -> list[int]:
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


class _Requester(threading.Thread):
    """Keeps one request of a job under way: uncounted until `go` is set, then counted for `seconds`."""

    def __init__(self, file: DiskFile, job: DiskJob, number: int, stamp: int, seconds: float, go: threading.Event) -> None:
        super().__init__(name=f"{NAME}{number}", daemon=True)  # a stuck disk must not keep the interpreter alive
        self.file, self.job, self.number, self.stamp, self.seconds, self.go = file, job, number, stamp, seconds, go
        self.offsets = offsets(job, number, file.bytes, stamp)
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
        order = itertools.cycle(self.offsets)
        with mmap.mmap(-1, block) as buffer:  # O_DIRECT wants aligned memory, which a bytearray is not
            buffers = [buffer]
            while not self.go.is_set():
                offset = next(order)
                read(fd, buffers, offset)
                if drop:
                    os.posix_fadvise(fd, offset, block, os.POSIX_FADV_DONTNEED)
            begin = end = clock()
            last = begin + int(self.seconds * 1e9)
            for offset in order:
                start = clock()
                moved += read(fd, buffers, offset)
                end = clock()
                note(end - start)
                if unpack(buffer)[0] * PAGE != offset:
                    misplaced += 1
                if end >= last or self.stop:
                    break
                if drop:
                    os.posix_fadvise(fd, offset, block, os.POSIX_FADV_DONTNEED)
        self.bytes, self.misplaced, self.took = moved, misplaced, (end - begin) / 1e9

    def _writes(self) -> None:
        fd, write, clock, note = self.file.fd, os.pwritev, time.perf_counter_ns, self.latencies.append
        drop, block = self.file.access == BUFFERED, self.job.block
        buffer, moved = self.file.write_buffer(self.number), 0
        words = page_words(buffer)
        words[:, 1] = self.stamp
        heads, pages, slots = words[:, 0], np.arange(block // PAGE, dtype=np.uint64), MIB // block
        parts = [[memoryview(buffer)[start : start + block]] for start in range(0, MIB, block)]
        spans = np.split(heads, slots)
        order = itertools.cycle(self.offsets)
        begin = end = last = 0
        for offset in order:
            slot = offset // block % slots
            if block == PAGE:
                heads[slot] = offset // PAGE  # the page's number, into the buffer; the short way
            else:
                np.add(pages, offset // PAGE, spans[slot])
            start = clock()
            put = write(fd, parts[slot], offset)
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
                os.posix_fadvise(fd, offset, block, os.POSIX_FADV_DONTNEED)
        self.bytes, self.took = moved, (end - begin) / 1e9

    @property
    def requests(self) -> int:
        return len(self.latencies)

    def written(self) -> list[int]:
        """The first and last pages of some blocks that were written."""
        blocks = self.offsets[: min(self.requests, CHECKED)]
        return [block + page for block in blocks for page in {0, self.job.block - PAGE}]


def run_job(file: DiskFile, job: DiskJob, seconds: float = 0.1, warm_up_seconds: float = 0.01) -> DiskSample:
    """Run a job for `seconds` after a warm-up with the same load, and check what was read or written by its tags.

    The rate is the sum over the threads of requests / seconds, each thread by its own clock: IOPS = Σᵢ nᵢ / Tᵢ.
    Raises OSError that the disk answered with, and LabError for a disk that answers nothing; no thread is left behind.
    """
    if not PAGE <= job.block <= MIB or MIB % job.block:
        raise LabError(f"{job.block} bytes is not a valid block size.", "Use a power of two, from 4 KiB to 1 MiB.")
    stamp, go = file.next_stamp(), threading.Event()
    if job.action == "write":
        file.write_buffer(job.depth - 1)  # made here, not by the threads
    requesters = [_Requester(file, job, thread, stamp, seconds, go) for thread in range(job.depth)]
    try:
        for requester in requesters:
            requester.start()
        time.sleep(warm_up_seconds)
        go.set()
        end = time.monotonic() + seconds + STUCK_SECONDS
        for requester in requesters:
            requester.join(max(0.0, end - time.monotonic()))
    finally:  # also for Ctrl-C in the middle
        go.set()
        for requester in requesters:
            requester.stop = True
        end = time.monotonic() + STUCK_SECONDS
        for requester in requesters:
            if requester.ident:
                requester.join(max(0.0, end - time.monotonic()))
    if any(requester.is_alive() for requester in requesters):
        raise LabError(f"The disk has not answered for {STUCK_SECONDS:.0f} s.", "Set HPML_DISK to a folder on another disk.")
    for requester in requesters:
        if requester.error:
            raise requester.error
    requests = sum(requester.requests for requester in requesters)
    checked, misplaced = requests, sum(requester.misplaced for requester in requesters)
    if job.action == "write":
        back = requesters[0].written()
        checked, misplaced = len(back), file.misplaced(back, stamp)
    return DiskSample(
        job,
        sum(requester.requests / requester.took for requester in requesters),
        sum(requester.bytes / requester.took for requester in requesters),
        requests,
        sum(requester.bytes for requester in requesters),
        np.concatenate([np.frombuffer(requester.latencies, dtype=np.int64) for requester in requesters]) / 1e9,
        checked,
        misplaced,
    )


def grid(file: DiskFile, jobs: Sequence[DiskJob], seconds: float, repeats: int) -> dict[DiskJob, list[DiskSample]]:
    """Take `repeats` samples of every job, in turns: a drift of the disk's speed falls on all of them."""
    taken: dict[DiskJob, list[DiskSample]] = {job: [] for job in jobs}
    turns = [job for _ in range(repeats) for job in jobs]
    for job in progress(turns, "disk"):
        taken[job].append(run_job(file, job, seconds))
    return taken
