"""Live copies of a script: each in a process group of its own, standing still between its turns."""

import contextlib
import json
import os
import select
import shutil
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import psutil

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


@dataclass
class ScriptCopy:
    """One copy of the script.

    losses  at each `backward`, from its first step on
    laps    of its turns, in seconds a step
    failed  why it is no longer there, "" while it is
    at_its_end  whether it has failed by having no further step
    first_seconds  of the first step
    """

    name: str
    process: subprocess.Popen
    tokens: int
    report: int
    deadline_seconds: float
    stderr: Path
    losses: list[float] = field(default_factory=list)
    laps: list[Lap] = field(default_factory=list)
    steps: int = 0
    failed: str = ""
    at_its_end: bool = False
    digest: str = ""
    first_seconds: float = 0.0
    look: dict[str, Any] = field(default_factory=dict)
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
        last = why_ended(code, self.stderr.read_bytes()[-LAST_LINES:].decode("utf-8", "replace")) if code else ""
        self.at_its_end = not (why or last) and otherwise != ""
        self.failed = why or last or otherwise or f"it ends after {self.steps} steps, with exit code {code}"


@contextlib.contextmanager
def copy_of(
    script: Sequence[str],
    name: str,
    changes: Sequence[Setting],
    folder: Path,
    *,
    deadline_seconds: float,
    look: bool = False,
    where: Path | None = None,
    isolate: bool = False,
) -> Iterator[ScriptCopy]:
    """A copy that runs until its first step is done; killed with all it started when the block is left.

    script   the words after `python`
    folder   for its output, which nobody sees
    where    the folder that it runs in: this one
    isolate  let it run in a copy of that folder, so that it writes its files there; what lies beside it is found as ever
    """
    if isolate:
        where = _copied((where or Path.cwd()).absolute(), files_of(folder, name))
    (child_tokens, tokens), (report, child_report) = os.pipe(), os.pipe()
    paths = os.environ.get("PYTHONPATH")
    chosen = json.dumps({"tokens": child_tokens, "report": child_report, "changes": changes, "look": look})
    variables = {**os.environ, at_start.TURNS: f"{int(paths is not None)} {chosen}"}
    variables["PYTHONPATH"] = os.pathsep.join(filter(None, (at_start.HERE, paths)))
    stderr = folder / f"{name}.stderr"
    try:
        with (folder / f"{name}.stdout").open("wb") as out, stderr.open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, *script],
                env=variables,
                cwd=where,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                start_new_session=True,
                pass_fds=(child_tokens, child_report),
                preexec_fn=partial(end_with_parent, os.getpid()),  # before it stops itself, and stays
            )
    finally:
        os.close(child_tokens)
        os.close(child_report)
    try:
        yield ScriptCopy(name, process, tokens, report, deadline_seconds, stderr)
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


def files_of(folder: Path, name: str) -> Path:
    """What an isolated copy has in place of the root of all files: it runs at its own path below."""
    return folder / f"{name}.files"


def _copied(source: Path, root: Path) -> Path:
    """A copy of a folder at its own path below `root`, with links to what lies beside it: `../data` is found from there."""

    def ignored(folder: str, names: list[str]) -> set[str]:
        environments = {name for name in names if os.path.exists(os.path.join(folder, name, "pyvenv.cfg"))}
        return shutil.ignore_patterns(*NOT_COPIED)(folder, names) | environments

    size = 0
    for folder, folders, files in os.walk(source):
        left_out = ignored(folder, folders + files)
        folders[:] = [name for name in folders if name not in left_out]
        with contextlib.suppress(FileNotFoundError):  # another program's, meanwhile removed
            size += sum(os.lstat(os.path.join(folder, name)).st_size for name in files if name not in left_out)
    if size > MOST_BYTES:
        advice = f"At most {MOST_BYTES / 1e9:g} GB are copied for each run: put the data beside this folder, as ../data."
        raise LabError(f"{source} has {size / 1e9:.1f} GB.", advice)
    above, (_, *names) = root, source.parts
    for parent, name in zip(reversed(source.parents), names, strict=True):
        above.mkdir()
        with contextlib.suppress(PermissionError):  # a folder that may be passed and not read
            for other in os.listdir(parent):
                if other != name:
                    (above / other).symlink_to(parent / other)
        above /= name
    return Path(shutil.copytree(source, above, symlinks=True, ignore=ignored))


def require_turns() -> None:
    """Raise LabError where copies cannot be stopped and let go on, as on Windows."""
    if not hasattr(os, "killpg") or not sys.platform.startswith("linux"):
        raise LabError("copies of a script take turns on Linux only.", "Run it there, or in WSL.")
