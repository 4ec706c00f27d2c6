"""No import is cut in half: the first optimizer imports torch._dynamo, and half of it breaks every later one."""

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def whole_imports(most_seconds: float = 30.0) -> Iterator[None]:
    """Within the block, Ctrl-C and the stop button act once the module that is being imported is whole.

    most_seconds  for which they wait: an import may never end
    """
    handler, main = signal.getsignal(signal.SIGINT), threading.main_thread().ident
    if threading.get_ident() != main or not callable(handler) or not hasattr(signal, "pthread_kill"):
        yield
        return
    imports, end, timers = imports_under_way(sys._getframe()), [], []

    def wait(number: int, frame: FrameType | None) -> None:
        end.append(time.monotonic() + most_seconds)
        stop_asking()
        if imports_under_way(frame) > imports and time.monotonic() < end[0]:
            timers.append(threading.Timer(0.05, signal.pthread_kill, (main, number)))  # a signal ends a sleep, too
            timers[-1].start()
        else:
            end.clear()
            handler(number, frame)

    def stop_asking() -> None:
        while timers:
            timers.pop().cancel()

    signal.signal(signal.SIGINT, wait)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        stop_asking()
        if end:  # the block ended while the interrupt still waited
            signal.raise_signal(signal.SIGINT)


def imports_under_way(frame: FrameType | None) -> int:
    """How many of the calls that led to `frame` are Python's own of an import."""
    count = 0
    while frame is not None:
        count += frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    return count
