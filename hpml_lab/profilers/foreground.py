"""Runs a command in the foreground, as `time` does: it shares the terminal, hears Ctrl-C, and its exit code is passed on."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hpml_lab.core.system.errors import LabError
from hpml_lab.profilers.tracing_access import allow_tracing

if TYPE_CHECKING:
    import resource  # POSIX has it, Windows does not

END_SECONDS = 5.0  # for a command that is left before it has ended


@contextlib.contextmanager
def in_foreground(
    command: Sequence[str], environment: Mapping[str, str] | None = None, pass_fds: Sequence[int] = ()
) -> Iterator[subprocess.Popen]:
    """Start `command` with this process's input and output; while the block runs, signals are the command's.

    A Ctrl-C at the terminal reaches the command anyway, since it is in the same process group; it decides what to do, and this
    process waits for it. A signal that is sent to this process alone is passed on. Raises LabError if it cannot be started.
    """
    holder: list[subprocess.Popen] = []

    def pass_on(number: int, _frame: object) -> None:
        if holder and not (number == signal.SIGINT and _terminal_reaches_us()):
            with contextlib.suppress(ProcessLookupError):
                holder[0].send_signal(number)

    names = ("SIGINT", "SIGTERM", "SIGHUP")
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    # What this process ignores, as under nohup, the command goes on ignoring: with a handler here it would not.
    numbers = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, pass_on) for number in numbers}
    try:
        try:
            of_posix = {} if os.name == "nt" else {"pass_fds": pass_fds, "preexec_fn": allow_tracing}
            holder.append(subprocess.Popen(command, env=environment, **of_posix))
        except OSError as error:
            raise LabError(
                f"{command[0]} cannot be started ({error.strerror}).", "Is it spelled right, and installed?"
            ) from error
        yield holder[0]
    finally:
        if holder and holder[0].poll() is None:  # an error of ours: nothing is left behind
            holder[0].terminate()
            try:
                holder[0].wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                holder[0].kill()
                holder[0].wait()
        for number, handler in before.items():
            signal.signal(number, handler)


def wait_with_usage(process: subprocess.Popen) -> tuple[int, "resource.struct_rusage | None"]:
    """Wait for the command's end; its return code, and what it and all that it waited for have used, as `time` counts it.

    Windows does not count it: None.
    """
    if not hasattr(os, "wait4"):
        return process.wait(), None
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage


def exit_code(returncode: int) -> int:
    """The exit code as a shell gives it: 128 + the signal's number for a command that a signal ended."""
    return 128 - returncode if returncode < 0 else returncode


def _terminal_reaches_us() -> bool:
    """Whether Ctrl-C at the terminal goes to this process group, and so to the command as well."""
    if not hasattr(os, "tcgetpgrp"):
        return True  # Windows gives it to every program of the console, and has no other way to send it
    try:
        with open("/dev/tty", encoding="utf-8") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
