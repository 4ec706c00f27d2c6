"""The command `hpml-lab`. Each command is a module here with `add_parser(commands)`.

Imports are late on purpose: `--help` answers at once, and `doctor` works where torch is missing or broken.
"""

import argparse
import atexit
import contextlib
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence

from hpml_lab.cli import (
    bottleneck,
    course,
    data,
    doctor,
    lab,
    listing,
    monitor,
    new,
    notebooks,
    profile,
    progress,
    referee,
    reference,
    report,
    run,
    tune,
    tuneup,
)
from hpml_lab.cli.shared import FAILED, FINE, INTERRUPTED, WRONG_INPUT, print_error
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError

COMMANDS = (
    listing,
    run,
    notebooks,
    progress,
    reference,
    report,
    doctor,
    data,
    profile,
    monitor,
    bottleneck,
    tune,
    tuneup,
    referee,
    lab,
    course,
    new,
)


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="hpml-lab", description="Experiments of five lectures on high-performance machine learning, run on this machine."
    )
    parser.add_argument("--version", action="store_true", help="show the version and the commit that it was made of")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")  # its name in an error, too
    for module in COMMANDS:
        module.add_parser(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 something failed, 2 wrong input.

    Where a Ctrl-C ended it, or a signal the program that it ran, it is the signal's negative number. Without `arguments` this
    process is the command: then it ends by that signal, at its very end. So who has started it sees what he would see without
    us, and a loop of the shell ends at a Ctrl-C.
    """
    if arguments is None:
        codes = [FINE]
        atexit.register(lambda: codes[-1] < 0 and _end_by(-codes[-1]))
        codes.append(main(sys.argv[1:]))
        return codes[-1] if codes[-1] >= 0 else 128 - codes[-1]
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: `hpml-lab list >&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        if hasattr(stream := getattr(sys, name), "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without UTF-8 shows ? for a dash, and no error
    parser = make_parser()
    chosen = parser.parse_args(arguments)
    if chosen.version:
        print(f"hpml-lab {machine.version()}")  # now: it asks git
        return FINE
    if not hasattr(chosen, "command"):
        parser.print_help()
        return WRONG_INPUT
    try:
        with _signals_end_it():
            code = chosen.command(chosen)
        sys.stdout.flush()
        return code
    except LabError as error:
        print_error(error.problem, error.fix)
        return WRONG_INPUT
    except ImportError as error:
        print_error(f"a package does not load here ({error}).", "Run `hpml-lab doctor` to see what to fix.")
        return FAILED
    except KeyboardInterrupt:
        print_error("interrupted.", "Run the same command again; what was finished is kept.")
        return INTERRUPTED
    except BrokenPipeError:  # `hpml-lab list | head`: the reader has gone
        _drop_output()
        return FINE
    except OSError as error:
        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EIO, errno.EBADF):
            raise
        _drop_output()  # `hpml-lab list > /dev/full`
        print_error(f"the output could not be written ({error.strerror}).")
        return FAILED


def _end_by(number: int) -> None:
    if os.name == "posix":
        import resource

        sys.stdout.flush()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the program has left its own
        with contextlib.suppress(OSError):  # nothing to set for SIGKILL
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)


@contextlib.contextmanager
def _signals_end_it() -> Iterator[None]:
    """What ends a job on a cluster or in a container ends the block as an error does: what it has started ends with it."""

    def end(number: int, _frame: object) -> None:
        signal.signal(number, signal.SIG_IGN)  # the end is not to be interrupted by the same again
        raise SystemExit(128 + number)

    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        ours = []
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _drop_output() -> None:
    """Let what is still to be printed go nowhere: Python would try again at its end, and report that as an error of its own."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
