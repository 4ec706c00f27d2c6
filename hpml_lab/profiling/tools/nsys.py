"""Nsight Systems: record a Python program by `nsys profile`, and read its SQLite file as the events of a trace.

The events are dicts in Chrome's trace format, as `core.timing.counting.trace_events` gives them of torch's profiler: whatever
reads one reads the other. nsys makes a table only where there is something to put into it.
"""

import os
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from subprocess import DEVNULL, PIPE, STDOUT
from typing import Any

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.paths import REFERENCE
from hpml_lab.core.system.programs import python_environment, started
from hpml_lab.core.system.readers import EVENTS, open_file, reader

SHIPPED_REPORT = REFERENCE.parent / "nsys-digits-epoch.sqlite"  # data/README.md says where it comes from
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}  # CUPTI's numbers of the kinds of copies
# {table: (category of its events, thread or stream, what names them: a column of text or a number of StringIds)}
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("kernel", "streamId", "demangledName"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("gpu_memcpy", "streamId", "copyKind"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("gpu_memset", "streamId", "'Memset'"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("cuda_runtime", "globalTid", "nameId"),
    "NVTX_EVENTS": ("user_annotation", "globalTid", "coalesce(text, textId)"),  # of a range that was registered the number
}
STEPS = 1 << 20  # of SQLite's machine that a report takes, and STEPS_A_BYTE of its file: a row takes 10 and has 30 bytes
STEPS_A_BYTE = 10


def nsys_profile(arguments: Sequence[str], folder: Path | str, deadline_seconds: float = 300.0) -> Path:
    """Run `python *arguments` under `nsys profile` and return the SQLite file that it wrote into `folder`.

    Raises LabError where nsys is absent, may not record, or the program fails.
    """
    nsys = find_tool("nsys")
    if nsys is None:
        raise LabError("nsys is not installed here.", "Get Nsight Systems: https://developer.nvidia.com/nsight-systems")
    out = Path(folder) / "run.sqlite"
    command = [nsys, "profile", "--trace=cuda,nvtx", "--sample=none", "--cpuctxsw=none", "--export=sqlite"]
    command += ["--force-overwrite=true", f"--output={out.with_suffix('')}", sys.executable, "-P", *arguments]
    streams = {"stdin": DEVNULL, "stdout": PIPE, "stderr": STDOUT, "env": python_environment()}
    with started(command, deadline_seconds=deadline_seconds, **streams) as program:
        said = program.communicate()[0].decode(errors="replace").strip().splitlines()
    if program.returncode != 0 or not out.is_file():
        why = next((line for line in said if "rror" in line or "ermission" in line), said[-1] if said else "it said nothing")
        raise LabError(f"nsys could not record ({why.strip()}).", "`nsys status --environment` says what it needs here.")
    return out


@reader("a report of nsys", "Export it with `nsys export --type=sqlite`.")
def read_nsys(path: Path | str) -> list[dict[str, Any]]:
    """The kernels, copies, fills, calls of CUDA and NVTX ranges of a report that `nsys export --type=sqlite` wrote, in order of
    time; `ts` and `dur` in µs. Raises LabError for a file that is damaged or holds nothing of these."""
    with open_file(path, EVENTS) as file:  # SQLite would wait for a pipe
        most = STEPS + STEPS_A_BYTE * os.fstat(file.fileno()).st_size
    events: list[dict[str, Any]] = []
    # Nobody writes to an export any more: nothing is locked, and no journal next to it is looked for.
    with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?immutable=1", uri=True)) as report:
        report.set_progress_handler(lambda: True, most)  # a view or a damaged page may lead in a circle: it is interrupted
        # Views, and tables that are computed, are not nsys's; both have no page of their own.
        there = {name for (name,) in report.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0")}
        for table in there & {"StringIds", *TABLES}:
            if any(hidden == 2 for *_, hidden in report.execute(f"PRAGMA table_xinfo({table})")):
                raise ValueError(f"{table} has a column that is computed, of any size")
        names = dict(report.execute("SELECT id, value FROM StringIds")) if "StringIds" in there else {}
        for table, (category, lane, name) in TABLES.items():
            if table in there:
                correlation = "0" if category == "user_annotation" else "correlationId"
                rows = report.execute(f"SELECT start, end, {name}, {lane}, {correlation} FROM {table}")
                events += filter(None, (_event(category, names, *row) for row in rows))
    if not events:
        raise LabError(f"{path} holds no kernel, copy or range.", "Record with `nsys profile --trace=cuda,nvtx`.")
    return sorted(events, key=lambda event: event["ts"])


def _event(category: str, names: dict[int, str], start: int, end: int, name: Any, lane: int, correlation: int) -> dict | None:
    """The event of a row; None for a mark, which has no end, and for a name that the report does not hold."""
    if category == "user_annotation" and end is None:
        return None
    if category == "gpu_memcpy":
        name = f"Memcpy {COPIES.get(int(name), name)}"
    elif isinstance(name, int):
        name = names.get(name)
        if name is None and category != "user_annotation":
            return None
    if not isinstance(start, int) or not isinstance(end, int) or not isinstance(name, str | None):
        raise ValueError(f"in a row of {category} the start is {start!r}, the end {end!r} and the name {name!r:.80}")
    times = {"ts": start / 1e3, "dur": (end - start) / 1e3}
    return {"cat": category, "name": name, **times, "tid": lane, "args": {"correlation": correlation}}
