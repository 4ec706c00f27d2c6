"""A time limit for code that a student wrote: it may compute or wait forever, and the check must still answer."""

import contextlib
import ctypes
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

from hpml_lab.core.system.imports import imports_under_way


class TimeLimitReached(BaseException):
    """Not an Exception, so that an answer's own `except Exception` does not catch it.

    cpu_seconds   how long the block had computed in its own thread
    wall_seconds  its limit of the clock, if that is what was reached; else None
    """

    def __init__(self, cpu_seconds: float = 0.0, wall_seconds: float | None = None) -> None:
        super().__init__(cpu_seconds, wall_seconds)
        self.cpu_seconds, self.wall_seconds = cpu_seconds, wall_seconds


@contextlib.contextmanager
def time_limit(cpu_seconds: float = 0.2, wall_seconds: float | None = 3.0) -> Iterator[None]:
    """Raise TimeLimitReached in a `with` block that computes too long in its own thread, or waits too long (None: it may wait).

    It needs the main thread; elsewhere there is no limit. Limits may be nested. Python runs
    a signal's handler between two of its instructions: one call of C code that returns late, such as `sum(range(10**13))`, is
    not ended, neither by a limit nor by the stop button; the kernel must be restarted. Signals that the block ignores or
    blocks end nothing, but the stop button works again afterwards. A module that the block imports may compute ten times as
    long: half imported, it would be of no use to this process any more.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    if not hasattr(signal, "setitimer"):
        with _watched(cpu_seconds, wall_seconds):
            yield
        return

    started, imports = time.thread_time(), imports_under_way(sys._getframe())
    looked, imported, importing = 0.0, 0.0, False  # what had been computed at the last look, and what of it in imports

    def stop(number: int, frame: FrameType | None) -> None:
        # The timer counts all threads of the process, of which torch may keep one per core busy with waiting.
        nonlocal looked, imported, importing
        computed = time.thread_time() - started
        if number == signal.SIGALRM:
            raise TimeLimitReached(computed, wall_seconds)
        before, importing = importing, imports_under_way(frame) > imports
        imported += (computed - looked) * (before or importing)  # an import may have ended just now
        looked = computed
        if computed - imported >= 0.9 * cpu_seconds or imported >= 10 * cpu_seconds:
            raise TimeLimitReached(computed)

    limits = [(signal.ITIMER_VIRTUAL, signal.SIGVTALRM, cpu_seconds)]
    if wall_seconds is not None:
        limits.append((signal.ITIMER_REAL, signal.SIGALRM, wall_seconds))
    interrupt, blocked = signal.getsignal(signal.SIGINT), signal.pthread_sigmask(signal.SIG_BLOCK, ())
    handlers = [signal.signal(number, stop) for _, number, _ in limits]
    # Repeated, if the first is caught; not so soon that it strikes while the first one's `finally` blocks run.
    timers = [signal.setitimer(timer, seconds, max(0.05, seconds / 10)) for timer, _, seconds in limits]
    try:
        yield
    finally:
        for timer, number, _ in limits:
            signal.setitimer(timer, 0)
            signal.signal(number, signal.SIG_IGN)  # drops what the block kept waiting: its default would end the process
        if interrupt is not None:  # None: not set by Python
            signal.signal(signal.SIGINT, interrupt)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for (timer, number, _), handler, before in zip(limits, handlers, timers, strict=True):
            signal.signal(number, handler)
            signal.setitimer(timer, *before)


@contextlib.contextmanager
def _watched(cpu_seconds: float, wall_seconds: float | None) -> Iterator[None]:
    """The same limits without interval timers, as on Windows: a thread watches the clocks, of which one counts all threads."""
    main, over, reached = threading.get_ident(), threading.Event(), []
    started, begun = time.process_time(), time.monotonic()

    def watch() -> None:
        while not over.wait(0.05):
            computed, waited = time.process_time() - started, time.monotonic() - begun
            late = wall_seconds is not None and waited >= wall_seconds
            if late or computed >= cpu_seconds:
                reached[:] = [(computed, wall_seconds if late else None)]
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(main), ctypes.py_object(TimeLimitReached))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    except TimeLimitReached as error:
        if reached:  # Python made it without its figures
            error.cpu_seconds, error.wall_seconds = reached[0]
        raise
    finally:
        while not over.is_set() or watcher.is_alive():
            with contextlib.suppress(TimeLimitReached):  # one that was asked for when the block had ended
                over.set()
                watcher.join()
        # It is not taken back by asking for none: from then on Python 3.11 would never end a function that a profiler traces.
        with contextlib.suppress(TimeLimitReached):
            for _ in range(100):
                pass
