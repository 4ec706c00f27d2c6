"""A time limit that ends whatever an answer does with it, and a limit or an interrupt that strikes during an import."""

import asyncio
import contextlib
import functools
import importlib
import importlib.util
import logging
import queue
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from hpml_lab.core.judge.time_limit import TimeLimitReached, _limits, time_limit
from hpml_lab.core.system.imports import whole_imports
from hpml_lab.profilers.functions import by_line

COMPUTES = """
import signal, time
start = time.thread_time()
while time.thread_time() - start < {seconds}:
    {body}
whole = True
"""
TICK = "signal.raise_signal(signal.SIGVTALRM)"  # on a busy machine the kernel's own come late


@pytest.fixture
def written(tmp_path, monkeypatch):
    """A function that writes a module which computes for some seconds when it is imported."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name, seconds, body="pass"):
        (tmp_path / f"{name}.py").write_text(COMPUTES.format(seconds=seconds, body=body))
        importlib.invalidate_caches()
        return name

    yield write
    for name in ("computes_long", "never_ends", "imports_a_check", "interrupted"):
        sys.modules.pop(name, None)


def test_an_import_is_not_cut_in_half(written):
    name = written("computes_long", 0.5)
    with pytest.raises(TimeLimitReached), time_limit(0.1, wall_seconds=None):
        assert importlib.import_module(name).whole
        while True:
            pass
    assert sys.modules[name].whole


def test_what_an_import_took_is_not_the_blocks_own(written):
    """The first answer of a kernel imports more than the next ones."""
    with time_limit(0.3, wall_seconds=None):
        importlib.import_module(written("computes_long", 0.6, TICK))
        start = time.thread_time()
        while time.thread_time() - start < 0.1:
            signal.raise_signal(signal.SIGVTALRM)


def in_a_loop(times):
    count = 0
    for _ in range(times):
        count += 1
    return count


@pytest.mark.parametrize("wait", [False, True], ids=["computes", "waits"])
def test_without_signals_a_thread_ends_what_runs_python(monkeypatch, wait):
    monkeypatch.setattr("hpml_lab.core.judge.time_limit._SIGNAL", None)
    with pytest.raises(TimeLimitReached) as caught, time_limit(0.2, wall_seconds=0.3 if wait else None):
        while True:
            time.sleep(0.01 if wait else 0)
    assert caught.value.wall_seconds == (0.3 if wait else None) and caught.value.cpu_seconds >= (0 if wait else 0.2)
    with time_limit(60.0, wall_seconds=None):
        pass
    assert by_line(lambda: in_a_loop(3), [in_a_loop])[0] == 3, "nothing is left that a traced function would meet"


def test_an_import_that_does_not_end_is_ended(written):
    with pytest.raises(TimeLimitReached) as caught, time_limit(0.05, wall_seconds=None):
        importlib.import_module(written("never_ends", 60))
    assert 0.4 <= caught.value.cpu_seconds < 60, (
        "ten times the limit, as nearly as a timer of the kernel counts on a busy machine"
    )


def test_an_import_that_called_the_block_is_none_of_the_blocks_own(tmp_path, written):
    name = written("imports_a_check", 0)
    with (tmp_path / f"{name}.py").open("a") as module:
        module.write(
            "from hpml_lab.core.judge.time_limit import TimeLimitReached, time_limit\n"
            "try:\n"
            "    with time_limit(0.2, wall_seconds=None):\n"
            "        start = time.thread_time()\n"
            "        while time.thread_time() - start < 60:\n"
            f"            {TICK}\n"
            "except TimeLimitReached as error:\n"
            "    computed = error.cpu_seconds\n"
        )
    assert importlib.import_module(name).computed < 2.0, "ten times the limit is for imports in the block"


def interrupted(written, seconds):
    """The name of a module during whose import this process gets an interrupt; then it computes for some seconds."""
    name = written("interrupted", seconds)
    path = Path(importlib.util.find_spec(name).origin)
    path.write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n" + path.read_text())
    return name


def test_an_interrupt_waits_until_the_import_is_whole(written):
    """Stopped in its first second, torch.optim.Adam could not be used any more in that kernel."""
    before, name = signal.getsignal(signal.SIGINT), interrupted(written, 0.3)
    with pytest.raises(KeyboardInterrupt), whole_imports():
        importlib.import_module(name)
        time.sleep(60)
    assert sys.modules[name].whole and signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_that_still_waits_acts_at_the_end_of_the_block(written):
    with pytest.raises(KeyboardInterrupt), whole_imports():
        importlib.import_module(interrupted(written, 0))
    time.sleep(0.2)  # and no second time


def test_an_interrupt_outside_an_import_acts_at_once():
    reached = False
    with pytest.raises(KeyboardInterrupt), whole_imports():
        signal.raise_signal(signal.SIGINT)
        reached = True
    assert not reached


def test_an_import_that_does_not_end_is_interrupted(written):
    with pytest.raises(KeyboardInterrupt), whole_imports(most_seconds=0.2):
        importlib.import_module(interrupted(written, 60))


class Catches:
    """Each method computes or waits for ever and catches everything; so does what Python calls of it, and ignores errors of."""

    def a_loop(self):
        while True:
            try:
                in_a_loop(1000)
            except BaseException:
                continue  # noqa: B012

    def a_loop_behind_another_try(self):
        """Python takes an error at the end of this loop for one of the line before it."""
        try:
            self.ended = False
        except BaseException:
            pass
        while True:
            try:
                in_a_loop(1000)
            except BaseException:
                pass
            finally:
                pass

    def a_recursion(self):
        try:
            self.a_recursion()
        except BaseException:
            self.a_recursion()

    def a_finally(self):
        while True:
            try:
                while True:
                    pass
            finally:
                continue  # noqa: B012

    def a_suppression(self):
        while True:
            with contextlib.suppress(BaseException):
                in_a_loop(1000)

    def an_end_of_an_object(self):
        while True:
            EndsLate()

    def a_comparison(self):
        while True:
            with contextlib.suppress(BaseException):
                [ComparesLong()].index(1)

    def signals_of_its_own(self):
        """Waits would not be ended; this one computes."""
        signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGVTALRM, signal.SIGALRM})
        self.a_loop()

    def a_trace_of_its_own(self):
        while True:
            with contextlib.suppress(BaseException):
                sys.settrace(None)
                in_a_loop(1000)

    def a_regular_expression(self):
        """No other thread runs meanwhile, the one that watches the clocks neither."""
        while True:
            with contextlib.suppress(BaseException):
                re.match("(a+)+$", "a" * 40 + "b")

    def a_thread(self):
        thread = threading.Thread(target=in_a_loop, args=(10**12,))
        thread.start()
        thread.join()

    def a_wait(self):
        while True:
            try:
                time.sleep(600)
            except BaseException:
                pass

    def a_lock(self):
        lock = threading.Lock()
        while True:
            with contextlib.suppress(BaseException):
                lock.acquire()

    def tasks(self):
        async def task():
            while True:
                with contextlib.suppress(TimeLimitReached, asyncio.CancelledError):
                    await asyncio.sleep(0.001)

        asyncio.run(task())

    def what_returns(self):
        try:
            while True:
                pass
        except BaseException:
            return 1

    def what_raises_another_error(self):
        try:
            while True:
                pass
        except BaseException:
            raise ValueError from None


def nothing_is_left():
    for thread in threading.enumerate():
        if thread.name == "time limit":
            thread.join(60)  # one that was struck while it started ends by itself
            assert not thread.is_alive()
    if hasattr(signal, "setitimer"):
        assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)
    return not _limits and sys.gettrace() is None


class EndsLate:
    def __del__(self):
        while True:
            pass


class ComparesLong:
    __hash__ = None

    def __eq__(self, other):
        while True:
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows cannot end a wait")
@pytest.mark.parametrize("name", [name for name in vars(Catches) if name[0] != "_"])
def test_a_limit_that_is_caught_ends_the_block_all_the_same(name, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", [].append)  # pytest's own is Python, in which a limit may be raised
    before = sys.gettrace(), sys.getrecursionlimit(), signal.getsignal(signal.SIGVTALRM)
    blocked, threads = signal.pthread_sigmask(signal.SIG_BLOCK, ()), set(threading.enumerate())
    with pytest.raises(TimeLimitReached) as caught, time_limit(0.1, wall_seconds=0.3 if name in WAITS else 60.0):
        getattr(Catches(), name)()
    assert caught.value.wall_seconds == (0.3 if name in WAITS else None)
    for thread in set(threading.enumerate()) - threads:
        thread.join(60)
        assert not thread.is_alive()
    after = sys.gettrace(), sys.getrecursionlimit(), signal.getsignal(signal.SIGVTALRM)
    assert after == before and signal.pthread_sigmask(signal.SIG_BLOCK, ()) == blocked
    assert signal.getitimer(signal.ITIMER_VIRTUAL) == (0.0, 0.0)


WAITS = ("a_wait", "a_lock", "tasks")


def test_a_cleanup_of_a_library_is_not_cut_short():
    """It is raised at the lines of the student's code alone: what a judge has started it also ends."""
    names, cleaned = {}, []
    code = "def library(run, clean):\n    try:\n        run()\n    finally:\n        clean()\n"
    exec(compile(code, contextlib.__file__, "exec"), names)

    def swallows():
        while True:
            try:
                in_a_loop(1000)
            except BaseException:
                pass

    with pytest.raises(TimeLimitReached), time_limit(0.1, wall_seconds=None):
        names["library"](swallows, functools.partial(cleaned.append, True))
    assert cleaned == [True]


def test_a_limit_within_a_limit_ends_before_it_and_the_outer_one_still_ends_the_block(monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", [].append)  # raised at the line of a `with`, it goes around that block's end
    reached = []

    def tries_again():
        while True:
            try:
                with time_limit(0.05, wall_seconds=None):
                    in_a_loop(10**12)
            except TimeLimitReached as inner:
                reached.append(inner.cpu_seconds)

    with pytest.raises(TimeLimitReached) as outer, time_limit(0.3, wall_seconds=None):
        tries_again()
    assert 0.05 <= reached[0] < 0.3 <= outer.value.cpu_seconds and nothing_is_left()


def test_a_limit_that_strikes_while_one_within_it_starts_or_ends_leaves_none_behind(monkeypatch):
    """One was left behind once: from then on it was raised at every line of every later answer, until the worker had ended."""
    monkeypatch.setattr(sys, "unraisablehook", [].append)
    for _ in range(5):
        with pytest.raises(TimeLimitReached), time_limit(0.05, wall_seconds=None):
            while True:
                with time_limit(60.0, wall_seconds=None):
                    pass
        assert nothing_is_left()


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeLimitReached])
@pytest.mark.parametrize("late", [False, True], ids=["before its thread", "after its thread"])
def test_what_strikes_while_a_limit_starts_leaves_none_behind(monkeypatch, error, late):
    start = threading.Thread.start

    def interrupted_start(thread):
        if late:
            start(thread)
        raise error

    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(error), time_limit(60.0, wall_seconds=60.0):
        raise AssertionError("it has not begun")
    assert nothing_is_left()


def test_a_lock_of_loggings_is_given_back():
    """Struck while it had the lock, a check left it for ever: the next thread that logged, or started a process, waited."""
    for _ in range(20):
        with pytest.raises(TimeLimitReached) as caught, time_limit(0.02, wall_seconds=None):
            ask_for_loggers()
        assert caught.traceback[-1].name != "getLogger" and is_free_for_others()


def ask_for_loggers():
    while True:
        logging.getLogger("a lock")


def test_a_queues_lock_is_given_back():
    """Its `with` is Python's own code, in which a limit may strike."""
    for _ in range(20):
        asked = queue.Queue()
        with pytest.raises(TimeLimitReached), time_limit(0.02, wall_seconds=None):
            put_and_get(asked)
        assert not asked.mutex.locked()


def put_and_get(asked):
    while True:
        asked.put(1)
        asked.get()


def is_free_for_others():
    asks = threading.Thread(target=logging.getLogger, args=("a lock",), daemon=True)
    asks.start()
    asks.join(60)
    return not asks.is_alive()


def test_where_an_error_may_not_be_raised_is_not_where_it_never_is():
    """A lock of logging's that another thread keeps is waited for without an end."""
    handler = logging.Handler()
    keeps, begun = threading.Event(), threading.Event()

    def keep():
        with handler.lock:
            begun.set()
            keeps.wait()

    thread = threading.Thread(target=keep)
    thread.start()
    begun.wait()
    try:
        with pytest.raises(TimeLimitReached), time_limit(60.0, wall_seconds=0.2):
            handler.acquire()
    finally:
        keeps.set()
        thread.join()


def test_a_wait_for_a_core_that_others_have_is_not_the_answers_wait(monkeypatch):
    """A check on a machine with thirty programs once said "what does it wait for?" of an answer that had 0.7 s in 100."""
    begun = time.monotonic()
    monkeypatch.setattr("hpml_lab.core.judge.time_limit.queued_seconds", lambda thread: 0.9 * (time.monotonic() - begun))
    with time_limit(60.0, wall_seconds=0.3):
        time.sleep(1.0)
    monkeypatch.undo()
    with pytest.raises(TimeLimitReached), time_limit(60.0, wall_seconds=0.3):
        time.sleep(30.0)
