"""Programs with a command line, run with a deadline: none is left behind, and neither is anything that one has started.

    finished = run_python(["-c", "print(1)"])       # a new interpreter: nothing of this process is in it
    with started(["sleep", "100"]) as program: ...   # killed at the end of the block, with its process group

The module imports only the standard library.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hpml_lab.core.system.children import kill_group
from hpml_lab.core.system.paths import ROOT
from hpml_lab.core.system.shared_clock import CLOCK

# How an error ends a traceback; what ends with a colon goes on in the next line. A launcher of ranks writes its own report
# behind that of the script, which is none.
ERROR = re.compile(
    r"^((?!.*ChildFailedError)(?:[\w.]+Error|[\w.]+Exception|[\w.-]+: error)\b(?:.*:[ \t]*\n+)*.*)$", re.MULTILINE
)
RANK = re.compile(r"^\[rank\d+\]: ?", re.MULTILINE)  # before each line of a rank's traceback
RANK_KILLED = re.compile(r"^\s*exitcode\s*: (-\d+) ", re.MULTILINE)  # in the report of a launcher, which itself ends with 1
MOST_CHARACTERS = 300  # of an error
USUALLY = {  # what most often sends a signal that ends a program
    "SIGKILL": "most often the system, because memory ran out, or a scheduler whose limit was reached",
    "SIGTERM": "somebody, or a scheduler whose time is over, asked it to end",
    "SIGINT": "as by Ctrl-C",
    "SIGHUP": "its terminal was closed",
    "SIGSEGV": "a fault in compiled code, such as an extension or a driver",
    "SIGBUS": "most often a file in memory for which there was no room: /dev/shm is full",
    "SIGABRT": "compiled code gave up; what it wrote before says why",
    "SIGILL": "compiled code for another processor than this one",
    "SIGXCPU": "its limit of processor time is reached (ulimit -t)",
}


@dataclass(frozen=True)
class Finished:
    """What a program left: what it printed, its exit code (None: killed at the deadline) and how long it ran."""

    stdout: str
    stderr: str
    exitcode: int | None
    seconds: float


@contextlib.contextmanager
def started(command: Sequence[str], *, deadline_seconds: float | None = None, **options: Any) -> Iterator[subprocess.Popen]:
    """Run `command` as the leader of a process group that is killed after `deadline_seconds`, or when the block is left.

    options  as for subprocess.Popen; the program reads nothing unless `stdin` is given
    Raises OSError if the program cannot be started.
    """
    program = subprocess.Popen(command, start_new_session=True, **{"stdin": subprocess.DEVNULL, **options})
    timer = threading.Timer(deadline_seconds or 0.0, kill_group, (program.pid,))
    if deadline_seconds is not None:
        timer.start()
    try:
        yield program
    finally:
        timer.cancel()
        kill_group(program.pid)
        if program.returncode is None:
            program.kill()  # on Windows there are no process groups of this kind
            program.wait()
        for stream in (program.stdin, program.stdout, program.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # what it did not read
                    stream.close()


def python_environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a Python program that is to find this package in any folder, with `variables` set in it."""
    search = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    # A notebook's kernel asks for colors, which Python 3.13 then writes into its tracebacks.
    return {**os.environ, "PYTHON_COLORS": "0", **(variables or {}), "PYTHONPATH": search}


def run_python(
    arguments: Sequence[str],
    *,
    python: str = sys.executable,
    deadline_seconds: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run a Python interpreter to its end; at the deadline, or if the caller is interrupted, kill it and all it started.

    arguments    as on a command line: ["-m", "module", …] or ["-c", "code", …]
    environment  variables set on top of this process's own
    Raises OSError if `python` cannot be started.
    """
    start = CLOCK()
    command = [python, "-P", *arguments]  # -P: the current folder is not searched for modules
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "errors": "replace"}
    with started(command, env=python_environment(environment), **pipes) as program:
        in_time = True
        try:
            stdout, stderr = program.communicate(timeout=deadline_seconds)
        except subprocess.TimeoutExpired:
            in_time = False
            kill_group(program.pid)
            program.kill()
            stdout, stderr = program.communicate()
    return Finished(stdout, stderr, program.returncode if in_time else None, CLOCK() - start)


def call_python_module(
    module: str,
    parameters: Mapping[str, Any],
    *,
    python: str = sys.executable,
    deadline_seconds: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> Any:
    """Run `python -m module` in a new interpreter with `parameters` as JSON in its argument; return the JSON it prints.

    Raises RuntimeError with the end of its error output if it fails or does not finish in time.
    """
    command = ["-m", module, json.dumps(parameters)]
    finished = run_python(command, python=python, deadline_seconds=deadline_seconds, environment=environment)
    if finished.exitcode != 0:
        how = "did not finish in time" if finished.exitcode is None else f"ended with exit code {finished.exitcode}"
        raise RuntimeError(f"The interpreter that runs {module} {how}: {finished.stderr.strip()[-500:]}")
    return json.loads(finished.stdout)


def signal_name(code: int) -> str:
    """The signal that ended a program of this exit code, -9 or as a shell gives it 137; "" for one that ended by itself."""
    number = -code if code < 0 else code - 128
    names = {known.value: known.name for known in signal.Signals}  # not all of the real-time ones have a name
    return names.get(number, "" if code >= 0 else f"signal {number}")


def killed_by(code: int) -> str:
    """The same in words, with what most often sends that signal."""
    name = signal_name(code)
    return f"killed by {name}" + (f": {USUALLY[name]}" if name in USUALLY else "") if name else ""


def why_ended(code: int, stderr: str) -> str:
    """Why a program ended with an exit code other than 0, on one line: the signal, or else its last error; "" if it wrote none.

    Of a signal from outside a program has said nothing, and of one that compiled code sends itself (SIGABRT) it may have. Where
    a launcher reports that a rank was killed, it is that; it ends the others by SIGTERM.
    """
    code = next((found for found in map(int, RANK_KILLED.findall(stderr)) if found != -signal.SIGTERM), code)
    name, said = signal_name(code), last_error(stderr)
    return "; ".join(filter(None, [killed_by(code), said if name in ("", "SIGABRT") else ""]))


def last_error(stderr: str) -> str:
    """Why a program failed, on one line: the last error in what it wrote, or else its last line; "" if it wrote nothing."""
    text = RANK.sub("", stderr).strip()
    found = ERROR.findall(text) or text.splitlines()[-1:]
    return " ".join(found[-1].split())[:MOST_CHARACTERS] if found else ""
