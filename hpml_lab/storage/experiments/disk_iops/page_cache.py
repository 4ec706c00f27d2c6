"""What the page cache does to reading and writing, and how many bytes the kernel really fetched from the disk."""

import mmap
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hpml_lab.core.experiment import Row, column
from hpml_lab.storage.tools.uncached_file import MIB, PAGE, DiskFile, page_words

PAST = "past the cache"
FIRST, AGAIN = "read, buffered, first time", "read, buffered, again"
PLACEBO = "read, buffered, first time, once more"  # dropped from the cache before, like FIRST
BUFFERED_WRITE, SYNCED_WRITE = "write, buffered", "write, buffered, with fsync"


@dataclass
class CacheRate(Row):
    """One way to read or write the same bytes: medians over the turns; and the seconds of each turn."""

    way: str = column("way")
    mb_per_s: float = column("bandwidth", "MB/s")
    fetched: float | None = column("fetched from the disk / read", default=None)  # None where the kernel does not say
    samples: Sequence[float] = ()


def kernel_read_bytes() -> int | None:
    """Bytes that the kernel has fetched from storage for this process and the children that it has waited for.

    From /proc/self/io; None where there is none. What the page cache answers does not count.
    """
    try:
        lines = Path("/proc/self/io").read_text(encoding="utf-8").splitlines()
        return int(dict(line.split(": ") for line in lines)["read_bytes"])
    except (OSError, ValueError, KeyError):
        return None


def cache_rates(file: DiskFile, size: int = 64 * MIB, turns: int = 5, limit_seconds: float = 10.0) -> list[CacheRate]:
    """Read and write the first `size` bytes of the file in blocks of 1 MiB, past the page cache and through it.

    Medians over the turns; after `limit_seconds` no further turn is begun.
    """
    size = min(size, file.bytes)
    buffer = file.write_buffer(0)
    heads, pages = page_words(buffer)[:, 0], np.arange(MIB // PAGE)
    buffered, target = os.open(file.path, os.O_RDWR), mmap.mmap(-1, MIB)

    def read(fd: int) -> None:
        for offset in range(0, size, MIB):
            os.preadv(fd, [target], offset)

    def write(fd: int, sync: bool) -> None:
        for offset in range(0, size, MIB):
            heads[:] = pages + offset // PAGE
            os.pwritev(fd, [buffer], offset)
        if sync:
            os.fsync(fd)

    def nothing() -> None:
        pass

    ways: dict[str, tuple[Callable[[], object], Callable[[], None]]] = {  # what comes first, untimed; and what is timed
        f"read, {PAST}": (file.drop, lambda: read(file.fd)),
        FIRST: (file.drop, lambda: read(buffered)),
        AGAIN: (nothing, lambda: read(buffered)),
        PLACEBO: (file.drop, lambda: read(buffered)),
        f"write, {PAST}": (file.drop, lambda: write(file.fd, False)),
        BUFFERED_WRITE: (file.drop, lambda: write(buffered, False)),
        SYNCED_WRITE: (file.drop, lambda: write(buffered, True)),
    }
    if not file.direct:  # then there is no way past the cache to compare with
        ways = {way: steps for way, steps in ways.items() if PAST not in way}
    taken: dict[str, list[float]] = {way: [] for way in ways}
    fetched: dict[str, list[float]] = {way: [] for way in ways}
    end = time.perf_counter() + limit_seconds
    try:
        for _ in range(turns):
            for way, (prepare, work) in ways.items():
                prepare()
                before, start = kernel_read_bytes(), time.perf_counter()
                work()
                seconds = time.perf_counter() - start
                taken[way].append(seconds)
                if before is not None and way.startswith("read"):
                    fetched[way].append((kernel_read_bytes() - before) / size)
            if time.perf_counter() > end:
                break
        file.drop()
    finally:
        os.close(buffered)
        target.close()
    rates = []
    for way, seconds in taken.items():
        share = float(np.median(fetched[way])) if fetched[way] else None
        rates.append(CacheRate(way, size / float(np.median(seconds)) / 1e6, share, seconds))
    return rates
