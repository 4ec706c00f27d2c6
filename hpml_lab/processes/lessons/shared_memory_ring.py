"""A ring buffer in shared memory: one process puts arrays in, another takes them out, and nothing is pickled or piped.

    slots      [ 4 | 5 | 2 | 3 ]      item i is in slot i mod N
    put = 6        ^ the next put goes to slot 6 mod 4, as soon as item 2 has been taken
    taken = 2

Two semaphores count: `free` the slots that may be filled (N at first), `filled` those that may be read (0 at first). Putting
waits for a free slot and then raises `filled`; taking waits for a filled slot and then raises `free`. So no slot is written
while it is read, the producer is never more than N items ahead (back-pressure), and a side that waits sleeps.

The module needs NumPy but no torch, so that a spawned child starts quickly. `torch.from_numpy(slot)` is a tensor on the same
memory.
"""

import contextlib
import multiprocessing
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import needs_shared_memory

SHM = Path("/dev/shm")  # where Linux shows its shared memory; macOS has no such folder
LINE = 64  # bytes of a cache line: the counters and each slot start on a line of their own
STEP = 0.02  # seconds; a side whose partner has not come looks for it this often
# The counters: items put and taken, whether the producer has finished, and when each side called first (0: not yet).
PUT, TAKEN, ENDED, PRODUCER, CONSUMER = range(5)


class _Memory(SharedMemory):
    def __del__(self) -> None:
        with contextlib.suppress(OSError, BufferError):  # a slot that is still held keeps the memory, not the name
            self.close()


class Ring:
    """N slots of one shape in one block of shared memory, for one producer and one consumer.

    slots             N, how many items may wait
    shape             of an item, and its `dtype`
    context           of `multiprocessing.get_context(method)`; must be the one that starts the processes
    deadline_seconds  how long a put or a take waits for the other side before it raises TimeoutError and says which side is
                      stuck
    start_seconds     the same while the other side has not called the ring at all: it may still be importing torch

    Create it in a `with` block and pass it to the children as an argument: the end of the block releases the memory,
    whatever happened in it. Raises LabError for a ring that does not fit into shared memory.
    """

    def __init__(
        self,
        slots: int,
        shape: Sequence[int],
        dtype: Any = np.float32,
        *,
        context: Any = None,
        deadline_seconds: float = 10.0,
        start_seconds: float = 120.0,
    ) -> None:
        if slots < 1:
            raise LabError(f"A ring of {slots} slots cannot hold anything.", "Give it one slot or more.")
        if not np.prod(shape, dtype=int):
            raise LabError(f"Items of shape {tuple(shape)} have no elements.", "Give every dimension a length above 0.")
        context = context or multiprocessing.get_context()
        self.slots, self.shape, self.dtype = slots, tuple(shape), np.dtype(dtype)
        self.deadline_seconds, self.start_seconds = deadline_seconds, start_seconds
        nbytes = LINE + slots * self._stride
        room = shutil.disk_usage(SHM).free if SHM.is_dir() else None
        if room is not None and nbytes > room:  # otherwise the system would kill the process at the first write
            raise LabError(
                f"A ring of {nbytes / 1e6:.1f} MB does not fit into /dev/shm, which has {room / 1e6:.1f} MB left.",
                "Use fewer or smaller slots, or give the container more (docker run --shm-size=1g).",
            )
        with needs_shared_memory():
            self._free, self._filled = context.Semaphore(slots), context.Semaphore(0)
            self._memory = _Memory(f"hpml_{os.getpid()}_{secrets.token_hex(4)}", create=True, size=nbytes)
        self._owner = os.getpid()
        self._map()
        self._counts[:] = 0

    @property
    def _stride(self) -> int:
        """Bytes from one slot to the next."""
        return -(-int(np.prod(self.shape)) * self.dtype.itemsize // LINE) * LINE

    def _map(self) -> None:
        # frombuffer keeps the memory alive (np.ndarray(buffer=…) does not: a view kept too long would crash the process)
        self._counts = np.frombuffer(self._memory.buf, np.int64, 5)
        offsets = range(LINE, LINE + self.slots * self._stride, self._stride)
        size = int(np.prod(self.shape))
        self._views = [np.frombuffer(self._memory.buf, self.dtype, size, offset).reshape(self.shape) for offset in offsets]

    @property
    def name(self) -> str:
        """The block's name, under which /dev/shm shows it. It contains the id of the process that created the ring."""
        return self._memory.name

    @property
    def put_count(self) -> int:
        return int(self._counts[PUT])

    @property
    def taken_count(self) -> int:
        return int(self._counts[TAKEN])

    @contextlib.contextmanager
    def filling(self) -> Iterator[np.ndarray]:
        """The next free slot, to write into; at the end of the `with` block its item counts as put.

        If the block raises, nothing was put. Raises TimeoutError if no slot becomes free within the deadline.
        """
        self._wait(self._free, PRODUCER, "put waited {} s for a free slot, but all are filled: the consumer {}")
        try:
            yield self._views[self.put_count % self.slots]
        except BaseException:
            self._free.release()
            raise
        self._counts[PUT] += 1
        self._filled.release()

    @contextlib.contextmanager
    def reading(self) -> Iterator[np.ndarray]:
        """The oldest item, in its slot; at the end of the `with` block the slot is free, so copy what you keep.

        If the block raises, the item stays. Raises EOFError after the last item, and TimeoutError if none comes.
        """
        self._wait(self._filled, CONSUMER, "take waited {} s for an item, but the ring is empty: the producer {}")
        if self._counts[ENDED] and self.taken_count == self.put_count:
            self._filled.release()  # so that the next call ends too
            raise EOFError("the producer has finished, and every item is taken")
        try:
            yield self._views[self.taken_count % self.slots]
        except BaseException:
            self._filled.release()
            raise
        self._counts[TAKEN] += 1
        self._free.release()

    def put(self, item: Any) -> None:
        """Copy `item` into the next free slot."""
        with self.filling() as slot:
            if np.ndim(item) and np.shape(item) != slot.shape:  # which would be repeated over the slot, or not fit
                raise ValueError(f"an item of shape {np.shape(item)} is not one of {slot.shape}, as the ring's slots are")
            slot[...] = item

    def take(self) -> np.ndarray:
        """A copy of the oldest item, in the order in which they were put."""
        with self.reading() as slot:
            return slot.copy()

    def finish(self) -> None:
        """No more items will come: once all are taken, the consumer gets EOFError."""
        self._counts[ENDED] = 1
        self._filled.release()

    def _wait(self, semaphore: Any, side: int, problem: str) -> None:
        """Wait for the partner. Its deadline starts with this call, or with its own first call if that is later."""
        start = time.monotonic_ns()
        self._counts[side] = self._counts[side] or start
        partner = CONSUMER if side == PRODUCER else PRODUCER
        while True:
            came = int(self._counts[partner])
            end = max(start, came) + 1e9 * self.deadline_seconds if came else start + 1e9 * self.start_seconds
            left = max(0.0, (end - time.monotonic_ns()) / 1e9)
            if semaphore.acquire(timeout=left if came else min(left, STEP)):
                return
            if not left and came == self._counts[partner]:
                break
        seconds, state = (self.deadline_seconds, "is stuck or gone") if came else (self.start_seconds, "has not started")
        counts = f"({self.put_count} put, {self.taken_count} taken)"
        raise TimeoutError(f"{problem.format(format(seconds, 'g'), state)} {counts}.")

    def close(self) -> None:
        """Release the memory and, in the process that created the ring, its name. A second call does nothing."""
        if self._owner == os.getpid():
            self._owner = None
            self._memory.unlink()
        self._counts = self._views = None
        with contextlib.suppress(BufferError):  # a slot is still held, perhaps by an exception's traceback
            self._memory.close()

    def __enter__(self) -> "Ring":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_counts", "_views", "_owner")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _owner=None)
        self._map()
