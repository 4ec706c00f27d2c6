"""The limits of a process's control groups, which is what a container is: processor time and memory, of version 1 and 2.

Linux tells them in files. A group's limits hold for all below it, so each of its parents counts. What is not there, cannot be
read or makes no sense limits nothing: a machine without such groups, or with others, has none of these limits and no error.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.readers import text_of

ROOT = Path("/")  # tests have another
AT_MOST = 1 << 24  # bytes of a file; the list of mounts is the longest
VERSION_2 = ""  # its line in /proc/…/cgroup names no controllers
# Where a container has its groups, for a system that does not list them: /proc may be absent, or of another kind as in gVisor.
USUAL = {VERSION_2: "/sys/fs/cgroup", "cpu": "/sys/fs/cgroup/cpu", "memory": "/sys/fs/cgroup/memory"}


class Throttling(NamedTuple):
    """What a group's quota did so far: periods in which it was active and in which it was stopped, and seconds stopped.

    The seconds are summed over the cores on which it was stopped.
    """

    periods: int
    throttled: int
    seconds: float


def cpu_quota() -> float | None:
    """Cores' worth of processor time that this process may use with all others of its groups, such as 1.5; None: no limit."""
    return min(filter(None, map(quota_of, groups_of())), default=None)


def quota_of(group: Path) -> float | None:
    """Cores' worth of processor time that a group may use; None where it has no limit."""
    numbers = _read(group / "cpu.max").split() or [_read(group / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    quota, period = map(_positive, numbers if len(numbers) == 2 else ("", ""))
    return quota / period if quota and period else None


def throttling(group: Path) -> Throttling:
    """What a group's quota did so far."""
    stat = _table(group / "cpu.stat")
    seconds = stat.get("throttled_usec", 0) / 1e6 + stat.get("throttled_time", 0) / 1e9  # of version 2, and 1
    return Throttling(stat.get("nr_periods", 0), stat.get("nr_throttled", 0), seconds)


def groups_of(process: int | None = None) -> list[Path]:
    """The folders of a process's groups that may limit it, and of their parents, as far as they can be seen from here.

    process  by default this one
    """
    paths, found = dict.fromkeys(USUAL, "/"), {}
    for line in membership(process).splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        paths |= {name: path for name in controllers.split(",") if name in USUAL}
    for name, top, mounted in _mounts():
        inner = _below(top, PurePosixPath(paths[name]), mounted, process or os.getpid())
        if inner is not None:
            found |= dict.fromkeys(mounted / part for part in (inner, *inner.parents))
    return [*found]


def membership(process: int | None = None) -> str:
    """Which groups a process is in, as the system writes it: two with the same text are in the same groups."""
    return _read(_of("proc", process or "self", "cgroup"))


def memory_limit() -> int | None:
    """Bytes that this process may use with all others of its groups; None where nothing limits it."""
    return min(filter(None, map(_memory, groups_of())), default=None)


def memory_left() -> int | None:
    """Bytes that are left of `memory_limit` if the kernel gives up its copies of files; None where nothing limits it."""
    return min((max(0, limit - _used(group)) for group in groups_of() if (limit := _memory(group))), default=None)


def _memory(group: Path) -> int | None:
    """The limit of a group; above `memory.high` its processes are slowed until they use less.

    Without a limit version 1 has a number that no machine's memory reaches. Only it tells of parents that cannot be seen.
    """
    found = [_positive(_read(group / f"memory.{name}")) for name in ("max", "high", "limit_in_bytes")]
    return min(filter(None, [*found, _table(group / "memory.stat").get("hierarchical_memory_limit")]), default=None)


def _used(group: Path) -> int:
    """Bytes that a group uses and that the kernel cannot take back."""
    stat = _table(group / "memory.stat")
    used = _positive(_read(group / "memory.current") or _read(group / "memory.usage_in_bytes")) or 0
    return max(0, used - sum(stat.get(f"total_{kind}", stat.get(kind, 0)) for kind in ("active_file", "inactive_file")))


def _mounts() -> Iterator[tuple[str, PurePosixPath, Path]]:
    """(controller, group that is mounted, where) for each mount of groups that may limit something."""
    for line in _read(_of("proc", "self", "mountinfo")).splitlines():
        place, _, kind = line.partition(" - ")
        place, kind = place.split(), kind.split()
        if len(place) > 4 and len(kind) > 2 and kind[0] in ("cgroup", "cgroup2"):
            top, mounted = (re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text) for text in place[3:5])
            for name in {VERSION_2} if kind[0] == "cgroup2" else {"cpu", "memory"} & {*kind[2].split(",")}:
                yield name, PurePosixPath(top), _of(mounted.lstrip("/"))
    for name, mounted in USUAL.items():
        yield name, PurePosixPath("/"), _of(mounted.lstrip("/"))


def _below(top: PurePosixPath, path: PurePosixPath, mounted: Path, process: int) -> PurePosixPath | None:
    """Where under a mount of the group `top` the group `path` is; None if it is not below."""
    if path.is_relative_to(top):
        inner = path.relative_to(top)
        return PurePosixPath() if ".." in inner.parts else inner  # outside of what this container may see
    # A container with groups of its own that was handed the machine's: the way up is known, the names on the way down are not.
    names = [name for name in path.parts[1:] if name != ".."]
    unknown = top.parts.count("..") - path.parts.count("..")
    for file in mounted.glob("/".join([*["*"] * unknown, *names, "cgroup.procs"])) if unknown > 0 else ():
        if str(process) in _read(file).split():
            return PurePosixPath(file.parent.relative_to(mounted))
    return None


def _of(*parts: object) -> Path:
    return ROOT.joinpath(*map(str, parts))


def _table(file: Path) -> dict[str, int]:
    """The lines "name number" of a file."""
    rows = (line.split() for line in _read(file).splitlines())
    return {row[0]: number for row in rows if len(row) == 2 and (number := _positive(row[1])) is not None}


def _positive(text: str) -> int | None:
    """A number above 0; None for any other text, such as "max", "-1" or ""."""
    text = text.strip()
    return int(text) or None if text.isascii() and text.isdigit() and len(text) < 30 else None


def _read(file: Path) -> str:
    """What a file holds; "" where it cannot be read."""
    try:
        return text_of(file, AT_MOST, errors="surrogateescape")
    except (OSError, LabError):
        return ""
