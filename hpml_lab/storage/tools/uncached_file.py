"""A test file on the disk to be measured, whose requests go past the page cache, and whose every page bears its own number.

Blocks are counted in KiB (1024 bytes), bandwidth in MB/s (10⁶ bytes/s).
"""

import contextlib
import errno
import itertools
import mmap
import os
import shutil
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import psutil

from hpml_lab.core.show.progress import progress
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import RESULTS, user_path
from hpml_lab.core.system.readers import open_file

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

KIB, MIB = 1024, 1024 * 1024
PAGE = 4 * KIB  # the smallest block, and the alignment that O_DIRECT asks for on every common disk
LARGEST = 8 * 1024 * MIB  # bytes of the test file
SPARE = 256 * MIB  # left free on the file system
WRITE_SECONDS = 30.0  # a test file that takes longer to write stays as long as it is by then
TAG = struct.Struct("<QQ")  # the first 16 bytes of every page: its own number, and the stamp of the last write
NAME = "disk-iops-"
MEMORY = ("tmpfs", "ramfs")

DIRECT = "O_DIRECT"
NOCACHE = "F_NOCACHE"
BUFFERED = "buffered, dropped from the cache after each request"


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
        """Write what is dirty and drop the file from the page cache; False where the system has no call for it (macOS)."""
        os.fsync(self.fd)
        if not hasattr(os, "posix_fadvise"):
            return False
        os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return True

    def next_stamp(self) -> int:
        """A number that no write has used yet."""
        return next(self._stamps)

    def write_buffer(self, thread: int) -> mmap.mmap:
        """One MiB of random bytes for a thread, page aligned; a block is cut from it at its offset modulo 1 MiB."""
        while len(self._buffers) <= thread:
            buffer = mmap.mmap(-1, MIB)  # O_DIRECT wants aligned memory, which a bytearray is not
            buffer[:] = noise()
            self._buffers.append(buffer)
        return self._buffers[thread]

    def misplaced(self, offsets: Sequence[int], stamp: int | None = None) -> int:
        """Read the pages at `offsets` (bytes from the start) and count those with another page's bytes or another stamp."""
        expected, wrong = noise(), 0
        with mmap.mmap(-1, PAGE) as buffer:
            for offset in offsets:
                os.preadv(self.fd, [buffer], offset)
                number, seen = TAG.unpack_from(buffer)
                start = offset % MIB
                same = buffer[TAG.size : PAGE] == expected[start + TAG.size : start + PAGE]
                wrong += number != offset // PAGE or not same or (stamp is not None and seen != stamp)
        return wrong


@cache
def noise() -> bytes:
    """The same MiB of random bytes each time: nothing that a disk or file system could compress."""
    return np.random.default_rng(0).bytes(MIB)


def page_words(buffer: mmap.mmap) -> np.ndarray:
    """The write buffer's pages as rows of 64-bit words; the first two are the tag."""
    return np.frombuffer(buffer, dtype="<u8").reshape(-1, PAGE // 8)


def filesystem_of(folder: Path) -> str:
    """The kind of file system that `folder` lies on, as the system names it; "unknown" where it does not say."""
    folder = folder.resolve()
    mounts = {Path(disk.mountpoint): disk.fstype for disk in psutil.disk_partitions(all=True)}  # of several, the last is on top
    return next((mounts[path] for path in (folder, *folder.parents) if path in mounts), "unknown")


def choose_folder(folder: Path | str | None = None) -> Path:
    """Where the test file goes: the folder given, else `HPML_DISK`, else the project's results/, else the temporary folder.

    Raises LabError for a named folder that does not exist or cannot be written.
    """
    named = folder or os.environ.get("HPML_DISK")
    if named:
        chosen = user_path(named, "HPML_DISK")
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
    if fcntl is None or not hasattr(os, "preadv"):
        raise LabError("The disk is measured on Linux and macOS only.", "On Windows, use WSL 2.")
    folder = choose_folder(folder)
    if size % MIB or not MIB <= size <= LARGEST:
        raise LabError(f"{size} bytes is not a valid size for the test file.", "Use whole MiB, from 1 to 8192.")
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
        with contextlib.suppress(OSError, LabError), open_file(left, None) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_size:  # an empty one has just been made, and its process is about to lock it
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
    words, pages = page_words(buffer), np.arange(MIB // PAGE)
    words[:, 1] = 0
    for offset in progress(range(0, file.bytes, MIB), "writing the test file"):
        words[:, 0] = pages + offset // PAGE
        if os.pwritev(file.fd, [buffer], offset) != MIB:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if time.perf_counter() > end:
            break
    os.fsync(file.fd)
    return offset + MIB
