"""Runs a command in the foreground, as `time` does: terminal, files, signals and exit code are the command's."""

import contextlib
import errno
import faulthandler
import logging
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hpml_lab.core.system.errors import LabError
from hpml_lab.profilers.beside import cause_of, say
from hpml_lab.profilers.tracing_access import allow_tracing

if TYPE_CHECKING:
    import resource  # POSIX has it, Windows does not

ANSWER_SECONDS = 5.0
LOOK_SECONDS = 0.1  # a signal that the system hands to another thread ends no wait of the main one, which is to hear it
HOLDS = """
import os, signal
while os.read(0, 1):
    os.write(1, bytes([0, *[signal.sigwait({number}) for number in signal.sigpending()]]))
"""
OURS_FAILED = "the program is not affected, but what was to be said of it is incomplete"


def _numbers(*names: str) -> set[int]:
    return {getattr(signal, name) for name in names if hasattr(signal, name)}  # no system has all


STOPS = _numbers("SIGTSTP", "SIGTTIN", "SIGTTOU")
ENDS = _numbers("SIGINT", "SIGQUIT", "SIGBREAK", "SIGTERM", "SIGHUP")  # what is sent to end a program
FAULTS = _numbers("SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS")  # of this process itself
PYTHONS = _numbers("SIGPIPE", "SIGXFSZ")  # Python ignores them from its start, and its children do not
NOT_PASSED_ON = FAULTS | PYTHONS | _numbers("SIGKILL", "SIGSTOP", "SIGCHLD", "SIGCLD")
SHELLS = {"sh", "ash", "bash", "busybox", "dash", "ksh", "ksh93", "mksh", "zsh"}  # their children ignore what they ignore


@contextlib.contextmanager
def in_foreground(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen]:
    """Start `command` as this process was started; in the block stands all that is ours, next to the command and after it.

    The command has this process's inheritable files, its folder, process group and ignored signals. Each signal that reaches
    this process alone is passed on; the command decides what to do, and this process waits for it, also where the block
    fails: then that is one line on stderr. So after the block `process.returncode` is the command's own, whatever was raised.
    Once the command has ended, a signal to end leaves what is still to do. Raises LabError if it cannot be started.
    """
    holder: list[subprocess.Popen] = []
    leaving = False

    def hear(number: int, _frame: object) -> None:
        nonlocal leaving
        if holder and holder[0].returncode is None:
            if not has_it_too(number):
                with contextlib.suppress(ProcessLookupError, PermissionError):  # not ours to signal: `sudo`
                    os.kill(holder[0].pid, number)
        elif number in ENDS and number not in ignored and not leaving:
            leaving = True
            raise KeyboardInterrupt
        if number in STOPS - ignored:
            _stop(number)

    passed_on = signal.valid_signals() - NOT_PASSED_ON
    if faulthandler.is_enabled():  # its handler, of which Python's signal module does not know, could not be given back
        passed_on -= _numbers("SIGABRT")
    heard = [number for number in sorted(passed_on) if signal.getsignal(number) is not None]
    # What this process ignores, as under nohup, the command begins by ignoring, and may listen to later.
    ignored = {number for number in heard if signal.getsignal(number) == signal.SIG_IGN}
    by_shell = _ignored_by_shell()
    before = {number: signal.signal(number, hear) for number in heard}
    children = _numbers("SIGCHLD")
    # Where its own parent ignored it, the system would throw the command's exit code away.
    before |= {number: signal.signal(number, signal.SIG_DFL) or signal.SIG_DFL for number in children}
    witness = contextlib.ExitStack()
    try:
        with _blocked(heard) as as_it_was:  # until the command has begun: the handlers here are not the child's
            has_it_too = witness.enter_context(_witness())

            def in_child() -> None:
                for number in heard:
                    signal.signal(number, signal.SIG_IGN if number in ignored else signal.SIG_DFL)
                for number in by_shell:
                    signal.signal(number, signal.SIG_IGN)
                for number in children:
                    signal.signal(number, before[number])
                as_it_was()
                allow_tracing()

            holder.append(_start(command, environment, in_child))
        process = holder[0]
        with contextlib.suppress(KeyboardInterrupt):  # `hear` raises one, wherever it comes
            try:
                with _quiet():
                    yield process
            except BaseException as error:
                leaving = True
                say(f"{OURS_FAILED} ({cause_of(error)}).")
        leaving = True
        if process.returncode is None:
            wait_with_usage(process)
    finally:
        witness.close()
        for number, handler in before.items():
            signal.signal(number, handler)


def _ignored_by_shell() -> set[int]:
    """Those of PYTHONS that this process ignored before Python did: no trace of it is left, but in a shell that started it."""
    with contextlib.suppress(OSError, LookupError, ValueError):  # only Linux shows it
        parent = f"/proc/{os.getppid()}"
        if os.path.basename(os.readlink(f"{parent}/exe")) in SHELLS:
            with open(f"{parent}/status", encoding="utf-8") as status:
                mask = int(status.read().partition("SigIgn:")[2].split()[0], 16)
            return {number for number in PYTHONS if mask >> (number - 1) & 1}
    return set()


def wait_with_usage(process: subprocess.Popen) -> tuple[int, "resource.struct_rusage | None"]:
    """Wait for the command's end; its return code, and what it and all that it waited for have used, as `time` counts it.

    Windows does not count it: None. Nor is it known of a command whose end was seen before.
    """
    if process.returncode is not None or not hasattr(os, "wait4"):
        return process.wait(), None
    with contextlib.ExitStack() as stack:
        ends = select.poll()
        with contextlib.suppress(AttributeError, OSError):  # only Linux tells the end of a process by a file
            end = os.pidfd_open(process.pid)
            stack.callback(os.close, end)
            ends.register(end, select.POLLIN)
        while not (found := os.wait4(process.pid, os.WNOHANG))[0]:
            ends.poll(LOOK_SECONDS * 1e3)
    _, status, usage = found
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """What we call neither warns nor logs on the program's stderr, whatever the user's PYTHONWARNINGS make of their own."""
    disabled = logging.root.manager.disable
    logging.disable()  # such as matplotlib's two lines where the home folder cannot be written
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _start(command: Sequence[str], environment: Mapping[str, str] | None, in_child: Callable[[], None]) -> subprocess.Popen:
    # Without close_fds: files that the shell hands over, as for `<(…)`, a lock, or make's job server, are the command's.
    options = {"env": environment, "close_fds": False, **({} if os.name == "nt" else {"preexec_fn": in_child})}
    try:
        try:
            return subprocess.Popen(command, **options)
        except OSError as error:
            found = shutil.which(command[0])
            if error.errno != errno.ENOEXEC or found is None:
                raise
            return subprocess.Popen(["/bin/sh", found, *command[1:]], **options)  # a script without #!, as for a shell
    except OSError as error:
        advice = "Is it spelled right, and installed? A script that is not executable needs its interpreter: python train.py."
        raise LabError(f"{command[0]!r} cannot be started ({error.strerror}).", advice) from error


@contextlib.contextmanager
def _blocked(numbers: Sequence[int]) -> Iterator[Callable[[], None]]:
    """Let these signals wait until the block is left; what is yielded lets a child have them before."""
    if not hasattr(signal, "pthread_sigmask"):
        yield lambda: None
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        yield lambda: signal.pthread_sigmask(signal.SIG_SETMASK, mask) and None
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def _witness() -> Iterator[Callable[[int], bool]]:
    """Yield a function that says whether a signal went to all of this process group, and so to the command as well.

    Ctrl-C does, and `kill 0`, and no signal says so of itself. A process that only holds the signals it gets can tell: it is
    started while they are blocked, and ends when this process does.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield lambda number: True  # Windows gives Ctrl-C to every program of the console, and has no other way to send it
        return
    held = set()
    with contextlib.ExitStack() as stack:
        ours, its = map(stack.enter_context, socket.socketpair())
        ours.settimeout(ANSWER_SECONDS)
        with contextlib.suppress(OSError):  # no more processes
            words = [sys.executable, "-I", "-S", "-c", HOLDS]
            witness = stack.enter_context(subprocess.Popen(words, stdin=its, stdout=its, stderr=subprocess.DEVNULL))
            stack.callback(witness.kill)
        its.close()

        def has_it(number: int) -> bool:
            with contextlib.suppress(OSError):  # it was killed, or stopped
                ours.send(b"?")
                held.update(ours.recv(256))
            found = number in held
            held.discard(number)
            return found

        yield has_it


def _stop(number: int) -> None:
    """Do what the signal does where nobody handles it: stop, except where nobody could let this process go on."""
    handler = signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    signal.signal(number, handler)  # after SIGCONT
