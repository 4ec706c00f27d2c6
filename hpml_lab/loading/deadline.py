"""A DataLoader whose faults are told: a worker that raises, hangs, is killed, or finds no shared memory left.

DataLoader notices all of them, if it has a timeout, but says so in several ways. Here each is one LabError with the mend,
within a deadline, and no worker is left behind.
"""

import contextlib
import re
from collections.abc import Iterator
from multiprocessing.util import get_temp_dir
from typing import Any
from unittest import mock

from torch.utils.data import DataLoader, _utils

from hpml_lab.core.errors import LabError
from hpml_lab.core.workers import allow_oversubscription, shutdown_workers

FULL = re.compile(r"Bus error|No space left on device|out of shared memory|unable to (mmap|write to file|allocate shared)")
ROOM = "Give more room (docker run --shm-size=2g), or use smaller batches, fewer workers, or a lower prefetch_factor."
END_SECONDS = 0.2  # for each worker to end by itself after a fault; torch gives 5, one worker after the other
DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by signal: ([^.]+)|exited unexpectedly)")
LATE = re.compile(r"DataLoader timed out after")
RAISED = re.compile(r"Caught (\w+) in DataLoader worker process (\d+)\.")


@contextlib.contextmanager
def with_deadline(loader: DataLoader, deadline: float = 60.0) -> Iterator[Iterator[Any]]:
    """`with with_deadline(loader) as batches: for batch in batches: …`: one epoch, whose faults are LabErrors with the cause kept.

    deadline  seconds to wait for a batch. Without workers the data set runs in this process, and nothing can stop it.
    Errors of the block itself pass unchanged. In every case the workers have ended afterwards, unless they are persistent and
    all went well.
    """
    get_temp_dir()  # workers share this process's, which goes with it; of their own, a killed one would leave it behind
    given, loader.timeout = loader.timeout, deadline if loader.num_workers else 0
    iterator, number, well = None, -1, False
    try:
        with allow_oversubscription():
            iterator = iter(loader)
        iterator._timeout = loader.timeout  # persistent workers came with that of their first epoch

        def batches() -> Iterator[Any]:
            nonlocal number
            while True:
                number += 1
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
                except Exception as error:
                    raise _told(error, number, deadline) from error
                yield batch

        yield batches()
        well = True
    except RuntimeError as error:
        # A worker's death reaches the main process by a signal: it may strike in the middle of the block.
        if DIED.search(str(error)):
            raise _told(error, number + 1, deadline) from error
        raise
    finally:
        loader.timeout = given
        if not (well and loader.persistent_workers):
            patience = _utils.MP_STATUS_CHECK_INTERVAL if well else END_SECONDS
            with mock.patch.object(_utils, "MP_STATUS_CHECK_INTERVAL", patience):
                shutdown_workers(iterator)
            if loader.persistent_workers:
                loader._iterator = None  # a new epoch starts new workers


def _told(error: Exception, number: int, deadline: float) -> LabError:
    """What an error of batch `number` means."""
    text = str(error)
    where = f"at batch {number}"
    if FULL.search(text):
        return LabError(f"No shared memory was left in /dev/shm {where}.", ROOM)
    if LATE.search(text):
        return LabError(
            f"No batch came within {deadline:g} s {where}: a worker hangs, or is slower than that.",
            "Look for a lock or a network read without a timeout in the data set, or raise the deadline.",
        )
    if died := DIED.search(text):
        how = f"was killed by signal {died[2]}" if died[2] else "ended without a word"
        return LabError(
            f"A worker (process {died[1]}) {how} {where}.",
            "Killed: the system ran out of memory, or somebody stopped it. Use fewer workers or smaller batches; "
            "with num_workers=0 a crash shows its place.",
        )
    if raised := RAISED.search(text):
        lines = re.findall(rf"^\S*\b{raised[1]}\b.*", text, re.MULTILINE)  # a message may have more lines: its first names it
        return LabError(
            f"Worker {raised[2]} raised {lines[-1] if lines else raised[1]} {where}.",
            "The traceback above shows where in the data set.",
        )
    return LabError(f"The data set raised {type(error).__name__}: {text} {where}.", "The traceback above shows where.")
