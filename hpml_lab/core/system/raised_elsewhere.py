"""An error raised in another thread, and the mark that Python keeps of it until it is raised there."""

import ctypes
import threading
from collections.abc import Callable
from functools import partial


class _NothingError(BaseException):
    """Raised to be caught here."""


def raise_in(thread: int, error: type[BaseException]) -> None:
    """Have Python raise `error` in the thread of that `threading.get_ident()`, as soon as it runs Python; call `nothing_waits`
    when that need no longer be."""
    to_raise_in(thread, error)()


def to_raise_in(thread: int, error: type[BaseException]) -> Callable[[], object]:
    """`raise_in` as a function without a line of Python, so that nothing is raised in itself."""
    return partial(ctypes.pythonapi.PyThreadState_SetAsyncExc, ctypes.c_ulong(thread), ctypes.py_object(error))


def nothing_waits() -> None:
    """Take back what waits to be raised in this thread, and Python's mark that in some thread an error waits.

    Before Python 3.13 all threads have one mark, and it goes only where an error is raised. It stays if the thread has ended
    before, if it waits for ever, or if the error was taken back by C's own means. Then each turn of a loop looks for an error,
    and under a profiler or a debugger 3.11 never begins another call: it looks, finds nothing, and looks again.
    """
    interrupt = None
    while True:
        try:
            raise_in(threading.get_ident(), _NothingError)
            while True:
                pass
        except _NothingError:
            break
        except KeyboardInterrupt as error:  # it came first
            interrupt = error
    if interrupt is not None:
        raise interrupt
