"""An alarm for a wait that may never end: it raises TooLateError in the thread that waits."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from hpml_lab.core.system.must_finish import must_finish
from hpml_lab.core.system.raised_elsewhere import nothing_waits, raise_in, to_raise_in
from hpml_lab.core.system.shared_clock import CLOCK

LONGEST = 3600.0  # seconds until the alarm looks again: timers take no number of any size
FINISH, SOON = 1.0, 0.01  # seconds for which it waits at most where it must not be raised; until it looks again there

_HANDLED = threading.Lock()  # from a look at who handles SIGALRM to the signal: where nobody does, it ends the program


class TooLateError(BaseException):
    """Raised into what was waited for; not an Exception, so that no `except Exception` of a data set stops it."""


@contextlib.contextmanager
def alarm(left: Callable[[float], float], first: float) -> Iterator[None]:
    """Raise TooLateError in the block as soon as `left(when the block began)` is 0 or less, at the first look or a later one.

    left   seconds until it is too late, or until that is to be asked again
    first  seconds until it is asked first
    In the main thread SIGALRM interrupts any wait, where there is such a signal and nobody else uses it. Elsewhere a thread
    asks the interpreter to raise, which it does as soon as the block runs Python again.
    """
    in_main = hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread()
    if not in_main or signal.getitimer(signal.ITIMER_REAL)[0] or callable(signal.getsignal(signal.SIGALRM)):
        with _by_thread(left, first):
            yield
        return
    asked, waiter, over = CLOCK(), threading.get_ident(), False
    bell: type[TooLateError] | None = None

    def ring(_: int, frame: FrameType | None) -> None:
        nonlocal bell
        if over:  # it came at the last moment
            return
        if (seconds := _or_soon(left(asked), frame)) <= 0:
            bell = bell or _bell(waiter)
            signal.setitimer(signal.ITIMER_REAL, FINISH)  # once more, should a data set keep the error
            raise bell
        signal.setitimer(signal.ITIMER_REAL, min(seconds, LONGEST))

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, min(first, LONGEST))
        yield
        if bell:  # it was stopped: what came is not what was asked for
            raise TooLateError
    finally:
        over = True
        with _HANDLED:
            signal.setitimer(signal.ITIMER_REAL, 0)
            if signal.getsignal(signal.SIGALRM) is ring:  # else the block has one of its own now
                signal.signal(signal.SIGALRM, before)
        _end(bell)


@contextlib.contextmanager
def shared_alarms(shared: bool) -> Iterator[None]:
    """Around alarms, whether what is waited for may use SIGALRM itself, as a data set that limits its own reads by it.

    It cancels our timer. So a thread looks whether it runs, and if our handler stands again, sends the signal in its place.
    """
    over, waiter = threading.Event(), threading.get_ident()

    def watch() -> None:
        while not over.wait(FINISH):
            with _HANDLED:
                ours = getattr(signal.getsignal(signal.SIGALRM), "__module__", "") == __name__
                if ours and not signal.getitimer(signal.ITIMER_REAL)[0]:
                    signal.pthread_kill(waiter, signal.SIGALRM)

    if shared and hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
        with contextlib.suppress(RuntimeError):  # no thread may be started: the alarms work, but where they are cancelled
            threading.Thread(target=watch, daemon=True, name="deadline of an epoch").start()
    try:
        yield
    finally:
        over.set()


@contextlib.contextmanager
def _by_thread(left: Callable[[float], float], first: float) -> Iterator[None]:
    asked, waiter = CLOCK(), threading.get_ident()
    over, turn = threading.Event(), threading.Lock()
    bell: type[TooLateError] | None = None

    def watch() -> None:
        nonlocal bell
        seconds = first
        while not over.wait(min(seconds, LONGEST)):
            if (seconds := _or_soon(left(asked), sys._current_frames().get(waiter))) > 0:
                continue
            with turn:
                if not over.is_set():
                    bell = bell or _bell(waiter)
                    raise_in(waiter, bell)
            seconds = FINISH

    threading.Thread(target=watch, daemon=True, name="deadline of a batch").start()
    try:
        yield
        if bell:
            raise TooLateError
    finally:
        with turn:
            over.set()
        _end(bell)


def _bell(thread: int) -> type[TooLateError]:
    """TooLateError as it is raised in that thread. A bare `except:` stops it, and may be tried again for ever; but Python drops
    an error at the end of its `except:`, and dropped this one is raised anew, outside of the `try`.
    """
    dropped = staticmethod(to_raise_in(thread, TooLateError))
    return type(TooLateError.__name__, (TooLateError,), {"__module__": __name__, "__del__": dropped})


def _end(bell: type[TooLateError] | None) -> None:
    if bell is not None:
        del bell.__del__
        nothing_waits()  # it may have come at the last moment


def _or_soon(seconds: float, frame: FrameType | None) -> float:
    """The seconds until it is asked again; 0 or less to raise in `frame`."""
    return SOON if -FINISH < seconds <= 0 and must_finish(frame) else seconds
