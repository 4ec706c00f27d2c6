"""Where the threads of Python processes stand: py-spy is asked now and then, from outside and without stopping them."""

import contextlib
import json
import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from hpml_lab.core.system.installed import find_tool
from hpml_lab.profilers.process_tree import LOCK, PROC, RUNNING, ProcessTree
from hpml_lab.profilers.thread_states import ThreadKey

# Seconds between two dumps, each of which takes 0.01 s of a core: at first QUICK, so that a short program is seen too, and
# GROWTH times more after each of a process's, up to PERIOD. In 10 s there are 25 dumps.
QUICK, GROWTH, PERIOD = 0.1, 1.1, 1.0
LONGEST = 10.0  # seconds until a process is asked again in which py-spy has found no Python
TRIES = 3
DUMP_SECONDS = 5.0
# A thread whose innermost Python frame lies in these waits for another to give it work or to end: it is not judged.
PATIENT = ("threading", "queue", "selectors", "subprocess", "multiprocessing", "concurrent/futures", "asyncio", "socketserver",
           "torch/multiprocessing", "torch/distributed/elastic")  # fmt: skip
IMPORT_SYSTEM = "<frozen importlib._bootstrap>"  # the file of the frames in which Python imports a module
# A worker is what multiprocessing's processes run of these files; the program that waits for it is in the same files.
WORKERS = ("torch/utils/data/_utils/worker.py", "multiprocessing/pool.py", "concurrent/futures/process.py")
PROCESS = "multiprocessing/process.py"
LOADER = "torch/utils/data/dataloader.py"
GIVES_ITEMS = ("__next__", "__getitem__", "__getitems__")
LIBRARIES = ("/lib/python", "/lib64/python", "-packages/", "<frozen", "<string>")
NO_LINES = "No lines of code are known"
OLD = "Of a Python before 3.11 only the main thread is known: what its other threads do is not."
INPUT, WAITS_FOR_OTHERS, WORKER, WORK = "input", "waits for others", "worker", "work"


@dataclass
class ThreadLooks:
    """What the dumps of one thread showed.

    roles   how often it was in its input, in a wait for others, a worker, or at other work; `blocked` of these not running,
            `locked` of these at a lock
    lines   how often it was found at a line, by its state; not at a lock at which it waits for others
    at_gil  how often it wanted to run, or was at a lock, while another thread of the process had the interpreter
    """

    roles: Counter[str] = field(default_factory=Counter)
    blocked: Counter[str] = field(default_factory=Counter)
    locked: Counter[str] = field(default_factory=Counter)
    lines: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    at_gil: int = 0

    @property
    def role(self) -> str:
        return self.roles.most_common(1)[0][0]

    @property
    def contends(self) -> float:
        """How often it was at a lock for its own work, of all times at a lock: a pool's thread waits at one for work, too."""
        return (self.locked[WORK] + self.locked[WORKER]) / max(self.locked.total(), 1)


class PythonStacks:
    """Asks py-spy for the stacks of the tree's Python processes in turn: call `dump` after each look at the tree.

    threads  by thread, of those that run Python
    dumps    of each process
    owners   lines of the threads that had the interpreter, by process
    note     why there are no stacks, or ""
    running  whether the tree has run for a while: then nothing of it is taken to be in imports before it was seen so
    """

    def __init__(self, tree: ProcessTree, running: bool = False) -> None:
        self._tree, self._program = tree, find_tool("py-spy")
        self.threads: dict[ThreadKey, ThreadLooks] = {}
        self.dumps: Counter[int] = Counter()
        self.owners: defaultdict[int, Counter[str]] = defaultdict(Counter)
        self.note = "" if self._program else f"{NO_LINES}: py-spy is not installed here (`pip install py-spy`)."
        self._due = dict.fromkeys(tree.living if running else (), 0.0)
        self._failures: Counter[int] = Counter()
        self._next = 0.0

    def dump(self, now: float) -> None:
        """Ask for one process's stacks, if it is time."""
        if self._program is None:
            return
        for process in self._tree.living:
            if process not in self._due:
                python = _runs_python(process)
                self._importing(process, python and not self._goes_on(process))
                self._due[process] = now if python else now + QUICK  # a shell that becomes one is seen then
        if now < self._next or not self._tree.living:
            return
        process = min(self._tree.living, key=self._due.__getitem__)
        if now < self._due[process]:
            return
        self._next = now + min(PERIOD, QUICK * GROWTH ** (self.dumps[process] + self._failures[process]))
        found = self._ask(self._program, process)
        if found is None:
            self._failures[process] += 1
            self._due[process] = now + min(LONGEST, QUICK * 2 ** self._failures[process])
            if self._failures[process] >= TRIES:
                self._importing(process, False)
        else:
            self._failures[process], self._due[process] = 0, now
            self._add(process, found)

    def _ask(self, program: str, process: int) -> list[dict[str, Any]] | None:
        command = [program, "dump", "--json", "--nonblocking", "--pid", str(process)]
        try:  # in a session of its own: a Ctrl-C at the terminal is not for it
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=DUMP_SECONDS, start_new_session=True
            )
            if done.returncode == 0:
                return json.loads(done.stdout)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            return None
        if b"ermission" in done.stderr and _may_be_read(process):
            from hpml_lab.profilers.py_spy import ALLOW, reason  # only now: it loads matplotlib

            self._program, self.note = None, f"{NO_LINES}: py-spy may not watch ({reason(done.stderr)}). {ALLOW}"
            self._tree.importing.clear()
        return None

    def _add(self, process: int, found: Sequence[dict[str, Any]]) -> None:
        main = next((thread for thread in found if _id(thread) == process), None)
        importing = main is not None and any(frame["filename"] == IMPORT_SYSTEM for frame in main["frames"])
        self._importing(process, importing)
        if importing:
            return
        self.dumps[process] += 1
        owner = next((thread for thread in found if thread["owns_gil"]), None)
        if owner is not None:
            self.owners[process][line_of(owner["frames"])] += 1
        if any(_id(thread) == 0 for thread in found):
            self.note = OLD
        for thread in found:
            if not thread["frames"] or _id(thread) == 0:
                continue
            looks = self.threads.setdefault((process, _id(thread)), ThreadLooks())
            state, role = self._tree.states.get((process, _id(thread)), RUNNING), role_of(thread["frames"])
            looks.roles[role] += 1
            looks.blocked[role] += state != RUNNING
            looks.locked[role] += state == LOCK
            if (state, role) != (LOCK, WAITS_FOR_OTHERS):
                looks.lines[state][line_of(thread["frames"])] += 1
            if owner is not None and thread is not owner and state in (LOCK, RUNNING) and role != WAITS_FOR_OTHERS:
                looks.at_gil += 1

    def _goes_on(self, process: int) -> bool:
        """Whether a process is a fork of one that is done with its imports: it has none of its own."""
        parent = self._tree.parents.get(process)
        if parent is None or parent in self._tree.importing:
            return False
        with contextlib.suppress(OSError):
            return (PROC / str(process) / "cmdline").read_bytes() == (PROC / str(parent) / "cmdline").read_bytes()
        return False

    def _importing(self, process: int, whether: bool) -> None:
        (self._tree.importing.add if whether else self._tree.importing.discard)(process)


def _id(thread: dict[str, Any]) -> int:
    """The system's number of a thread; an old Python does not know it, but its main thread has the process's."""
    return thread["os_thread_id"] or (thread["pid"] if thread["thread_name"] == "MainThread" else 0)


def _runs_python(process: int) -> bool:
    try:
        return Path(PROC / str(process) / "exe").readlink().name.startswith(("python", "pypy"))
    except OSError:
        return False


def _may_be_read(process: int) -> bool:
    """Whether the process is there and is this user's: one of another user, such as sudo, says nothing of the others."""
    return os.path.exists(PROC / str(process) / "exe")


def role_of(frames: Sequence[dict[str, Any]]) -> str:
    """What a thread is at, by its stack, the innermost frame first."""
    files = [frame["filename"] for frame in frames]
    if any(file.endswith(WORKERS) and caller.endswith(PROCESS) for file, caller in pairwise(files)):
        return WORKER
    if any(file.endswith(LOADER) or frame["name"].endswith(GIVES_ITEMS) for file, frame in zip(files, frames, strict=True)):
        return INPUT
    innermost = files[0].removesuffix(".py") + "/"
    library = any(name in innermost for name in LIBRARIES)
    return WAITS_FOR_OTHERS if library and any(f"/{name}/" in innermost for name in PATIENT) else WORK


def line_of(frames: Sequence[dict[str, Any]]) -> str:
    """The line of the program's own code that a thread is in: its innermost frame outside libraries."""
    if not frames:
        return ""
    own = (frame for frame in frames if not any(name in frame["filename"] for name in LIBRARIES))
    frame = next(own, frames[0])
    return f"{Path(frame['filename']).name}:{frame['line']} in {frame['name']}"
