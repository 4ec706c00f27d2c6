"""Child processes that always end: each has a pipe to its parent and a deadline, and is killed when its block is left.

    with child_process(work, 3, method="spawn") as child:     # work(connection, 3) runs in the child
        answer = child.receive(deadline_seconds=10)

    outcome = run_in_child(square, 3, method="spawn")          # for one function that may hang or crash

For programs with a command line see `core.programs`. The module imports only the standard library, so that a child that
starts a new interpreter (spawn) is quick.
"""

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Any

from hpml_lab.core.system.errors import error_text
from hpml_lab.core.system.pickling import cannot_be_sent, failed_to_pickle, sendable
from hpml_lab.core.system.shared_clock import CLOCK

START_SECONDS = 120.0  # until a child runs its function: a new interpreter on a busy machine may import torch for a long time
REST_SECONDS = 1.0  # how long a fork waits for this process's other threads to sleep
LONGEST = 1e6  # seconds of one wait: the system takes no number of any size
END_SECONDS = 10.0  # for a child that has sent its result and cleans up
RUNNING = "running"  # the first message of a child of run_in_children


class Child:
    """A running child process and its end of the pipe.

    process     the multiprocessing process
    connection  to the child, which has the other end as its function's first argument
    called      the CLOCK when start() was called; `started`: when it returned
    """

    def __init__(self, process: Any, connection: Connection) -> None:
        self.process, self.connection = process, connection
        self.called = self.started = 0.0

    @property
    def exitcode(self) -> int | None:
        """As multiprocessing reports it: below 0 for a signal, None while the child runs."""
        return self.process.exitcode

    def receive(self, deadline_seconds: float, default: Any = None) -> Any:
        """What the child sends next; `default` if it has sent nothing by then or has ended without sending it whole."""
        with contextlib.suppress(EOFError, OSError):  # OSError: it ended within a message; on Windows also if before one
            if self.connection.poll(max(0.0, deadline_seconds)):  # true also if the child has ended
                return self.connection.recv()
        return default


@contextlib.contextmanager
def child_process(
    target: Callable[..., Any],
    *arguments: Any,
    method: str | None = None,
    context: Any = None,
    duplex: bool = False,
    daemon: bool = True,
    grace_seconds: float = 0.0,
) -> Iterator[Child]:
    """Run `target(connection, *arguments)` in a child process that has ended when the block is left, whatever happens in it.

    method         "fork", "spawn" or "forkserver"; None takes `default_method()`
    context        a multiprocessing context instead of a method
    duplex         whether the child's connection can receive as well as send
    grace_seconds  how long the child may take to end by itself at the end of the block, before it is killed
    A process group that the child leads is killed with it.
    """
    context = context or multiprocessing.get_context(method or default_method())
    # The tracker releases what killed processes held, such as semaphores. Started here, it stays out of the child's group; a
    # tracker that the child had to start would be killed with it.
    if hasattr(os, "killpg"):  # Windows needs no tracker and has none
        resource_tracker.ensure_running()
    get_temp_dir()  # the child's sockets go there, and with this process; a folder of its own would outlive a killed child
    here, there = context.Pipe(duplex=duplex)
    child = Child(context.Process(target=target, args=(there, *arguments), daemon=daemon), here)
    try:
        with suppress_fork_warning(), shield_children_from_sigint():
            if context.get_start_method() == "fork":
                _let_threads_rest()
            child.called = CLOCK()
            try:
                child.process.start()
            except Exception as error:
                if not failed_to_pickle(error):
                    raise
                raise cannot_be_sent(
                    "The function or its arguments",
                    error,
                    "Hand over numbers, texts and names, and open files or locks in the function.",
                ) from error
            child.started = CLOCK()
        there.close()
        yield child
    finally:
        there.close()
        here.close()
        _end(child.process, grace_seconds)


def default_method() -> str:
    """The platform's start method, but "forkserver" in place of "fork" where autograd has threads in this process.

    A fork does not inherit them, and torch refuses to compute gradients there.
    """
    method = multiprocessing.get_start_method()
    return "forkserver" if method == "fork" and has_autograd_threads() else method


def has_autograd_threads() -> bool:
    """Whether autograd has started threads in this process, as far as Linux tells."""
    for path in Path("/proc/self/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # a thread that ended meanwhile
            if path.read_text(encoding="utf-8", errors="replace").startswith("pt_autograd"):
                return True
    return False


def _let_threads_rest() -> None:
    """On Linux, wait until all other threads of this process sleep, for REST_SECONDS at most.

    A thread that Python has joined may still be ending, and hold the lock under which MKL frees its buffers. A fork copies the
    lock without the thread that would release it: the child's first matrix product would never return.
    """
    end = CLOCK() + REST_SECONDS
    while _other_threads_run() and CLOCK() < end:
        time.sleep(0.001)


def _other_threads_run() -> bool:
    own = str(threading.get_native_id())
    for task in Path("/proc/self/task").glob("*"):  # Linux's; elsewhere there is none
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            state = (task / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
            if task.name != own and state in "RD":  # it runs or waits for a core, or for the disk
                return True
    return False


def _end(process: Any, grace_seconds: float) -> None:
    if process.pid is None:  # it never started
        return
    if grace_seconds:
        process.join(grace_seconds)
    kill_group(process.pid)
    process.kill()
    process.join(END_SECONDS)


def kill_group(leader: int) -> None:
    """Kill the process group that the process `leader` leads, if it leads one."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)


def end_with_parent(parent: int | None = None) -> None:
    """On Linux, let the kernel kill this process when its parent ends, however that happens: the parent can no longer do it.

    parent  its process id, for a program whose imports take long: if the parent has ended meanwhile, end now
    """
    if sys.platform == "linux":
        set_parent_death_signal = 1  # PR_SET_PDEATHSIG
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        raise SystemExit(1)


# ---- functions with an outcome -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChildOutcome:
    """How a function in a child process ended.

    how      "returned", "raised", "died" (the process ended without a result; `exitcode` < 0 for a signal), "hung" (killed
             at the deadline) or "stopped" (killed because another child failed)
    value    what the function returned
    error    the exception's type and text, and `trace` its traceback
    seconds  from the call of the function to its result or its end
    """

    how: str
    value: Any = None
    error: str = ""
    trace: str = ""
    exitcode: int | None = None
    seconds: float = 0.0


def run_in_child(
    function: Callable[..., Any], *arguments: Any, method: str | None = None, deadline_seconds: float = 30.0
) -> ChildOutcome:
    """Call `function(*arguments)` in a child process and report how it ended, after `deadline_seconds` at the latest.

    function  any function, also of a cell; what it returns is pickled and, but for a fork, its arguments are
    method    "fork", "spawn" or "forkserver"; None takes `default_method()`
    The deadline starts when the function is called: the start of an interpreter and its imports do not count. The child leads
    a process group; when it has ended, or has been killed, so has everything that it started.
    """
    calls = {"": (function, *arguments)}
    return run_in_children(calls, method=method, deadline_seconds=deadline_seconds)[""]


def run_in_children(
    calls: Mapping[str, Sequence[Any]], *, method: str | None = None, context: Any = None, deadline_seconds: float = 30.0
) -> dict[str, ChildOutcome]:
    """As run_in_child for several functions at once, each in a child of its own: {name: (function, *arguments)}.

    The deadline starts when all of them run. As soon as one raises, dies or hangs, the others are stopped.
    """
    context = context or multiprocessing.get_context(method or default_method())
    send = (lambda function: function) if context.get_start_method() == "fork" else sendable
    with contextlib.ExitStack() as started:
        children = {
            name: started.enter_context(child_process(_report, send(function), *arguments, context=context, daemon=False))
            for name, (function, *arguments) in calls.items()
        }
        outcomes = _wait_for(children, deadline_seconds)
    return {name: replace(outcome, exitcode=children[name].exitcode) for name, outcome in outcomes.items()}


def _wait_for(children: dict[str, Child], deadline_seconds: float) -> dict[str, ChildOutcome]:
    """The outcomes in the order of `children`, still without exit codes, which children get when they have been ended."""
    waiting = {child.connection: name for name, child in children.items()}
    running: dict[str, float] = {}
    outcomes: dict[str, ChildOutcome] = {}
    end = CLOCK() + START_SECONDS
    while waiting and all(outcome.how == "returned" for outcome in outcomes.values()):
        ready = wait(list(waiting), min(max(0.0, end - CLOCK()), LONGEST))
        now = CLOCK()
        if not ready and now >= end:
            break
        for connection in ready:
            name = waiting[connection]
            report = children[name].receive(0)
            if report == RUNNING:
                running[name] = now
                end = now + deadline_seconds if len(running) == len(children) else end
                continue
            del waiting[connection]
            process, since = children[name].process, running.get(name, children[name].called)
            process.join(END_SECONDS if report else min(max(0.0, end - now), LONGEST))
            nothing = ("hung" if process.is_alive() else "died", None, "", "")
            how, value, error, trace = pickle.loads(report) if report else nothing
            outcomes[name] = ChildOutcome(how, value, error, trace, seconds=now - since)
    how = "hung" if all(outcome.how == "returned" for outcome in outcomes.values()) else "stopped"
    for name in waiting.values():
        outcomes[name] = ChildOutcome(how, seconds=CLOCK() - running.get(name, children[name].called))
    return {name: outcomes[name] for name in children}


def _report(connection: Connection, function: Callable[..., Any], *arguments: Any) -> None:
    """In the child: call the function and send how it ended."""
    end_with_parent()  # in a group of its own, no signal to the parent's group reaches it
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    if callable(signal.getsignal(signal.SIGINT)):
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a forked child has the one that only takes note
    try:
        if hasattr(signal, "pthread_sigmask"):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # its own group gets only what is meant for it
        connection.send(RUNNING)
        report = ("returned", function(*arguments), "", "")
    except BaseException as error:  # also SystemExit and KeyboardInterrupt: they end the child, not the caller
        report = ("raised", None, f"{type(error).__name__}: {error_text(error)}", traceback.format_exc())
    try:
        sent = pickle.dumps(report)  # tensors by value: multiprocessing would share their memory, which ends with this process
    except Exception as error:  # a value that cannot be pickled
        sent = pickle.dumps(("raised", None, f"{type(error).__name__}: {error_text(error)}", traceback.format_exc()))
    connection.send(sent)
    connection.close()


# ---- signals and warnings ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def suppress_fork_warning() -> Iterator[None]:
    """Suppress the warning of Python 3.12 and newer about forking a process that has threads, such as a notebook's kernel.

    For children that run little code and take no lock that a thread of the parent may hold.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*multi-threaded, use of fork", category=DeprecationWarning)
        yield


@contextlib.contextmanager
def shield_children_from_sigint() -> Iterator[None]:
    """Children started in this block ignore Ctrl-C and a notebook's interrupt: it is their parent that ends them.

    Both signals go to the whole process group, and a child that is still importing would print a traceback next to the
    parent's one line. The parent receives an interrupt at the end of the block. A fork server that is started in the block
    ignores interrupts as well.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # its start would unblock the signal again
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    handler, received = signal.getsignal(signal.SIGINT), []
    replaced = callable(handler) and threading.current_thread() is threading.main_thread()
    if replaced:  # if another thread takes the signal, Python would still raise here, and lose the error in a hook of a fork
        signal.signal(signal.SIGINT, lambda *_: received.append(True))
    try:
        yield
    finally:
        if replaced:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if received:
            signal.raise_signal(signal.SIGINT)
