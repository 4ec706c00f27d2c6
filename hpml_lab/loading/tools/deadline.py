"""A DataLoader whose faults are reported: a worker that raises, hangs, is killed, or finds no shared memory left.

DataLoader reports each in a different way, and a worker that hangs not at all. Here each is one LabError that says at which
batch it happened and what to do. It comes within a deadline, and no worker is left behind.

The loader may be of any class. It is as it was when the block is left, and in the block it is as without us: what its workers
note stands in a shared memory of ours, and the deadline is an alarm of this thread, not torch's `timeout`.
"""

import contextlib
import gc
import re
import types
from collections.abc import Iterator
from multiprocessing import active_children
from multiprocessing.sharedctypes import RawArray
from multiprocessing.util import get_temp_dir
from os import getpid
from traceback import walk_tb
from typing import Any
from unittest import mock
from weakref import WeakKeyDictionary

from torch.utils.data import BatchSampler, DataLoader, IterableDataset, _utils, get_worker_info
from torch.utils.data.dataloader import _BaseDataLoaderIter

from hpml_lab.core.system.errors import LabError, error_text
from hpml_lab.core.system.pickling import cannot_be_sent, failed_to_pickle
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import (
    allow_oversubscription,
    needs_shared_memory,
    require_seconds,
    shutdown_workers,
    sleep_until,
)
from hpml_lab.loading.tools.alarm import TooLateError, alarm, shared_alarms
from hpml_lab.loading.tools.next_batch import RAISED, faults_are_errors, is_stop, stop_error, stop_is_an_error

# A disk is full in the same words, but for the names of shared memory.
FULL = re.compile(
    r"Bus error|out of shared memory|unable to (mmap|write to file|allocate shared)"
    r"|(?m:^)(?=.*/(torch_\d|psm_|dev/shm)).*No space left on device"
)
FULL_FIX = "Give it more (docker run --shm-size=2g), or use smaller batches, fewer workers, or a lower prefetch_factor."
SEND_FIX = (
    "Workers that start anew (spawn, forkserver) get the data set, collate_fn and worker_init_fn by pickle: use functions and "
    'classes of a module, and open files and connections in the worker, or multiprocessing_context="fork".'
)
DEAD_FIX = (
    "If no traceback of it stands above, the system ran out of memory, or somebody stopped it. Use fewer workers or smaller "
    "batches; with num_workers=0 a crash shows its line."
)
SAMPLER_FIX = "An iterator in it may have had no more items. Give the sampler the length that it has: __len__."
START_SECONDS = 120.0  # for all workers to start: on a busy machine, a new interpreter imports torch for a long time
END_SECONDS = 0.2  # for each worker to end by itself after a fault; torch gives 5, one worker after the other
DIED = re.compile(r"DataLoader worker \(pid(?:\(s\))? ([\d, ]+)\) (?:is killed by signal: ([^.]+)|exited unexpectedly)")
LATE = re.compile(r"DataLoader timed out after ([\d.]+)")
ENDED = "ended without an error message"


class _Notes:
    """What the workers of one iterator note in shared memory, each at its own number.

    pids, started  its process, and when it began; 0 before
    finished       how many batches it has finished
    whole          whether the epoch before was run to its end: else the workers still count some of its batches
    """

    def __init__(self, workers: int) -> None:
        self.pids, self.finished, self.started = RawArray("q", workers), RawArray("q", workers), RawArray("d", workers)
        self.whole = True


# Of the workers that outlive an epoch.
_NOTES: WeakKeyDictionary[Any, _Notes] = WeakKeyDictionary()


class _Noted:
    """A function of the loader, with what is noted besides. In all else it is that function."""

    def __init__(self, given: Any, notes: _Notes | None) -> None:
        self.given, self.notes = given, notes

    def __getattr__(self, name: str) -> Any:
        if name in ("given", "notes") or name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.given, name)


class _NotedCollate(_Noted):
    """The loader's collate function, which also counts how many batches each worker has finished."""

    def __call__(self, samples: Any) -> Any:
        batch = stop_is_an_error(self.given, samples)  # of an iterable-style data set a StopIteration would be the end
        if self.notes is not None and (worker := get_worker_info()) is not None:
            self.notes.finished[worker.id] += 1
        return batch


class _NotedStart(_Noted):
    """The loader's worker_init_fn, which first notes that the worker has started."""

    def __call__(self, worker_id: int) -> None:
        self.notes.finished[worker_id], self.notes.pids[worker_id] = 0, getpid()
        self.notes.started[worker_id] = CLOCK()
        if self.given is not None:
            self.given(worker_id)


@contextlib.contextmanager
def with_deadline(loader: DataLoader, deadline_seconds: float = 60.0) -> Iterator[Iterator[Any]]:
    """`with with_deadline(loader) as batches: for batch in batches: …`: one epoch, whose faults are LabErrors with their cause.

    deadline_seconds  to wait for a batch, from when all workers have started. In the main thread of Linux and macOS, SIGALRM
                      interrupts the wait; elsewhere, or if the program uses that itself, up to 5 s later, and a data set that
                      hangs in this process outside of Python cannot be stopped.
    Errors of the block itself pass unchanged. In every case the workers that were started have ended afterwards, unless all
    went well and the loader keeps them.
    """
    if not isinstance(loader, DataLoader):
        raise LabError(f"loader is a {type(loader).__name__}, not a DataLoader.", "Wrap the data set: DataLoader(dataset, …).")
    epoch, fault = _Epoch(loader, require_seconds("deadline_seconds", deadline_seconds)), None
    try:
        with faults_are_errors(), shared_alarms(loader.num_workers == 0):  # in the block, too: a loader may load ahead
            epoch.start()
            yield epoch.batches()
    except RuntimeError as error:
        fault = error
        # A worker's death reaches the main process by a signal: it may strike in the middle of the block.
        if (died := DIED.search(error_text(error))) and epoch.has(died[1]):
            raise epoch.explained(error, epoch.number + 1) from error
        raise
    except BaseException as error:
        fault = error
        raise
    finally:
        epoch.end(fault)
        fault = None  # its traceback has this frame


class _Epoch:
    """One epoch of a loader. number: the batch that is waited for; -1 before the first."""

    def __init__(self, loader: DataLoader, deadline_seconds: float) -> None:
        self.loader, self.deadline_seconds = loader, deadline_seconds
        self.iterator: Any = None
        self.notes: _Notes | None = None
        self.number, self.counted, self.over = -1, True, False
        self.failed: BaseException | None = None  # what was wrong with the loader, whatever the block made of it
        self.own = vars(loader)
        if "collate_fn" not in self.own:  # a wrapper, which shows the attributes of the loader that it has
            self.own = next((vars(value) for value in self.own.values() if isinstance(value, DataLoader)), self.own)
        self.before, self.held = set(active_children()), dict(self.own)

    def start(self) -> None:
        get_temp_dir()  # workers share this process's, which goes with it; of their own, a killed one would leave it behind
        workers = self.loader.num_workers
        try:
            with needs_shared_memory() if workers else contextlib.nullcontext():
                self.notes = _Notes(workers) if workers else None
                with self._noting(), self._alarm():
                    self.iterator = iter(self.loader)
        except LabError:
            raise
        except (Exception, TooLateError) as error:
            self.failed = error
            raise self.explained(error, 0, starting=True) from error
        if self.notes is not None:
            with contextlib.suppress(TypeError):  # an iterator that cannot be found again is used once
                if self.before.issuperset(active_children()):  # it has the workers of an epoch before
                    self.notes = _NOTES.get(self.iterator, self.notes)
                _NOTES[self.iterator] = self.notes
            self.counted, self.notes.whole = self.notes.whole, False

    def batches(self) -> Iterator[Any]:
        while True:
            self.number += 1
            if self.over:
                raise LabError("This epoch is over: its block was left, and its workers have ended.", "Loop in the block.")
            try:
                with self._alarm(), self._noting() if self.number == 0 else contextlib.nullcontext():
                    batch = next(self.iterator)
            except StopIteration:
                break
            except (Exception, TooLateError) as error:
                if (died := DIED.search(error_text(error))) and not self.has(died[1]):
                    raise  # of another loader, whose worker's death came by a signal
                self.failed = error
                raise self.explained(error, self.number) from error
            yield batch
        self._rewind()
        self._require_all()

    def _require_all(self) -> None:
        """A sampler that ended before its length is an error: to the loop it is an epoch like any other.

        Only where the length is the sampler's: a stream's, or a batch sampler's of one's own, may be an estimate.
        """
        loader = self.loader
        own = type(loader).__iter__ is not DataLoader.__iter__ or type(loader.batch_sampler) not in (BatchSampler, type(None))
        if own or isinstance(loader.dataset, IterableDataset) or hasattr(loader.sampler, "load_state_dict"):  # may be resumed
            return
        with contextlib.suppress(TypeError, NotImplementedError):  # it has no length
            if self.number < (length := DataLoader.__len__(loader)):
                raise LabError(f"The sampler gave {self.number} of {length} batches.", SAMPLER_FIX)

    def _rewind(self) -> None:
        """The epoch has been run to its end, so that no worker counts any more."""
        if self.notes is not None:
            self.notes.whole, self.notes.finished[:] = True, [0] * len(self.notes.finished)

    def end(self, fault: BaseException | None) -> None:
        """End what was started. Workers that the loader had before are its own, and those that it keeps if all went well."""
        self.over = True
        persistent, fault = getattr(self.loader, "persistent_workers", False), self.failed or fault
        if fault is None and persistent:
            return
        kept = self.own.get("_iterator") if persistent else None  # so torch names what stays from epoch to epoch
        passed = [each for each in (*_passed(self.failed), *self._made()) if self.before.isdisjoint(each._workers)]
        with mock.patch.object(_utils, "MP_STATUS_CHECK_INTERVAL", END_SECONDS if fault else _utils.MP_STATUS_CHECK_INTERVAL):
            for iterator in (self.iterator, kept, *passed):
                if isinstance(iterator, types.GeneratorType) or hasattr(iterator, "_shutdown_workers"):
                    shutdown_workers(iterator)
        for iterator in (kept, *(other for other in passed if other is not self.iterator)):
            self._forget(iterator)
        self.failed = None  # its traceback has this epoch: in such a circle, batches would stay in shared memory

    def _made(self) -> list[Any]:
        """DataLoader's iterators that collate for this epoch: that of the loader may be an object around them."""
        if self.notes is None or self.before.issuperset(active_children()):
            return []
        iterators = [each for each in gc.get_objects() if issubclass(type(each), _BaseDataLoaderIter)]
        return [each for each in iterators if getattr(vars(each).get("_collate_fn"), "notes", None) is self.notes]

    def _forget(self, iterator: Any) -> None:
        """An iterator has ended: if the loader keeps it for its next epoch, it is again as before the first one."""
        for name in [name for name, value in self.own.items() if value is iterator is not None]:
            if name == "_iterator":
                self.own[name] = None
            elif name not in self.held:
                del self.own[name]
            else:
                self.own[name] = self.held[name]

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """While the block makes the loader's iterator, its two functions take notes besides. Then they are its own again."""
        own, noted = self.own, {}
        for name, kind in (("collate_fn", _NotedCollate), ("worker_init_fn", _NotedStart)):
            if name in own and (kind is _NotedCollate or self.notes is not None):
                given = own[name].given if isinstance(own[name], _Noted) else own[name]  # of another thread's epoch
                noted[name] = own[name] = kind(given, self.notes)
        try:
            with allow_oversubscription():
                yield
        finally:
            own.update({name: value.given for name, value in noted.items() if own[name] is value})

    def _alarm(self) -> Any:
        return alarm(self._left, self.deadline_seconds)

    def _left(self, asked: float) -> float:
        """Seconds until the batch that was asked for then is too late, or until that is to be asked again."""
        deadline, started = self.deadline_seconds, self.notes.started[:] if self.notes is not None else []
        # With none of them noted, new processes are the workers, or else the loader had its own before.
        some = any(started) or self.number <= 0 and not self.before.issuperset(active_children())
        if some and not all(started):
            return min(deadline, asked + START_SECONDS + deadline - CLOCK())  # a new interpreter still imports torch
        return max([asked, *started]) + deadline - CLOCK()

    def has(self, pids: str) -> bool:
        """Whether a worker of these process ids may be this epoch's."""
        noted = [str(pid) for pid in self.notes.pids if pid] if self.notes is not None else []
        return not noted or any(pid in noted for pid in pids.split(", "))

    def explained(self, error: BaseException, number: int, *, starting: bool = False) -> LabError:
        """What an error means that came while batch `number` was waited for."""
        text = error_text(error)
        died = DIED.search(text)
        at = self._at(died[1], number) if died else f"at batch {number}"
        if FULL.search(text):
            return LabError(f"No shared memory was left in /dev/shm {at}.", FULL_FIX)
        if (late := LATE.search(text)) or isinstance(error, TooLateError):
            who = "a worker" if self.loader.num_workers else "the data set"
            return LabError(
                f"No batch came within {float(late[1]) if late else self.deadline_seconds:g} s {at}: {who} hangs, or is slower "
                "than that.",
                "Look for a lock or a network read without a timeout in the data set, or raise the deadline. If an object "
                "cannot be pickled, as it says above, that is a worker's error: define its class in a module.",
            )
        if died:
            return self._dead(died[1], number, f"was killed by signal {died[2]}" if died[2] else ENDED)
        raised = RAISED.search(text)
        if is_stop(error):
            return stop_error(f"Worker {raised[2]}" if raised else "The data set", number)
        if raised:
            lines = re.findall(rf"^[ |]*(\S*\b{raised[1]}\b.*)", text, re.MULTILINE)  # of several lines, the first names it
            return LabError(
                f"Worker {raised[2]} raised {lines[-1].rpartition('UnsentError: ')[2] if lines else raised[1]} {at}.",
                "The traceback above shows where in the data set.",
            )
        if failed_to_pickle(error):
            return cannot_be_sent("The data set or a function of the loader", error, SEND_FIX)
        # A worker that ends while one of its batches is fetched closes the socket through which it comes.
        if isinstance(error, EOFError | OSError) and (pids := ", ".join(self._ended_workers())):
            return self._dead(pids, number, ENDED)
        if starting and self.loader.num_workers and isinstance(error, OSError | MemoryError | RuntimeError):
            return LabError(
                f"{self.loader.num_workers} workers could not start ({type(error).__name__}: {text}).",
                "Use fewer, or allow more open files (ulimit -n), processes (ulimit -u) or memory.",
            )
        return LabError(f"The data set raised {type(error).__name__}: {text} {at}.", "The traceback above shows where.")

    def _dead(self, pids: str, number: int, how: str) -> LabError:
        return LabError(f"A worker (process {pids}) {how} {self._at(pids, number)}.", DEAD_FIX)

    def _ended_workers(self) -> list[str]:
        """The process ids of the workers that have ended, or end within a second."""
        noted, end = [pid for pid in self.notes.pids if pid] if self.notes is not None else [], CLOCK() + 1.0
        while noted:
            running = {worker.pid for worker in active_children()}
            ended = [str(pid) for pid in noted if pid not in running]
            if ended or CLOCK() > end:
                return ended
            sleep_until(CLOCK() + 0.01)
        return []

    def _at(self, pids: str, number: int) -> str:
        """Where a dead worker was: not at the batch that the loop waited for, which may be another worker's.

        Batches are dealt out in turns, so the next one of worker w that has finished n is w + n · workers. If no such batch can
        be under way, somebody else has used these workers, too; of workers that the loader had before, nothing is known.
        """
        known = self.notes is not None and self.counted and getattr(self.loader, "in_order", True)
        workers = self.notes.pids[:] if self.notes is not None and known else []
        ahead = len(workers) * (getattr(self.loader, "prefetch_factor", None) or 2)
        dead = [index for index, pid in enumerate(workers) if str(pid) in pids.split(", ")]
        under_way = [index + self.notes.finished[index] * len(workers) for index in dead] if self.notes is not None else []
        possible = [batch for batch in under_way if number <= batch <= number + ahead]
        return f"at batch {min(possible)}" if possible else f"while batch {number} was waited for"


def _passed(error: BaseException | None) -> Iterator[Any]:
    """DataLoader's iterators that an error has passed through: its traceback keeps them, and their workers, alive."""
    while error is not None:
        for frame, _ in walk_tb(error.__traceback__):
            if hasattr(iterator := frame.f_locals.get("self"), "_shutdown_workers") and hasattr(iterator, "_workers"):
                yield iterator
        error = error.__cause__ or error.__context__
