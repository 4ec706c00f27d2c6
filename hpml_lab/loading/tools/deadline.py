"""A DataLoader whose faults are reported: a worker that raises, hangs, is killed, or finds no shared memory left.

DataLoader notices all of them if it has a timeout, but reports each in a different way. Here each is one LabError that says at
which batch it happened and what to do. It comes within a deadline, and no worker is left behind.
"""

import contextlib
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.sharedctypes import RawArray
from multiprocessing.util import get_temp_dir
from typing import Any
from unittest import mock

from torch.utils.data import DataLoader, _utils, get_worker_info

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import allow_oversubscription, needs_shared_memory, shutdown_workers

# A disk is full in the same words, but for the names of shared memory.
FULL = re.compile(
    r"Bus error|out of shared memory|unable to (mmap|write to file|allocate shared)"
    r"|(?m:^)(?=.*/(torch_\d|psm_|dev/shm)).*No space left on device"
)
FULL_FIX = "Give it more (docker run --shm-size=2g), or use smaller batches, fewer workers, or a lower prefetch_factor."
START_SECONDS = 120.0  # for all workers to start: on a busy machine, a new interpreter imports torch for a long time
NOT_YET = -1  # batches finished by a worker that has not started
END_SECONDS = 0.2  # for each worker to end by itself after a fault; torch gives 5, one worker after the other
DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by signal: ([^.]+)|exited unexpectedly)")
LATE = re.compile(r"DataLoader timed out after")
ENDED = "ended without an error message"
RAISED = re.compile(r"Caught (\w+) in DataLoader worker process (\d+)\.")


class _TooLate(BaseException):
    """Raised into a data set that runs in this process; not an Exception, so that no `except Exception` of its own stops it."""


class _CountedCollate:
    """The loader's collate function, which also counts in shared memory how many batches each worker has finished."""

    def __init__(self, collate: Callable[[Any], Any], finished: Any) -> None:
        self.collate, self.finished = collate, finished

    def __call__(self, samples: Any) -> Any:
        batch = self.collate(samples)
        self.finished[get_worker_info().id] += 1
        return batch


class _NotedStart:
    """The loader's worker_init_fn, which first notes in shared memory that the worker has started."""

    def __init__(self, init: Callable[[int], Any] | None, finished: Any) -> None:
        self.init, self.finished = init, finished

    def __call__(self, worker_id: int) -> None:
        self.finished[worker_id] = 0
        if self.init is not None:
            self.init(worker_id)


@contextlib.contextmanager
def with_deadline(loader: DataLoader, deadline_seconds: float = 60.0) -> Iterator[Iterator[Any]]:
    """`with with_deadline(loader) as batches: for batch in batches: …`: one epoch, whose faults are LabErrors with their cause.

    deadline_seconds  to wait for a batch, from when all workers have started. Without workers the data set runs in this
                      process; it is interrupted by SIGALRM, which works in the main thread of Linux and macOS.
                      Elsewhere, nothing can stop it.
    Errors of the block itself pass unchanged. In every case the workers have ended afterwards, unless they are persistent and
    all went well.
    """
    if not isinstance(loader, DataLoader):
        raise LabError(f"loader is a {type(loader).__name__}, not a DataLoader.", "Wrap the data set: DataLoader(dataset, …).")
    get_temp_dir()  # workers share this process's, which goes with it; of their own, a killed one would leave it behind
    given, loader.timeout = loader.timeout, deadline_seconds if loader.num_workers else 0
    iterator, number, well = loader._iterator, -1, False
    try:
        iterator = _start(loader)

        def batches() -> Iterator[Any]:
            nonlocal number
            _wait_for_start(iterator)
            while True:
                number += 1
                try:
                    with _alarm(0 if loader.num_workers else deadline_seconds):
                        batch = next(iterator)
                except StopIteration:
                    return
                except (Exception, _TooLate) as error:
                    raise _explained(error, iterator, number, deadline_seconds) from error
                yield batch

        yield batches()
        well = True
    except RuntimeError as error:
        # A worker's death reaches the main process by a signal: it may strike in the middle of the block.
        if DIED.search(str(error)):
            raise _explained(error, iterator, number + 1, deadline_seconds) from error
        raise
    finally:
        loader.timeout = given
        if not (well and loader.persistent_workers):
            patience = _utils.MP_STATUS_CHECK_INTERVAL if well else END_SECONDS
            with mock.patch.object(_utils, "MP_STATUS_CHECK_INTERVAL", patience):
                shutdown_workers(iterator)
            if loader.persistent_workers:
                loader._iterator = None  # a new epoch starts new workers


@needs_shared_memory()
def _start(loader: DataLoader) -> Any:
    """The loader's iterator; its workers note that they have started, and count the batches that they have finished."""
    if not loader.num_workers:
        return iter(loader)
    alive = loader._iterator  # persistent workers, which have their counters
    finished = getattr(alive, "_finished", None) if alive is not None else RawArray("q", loader.num_workers)
    if finished is not None:
        finished[:] = [NOT_YET if alive is None else 0] * loader.num_workers
    collate, init = loader.collate_fn, loader.worker_init_fn
    if alive is None:
        loader.collate_fn, loader.worker_init_fn = _CountedCollate(collate, finished), _NotedStart(init, finished)
    else:
        alive._timeout = loader.timeout  # persistent workers came with that of their first epoch
    try:
        with allow_oversubscription():
            iterator = iter(loader)
    except RuntimeError as error:
        if LATE.search(str(error)):  # persistent workers first load what is left of an epoch that was not run to its end
            raise _explained(error, alive, 0, loader.timeout) from error
        raise
    finally:
        loader.collate_fn, loader.worker_init_fn = collate, init
    iterator._finished = finished
    return iterator


def _wait_for_start(iterator: Any) -> None:
    """Until every worker runs, or one has ended: a deadline is for loading, not for the start of an interpreter."""
    finished, end = getattr(iterator, "_finished", None), time.monotonic() + START_SECONDS
    while finished is not None and NOT_YET in finished and time.monotonic() < end:
        if not all(worker.is_alive() for worker in iterator._workers):
            return
        time.sleep(0.002)


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    """Raise _TooLate in the block after `seconds`, where that is possible and nobody else uses the alarm."""
    possible = seconds and hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not possible or signal.getitimer(signal.ITIMER_REAL)[0] or callable(signal.getsignal(signal.SIGALRM)):
        yield
        return

    def ring(*_: Any) -> None:
        raise _TooLate

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds)
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _explained(error: BaseException, iterator: Any, number: int, deadline_seconds: float) -> LabError:
    """What an error means that came while batch `number` was waited for."""
    text = str(error)
    died = DIED.search(text)
    at = f"at batch {_batch_of_dead(iterator, died[1], number) if died else number}"
    if FULL.search(text):
        return LabError(f"No shared memory was left in /dev/shm {at}.", FULL_FIX)
    if LATE.search(text) or isinstance(error, _TooLate):
        who = "the data set" if isinstance(error, _TooLate) else "a worker"
        return LabError(
            f"No batch came within {deadline_seconds:g} s {at}: {who} hangs, or is slower than that.",
            "Look for a lock or a network read without a timeout in the data set, or raise the deadline.",
        )
    if died:
        return _dead(iterator, died[1], number, f"was killed by signal {died[2]}" if died[2] else ENDED)
    if raised := RAISED.search(text):
        lines = re.findall(rf"^\S*\b{raised[1]}\b.*", text, re.MULTILINE)  # a message may have more lines: its first names it
        return LabError(
            f"Worker {raised[2]} raised {lines[-1] if lines else raised[1]} {at}.",
            "The traceback above shows where in the data set.",
        )
    # A worker that ends while one of its batches is fetched closes the socket through which it comes.
    if isinstance(error, EOFError | OSError) and (pids := ", ".join(_ended_workers(iterator))):
        return _dead(iterator, pids, number, ENDED)
    return LabError(f"The data set raised {type(error).__name__}: {text} {at}.", "The traceback above shows where.")


def _dead(iterator: Any, pids: str, number: int, how: str) -> LabError:
    return LabError(
        f"A worker (process {pids}) {how} at batch {_batch_of_dead(iterator, pids, number)}.",
        "Killed: the system ran out of memory, or somebody stopped it. Use fewer workers or smaller batches; "
        "with num_workers=0 a crash shows its line.",
    )


def _ended_workers(iterator: Any) -> list[str]:
    """The process ids of the workers that have ended, or end within a second."""
    workers = getattr(iterator, "_workers", ())
    for worker in workers:
        worker.join(1.0 / len(workers))
    return [str(worker.pid) for worker in workers if worker.exitcode is not None]


def _batch_of_dead(iterator: Any, pids: str, number: int) -> int:
    """The batch that a dead worker was loading: not the one that the loop waited for, which may be another worker's.

    Batches are dealt out in turns, so the next one of worker w that has finished n is w + n · workers.
    """
    finished = getattr(iterator, "_finished", None)
    dead = [index for index, worker in enumerate(getattr(iterator, "_workers", ())) if str(worker.pid) in pids.split(", ")]
    if finished is None or not dead or not getattr(iterator, "_in_order", True):
        return number
    return min(index + max(0, finished[index]) * len(finished) for index in dead)
