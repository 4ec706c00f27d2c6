"""A time limit for code that a student wrote: it may compute or wait forever, and the check must still answer."""

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any


class TimeLimitReached(BaseException):
    """Not an Exception, so that an answer's own `except Exception` does not catch it."""


@contextlib.contextmanager
def time_limit(cpu_seconds: float = 0.2, wall_seconds: float | None = 3.0) -> Iterator[None]:
    """Raise TimeLimitReached in a `with` block that computes too long in its own thread, or waits too long (None: it may wait).

    It needs the main thread and a system with interval timers; elsewhere there is no limit. Limits may be nested.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    started = time.thread_time()

    def stop(number: int, _: Any) -> None:
        # The timer counts all threads of the process, of which torch may keep one per core busy with waiting.
        if number == signal.SIGALRM or time.thread_time() - started >= 0.9 * cpu_seconds:
            raise TimeLimitReached

    limits = [(signal.ITIMER_VIRTUAL, signal.SIGVTALRM, cpu_seconds)]
    if wall_seconds is not None:
        limits.append((signal.ITIMER_REAL, signal.SIGALRM, wall_seconds))
    handlers = [signal.signal(number, stop) for _, number, _ in limits]
    # Repeated, if the first is caught; not so soon that it strikes while the first one's `finally` blocks run.
    timers = [signal.setitimer(timer, seconds, max(0.05, seconds / 10)) for timer, _, seconds in limits]
    try:
        yield
    finally:
        for (timer, number, _), handler, before in zip(limits, handlers, timers, strict=True):
            signal.setitimer(timer, *before)
            signal.signal(number, handler)
