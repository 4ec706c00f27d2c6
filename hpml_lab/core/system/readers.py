"""Files that are read: regular ones of at most so many bytes, and whatever is wrong with one is a LabError that names it.

    @reader("a table of landmarks", "Check the path and that it is a CSV file.")
    def rows(path):
        return list(csv.reader(io.StringIO(text_of(path, TABLE))))

Someone else's file may be a pipe that nobody writes into, a device without end, an archive that unpacks to a thousand times its
size, cut off, or damaged, and a parser then raises whatever its parts raise. So each function that reads such a file is a
`reader`, opens it by `open_file`, `bytes_of` or `text_of`, and unpacks it by one of the functions here. What has the
decorator is in READERS, for which one test tries all of that; a module that opens files otherwise is named in
tests/test_readers.py with its reason.

The largest sizes, in bytes, are for what is read into memory, packed or unpacked. Each is several times what real data has.
"""

import contextlib
import errno
import functools
import gzip
import io
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, ParamSpec, TypeVar

from hpml_lab.core.system.errors import LabError, UnreadableFile

MIB, GIB = 1 << 20, 1 << 30
HEADER = MIB  # a scan's header: real ones have 1 kB
RECORD = 256 * MIB  # results, notebooks, settings: the largest notebook of the workbook has 5 MB
TABLE = 256 * MIB  # CSV files: LUNA16's longest has 60 MB
IMAGE = 256 * MIB  # one photograph, packed; Pillow itself refuses more than 179 million pixels
SLICE = 64 * MIB  # one slice of a scan, packed or unpacked: one of 2,048 × 2,048 has 8 MB
TRACE = 4 * GIB  # a profiler's JSON: a minute of eight GPUs has 1 GB
VOLUME = 4 * GIB  # a scan's values: 2,048 slices of 1,024 × 1,024
STATE = 64 * GIB  # weights and an optimizer's state
EVENTS = 16 * GIB  # an SQLite file of Nsight Systems
ARRAYS = None  # an HDF5 file is larger than memory on purpose: what is read of it at a time is bounded instead

READERS: dict[str, Callable[..., Any]] = {}  # {module.function: each function that is a reader}

P, R = ParamSpec("P"), TypeVar("R")


def reader(what: str, fix: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a function whose first argument is a path one that raises no other error than a LabError with the file's name.

    what  what the file should be, for the sentence "x.csv is not …"
    fix   what to do about it
    An UnreadableFile of the function itself, and a LabError that has the name in it, stay as they are.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def read(*args: P.args, **kwargs: P.kwargs) -> R:
            path = args[0] if args else next(iter(kwargs.values()))
            with reading(path, what, fix):
                return function(*args, **kwargs)

        READERS[f"{function.__module__}.{function.__qualname__}"] = read
        return read

    return register


@contextlib.contextmanager
def reading(path: Path | str, what: str, fix: str) -> Iterator[None]:
    """Any error of the block becomes a LabError with the file's name, also where memory does not suffice for what a file
    claims to hold. Ctrl-C and time limits are no errors of the file and pass."""
    try:
        yield
    except LabError as error:
        if isinstance(error, UnreadableFile) or os.path.basename(os.fspath(path)) in error.problem:
            raise
        raise UnreadableFile(f"{path} is not {what}: {error.problem}", error.fix) from error
    except MemoryError as error:
        raise UnreadableFile(f"{path} is not {what}, or needs more memory than there is.", fix) from error
    except FileNotFoundError as error:
        raise UnreadableFile(f"{path} is not there.", fix) from error
    except Exception as error:
        raise UnreadableFile(f"{path} is not {what} ({reason(error)}).", fix) from error


def reason(error: Exception) -> str:
    """An error in a few words: the system's own, or the beginning of its text, after its type where the text says little."""
    if isinstance(error, LabError):
        return error.problem.rstrip(".")
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    text = " ".join(str(error).split())[:200].rstrip(".")
    return text if text and isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {text}".rstrip(": ")


def open_file(path: Path | str, largest: int | None) -> IO[bytes]:
    """A regular file of at most `largest` bytes, to be read. Raises LabError for anything else, without waiting for it."""
    try:
        # Looked at before it is opened, since opening alone moves some devices, and again afterwards, since a name may be given
        # to another file in between. Without O_NONBLOCK opening a pipe would wait for somebody who writes.
        _check(path, os.stat(path), largest)
        file = open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb")  # noqa: SIM115
    except (OSError, ValueError) as error:  # ValueError: a name with a NUL in it
        if isinstance(error, FileNotFoundError):
            raise
        why = "links lead in a circle" if getattr(error, "errno", None) == errno.ELOOP else reason(error)
        raise UnreadableFile(f"{path} cannot be read ({why}).", "Check the path and its permissions.") from error
    try:
        _check(path, os.fstat(file.fileno()), largest)
    except LabError:
        file.close()
        raise
    return file


def bytes_of(path: Path | str, largest: int) -> bytes:
    """The content of a regular file of at most `largest` bytes."""
    parts, length = [], 0
    with open_file(path, largest) as file:
        size = os.fstat(file.fileno()).st_size
        largest, ask = min(largest, size + RECORD), size + 1  # some of the system's own say that they are empty and never end
        while part := file.read(ask):
            parts.append(part)
            length, ask = length + len(part), MIB
            if length > largest:
                raise _too_large(path, largest)
    return b"".join(parts)


def text_of(path: Path | str, largest: int, encoding: str = "utf-8", errors: str = "strict") -> str:
    """The same as text."""
    return bytes_of(path, largest).decode(encoding, errors)


def _check(path: Path | str, status: os.stat_result, largest: int | None) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe, a socket or a device"
        raise UnreadableFile(f"{path} is {kind}, not a file.", "Name a file.")
    if largest is not None and status.st_size > largest:
        raise _too_large(path, largest)


def _too_large(path: Path | str, largest: int) -> UnreadableFile:
    return UnreadableFile(f"{path} has more than {largest:,} bytes, too many for such a file.", "Is it the right one?")


# ---- what packed files unpack to -----------------------------------------------------------------------------------------


def gunzip(data: bytes, largest: int) -> bytes:
    """The content of a gzip archive; ValueError where it is broken or has more than `largest` bytes, of which no more are
    unpacked."""
    padded = data.rstrip(b"\0") + bytes(8)  # megabytes of padding would be skipped byte by byte; a trailer may end in zeros
    try:
        content = gzip.GzipFile(fileobj=io.BytesIO(padded)).read(largest + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"its gzip archive is broken: {error}") from error
    if len(content) > largest:
        raise ValueError(f"it would unpack to more than {largest:,} bytes")
    return content


def inflate(data: bytes, largest: int) -> bytes:
    """The content of a zlib stream, of which no more than `largest` + 1 bytes are unpacked."""
    return zlib.decompressobj().decompress(data, largest + 1)


def check_zip(file: IO[bytes], largest: int) -> None:
    """Raise ValueError for a zip archive, as np.savez and torch.save write, that would unpack to more than `largest` bytes.

    Python unpacks no more of an entry than the archive says here.
    """
    with zipfile.ZipFile(file) as archive:
        unpacked = sum(entry.file_size for entry in archive.infolist())
        if unpacked > largest:
            raise ValueError(f"it would unpack to {unpacked:,} bytes")
    file.seek(0)
