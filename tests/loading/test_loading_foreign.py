"""Loaders of other classes: they are iterated as without us, they are left as they were, and their faults have their batch."""

import contextlib
import gc
import itertools
import logging
import os
import pickle
import queue
import re
import resource
import signal
import sqlite3
import threading
import time
from fractions import Fraction

import numpy as np
import pytest
import torch
from timm.data.loader import MultiEpochsDataLoader
from torch._utils import ExceptionWrapper
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, default_collate
from torch.utils.data._utils.fetch import _IterableDatasetFetcher, _MapDatasetFetcher
from torchdata.stateful_dataloader import StatefulDataLoader

from hpml_lab.core.system.children import run_in_child
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import child_pids
from hpml_lab.loading import DevicePrefetcher, Fetch, ThreadPrefetcher, run_epoch, tune
from hpml_lab.loading.tools.alarm import TooLateError, alarm
from hpml_lab.loading.tools.deadline import with_deadline
from hpml_lab.loading.tools.known_datasets import FaultyData, KnownCost

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata calls it


class Moving(DataLoader):
    """As accelerate's DataLoaderShard: each batch is moved to its device by a generator."""

    def __iter__(self):
        for batch in super().__iter__():
            yield batch.to("cpu")


class KeptLater(DataLoader):
    """Keeps the iterator of its first epoch, and so the workers."""

    def __iter__(self):
        if not hasattr(self, "kept"):
            self.kept = super().__iter__()
        elif self.num_workers:
            self.kept._reset(self)
        else:
            self.kept = super().__iter__()
        for _ in range(len(self)):
            yield next(self.kept)


class Wrapping(DataLoader):
    """As accelerate's adapter: it has a loader, whose attributes it shows as its own."""

    def __init__(self, *arguments, **options):
        self.__dict__["base"] = DataLoader(*arguments, **options)

    def __getattr__(self, name):
        return getattr(self.__dict__["base"], name)

    def __iter__(self):
        yield from self.base

    def __len__(self):
        return len(self.base)


class Frozen(DataLoader):
    """Takes no attributes once it is made, as loaders that a framework wraps."""

    def __setattr__(self, name, value):
        if name != "_iterator" and "made" in self.__dict__:
            raise AttributeError(f"{name} is frozen")
        super().__setattr__(name, value)

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.__dict__["made"] = True


class Around:
    """As the iterator of PyG's loaders: an object around torch's, which nothing of a loader tells from its own."""

    def __init__(self, iterator):
        self.iterator = iterator

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.iterator)


class Neighbors(DataLoader):
    def _get_iterator(self):
        return Around(super()._get_iterator())


KINDS = [DataLoader, Moving, MultiEpochsDataLoader, KeptLater, Wrapping, Frozen, StatefulDataLoader, Neighbors]


def own(loader):
    """The loader's attributes, but for the iterator that it keeps."""
    return {name: value for name, value in vars(loader).items() if name not in ("_iterator", "iterator", "kept")}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_gives_its_batches_and_is_left_as_it_was(kind, workers):
    loader = kind(KnownCost(20), 4, num_workers=workers)
    before = own(loader)
    for _ in range(2):
        with with_deadline(loader) as batches:
            first = next(batches)
            assert own(loader) == before, "in the block, too"
            assert [int(batch[0, 0]) for batch in (first, *batches)] == [0, 4, 8, 12, 16]
        assert own(loader) == before
    for leave in (StopAsyncIteration, None):
        try:
            with with_deadline(loader) as batches:
                next(batches)
                if leave:
                    raise leave
        except StopAsyncIteration:
            pass
        assert own(loader) == before


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_that_are_asked_for_after_the_block_are_an_error_and_not_the_end(workers):
    with with_deadline(DataLoader(KnownCost(20), 4, num_workers=workers)) as batches:
        next(batches)
    with pytest.raises(LabError, match="its block was left"):
        next(batches)


def fault_of(kind, fault, workers, deadline):
    """In a child: what is reported of a fault, and then of the same loader's next epoch, and who is left."""
    loader, found = kind(FaultyData(fault, at=13), 4, num_workers=workers), []
    before = own(loader)
    for _ in range(2):
        try:
            with with_deadline(loader, deadline) as batches:
                for _ in batches:
                    pass
        except LabError as error:
            found.append(error.problem)
    return found, child_pids(), own(loader) == before


FAULTS = {
    "raises": r"^Worker \d raised KeyError: 'no label for sample 13' at batch 3\.$",
    "hangs": r"^No batch came within 1 s at batch 3: a worker hangs, or is slower than that\.$",
    "killed": r"^A worker \(process \d+\) (was killed by signal Killed|ended without an error message) at batch [23]\.$",
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", KINDS[1:])
def test_a_fault_of_each_kind_has_its_batch_and_no_worker_is_left(kind, fault):
    outcome = run_in_child(fault_of, kind, fault, 2, 1.0 if fault == "hangs" else 60.0, method="fork", deadline_seconds=300.0)
    assert outcome.how == "returned", outcome
    (first, second), left, unchanged = outcome.value
    assert re.search(FAULTS[fault], first) and re.search(FAULTS[fault], second), outcome
    assert not left and unchanged


# --- a loader that can say how far it is -------------------------------------------------------------------------------------


def states(loader, iterate):
    """The state before each batch but the last, and after a break; and the rest that another loader gives from there."""
    found = []
    torch.manual_seed(0)  # it is in the state, too
    with iterate(loader) as batches:
        for number, _ in enumerate(batches):
            found.append(pickle.loads(pickle.dumps(loader.state_dict())))
            if number == 2:
                break
    found.append(loader.state_dict())
    again = StatefulDataLoader(KnownCost(20), 4, num_workers=loader.num_workers)
    again.load_state_dict(found[-1])
    with iterate(again) as batches:
        return found, [int(batch[0, 0]) for batch in batches]


@contextlib.contextmanager
def plainly(loader):
    yield iter(loader)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_in_the_middle_of_an_epoch_is_as_without_us(workers):
    plain, watched = (
        states(StatefulDataLoader(KnownCost(20), 4, num_workers=workers), iterate) for iterate in (plainly, with_deadline)
    )
    assert watched == plain and watched[1] == [12, 16], "a resumed epoch is no error, though shorter than its length"


# --- a StopIteration is an error ---------------------------------------------------------------------------------------------


class Drained(torch.utils.data.Dataset):
    """Reads from an iterator of its own that is shorter than its length."""

    def __init__(self):
        self.rows = iter(range(6))

    def __len__(self):
        return 16

    def __getitem__(self, index):
        return torch.tensor([float(next(self.rows))])


def stops_at_4(samples):
    """A collate_fn that lets a StopIteration out."""
    return next(iter([])) if samples[0][0] == 4 else torch.stack(samples)


class FromGenerator(Drained):
    def __getitem__(self, index):
        return next(self.rows_of())

    def rows_of(self):
        yield torch.tensor([float(next(self.rows))])


class BadSampler:
    def __iter__(self):
        rows = iter(range(6))
        while True:
            yield next(rows)

    def __len__(self):
        return 16


STOPS = {
    "data set": lambda kind, **options: kind(Drained(), 4, **options),
    "generator in it": lambda kind, **options: kind(FromGenerator(), 4, **options),
    "collate_fn": lambda kind, **options: kind(KnownCost(16), 4, collate_fn=stops_at_4, **options),
    "sampler": lambda kind, **options: kind(KnownCost(16), 4, sampler=BadSampler(), **options),
}


def through_deadline(loader, seen):
    with with_deadline(loader) as batches:
        for batch in batches:
            seen.append(batch)


WAYS = {
    "with_deadline": through_deadline,
    "run_epoch": lambda loader, seen: run_epoch(loader, seen.append),
    "ThreadPrefetcher": lambda loader, seen: [seen.append(batch) for batch in ThreadPrefetcher(loader)],
    "DevicePrefetcher": lambda loader, seen: [seen.append(batch) for batch in DevicePrefetcher(loader, "cpu")],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [DataLoader, Moving, StatefulDataLoader])
@pytest.mark.parametrize("where", STOPS)
def test_a_stop_iteration_is_an_error_with_its_batch(where, kind, way):
    seen = []
    with pytest.raises(LabError, match=r"^The data set raised StopIteration at batch 1\. .*length that it has"):
        WAYS[way](STOPS[where](kind), seen)
    assert len(seen) == 1, "what came before is given"


@pytest.mark.parametrize("kind", [DataLoader, Moving])
@pytest.mark.parametrize("where", ["data set", "collate_fn"])
def test_a_stop_iteration_of_a_worker_is_an_error_with_its_batch(where, kind):
    seen = []
    with pytest.raises(LabError, match=r"^Worker 0 raised StopIteration at batch 1\."):
        through_deadline(STOPS[where](kind, num_workers=1), seen)
    assert len(seen) == 1 and not child_pids()


class InThread(DataLoader):
    """Loads ahead in a thread of its own, also while the loop is at work, as MONAI's ThreadDataLoader does."""

    def __iter__(self):
        batches = queue.Queue()

        def fill():
            try:
                for batch in super(InThread, self).__iter__():
                    batches.put(batch)
                    time.sleep(0.1)
            except Exception as error:
                batches.put(error)
            batches.put(None)

        threading.Thread(target=fill, daemon=True).start()
        while (batch := batches.get()) is not None:
            if isinstance(batch, Exception):
                raise batch
            yield batch


class SlowSteps(list):
    def append(self, batch):
        super().append(batch)
        time.sleep(0.3)


@pytest.mark.parametrize("way", ["with_deadline", "run_epoch"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_stop_iteration_while_the_loop_is_at_work_is_an_error(workers, way):
    seen = SlowSteps()
    with pytest.raises(LabError, match=r"raised StopIteration at batch 1\."):
        WAYS[way](InThread(Drained(), 4, num_workers=workers), seen)
    assert len(seen) == 1


class EndsEarly:
    """A sampler that gives the first of its indices: its iterator's StopIteration is, to any loop, an ordinary end."""

    def __init__(self, given, length=16):
        self.given, self.length = given, length

    def __iter__(self):
        return iter(range(self.given))

    def __len__(self):
        return self.length


class Resumed(EndsEarly):
    """One that goes on in the middle of an epoch, as torchdata's StatefulDistributedSampler."""

    def load_state_dict(self, state):
        self.given = state


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sampler_that_ends_early_is_an_error_where_its_length_is_known(workers):
    def load(data, batch_size=4, **options):
        through_deadline(DataLoader(data, batch_size, num_workers=workers, **options), seen := [])
        return len(seen)

    before = child_pids()  # of other tests
    for options, text in (
        ({}, "2 of 4"),
        ({"drop_last": True}, "1 of 4"),
        ({"batch_size": None}, "6 of 16"),
        ({"persistent_workers": workers > 0}, "2 of 4"),
    ):
        with pytest.raises(LabError, match=rf"^The sampler gave {text} batches\."):
            load(KnownCost(16), sampler=EndsEarly(6), **options)
        assert child_pids() <= before
    assert load(KnownCost(16), sampler=EndsEarly(6, 6)) == 2
    assert load(KnownCost(16), sampler=EndsEarly(6, 6), drop_last=True) == 1
    assert load(KnownCost(16), sampler=Resumed(6)) == 2
    assert load(KnownCost(16), sampler=iter(range(6))) == 2, "without a length"
    assert load(KnownCost(16), 1, batch_sampler=BatchSampler(EndsEarly(6, 6), 4, False)) == 2
    assert load(Counted(), 4) == 2, "a stream's length may be an estimate"
    loader = StatefulDataLoader(KnownCost(16), 4, num_workers=workers)
    next(iter(loader))
    state = loader.state_dict()
    again = StatefulDataLoader(KnownCost(16), 4, num_workers=workers)
    again.load_state_dict(state)
    through_deadline(again, seen := [])
    assert len(seen) == 3


class Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(8.0).reshape(8, 1))


class Counted(Stream):
    def __len__(self):
        return 16


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("workers", [0, 1])
def test_the_end_of_a_stream_is_an_end_and_a_stop_iteration_of_its_collate_fn_is_none(workers, way):
    seen = []
    WAYS[way](DataLoader(Stream(), 4, num_workers=workers), seen)
    assert len(seen) == 2
    with pytest.raises(LabError, match=r"raised StopIteration at batch 1\."):
        WAYS[way](DataLoader(Stream(), 4, num_workers=workers, collate_fn=stops_at_4), seen)
    assert len(seen) == 3


def test_a_fetch_that_lets_a_stop_iteration_out_is_an_error_and_torch_is_as_before():
    before = _MapDatasetFetcher.fetch, _IterableDatasetFetcher.fetch, ExceptionWrapper.reraise
    got = []
    with pytest.raises(LabError, match=r"^The data set raised StopIteration at batch 2\."):
        for batch in ThreadPrefetcher(range(9), lambda number: number if number < 2 else next(iter([])), threads=2):
            got.append(batch)
    with pytest.raises(LabError, match=r"at batch 1\."):
        got.extend(map(len, ThreadPrefetcher(BatchSampler(BadSampler(), 4, False), Fetch(KnownCost(16)), threads=2)))
    assert got == [0, 1, 2]
    assert (_MapDatasetFetcher.fetch, _IterableDatasetFetcher.fetch, ExceptionWrapper.reraise) == before


def test_a_batch_that_was_loaded_is_given_though_the_next_one_fails():
    def batches():
        yield torch.zeros(1)
        yield torch.ones(1)
        raise OSError("disk on fire")

    got = []
    with pytest.raises(OSError, match="disk on fire"):
        for batch in DevicePrefetcher(batches(), "cpu"):
            got.append(batch.item())
    assert got == [0, 1]

    def requests():
        yield from range(3)
        raise OSError("no such file")

    got = []
    with pytest.raises(OSError, match="no such file"):
        for batch in ThreadPrefetcher(requests(), abs, depth=3):
            got.append(batch)
    assert got == [0, 1, 2]


# --- any exception, any thread, any start method -----------------------------------------------------------------------------


class Rude(Exception):
    def __str__(self):
        raise RuntimeError("no text")


class Described(Exception):
    """Has a `message`, as exceptions of many clients of services have, and wants more than that."""

    message = "no answer"

    def __init__(self, code, reason):
        super().__init__(f"{code}: {reason}")


class Raises(KnownCost):
    def __init__(self, make):
        super().__init__(16)
        self.make = make

    def __getitem__(self, index):
        if index == 9:
            raise self.make()
        return super().__getitem__(index)


RAISED = {
    "ExceptionGroup: several (2 sub-exceptions)": lambda: ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
    "Rude: ": Rude,
    "test_loading_foreign.Described: 503: busy": lambda: Described(503, "busy"),
    "StopAsyncIteration: the end": lambda: StopAsyncIteration("the end"),
}


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("text", RAISED)
def test_the_true_error_of_a_data_set_is_named(text, workers):
    text = text if workers else text.removeprefix("test_loading_foreign.")
    with pytest.raises(LabError, match=re.escape(text) + r".*at batch 2\."):
        through_deadline(DataLoader(Raises(RAISED[[name for name in RAISED if text in name][0]]), 4, num_workers=workers), [])


def local_error():
    class BrokenFile(Exception):
        pass

    return BrokenFile("a.jpg")


def interrupted_group():
    return BaseExceptionGroup("several", [ValueError("a"), GeneratorExit()])


class LocalStream(IterableDataset):
    def __iter__(self):
        raise local_error()
        yield


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Raises(local_error), "BrokenFile: a.jpg at batch 2."),
        (lambda: Raises(interrupted_group), "BaseExceptionGroup: several (2 sub-exceptions) at batch 2."),
        (LocalStream, "BrokenFile: a.jpg at batch 0."),
    ],
)
def test_an_error_that_a_worker_cannot_send_is_named(make, text):
    """torch leaves one of a local class in the worker, and the loop waits; of one that is no Exception the worker dies."""
    with pytest.raises(LabError, match=rf"^Worker 0 raised {re.escape(text)}"):
        with with_deadline(DataLoader(make(), 4, num_workers=1), 8.0) as batches:
            list(batches)


def hang_in_a_thread(workers):
    """In a child: a worker hangs while another thread than the main one waits for it; another loader's are not ended."""
    other = iter(DataLoader(KnownCost(32), 4, num_workers=1))
    next(other)
    with_threads = threading.active_count()
    try:
        with with_deadline(DataLoader(FaultyData("hangs"), 4, num_workers=workers), 1.0) as batches:
            for _ in ThreadPrefetcher(batches):
                pass
    except LabError as error:
        return error.problem, len(child_pids()), threading.active_count() - with_threads, len(list(other))


def test_a_deadline_holds_in_any_thread():
    outcome = run_in_child(hang_in_a_thread, 2, method="fork", deadline_seconds=300.0)
    assert outcome.value == ("No batch came within 1 s at batch 1: a worker hangs, or is slower than that.", 1, 0, 7), outcome


class Retries(KnownCost):
    """Its reads do not answer, and a bare `except:` tries them again, or gives another sample."""

    def __init__(self, size, times):
        super().__init__(size)
        self.times = times

    def __getitem__(self, index):
        for _ in self.times if index == 5 else ():
            try:
                time.sleep(600)
            except:  # noqa: E722
                pass
        return super().__getitem__(index)


@pytest.mark.parametrize("times", [range(1), range(3), itertools.count()])
def test_a_data_set_that_swallows_the_alarm_is_reported(times):
    seen = []
    with pytest.raises(LabError, match="No batch came within 0.2 s at batch 1"):
        with with_deadline(DataLoader(Retries(16, times), 4), 0.2) as batches:
            seen.extend(int(batch[0, 0]) for batch in batches)
    assert seen == [0]


@pytest.mark.parametrize("in_a_thread", [False, True])
def test_an_alarm_that_is_swallowed_for_ever_comes_through(in_a_thread):
    found = []

    def wait():
        with pytest.raises(TooLateError), alarm(lambda begun: begun + 0.05 - CLOCK(), 0.05):
            while True:
                try:
                    while True:
                        time.sleep(0.01)
                except BaseException as error:
                    found.append(type(error))

    if in_a_thread:
        thread = threading.Thread(target=wait)
        thread.start()
        thread.join(300)
        assert not thread.is_alive()
    else:
        wait()
    assert found, "it was swallowed"


def hang_with_an_alarm_of_ones_own():
    """In a child: the program uses SIGALRM itself, and a sample hangs in Python."""
    signal.signal(signal.SIGALRM, lambda *_: None)

    class Spins(KnownCost):
        def __getitem__(self, index):
            while index == 5:
                time.sleep(0.01)
            return super().__getitem__(index)

    try:
        through_deadline_of(1.0, DataLoader(Spins(8), 4))
    except LabError as error:
        return error.problem, callable(signal.getsignal(signal.SIGALRM))


def through_deadline_of(seconds, loader):
    with with_deadline(loader, seconds) as batches:
        return len(list(batches))


def test_a_program_that_uses_the_alarm_itself_keeps_it_and_has_a_deadline():
    outcome = run_in_child(hang_with_an_alarm_of_ones_own, method="fork", deadline_seconds=300.0)
    assert outcome.value == ("No batch came within 1 s at batch 1: the data set hangs, or is slower than that.", True), outcome


@contextlib.contextmanager
def read_limit(seconds):
    """As the packages of timeouts do it: SIGALRM for a while, then again what was before."""

    def late(*_):
        raise TimeoutError("the read took too long")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class LimitsItself(KnownCost):
    """Each read has a limit of its own; after one of them the data set hangs."""

    def __init__(self, hangs_at):
        super().__init__(16)
        self.hangs_at = hangs_at

    def __getitem__(self, index):
        with read_limit(5.0):
            found = super().__getitem__(index)
        if index == self.hangs_at:
            time.sleep(600)
        return found


@pytest.mark.parametrize("hangs_at", [1, 5])
def test_a_data_set_with_alarms_of_its_own_has_a_deadline(hangs_at):
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(LabError, match=f"No batch came within 0.2 s at batch {hangs_at // 4}"):
        through_deadline_of(0.2, DataLoader(LimitsItself(hangs_at), 4))
    assert signal.getsignal(signal.SIGALRM) == before and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    assert through_deadline_of(60.0, DataLoader(LimitsItself(None), 4)) == 4


def leave_a_handler():
    """In a child: a data set sets up its alarm with its first sample, for good."""
    handler = lambda *_: None  # noqa: E731

    class SetsUp(KnownCost):
        def __getitem__(self, index):
            signal.signal(signal.SIGALRM, handler)
            return super().__getitem__(index)

    return through_deadline_of(60.0, DataLoader(SetsUp(8), 4)), signal.getsignal(signal.SIGALRM) is handler


def test_a_handler_that_a_data_set_sets_up_stays():
    outcome = run_in_child(leave_a_handler, method="fork", deadline_seconds=300.0)
    assert outcome.value == (2, True), outcome


class Logs(KnownCost):
    """A data set that logs for ever, and computes a little in between."""

    def __getitem__(self, index):
        while True:
            logging.getLogger("a lock")
            sum(range(100))


def strike_in_logging(in_main):
    """In a child, 20 times: a deadline strikes while a data set logs. Whether another thread can log afterwards."""
    if not in_main:
        signal.signal(signal.SIGALRM, lambda *_: None)  # so that a thread raises
    for _ in range(20):
        with pytest.raises(LabError, match="No batch came"):
            through_deadline_of(0.02, DataLoader(Logs(8), 4))
        asks = threading.Thread(target=logging.getLogger, args=("a lock",), daemon=True)
        asks.start()
        asks.join(60)
        if asks.is_alive():
            return False
    return True


def test_a_deadline_around_another_leaves_none_behind():
    for _ in range(10):
        asked = queue.Queue()
        with pytest.raises(TooLateError), alarm(lambda begun: begun + 0.05 - CLOCK(), 0.05):
            while True:
                with alarm(lambda begun: begun + 600.0 - CLOCK(), 600.0):
                    asked.put(sum(range(30_000)))
                    asked.get()
        assert not asked.mutex.locked() and signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)
    for thread in threading.enumerate():
        if thread.name == "deadline of a batch":
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("in_main", [True, False], ids=["signal", "thread"])
def test_a_deadline_keeps_no_lock_of_loggings(in_main):
    """Logging takes its lock around each fork: kept, the next thread that starts a worker waited for ever."""
    outcome = run_in_child(strike_in_logging, in_main, method="fork", deadline_seconds=300.0)
    assert outcome.value is True, outcome


@pytest.mark.parametrize("seconds", [0, -1, None, "5", float("nan"), float("inf"), True, 1j])
@pytest.mark.parametrize("workers", [0, 1])
def test_what_is_no_deadline_is_refused_before_anything_starts(seconds, workers):
    with pytest.raises(LabError, match=re.escape(f"deadline_seconds={seconds!r} is not a time.")):
        through_deadline_of(seconds, DataLoader(FaultyData("killed", at=0), 4, num_workers=workers))
    with pytest.raises(LabError, match=re.escape(f"deadline_seconds={seconds!r} is not a time.")):
        tune(FaultyData("killed", at=0), 4, deadline_seconds=seconds)


@pytest.mark.parametrize("seconds", [1e300, np.float32(60), Fraction(60)])
def test_any_time_is_a_deadline(seconds):
    assert through_deadline_of(seconds, DataLoader(KnownCost(8), 4)) == 2


class WithConnection(KnownCost):
    def __init__(self):
        super().__init__(8)
        self.connection = sqlite3.connect(":memory:")


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")
@pytest.mark.parametrize("kind", [DataLoader, Moving])
@pytest.mark.parametrize("make", [lambda: (WithConnection(), None), lambda: (KnownCost(8), lambda samples: samples)])
def test_what_a_new_interpreter_cannot_be_sent_is_named(make, kind):
    dataset, collate = make()
    loader = kind(dataset, 4, num_workers=2, collate_fn=collate, multiprocessing_context="spawn")
    with pytest.raises(LabError, match=r"cannot be sent to another process \((Attribute|Type)Error: .*pickle.*open files"):
        through_deadline(loader, [])
    assert not child_pids() and loader.collate_fn is (collate or default_collate)
    options = {} if collate is None else {"collate_fn": collate}
    tuned = tune(dataset, 4, max_workers=1, multiprocessing_context="spawn", **options)
    assert tuned.options == {"num_workers": 0} and "num_workers=1 did not fit: The data set or a function" in tuned.reason


def few_files(workers):
    """In a child: no more than these files may be open; what is said of workers that need more, and who is left."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    while os.open(os.devnull, os.O_RDONLY) <= highest:  # the limit is on the numbers, between which some may be free
        pass
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 14, hard))
    try:
        through_deadline(DataLoader(KnownCost(32), 4, num_workers=workers), [])
    except LabError as error:
        gc.collect()
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return error.problem, child_pids()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts the open files in /proc")
def test_workers_that_find_no_file_left_are_reported_and_none_is_left():
    outcome = run_in_child(few_files, 8, method="fork", deadline_seconds=300.0)
    assert outcome.how == "returned", outcome
    problem, left = outcome.value
    assert problem == "8 workers could not start (OSError: [Errno 24] Too many open files)." and not left, outcome
