"""Nsight Systems: record a Python program by `nsys profile`, and read its SQLite file as the events of a trace.

The events are dicts in Chrome's trace format, as `core.timing.counting.trace_events` gives them of torch's profiler: whatever
reads one reads the other. nsys makes a table only where there is something to put into it.
"""

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

SHIPPED_REPORT = REFERENCE.parent / "nsys-digits-epoch.sqlite"  # data/README.md says where it comes from
COPIES = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP"}  # CUPTI's numbers of the kinds of copies
NAMED = "JOIN StringIds AS s ON s.id = {} "
# {table: (category of its events, their names, what names them, which of them, thread or stream)}
TABLES = {
    "CUPTI_ACTIVITY_KIND_KERNEL": ("kernel", "s.value", NAMED.format("demangledName"), "", "streamId"),
    "CUPTI_ACTIVITY_KIND_MEMCPY": ("gpu_memcpy", "copyKind", "", "", "streamId"),
    "CUPTI_ACTIVITY_KIND_MEMSET": ("gpu_memset", "'Memset'", "", "", "streamId"),
    "CUPTI_ACTIVITY_KIND_RUNTIME": ("cuda_runtime", "s.value", NAMED.format("nameId"), "", "globalTid"),
    # A range has its text, or the number of one that was registered; a mark has no end.
    "NVTX_EVENTS": (
        "user_annotation", "coalesce(text, s.value)", "LEFT " + NAMED.format("textId"), "WHERE t.end IS NOT NULL", "globalTid"
    ),
}  # fmt: skip


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


def read_nsys(path: Path | str) -> list[dict[str, Any]]:
    """The kernels, copies, fills, calls of CUDA and NVTX ranges of a report that `nsys export --type=sqlite` wrote, in order of
    time; `ts` and `dur` in µs. Raises LabError for a file that is damaged or holds nothing of these."""
    events: list[dict[str, Any]] = []
    try:
        with closing(sqlite3.connect(f"{Path(path).absolute().as_uri()}?mode=ro", uri=True)) as report:
            there = {name for (name,) in report.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
            for table in [table for table in TABLES if table in there]:
                category, name, joined, which, lane = TABLES[table]
                correlation = "0" if category == "user_annotation" else "correlationId"
                rows = report.execute(
                    f"SELECT t.start, t.end, {name}, {lane}, {correlation} FROM {table} AS t {joined}{which} ORDER BY t.start"
                )
                events += [_event(category, *row) for row in rows]
    except sqlite3.Error as error:
        raise LabError(f"{path} is not a report of nsys ({error}).", "Export it with `nsys export --type=sqlite`.") from error
    if not events:
        raise LabError(f"{path} holds no kernel, copy or range.", "Record with `nsys profile --trace=cuda,nvtx`.")
    return sorted(events, key=lambda event: event["ts"])


def _event(category: str, start: int, end: int, name: str | int, lane: int, correlation: int) -> dict[str, Any]:
    if category == "gpu_memcpy":
        name = f"Memcpy {COPIES.get(int(name), name)}"
    times = {"ts": start / 1e3, "dur": (end - start) / 1e3}
    return {"cat": category, "name": name, **times, "tid": lane, "args": {"correlation": correlation}}
