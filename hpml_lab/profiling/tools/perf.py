"""What the system and Linux's perf say of a program while it runs: counters, functions, stacks of Python and C."""

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from hpml_lab.core.experiment import Row, column
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.programs import run_python, started

EVENTS = ("task-clock", "context-switches", "page-faults", "cycles", "instructions", "cache-misses")
MODIFIER = re.compile(r":[ukhIGHpPSDWe]+$")
DEADLINE_SECONDS = 60.0
ASKED = """
import sys, sysconfig
found = sysconfig.get_config_vars()
pointers = any("-fno-omit-frame-pointer" in str(value) for value in found.values())
print(int(found.get("PY_HAVE_PERF_TRAMPOLINE") or 0), sys.version_info[1], int(pointers))
"""
# The interpreter's own way from a Python function to a native one, which says nothing of either.
INTERPRETER = re.compile(r"_?Py(Eval|Object|Function|_Run|Run)_?|py_trampoline|(cfunction|method|slot|object)_|\[unknown]")
OUTSIDE = "outside Python's functions"
MISSING = (
    "perf is not installed here: `apt install linux-perf` (Debian), `linux-tools-common linux-tools-$(uname -r)` (Ubuntu)."
)


@dataclass
class ProcessUsage(Row):
    """What the system counted for one process: its times, page faults and context switches.

    Minor faults are served without the disk, major ones with it. A switch is voluntary where the process waited, involuntary
    where another one had its turn.
    """

    elapsed_seconds: float = column("elapsed", "s")
    user_seconds: float = column("user", "s")
    system_seconds: float = column("system", "s")
    minor_faults: int = column("minor faults")
    major_faults: int = column("major faults")
    voluntary_switches: int = column("voluntary switches")
    involuntary_switches: int = column("involuntary switches")

    @property
    def processor_seconds(self) -> float:
        """The sum of both: Linux counts it exactly, and divides a short time into user and system by where a tick found it."""
        return self.user_seconds + self.system_seconds


@dataclass
class PerfCounter(Row):
    """One counter of perf; its value is None where perf could not count, and `note` says why."""

    event: str = column("event")
    value: float | None = column("value")
    unit: str = column("unit")
    note: str = column("note")


@dataclass
class FunctionSamples(Row):
    """One function in perf's samples."""

    function: str = column("function")
    percent: float = column("share of the samples", "%")


def process_usage(command: Sequence[str], deadline_seconds: float = DEADLINE_SECONDS) -> tuple[str, ProcessUsage]:
    """Run a command to its end; return what it printed and what the system counted for this process alone (wait4).

    Raises LabError for a command that fails or is still running after `deadline_seconds`.
    """
    start = time.perf_counter()
    with _started(command, deadline_seconds, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as program:
        printed = program.stdout.read().decode(errors="replace")
        _, status, used = os.wait4(program.pid, 0)
        program.returncode = os.waitstatus_to_exitcode(status)  # it is gone: Popen must not wait for it again
    if program.returncode != 0:
        raise LabError(f"{command[0]} ended with {program.returncode}.", f"It has {deadline_seconds:g} s and must end with 0.")
    return printed.strip(), ProcessUsage(
        elapsed_seconds=time.perf_counter() - start,
        user_seconds=used.ru_utime,
        system_seconds=used.ru_stime,
        minor_faults=used.ru_minflt,
        major_faults=used.ru_majflt,
        voluntary_switches=used.ru_nvcsw,
        involuntary_switches=used.ru_nivcsw,
    )


def _started(command: Sequence[str], deadline_seconds: float, **streams: int) -> AbstractContextManager[subprocess.Popen]:
    # Other languages write a comma in a number.
    return started(command, deadline_seconds=deadline_seconds, env={**os.environ, "LC_ALL": "C"}, **streams)


def perf_rows(text: str) -> list[PerfCounter]:
    """The rows of `perf stat -x,`.

    A processor with two kinds of cores counts on each, such as cpu_core/cycles/ and cpu_atom/cycles/: one row, their sum.
    """
    rows: dict[str, PerfCounter] = {}
    for line in text.splitlines():
        fields = line.split(",")
        if line.startswith("#") or len(fields) < 4:
            continue
        value, unit, event = fields[0].strip(), fields[1], fields[2]
        known = not value.startswith("<")
        # Without its modifier, as in cycles:u; what follows the colon of a tracepoint, as in sched:sched_switch, is its name.
        event = event.split("/")[1] if "/" in event else MODIFIER.sub("", event)
        row = PerfCounter(event, float(value) if known else None, unit, "" if known else value.strip("<>"))
        earlier = rows.get(event)
        if earlier is None or earlier.value is None:
            rows[event] = row
        elif known:
            earlier.value += row.value
    return list(rows.values())


def perf_stat(
    command: Sequence[str], folder: Path | str, events: Sequence[str] = EVENTS, deadline_seconds: float = DEADLINE_SECONDS
) -> list[PerfCounter]:
    """Run a command under `perf stat` and return its counters as rows.

    folder  where perf may write its file
    Raises LabError where perf is absent, may not count, or the command fails.
    """
    out = Path(folder) / "perf.csv"
    _perf(folder, ["stat", "-x,", "-o", str(out), "-e", ",".join(events), "--", *command], deadline_seconds)
    return perf_rows(out.read_text(encoding="utf-8"))


def perf_functions(
    command: Sequence[str], folder: Path | str, deadline_seconds: float = DEADLINE_SECONDS
) -> list[FunctionSamples]:
    """Run a command under `perf record` and return one row a function, the one with the most samples first.

    It samples by the clock, which works where the processor's own counters are not available. Raises as `perf_stat`.
    """
    out = str(Path(folder) / "perf.data")
    _perf(folder, ["record", "-q", "-e", "cpu-clock", "-F", "999", "-o", out, "--", *command], deadline_seconds)
    text = _perf(folder, ["report", "-i", out, "--stdio", "-q", "-F", "overhead,symbol", "-t,"], deadline_seconds)
    lines = [line.split(",", 1) for line in text.splitlines() if "%" in line]
    return [FunctionSamples(name.split("] ")[-1].strip(), float(share.strip(" %"))) for share, name in lines]


def perf_stacks(
    script: Sequence[str], folder: Path | str, python: str = sys.executable, deadline_seconds: float = DEADLINE_SECONDS
) -> str:
    """Run a Python script under `perf record -g` and return its stacks of Python's and native functions as folded text.

    script  its file and its arguments
    Python 3.13 describes its frames to perf (`-X perf_jit`); 3.12 names them (`-X perf`), which is enough only where it was
    built with frame pointers. Raises LabError for an older one, and as `perf_stat`.
    """
    flag, how = _frames_for_perf(python)
    number, data = Path(folder) / "process", str(Path(folder) / "perf.data")
    command = ["sh", "-c", 'echo $$ >"$0" && exec "$@"', str(number), python, "-X", flag, *script]
    try:
        _perf(folder, ["record", "-q", "-e", "cpu-clock:u", "-F", "499", *how, "-o", data, "--", *command], deadline_seconds)
        if flag == "perf_jit":
            _perf(folder, ["inject", "--jit", "-i", data, "-o", f"{data}.jit"], deadline_seconds)
            data += ".jit"
        return folded_samples(_perf(folder, ["script", "-i", data, "--no-inline", "-F", "comm,ip,sym"], deadline_seconds))
    finally:
        process = number.read_text(encoding="utf-8").strip() if number.is_file() else "none"
        for left in Path("/tmp").glob(f"*-{process}*"):  # Python and perf name their files so, and have no option for it
            if re.fullmatch(rf"perf-{process}\.map|jit-{process}\.dump|jitted-{process}-\d+\.so", left.name):
                left.unlink(missing_ok=True)


def _frames_for_perf(python: str) -> tuple[str, list[str]]:
    """The -X flag by which this interpreter shows perf its frames, and perf's options for it."""
    said = run_python(["-c", ASKED], python=python).stdout.split()
    trampoline, minor, pointers = map(int, said) if len(said) == 3 else (0, 0, 0)
    if trampoline and pointers:
        return "perf", ["-g"]
    if trampoline and minor >= 13:
        return "perf_jit", ["-k", "1", "--call-graph", "dwarf"]
    why = "is older than 3.12" if minor < 12 else "was built without frame pointers, or for another system"
    raise LabError(f"perf does not see this Python's functions: it {why}.", "Run with Python 3.13 on Linux to see them.")


def folded_samples(text: str) -> str:
    """The samples of `perf script` as folded text: the Python functions, then the native ones that the innermost called."""
    stacks: Counter[str] = Counter()
    for sample in filter(None, text.strip().split("\n\n")):
        frames = [line.split(maxsplit=1)[1].replace(";", ":") for line in sample.splitlines()[1:] if len(line.split()) > 1]
        calls = [number for number, frame in enumerate(frames) if frame.startswith("py::")]
        native = [frame for frame in frames[: calls[0] if calls else None] if not INTERPRETER.match(frame)]
        python = [re.sub(r"^py::(.*?):(?:.*/)?(.*)$", r"\1 (\2)", frames[number]) for number in calls]
        stacks[";".join([*reversed(python or [OUTSIDE]), *reversed(native)])] += 1
    return "".join(f"{stack} {count}\n" for stack, count in sorted(stacks.items()))


def _perf(folder: Path | str, arguments: Sequence[str], deadline_seconds: float) -> str:
    perf = find_tool("perf")
    if perf is None:
        raise LabError("The processor's counters cannot be read.", MISSING if sys.platform == "linux" else "perf is Linux's.")
    reports = arguments[0] in ("report", "script")
    streams = {"stdout": subprocess.PIPE if reports else subprocess.DEVNULL}
    streams["stderr"] = subprocess.DEVNULL if reports else subprocess.PIPE
    with _started([perf, "--buildid-dir", str(folder), *arguments], deadline_seconds, **streams) as program:
        out, message = program.communicate()
    if program.returncode != 0:
        reason = (message or b"").decode(errors="replace").strip().split("\n")[0] or f"it ended with {program.returncode}"
        raise LabError(
            f"perf could not count ({reason}).",
            "Allow it with `sudo sysctl kernel.perf_event_paranoid=1`; in Docker add `--cap-add PERFMON`.",
        )
    return (out or b"").decode(errors="replace")
