"""What bounds a command: the classifier's evidence for somebody else's program.

A Python script is watched from inside, by the launcher. Of any other program the system's own counters are read from outside:
which of its threads run, wait for a core, or are blocked.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from hpml_lab.core.tools import find_tool
from hpml_lab.profiling import launcher
from hpml_lab.profiling.foreground import exit_code, in_foreground
from hpml_lab.profiling.script_profile import launch_environment
from hpml_lab.profiling.watching import ThreadKey, blocked_at, shares_of_successors, times_of

PERIOD = 0.02  # seconds between two samples from outside
WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")  # Python's options that take the next word
OLDEST = (3, 11)


def diagnose_command(command: Sequence[str], gpu_seconds: float = 1.5) -> tuple[Any, int, list[str]]:
    """Run `command` in the foreground; return its Diagnosis, its exit code, and notes on how it was watched.

    gpu_seconds  how long a GPU's time line is recorded, in a script that uses torch
    """
    split = split_python(command)
    if split is None:
        return _from_outside(command)
    python, script = split
    with tempfile.TemporaryDirectory(prefix="hpml-bottleneck-") as folder:
        settings = {
            "folder": folder,
            "measure": "bound",
            "operators": gpu_seconds if has_gpu() else 0.0,
            "path": os.environ.get("PYTHONPATH"),
        }
        launch = [*python, "-P", "-m", launcher.__name__, json.dumps(settings), *script]
        with in_foreground(launch, launch_environment()) as process:
            code = exit_code(process.wait())
        return _from_inside(Path(folder), code)


# ---- Python scripts, from inside -------------------------------------------------------------------------------------


def split_python(command: Sequence[str]) -> tuple[list[str], list[str]] | None:
    """The interpreter with its options, and the script (or -m and a module) with its arguments; None for any other command."""
    words = list(command)
    if words[0].endswith(".py") and Path(words[0]).is_file():
        words = [sys.executable, *words]
    if not Path(words[0]).name.startswith(("python", "pypy")):
        return None
    index = 1
    while index < len(words) and words[index].startswith("-") and words[index] not in ("-m", "-c", "-"):
        index += 2 if words[index] in WITH_VALUE else 1
    if index >= len(words) or words[index] in ("-c", "-") or (words[index] == "-m" and index + 1 == len(words)):
        return None
    program = find_tool(words[0])
    return ([program, *words[1:index]], words[index:]) if program and _can_launch(program) else None


def _can_launch(python: str) -> bool:
    """Whether this interpreter is new enough for the launcher."""
    if Path(python).resolve() == Path(sys.executable).resolve():
        return True
    code = f"import sys; sys.exit(sys.version_info < {OLDEST})"
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run([python, "-c", code], stdin=subprocess.DEVNULL, timeout=20).returncode == 0
    return False


def has_gpu() -> bool:
    """Whether NVML knows of a GPU."""
    from hpml_lab.profiling.nvml import Gpus

    with Gpus() as gpus:
        return bool(gpus.read())


def _from_inside(folder: Path, code: int) -> tuple[Any, int, list[str]]:
    from hpml_lab.core.timeline import Span
    from hpml_lab.profiling.bottleneck import CANNOT_TELL, Diagnosis, Evidence, decide
    from hpml_lab.profiling.device_work import device_evidence

    path = folder / "evidence.json"
    if not path.is_file():  # killed, or left by os._exit
        return Diagnosis(CANNOT_TELL, "the script ended before it could be judged", Evidence(0.0)), code, []
    seen = json.loads(path.read_text())
    evidence, notes = Evidence(**seen["host"]), []
    if seen["import_seconds"] > 0.1:
        notes.append(f"{seen['import_seconds']:.1f} s in which modules were imported are left out.")
    operators = folder / "operators.json"
    recorded = json.loads(operators.read_text()) if operators.is_file() else {"spans": []}
    if recorded["spans"]:
        spans = [Span("GPU", "copy" if _is_copy(name) else "kernel", start, end) for name, start, end in recorded["spans"]]
        evidence = replace(evidence, **device_evidence(spans, recorded["seconds"], 0.0, 0.0))
        notes.append(f"The GPU was recorded for {recorded['seconds']:.1f} s.")
    return decide(evidence), code, notes


def _is_copy(name: str) -> bool:
    return "memcpy" in name.lower() and "DtoD" not in name


# ---- other programs, from outside ------------------------------------------------------------------------------------


def _from_outside(command: Sequence[str]) -> tuple[Any, int, list[str]]:
    from hpml_lab.profiling.bottleneck import Evidence, decide

    with in_foreground(command) as process, OutsideWatch(process.pid) as watch:
        code = exit_code(process.wait())
    note = "Not a Python script: seen from outside only. What its threads wait for is known only roughly."
    return decide(Evidence(**watch.evidence())), code, [note]


class OutsideWatch:
    """Samples a process and all that it has started, from outside, in a `with` block; `evidence()` then sums up."""

    def __init__(self, process_id: int) -> None:
        self._root = psutil.Process(process_id)
        self._sums: Counter[str] = Counter()
        self._used: Counter[ThreadKey] = Counter()
        self._wanted: Counter[ThreadKey] = Counter()
        self._lives: dict[ThreadKey, list[float]] = {}
        self._stop = threading.Event()

    def __enter__(self) -> "OutsideWatch":
        self._thread = threading.Thread(target=self._sample_until_stopped, name="hpml-outside-watch", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def evidence(self) -> dict[str, Any]:
        """The fields of Evidence that can be seen from outside."""
        seconds = self._sums["seconds"] or 1e-9
        return {
            "seconds": self._sums["seconds"],
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
            "cores_used": sum(self._used.values()) / seconds,
            "cores_wanted": sum(self._wanted.values()) / seconds,
            "busiest": max(shares_of_successors(self._wanted, self._lives, seconds), default=0.0),
            "input_wait": self._sums["read"] / seconds,
            "unknown_wait": self._sums["blocked"] / seconds,
        }

    def _sample_until_stopped(self) -> None:
        before, last, over = self._times(), time.perf_counter(), False
        while not over:
            over = self._stop.wait(PERIOD)
            now, at = self._times(), time.perf_counter()
            elapsed, asked = at - last, 0.0
            self._sums["seconds"] += elapsed
            for who, (ran, waited) in now.items():
                ran_before, waited_before = before.get(who, (ran, waited))
                used = min(elapsed, max(0.0, ran - ran_before))
                wanted = min(elapsed, used + max(0.0, waited - waited_before))
                self._used[who] += used
                self._wanted[who] += wanted
                self._lives.setdefault(who, [last if who in before else at, at])[1] = at
                asked += wanted
            rest = max(0.0, elapsed - asked)  # in which nothing of it ran or wanted to run
            kinds = {blocked_at(Path(f"/proc/{process}/task/{thread}")) for process, thread in now}
            self._sums["read" if "read" in kinds and "lock" not in kinds else "blocked"] += rest if now else 0.0
            before, last = now, at

    def _times(self) -> dict[ThreadKey, tuple[float, float]]:
        with contextlib.suppress(psutil.Error):
            return times_of([self._root.pid, *(child.pid for child in self._root.children(recursive=True))])
        return {}
