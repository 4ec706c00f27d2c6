"""A process and all that it starts, watched from outside: what each of their threads used, wanted and waited for.

Everything is read from /proc; nothing of this package is in the processes. The scheduler's counters tell running from waiting
for a core, so that other programs' load is seen as what it is. Only Linux has such a /proc.
"""

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from hpml_lab.core.system.cgroups import Throttling, groups_of, membership, quota_of, throttling
from hpml_lab.profilers.thread_states import ThreadKey, wait_kind

PROC = Path("/proc")
IMPORTING_SHARE = 0.5  # of what the tree asks for: with more of it in imports, a look counts as the program's start
MOSTLY = 0.9  # of a look: a thread that runs or waits for a core for so long is not asked what it is blocked by
DISK, LOCK, READ, SLEEP, CHILD, RUNNING, OTHER = "disk", "lock", "read", "sleep", "child", "running", "other"


class ThreadTimes(NamedTuple):
    """A thread's counters so far: seconds that it ran, and waited for a core, and how often it was given one."""

    ran: float
    waited: float
    turns: int


@dataclass
class ThreadRecord:
    """What was seen of one thread, in seconds that were counted; `kinds` counts the states in which it was found blocked."""

    alive: float = 0.0
    ran: float = 0.0
    waited: float = 0.0
    turns: int = 0
    begin: float = 0.0
    end: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def free(self) -> float:
        """Seconds in which it did not wait for a core: of these it is judged."""
        return max(self.ran, self.alive - self.waited, 1e-9)

    @property
    def blocked(self) -> float:
        """The share of that time in which it was blocked."""
        return 1 - self.ran / self.free

    @property
    def demand(self) -> float:
        """Seconds that it would have run, had it had a core whenever it wanted one."""
        return self.ran * self.alive / self.free

    def share(self, kind: str) -> float:
        """The share of that time in which it was blocked so."""
        seen = self.kinds.total()
        return self.blocked * self.kinds[kind] / seen if seen else 0.0


class Quotas:
    """What quotas of processor time did to processes, from look to look: those of their control groups, such as a container's.

    root     the least quota of the first process
    stopped  {group: what its quota did} in the looks that count
    """

    def __init__(self) -> None:
        self.root = 0.0
        self.stopped: dict[Path, Throttling] = {}
        self._groups: dict[str, list[Path]] = {}  # of processes with the same text
        self._quotas: dict[Path, float] = {}
        self._before: dict[Path, Throttling] = {}

    def look(self, processes: Iterable[int], counts: bool) -> None:
        """Read what has happened since the last look at these processes, the first of which is the root."""
        seen: dict[Path, float | None] = {}
        for number, process in enumerate(processes):
            if not (text := membership(process)):  # it has ended
                continue
            if text not in self._groups:
                self._groups[text] = groups_of(process)
            seen |= {group: quota_of(group) for group in self._groups[text] if group not in seen}
            if number == 0 and not has_ended(process):  # what has ended is in no group
                self.root = min(filter(None, map(seen.get, self._groups[text])), default=0.0)
        for group in filter(seen.get, seen):
            now = throttling(group)
            change = [a - b for a, b in zip(now, self._before.get(group, now), strict=True)]
            if counts:
                so_far = self.stopped.get(group, Throttling(0, 0, 0.0))
                self.stopped[group] = Throttling(*(a + b for a, b in zip(so_far, change, strict=True)))
            self._before[group], self._quotas[group] = now, seen[group]

    def most(self) -> tuple[float, Throttling]:
        """The quota that stopped them most, and what it did; if none did, the root's, which is 0 where it has none."""
        group = max(self.stopped, key=lambda group: self.stopped[group].seconds, default=None)
        if group is None or self.stopped[group].seconds == 0:
            return self.root, Throttling(0, 0, 0.0)
        return self._quotas[group], self.stopped[group]


class ProcessTree:
    """Looks at the process `root` and what it has started, whenever `look` is called.

    threads        what was seen, also of those that have ended
    states         in what state each thread was at the last look
    parents        of the processes that were found later, by process
    importing      processes that import, set by what sees their stacks: such time is the program's start
    seconds        that were counted; `start_seconds` were spent in imports, and are left out
    ran_seconds    of processor time, whether counted or not
    cores          those that the process may use
    quotas         what quotas of processor time did to the processes
    busy_seconds   of these cores, by whatever program, in the seconds that were counted
    read, written  bytes from and to storage in these seconds
    """

    def __init__(self, root: int, at: float) -> None:
        self.threads: dict[ThreadKey, ThreadRecord] = {}
        self.parents: dict[int, int] = {}
        self.importing: set[int] = set()
        self.states: dict[ThreadKey, str] = {}
        self.seconds = self.start_seconds = self.ran_seconds = 0.0
        self._root, self.cores = root, os.sched_getaffinity(0)
        self._foreign: set[int] = set()
        self._busy, self.busy_seconds = _busy_seconds(), 0.0
        self._last, self.quotas = at, Quotas()
        self.living = [root]
        self._find_children()
        self.quotas.look(self.living, counts=False)
        self._before, self._moved = self._times(), self._bytes()
        self.read = self.written = 0

    def look(self, at: float) -> None:
        """Read all counters, and add what has happened since the last look."""
        self._find_children()
        now, elapsed, busy = self._times(), max(at - self._last, 1e-9), _busy_seconds()
        (read, written), self._moved = self._moved, self._bytes()
        with contextlib.suppress(OSError):  # it may have ended
            self.cores = _cores_of(self._root)
        changes = {}
        for who, times in now.items():
            before = self._before.get(who, ThreadTimes(0.0, 0.0, 0))
            # A wait for a core is counted once it is over: it may be longer than this look, and then makes up for earlier ones.
            changes[who] = (times.ran - before.ran, times.waited - before.waited, times.turns - before.turns)
        self._before, self._last = now, at
        self.ran_seconds += sum(ran for ran, _, _ in changes.values())
        self.states = {
            who: state_of(*who) if ran + waited < MOSTLY * elapsed else RUNNING for who, (ran, waited, _) in changes.items()
        }
        wanted = sum(ran + waited for ran, waited, _ in changes.values())
        importing = sum(ran + waited for who, (ran, waited, _) in changes.items() if who[0] in self.importing)
        starts = importing > IMPORTING_SHARE * wanted
        self.quotas.look(self.living, counts=not starts)
        if starts:
            self.start_seconds += elapsed
            self._busy = busy
            return
        begin, self.seconds = self.seconds, self.seconds + elapsed
        # A container may number its cores anew: then the listed ones are its own.
        self.busy_seconds += sum(busy[core] - self._busy.get(core, busy[core]) for core in self.cores & busy.keys() or busy)
        self._busy = busy
        self.read += max(0, self._moved[0] - read)
        self.written += max(0, self._moved[1] - written)
        for who, (ran, waited, turns) in changes.items():
            record = self.threads.setdefault(who, ThreadRecord(begin=begin))
            record.alive += elapsed
            record.ran += ran
            record.waited += waited
            record.turns += turns
            record.end = self.seconds
            if self.states[who] != RUNNING:
                record.kinds[self.states[who]] += 1

    def _times(self) -> dict[ThreadKey, ThreadTimes]:
        found, living = {}, []
        for process in self.living:
            threads = dict(_times_of(process))
            if threads:
                living.append(process)
            found.update({(process, thread): times for thread, times in threads.items()})
        self.living = living
        return found

    def _bytes(self) -> tuple[int, int]:
        """Bytes that all have read from and written to storage; the kernel adds those of an ended process to its parent's."""
        moved = [_bytes_of(process) for process in self.living]
        return sum(read for read, _ in moved), sum(written for _, written in moved)

    def _find_children(self) -> None:
        """Add what the tree has started since; each process of the system is looked at once, when it is new."""
        present = {int(name) for name in os.listdir(PROC) if name.isdigit()}
        self._foreign &= present
        while True:  # until no new process is a child of one found just now
            found = []
            for process in present - self._foreign - {*self.living}:
                with contextlib.suppress(OSError):
                    parent = _stat(process)[1]
                    if parent in self.living:
                        self.parents[process] = parent
                        found.append(process)
            if not found:
                self._foreign = present - {*self.living}
                return
            self.living += found


def _times_of(process: int) -> Iterator[tuple[int, ThreadTimes]]:
    with contextlib.suppress(OSError):  # it has just ended
        for thread in os.listdir(f"/proc/{process}/task"):
            with (
                contextlib.suppress(OSError, ValueError),
                open(f"/proc/{process}/task/{thread}/schedstat", encoding="utf-8") as file,
            ):
                ran, waited, turns = file.read().split()
                yield int(thread), ThreadTimes(int(ran) / 1e9, int(waited) / 1e9, int(turns))


def _stat(process: int, thread: int | None = None) -> tuple[str, int]:
    """State and parent of a process or thread."""
    task = f"/task/{thread}" if thread else ""
    with open(f"/proc/{process}{task}/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()  # the name before it may hold spaces and brackets
    return fields[0].decode(), int(fields[1])


def state_of(process: int, thread: int) -> str:
    """What a thread is at: running (or ready to), or what it is blocked by."""
    try:
        letter = _stat(process, thread)[0]
        if letter in "RZX":
            return RUNNING
        if letter == "D":  # uninterruptible: it waits for a block of storage
            return DISK
        name = (PROC / str(process) / "task" / str(thread) / "wchan").read_text(encoding="utf-8")
    except OSError:
        return RUNNING
    if "nanosleep" in name:
        return SLEEP
    if name == "do_wait":
        return CHILD
    kind = wait_kind(name)
    return kind if kind in (LOCK, READ) else OTHER


def _busy_seconds() -> dict[int, float]:
    """Seconds that each core of this system worked so far."""
    tick, lines = 1 / os.sysconf("SC_CLK_TCK"), (PROC / "stat").read_text(encoding="utf-8").splitlines()
    cores = (line.removeprefix("cpu").split() for line in lines if line.startswith("cpu") and line[3] != " ")
    return {int(core): tick * sum(map(int, (*times[:3], *times[5:7]))) for core, *times in cores}


def has_ended(process: int) -> bool:
    """Whether a process is gone, or has only its exit code left."""
    try:
        return _stat(process)[0] in "ZX"
    except OSError:
        return True


def _bytes_of(process: int) -> tuple[int, int]:
    """Bytes that a process had read from storage and written to it so far, 0 where the system does not say."""
    try:
        lines = dict(line.split(": ") for line in (PROC / str(process) / "io").read_text(encoding="utf-8").splitlines())
        return int(lines["read_bytes"]), int(lines["write_bytes"])
    except (OSError, KeyError, ValueError):
        return 0, 0


def _cores_of(process_id: int) -> set[int]:
    """The cores of all threads of a process: OpenMP may have bound the first one, whose mask is the process's, to one core."""
    found: set[int] = set()
    for thread in os.listdir(PROC / str(process_id) / "task"):
        with contextlib.suppress(OSError):  # it has ended
            found |= os.sched_getaffinity(int(thread))
    return found
