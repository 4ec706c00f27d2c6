"""Worker processes and waits: what is started on purpose, how it is ended, and which processes are left.

The module loads nothing but the standard library, so that a child which starts anew (spawn) is quick.
"""

import contextlib
import errno
import math
import sys
import time
import warnings
from collections.abc import Iterator
from numbers import Real
from pathlib import Path
from typing import Any

from hpml_lab.core.system.children import suppress_fork_warning
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK

JOIN_SECONDS = 5.0  # for a worker that was asked to end

# multiprocessing starts each of these once, when it first needs it, and they end with the process that started them.
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def require_seconds(name: str, seconds: Any) -> float:
    """The argument `name`, a time to wait for; LabError unless it is a finite number above 0."""
    if isinstance(seconds, Real) and not isinstance(seconds, bool):
        with contextlib.suppress(OverflowError):  # a fraction of any size
            if 0 < (number := float(seconds)) < math.inf:
                return number
    raise LabError(f"{name}={seconds!r} is not a time.", "Use a number of seconds above 0.")


def sleep_until(moment: float) -> None:
    """Sleep until `moment` seconds of core.system.shared_clock's CLOCK, never less."""
    while (left := moment - CLOCK()) > 0:
        time.sleep(left)


@contextlib.contextmanager
def allow_oversubscription() -> Iterator[None]:
    """Start more DataLoader workers than cores in this `with` block, on purpose, and fork from a process with threads.

    Exactly the two warnings about that are suppressed. Workers that wait need no core each, and DataLoader's workers set
    themselves to one thread, so they are safe after a fork.
    """
    with suppress_fork_warning(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        yield


@contextlib.contextmanager
def needs_shared_memory() -> Iterator[None]:
    """Say so, as a LabError, if the system makes no semaphore or block of shared memory in this `with` block."""
    try:
        yield
    except OSError as error:
        missing = sys.platform == "linux" and not Path("/dev/shm").is_dir()
        if error.errno not in (errno.EACCES, errno.ENOSPC, errno.EROFS) and not missing:
            raise
        raise LabError(
            f"Processes can share no memory here: /dev/shm cannot be written ({error.strerror}).",
            "Mount it writable (docker run --shm-size=2g, or --tmpfs /dev/shm), or use num_workers=0.",
        ) from error


def shutdown_workers(iterator: Any) -> None:
    """End the workers or threads behind an iterator now: the traceback of an error would keep it, and them, alive."""
    for name in ("_shutdown_workers", "close"):  # DataLoader's iterator has no public method for it; a generator has
        if (end := getattr(iterator, name, None)) is not None:
            with contextlib.suppress(AttributeError):  # of an iterator that failed while it started its workers
                end()
    workers = getattr(iterator, "_workers", ())
    for worker in workers:
        if worker.is_alive():
            worker.terminate()  # torch 2.11 does, and does not wait for its end
    end = CLOCK() + JOIN_SECONDS
    for worker in workers:
        worker.join(max(0.0, end - CLOCK()))
        worker.kill()  # one that ignores SIGTERM, or is stopped; the interpreter would wait for it at its own end
        worker.join(JOIN_SECONDS)


def child_pids() -> set[int]:
    """Process ids of everything that this process has started and that still runs.

    multiprocessing's own helpers, the resource tracker and the fork server, are left out: they stay until this process ends.
    """
    import psutil  # here, because children that start anew do not need it

    me = psutil.Process()
    found = set()
    for child in me.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            helper = child.ppid() == me.pid and any(name in " ".join(child.cmdline()) for name in HELPERS)
            if not helper:  # a fork server's workers look like it, but they are its children, not ours
                found.add(child.pid)
    return found
