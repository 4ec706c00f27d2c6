"""Runs a function in a child process with a deadline, and leaves no process behind, whatever the function does.

For what may hang, crash or take the interpreter with it. The module loads nothing but the standard library, so that a child
which starts anew (spawn) is quick.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.util import get_temp_dir
from typing import Any

END_SECONDS = 10.0  # for a child that has given its word to put its things away


@dataclass(frozen=True)
class ChildOutcome:
    """How a child ended.

    how      "returned", "raised", "died" (without a word; `exitcode` < 0 for a signal) or "hung" (killed at the deadline)
    value    what the function returned
    error    the exception's type and text, and `trace` its traceback
    seconds  from the start of the child to its word or its end
    """

    how: str
    value: Any = None
    error: str = ""
    trace: str = ""
    exitcode: int | None = None
    seconds: float = 0.0


def run_in_child(function: Callable[..., Any], *arguments: Any, method: str | None = None, deadline: float = 30.0) -> ChildOutcome:
    """Call `function(*arguments)` in a child process and say how it ended, after `deadline` seconds at the latest.

    function  a function of a module (a start method other than fork finds it by its name)
    method    "fork", "spawn" or "forkserver"; None takes the platform's default
    The child leads a process group; when it has ended, or has been killed, so is what it started itself.
    """
    context = multiprocessing.get_context(method)
    # The tracker gives back what killed processes held, such as semaphores. Started here, it stays out of the child's group;
    # a tracker that the child had to start would be killed with it.
    resource_tracker.ensure_running()
    get_temp_dir()  # the child's sockets go there, and with this process; a folder of its own would outlive a killed child
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_work, args=(there, function, arguments), daemon=False)
    start = time.monotonic()
    with here, suppress_fork_warning():
        try:
            with shield_children_from_sigint():
                child.start()
            there.close()
            word = None
            if here.poll(deadline):  # true also where the child ended without a word
                with contextlib.suppress(EOFError):
                    word = here.recv()
            seconds = time.monotonic() - start
            child.join(max(0.0, deadline - seconds) if word is None else END_SECONDS)
            hung = word is None and child.is_alive()
        finally:
            _end(child)
    if word is not None:
        how, value, error, trace = word
        return ChildOutcome(how, value, error, trace, child.exitcode, seconds)
    return ChildOutcome("hung" if hung else "died", exitcode=child.exitcode, seconds=seconds)


@contextlib.contextmanager
def suppress_fork_warning() -> Iterator[None]:
    """Keep back the warning of Python 3.12 and newer about forking a process with threads, as a notebook's kernel is.

    For children that run little code and take no lock that a thread of the parent may hold.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
        yield


@contextlib.contextmanager
def shield_children_from_sigint() -> Iterator[None]:
    """Let the children that are started in the block not hear a Ctrl-C, nor a notebook's interrupt: their parent ends them.

    Both go to the whole process group, and a child that is still importing prints a traceback beside the parent's one line.
    The parent hears an interrupt at the end of the block. A fork server that is started in the block stays deaf as well.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # its start would take the interrupt off the mask again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    kept, heard = signal.getsignal(signal.SIGINT), []
    noting = callable(kept) and threading.current_thread() is threading.main_thread()
    if noting:  # where another thread takes the signal, Python would raise here all the same, and lose it in a hook of a fork
        signal.signal(signal.SIGINT, lambda *_: heard.append(True))
    try:
        yield
    finally:
        if noting:
            signal.signal(signal.SIGINT, kept)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        if heard:
            signal.raise_signal(signal.SIGINT)


def _work(connection: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    os.setpgid(0, 0)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a forked child has the one that only notes
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # in a group of its own it hears only what is meant for it
        word = ("returned", function(*arguments), "", "")
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: they end the child, not the caller
        word = ("raised", None, f"{type(error).__name__}: {error}", traceback.format_exc())
    try:
        connection.send(word)
    except Exception as error:  # a value that cannot be pickled
        connection.send(("raised", None, f"{type(error).__name__}: {error}", traceback.format_exc()))
    connection.close()


def _end(child: Any) -> None:
    if child.pid is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)  # the group, with the child's own children
    if child.is_alive():
        child.kill()
    child.join(5)
