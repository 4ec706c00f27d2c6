"""A time limit for code that a student wrote: it may compute or wait forever, and the check must still answer."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any


class TimeLimitReached(BaseException):
    """Not an Exception, so that an answer's own `except Exception` does not catch it."""


@contextlib.contextmanager
def time_limit(cpu_seconds: float = 0.2, wall_seconds: float = 3.0) -> Iterator[None]:
    """Raise TimeLimitReached in a `with` block that computes or waits too long.

    It needs the main thread and a system with interval timers; elsewhere there is no limit.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(*_: Any) -> None:
        raise TimeLimitReached

    limits = ((signal.ITIMER_VIRTUAL, signal.SIGVTALRM, cpu_seconds), (signal.ITIMER_REAL, signal.SIGALRM, wall_seconds))
    handlers = [signal.signal(number, stop) for _, number, _ in limits]
    timers = [signal.setitimer(timer, seconds, 0.05) for timer, _, seconds in limits]  # repeated, if the first is caught
    try:
        yield
    finally:
        for (timer, number, _), handler, before in zip(limits, handlers, timers, strict=True):
            signal.setitimer(timer, *before)
            signal.signal(number, handler)
