"""Runs code in a fresh Python interpreter with a deadline: nothing of this process, its threads or libraries, is in there."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import hpml_lab

PACKAGE_HOME = Path(hpml_lab.__file__).resolve().parents[1]


@dataclass(frozen=True)
class Finished:
    """What an interpreter left: what it printed, its exit code (None: killed at the deadline) and how long it ran."""

    stdout: str
    stderr: str
    exitcode: int | None
    seconds: float


def run(
    arguments: Sequence[str],
    *,
    python: str = sys.executable,
    deadline: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run `python arguments…`; after `deadline` seconds, or when this call is interrupted, end it and all that it started.

    arguments    as on a command line: ["-m", "module", …] or ["-c", "code", …]
    environment  set on top of this process's own variables
    Raises OSError where `python` cannot be started.
    """
    search = os.pathsep.join(filter(None, [str(PACKAGE_HOME), os.environ.get("PYTHONPATH")]))
    # A notebook's kernel asks for colours, which Python 3.13 then writes into its tracebacks.
    variables = {**os.environ, "PYTHON_COLORS": "0", **(environment or {}), "PYTHONPATH": search}
    start = time.monotonic()
    child = subprocess.Popen(
        [python, "-P", *arguments],  # -P: the current folder is not searched for modules
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
        start_new_session=True,  # it leads a process group, which can be ended as a whole
    )
    in_time = True
    try:
        try:
            stdout, stderr = child.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            in_time = False
            _end_group(child)
            stdout, stderr = child.communicate()
    finally:
        _end_group(child)
        child.wait()
    return Finished(stdout, stderr, child.returncode if in_time else None, time.monotonic() - start)


def _end_group(child: subprocess.Popen) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
