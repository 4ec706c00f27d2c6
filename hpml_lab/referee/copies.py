"""Live copies of a script: each in a process group of its own, standing still between its turns."""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from hpml_lab.core.system import machine
from hpml_lab.core.system.children import end_with_parent, kill_group
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import why_ended
from hpml_lab.core.timing.laps import Lap
from hpml_lab.profilers.at_start import sitecustomize as at_start

Setting = tuple[str, dict[str, Any]]  # a change as `in_the_script` knows it, and its options
MANY_STEPS = 1000
END_SECONDS = 10.0  # for a script that has come to its end, and for its own workers
OURS = "hpml-referee-"  # how the folders of copies begin: one that runs in the folder of temporary files is not to copy itself
NOT_COPIED, MOST_BYTES = (".git", ".venv", "__pycache__", "node_modules", f"{OURS}*"), 1e9
LAST_LINES = 4000  # bytes of what a copy that failed has written to stderr
CONTEXT_BYTES = 600_000_000  # what CUDA takes for a process, before its first tensor
FOR_COPIES = 0.8  # of the free memory: a change may take more than the script as it is, as workers do, and so may others


@dataclass
class ScriptCopy:
    """One copy of the script.

    folder  with what it writes to stderr, and with `files`: if it is isolated, it runs at its own path below
    losses  at each `backward`, from its first step on
    laps    of its turns, in seconds a step
    failed  why it is no longer there, "" while it is
    at_its_end  whether it has failed by having no further step
    first_seconds  of the first step
    gpu_bytes  that its tensors have taken of the GPU's memory, and that are free; none where it uses no GPU
    """

    process: subprocess.Popen
    tokens: int
    report: int
    deadline_seconds: float
    folder: Path
    losses: list[float] = field(default_factory=list)
    laps: list[Lap] = field(default_factory=list)
    steps: int = 0
    failed: str = ""
    at_its_end: bool = False
    digest: str = ""
    first_seconds: float = 0.0
    look: dict[str, Any] = field(default_factory=dict)
    gpu_bytes: list[int] = field(default_factory=list)
    _rest: bytes = b""

    def turn(self, steps: int) -> Lap | None:
        """Let it train for so many steps, and return its seconds a step; None if it has ended, which `failed` explains."""
        if self.failed:
            return None
        self._go_on(steps)
        found = self.hear()
        if found is None:
            return None
        self.laps.append(Lap(*found["lap"]) / steps)
        return self.laps[-1]

    def hear(self) -> dict[str, Any] | None:
        """What it reports next, once its group has stopped; None if it has ended instead."""
        end = time.monotonic() + self.deadline_seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self.report], [], [], max(0.0, min(0.2, end - time.monotonic())))
            chunk = os.read(self.report, 1 << 16) if ready else b""
            self._rest += chunk
            if ready and not chunk:  # it has ended, or has closed what it did not open
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(END_SECONDS)
                self._end("it closes the files by which it takes turns" if self.process.poll() is None else "")
                return None
            if not chunk and (self.process.poll() is not None or time.monotonic() > end):
                self._end(f"no step within {self.deadline_seconds:.0f} s" if self.process.poll() is None else "")
                return None
        line, _, self._rest = self._rest.partition(b"\n")
        found = json.loads(line)
        self.digest = found.get("digest", self.digest)
        self.look = found.get("look", self.look)
        self.gpu_bytes = found.get("gpu_bytes", self.gpu_bytes)
        if "ended" in found:
            self.steps = found["after"]
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_SECONDS)
            self._end(found["ended"], f"it ends after {found['after']} steps")
            return None
        self.steps = found.get("steps", self.steps)
        if self.steps == 1 and "lap" in found:
            self.first_seconds = Lap(*found["lap"]).seconds
        self.losses += map(float.fromhex, found.get("losses", ()))
        if "steps" in found:  # it stops itself next, and a signal to go on that came before would be lost
            os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return found

    def looked(self) -> dict[str, Any]:
        """What a copy with `look` has seen in its first steps; empty if it has ended before."""
        if self.hear() is not None:
            self._go_on(MANY_STEPS)
            self.hear()
        return self.look

    def memory(self) -> list[tuple[float, float, str]]:
        """(bytes that it took at most, bytes that are free for other copies, of what), while it stands still."""
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        sizes = {name: 1024 * int(size) for name, size in re.findall(r"^(VmHWM|VmRSS|RssFile):\s+(\d+)", status, re.M)}
        # Libraries are in the memory once for all copies. Not every system knows the peak.
        own = max(1, sizes.get("VmHWM", sizes.get("VmRSS", 0)) - sizes.get("RssFile", 0))
        with contextlib.suppress(psutil.Error):
            own += sum(worker.memory_full_info().uss for worker in psutil.Process(self.process.pid).children(recursive=True))
        found = [(own, FOR_COPIES * machine.free_memory_bytes(of_programs=True), "of memory")]
        if self.gpu_bytes:
            reserved, free = self.gpu_bytes
            found.append((reserved + CONTEXT_BYTES, free, "of the GPU's memory"))
        return found

    def finish(self) -> None:
        """Ask for the digest of its parameters, and end it."""
        if not self.failed:
            self._go_on(0)
            self.hear()
            self._end("")

    def _go_on(self, steps: int) -> None:
        with contextlib.suppress(ProcessLookupError, BrokenPipeError):
            os.killpg(self.process.pid, signal.SIGCONT)
            os.write(self.tokens, struct.pack("i", steps))

    def _end(self, why: str, otherwise: str = "") -> None:
        """Kill what is left of it; it failed by `why`, by its own last words, or else by `otherwise`."""
        code = self.process.poll() or 0
        kill_family(self.process)
        last = why_ended(code, (self.folder / "stderr").read_bytes()[-LAST_LINES:].decode("utf-8", "replace")) if code else ""
        self.at_its_end = not (why or last) and otherwise != ""
        self.failed = why or last or otherwise or f"it ends after {self.steps} steps, with exit code {code}"


@contextlib.contextmanager
def copy_of(
    script: Sequence[str],
    changes: Sequence[Setting] = (),
    *,
    deadline_seconds: float,
    look: bool = False,
    where: Path | None = None,
    isolate: bool = False,
) -> Iterator[ScriptCopy]:
    """A copy that runs until its first step is done; killed with all it started when the block is left.

    script   the words after `python`
    where    the folder that it runs in: this one
    isolate  let it run in a copy of that folder, so that it writes its files there; what lies beside it is found as ever
    """
    with tempfile.TemporaryDirectory(prefix=OURS, ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        if isolate:
            where = _copied((where or Path.cwd()).absolute(), folder / "files")
        (child_tokens, tokens), (report, child_report) = os.pipe(), os.pipe()
        paths = os.environ.get("PYTHONPATH")
        chosen = json.dumps({"tokens": child_tokens, "report": child_report, "changes": changes, "look": look})
        variables = {**os.environ, at_start.TURNS: f"{int(paths is not None)} {chosen}"}
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, (at_start.HERE, paths)))
        try:
            with (folder / "stderr").open("wb") as errors:
                process = subprocess.Popen(
                    [sys.executable, *script],
                    env=variables,
                    cwd=where,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    start_new_session=True,
                    pass_fds=(child_tokens, child_report),
                    preexec_fn=partial(end_with_parent, os.getpid()),  # before it stops itself, and stays
                )
        finally:
            os.close(child_tokens)
            os.close(child_report)
        try:
            yield ScriptCopy(process, tokens, report, deadline_seconds, folder)
        finally:
            kill_family(process)
            os.close(tokens)
            os.close(report)


def kill_family(process: subprocess.Popen) -> None:
    """Kill its group, and what it has started in sessions of their own, such as a server for its curves."""
    family = []
    with contextlib.suppress(psutil.NoSuchProcess):
        family = psutil.Process(process.pid).children(recursive=True)
    kill_group(process.pid)
    for other in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            other.kill()
    process.wait()


def _copied(source: Path, root: Path) -> Path:
    """A copy of a folder at its own path below `root`, where what lies beside it is found as well."""
    require_small(source)
    return Path(shutil.copytree(source, place_below(root, source), symlinks=True, ignore=left_out))


def left_out(folder: str, names: Sequence[str]) -> set[str]:
    """What no script reads as its data: repositories, environments, and other copies."""
    environments = {name for name in names if os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))}
    return shutil.ignore_patterns(*NOT_COPIED)(folder, names) | environments


def require_small(source: Path) -> None:
    """Raise LabError for a folder with more than MOST_BYTES to copy."""
    size = 0
    for folder, folders, files in os.walk(source):
        ignored = left_out(folder, folders + files)
        folders[:] = [name for name in folders if name not in ignored]
        with contextlib.suppress(FileNotFoundError):  # another program's, meanwhile removed
            size += sum(os.lstat(os.path.join(folder, name)).st_size for name in files if name not in ignored)
    if size > MOST_BYTES:
        advice = f"At most {MOST_BYTES / 1e9:g} GB are copied for each run: put the data beside this folder, as ../data."
        raise LabError(f"{source} has {size / 1e9:.1f} GB.", advice)


def place_below(root: Path, source: Path) -> Path:
    """The path of `source` below `root`, where nothing is yet, among links to what lies beside it: from there is `../data`."""
    above, (_, *names) = root, source.parts
    for parent, name in zip(reversed(source.parents), names, strict=True):
        above.mkdir()
        with contextlib.suppress(PermissionError):  # a folder that may be passed and not read
            for other in os.listdir(parent):
                if other != name:
                    (above / other).symlink_to(parent / other)
        above /= name
    return above


def require_turns() -> None:
    """Raise LabError where copies cannot be stopped and let go on, as on Windows."""
    if not hasattr(os, "killpg") or not sys.platform.startswith("linux"):
        raise LabError("copies of a script take turns on Linux only.", "Run it there, or in WSL.")
