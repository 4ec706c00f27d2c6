"""A time limit for code that a student wrote: it may compute or wait forever, and the check must still answer."""

import contextlib
import ctypes
import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

from hpml_lab.core.judge.watch import is_students
from hpml_lab.core.system.imports import imports_under_way
from hpml_lab.core.system.must_finish import must_finish
from hpml_lab.core.system.raised_elsewhere import nothing_waits, raise_in
from hpml_lab.core.timing.laps import queued_seconds

# Python calls an object back in the main thread: once, at its next chance (Py_AddPendingCall), when it asks for its truth, or
# at every line (PyEval_SetTrace), when it deletes the frame from it. Other than sys.settrace's, this one may raise and stays.
_call_once = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.py_object)(("Py_AddPendingCall", ctypes.pythonapi))
_call_at_lines = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.py_object)(("PyEval_SetTrace", ctypes.pythonapi))
_TRUTH, _DELETE = (
    ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p) for name in ("PyObject_IsTrue", "PyObject_DelItem")
)
# A signal ends what runs no line: a wait, as in time.sleep, and a regular expression, during which no other thread runs either.
_SIGNAL = signal.SIGVTALRM if hasattr(signal, "setitimer") else None
FINISH = 20  # how often it is asked before it is raised where it should not be
_limits: list["_Limit"] = []  # those whose blocks run, the innermost last


class TimeLimitReached(BaseException):
    """Not an Exception, so that an answer's own `except Exception` does not catch it.

    cpu_seconds   how long the block had computed in its own thread and in those that it started
    wall_seconds  its limit of the clock, if that is what was reached; else None
    """

    def __init__(self, cpu_seconds: float = 0.0, wall_seconds: float | None = None) -> None:
        super().__init__(cpu_seconds, wall_seconds)
        self.cpu_seconds, self.wall_seconds = cpu_seconds, wall_seconds


@contextlib.contextmanager
def time_limit(cpu_seconds: float = 0.2, wall_seconds: float | None = 3.0) -> Iterator[bool]:
    """Raise TimeLimitReached in a `with` block that computes too long, or waits too long (None: it may wait).

    What counts as waiting is not the time in which other programs had the cores, where the system tells it.
    Threads that the block starts count, and are ended as well. A block that catches the limit has time for its `finally`; then
    it is raised at every line of the student's code, and once more at the end of the block. A module that the block imports may
    compute ten times as long: half imported, it would be of no use to this process any more. Limits may be nested. It needs the
    main thread; elsewhere, and where no thread can be started, there is no limit. It gives whether there is one.

    Nothing ends what Python cannot interrupt, neither a limit nor the stop button: one call of C code that returns late, such
    as `sum(range(10**13))` (the kernel must be restarted), a thread of the block's own that catches everything, and a wait, if
    the block ignores or blocks SIGVTALRM.
    """
    if threading.current_thread() is not threading.main_thread():
        yield True  # the caller's own thread has one, or wants none
        return
    limit = _Limit(cpu_seconds, wall_seconds, sys._getframe())
    try:
        started = limit.start()  # in here: an interrupt meanwhile must leave no limit behind that nobody ends
        limit.inside = True
        yield started
    except KeyboardInterrupt:
        raise
    except BaseException:
        if limit.error is None:
            raise
    finally:
        limit.inside = False
        try:
            limit.end()
        finally:
            _limits[:] = [other for other in _limits if other is not limit]
    if limit.error is not None:  # whatever the block made of it; its traceback leads to where the block computed
        raise limit.error


def _on_signal(number: int, frame: FrameType | None) -> None:
    for limit in _limits:
        limit.look(frame)
        limit.act(frame)


class _Limit:
    """A limit whose block runs: a thread watches the clocks, and asks the main thread to raise.

    inside  whether its block runs; while it starts and ends nothing is raised, neither by a limit around it
    error   the first TimeLimitReached that was raised in the block
    """

    def __init__(self, cpu_seconds: float, wall_seconds: float | None, generator: FrameType) -> None:
        self.cpu_seconds, self.wall_seconds, self.generator = cpu_seconds, wall_seconds, generator
        self.block = generator.f_back.f_back  # the function with the `with`; between them is contextlib
        self.inside, self.asked, self.raised, self.error = False, 0, 0, None
        self.elsewhere = False  # whether it was raised in a thread that the block has started
        self.at_lines, self.trace = False, sys.gettrace()  # whether it is raised at every line; what was called at lines before
        self.earliest = cpu_seconds if wall_seconds is None else min(cpu_seconds, wall_seconds)
        # Between two times that it is raised: `finally` blocks of the first time may run meanwhile.
        self.interval = max(0.05, self.earliest / 10)
        self.main, self.native_id, self.known = threading.get_ident(), threading.get_native_id(), set(threading.enumerate())
        self.clock, self.imports = _cpu_clock(self.native_id), imports_under_way(self.block)
        self.computed, self.imported, self.importing, self.late = 0.0, 0.0, False, False
        self.running = threading.Lock()
        self.running.acquire()
        self.watcher = threading.Thread(target=self.watch, name="time limit", daemon=True)
        self.recursion, self.interrupt = sys.getrecursionlimit(), signal.getsignal(signal.SIGINT)
        if _SIGNAL is not None:
            self.blocked, self.handler = signal.pthread_sigmask(signal.SIG_BLOCK, ()), signal.getsignal(_SIGNAL)
            self.timer = signal.getitimer(signal.ITIMER_VIRTUAL)

    def start(self) -> bool:
        """Whether there is a limit: there is none where no thread can be started."""
        self.begun = time.monotonic() - queued_seconds(self.native_id)
        self.cpu_begun, self.asked_at = self.clock(), -math.inf
        _limits.append(self)
        with contextlib.suppress(RuntimeError):
            self.watcher.start()
        if _SIGNAL is not None:
            signal.signal(_SIGNAL, _on_signal)
            signal.setitimer(signal.ITIMER_VIRTUAL, self.earliest, self.interval)
        return self.watcher.ident is not None

    def end(self) -> None:
        """Leave nothing behind."""
        if self.at_lines:
            sys.settrace(self.trace)
        self.running.release()
        if self.watcher.ident is not None:
            self.watcher.join()
        if self.elsewhere:
            nothing_waits()
        sys.setrecursionlimit(self.recursion)
        if _SIGNAL is not None:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(_SIGNAL, signal.SIG_IGN)  # drops what the block kept waiting: its default would end the process
        if self.interrupt is not None:  # None: not set by Python
            signal.signal(signal.SIGINT, self.interrupt)
        if _SIGNAL is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)
            signal.signal(_SIGNAL, self.handler or signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_VIRTUAL, *self.timer)
        self.block = self.generator = None

    def own_threads(self) -> list[threading.Thread]:
        """Those that the block has started."""
        others = {*self.known, *(limit.watcher for limit in _limits)}
        return [thread for thread in threading.enumerate() if thread not in others and thread.native_id is not None]

    def look(self, frame: FrameType | None) -> bool:
        """Look at the clocks while the main thread runs `frame`; True if it is to be asked to raise, which is then noted."""
        now, threads = time.monotonic(), self.own_threads()
        looked, self.computed = self.computed, self.clock() - self.cpu_begun
        self.computed += sum(_cpu_clock(thread.native_id)() for thread in threads)
        before, self.importing = self.importing, imports_under_way(frame) > self.imports
        self.imported += (self.computed - looked) * (before or self.importing)  # an import may have ended just now
        computes = self.computed - self.imported >= self.cpu_seconds or self.imported >= 10 * self.cpu_seconds
        waits_from = self.begun + queued_seconds(self.native_id)
        self.late = not computes and self.wall_seconds is not None and now - waits_from >= self.wall_seconds
        if not (computes or self.late) or now - self.asked_at < self.interval:
            return False
        self.asked, self.asked_at = self.asked + 1, now
        sys.setrecursionlimit(sys.getrecursionlimit() + 50)  # a call that is as deep as allowed could not call what raises
        return True

    # ---- in the watching thread

    def watch(self) -> None:
        pause = self.earliest
        while not self.running.acquire(timeout=pause):
            pause = self.interval
            if not self.look(sys._current_frames().get(self.main)):
                continue
            _call_once(_TRUTH, self)
            if _SIGNAL is not None and signal.getsignal(_SIGNAL) is _on_signal:
                signal.pthread_kill(self.main, _SIGNAL)
            for thread in self.own_threads():
                if not (frame := sys._current_frames().get(thread.ident)) or not is_students(frame.f_code.co_filename):
                    continue  # it is about to end, or waits in a library
                self.elsewhere = True
                raise_in(thread.ident, TimeLimitReached)

    # ---- in the main thread

    def act(self, frame: FrameType | None) -> None:
        """Raise what was asked for, unless this block or that of a limit within it is being entered or left."""
        frame, within = _interrupted(frame), _limits[_limits.index(self) :] if self in _limits else []
        passes = frame is not None and frame.f_code.co_filename == contextlib.__file__
        passes = passes and any(frame.f_back in (limit.block, limit.generator) for limit in within)
        if not self.inside or passes or self.raised == self.asked or not all(limit.inside for limit in within):
            return  # the watcher asks again
        waits = self.asked - self.raised < FINISH and must_finish(frame)
        if waits or self.raised:
            self.at_lines = True
            _call_at_lines(_DELETE, self)
        if not waits:
            self.raised = self.asked
            self.reach()

    def reach(self) -> None:
        error = TimeLimitReached(self.computed, self.wall_seconds if self.late else None)
        self.error = self.error or error
        raise error

    def __bool__(self) -> bool:
        self.act(sys._getframe(1))
        return False

    def __delitem__(self, frame: FrameType) -> None:
        """Raise at a line of the student's; what the package and libraries have to clean up is not cut short."""
        if self.inside and frame is not self.block and is_students(frame.f_code.co_filename):
            self.reach()


def _interrupted(frame: FrameType | None) -> FrameType | None:
    """What runs, without our own handler of a signal that has interrupted it."""
    caller = frame
    while caller is not None:
        if caller.f_code is _on_signal.__code__:
            frame = caller.f_back
        caller = caller.f_back
    return frame


def _cpu_clock(native_id: int) -> Callable[[], float]:
    """The seconds that a thread has computed; where no other thread can ask for them, those of the whole process."""
    if sys.platform != "linux":
        return time.process_time
    clock = ~native_id << 3 | 6  # as pthread_getcpuclockid makes it, which fails badly for a thread that has ended

    def seconds() -> float:
        try:
            return time.clock_gettime(clock)
        except OSError:  # it has ended
            return 0.0

    return seconds
