"""What the system and the processor count while a program runs: getrusage everywhere, `perf stat` where Linux has perf."""

import mmap
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from hpml_lab.core.experiment.findings import Row, column
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import started
from hpml_lab.core.system.tools import find_tool

PAGE = mmap.PAGESIZE
EVENTS = ("task-clock", "context-switches", "page-faults", "cycles", "instructions", "cache-misses")
MODIFIER = re.compile(r":[ukhIGHpPSDWe]+$")
DEADLINE_SECONDS = 60.0
MISSING = (
    "perf is not installed here: `apt install linux-perf` (Debian), `linux-tools-common linux-tools-$(uname -r)` (Ubuntu)."
)

# One program, four things to count. Pages are touched without huge pages, which would take 512 of them in one fault.
C_PROGRAM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEEN __attribute__((noinline))               /* keeps its name for perf report */

SEEN static long walk(const int *next, long count) { /* follow the chain: each index names the one after it */
    long index = 0, sum = 0;
    for (long i = 0; i < count; i++) { sum += index; index = next[index]; }
    return sum;
}

SEEN static void shuffle(int *next, long count) {    /* Sattolo's: one cycle through all indices */
    unsigned long random = 1;
    for (long i = count - 1; i > 0; i--) {
        random = random * 6364136223846793005UL + 1442695040888963407UL;
        long j = (random >> 33) % i;
        int other = next[i]; next[i] = next[j]; next[j] = other;
    }
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    const char *what = argv[1];
    long count = atol(argv[2]), page = sysconf(_SC_PAGESIZE);
    if (!strcmp(what, "touch")) {
        char *memory = mmap(NULL, count * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANON, -1, 0);
        if (memory == MAP_FAILED) return 1;
#ifdef MADV_NOHUGEPAGE
        madvise(memory, count * page, MADV_NOHUGEPAGE);
#endif
        for (long i = 0; i < count; i++) ((volatile char *)memory)[i * page] = 1;
    } else if (!strcmp(what, "sleep")) {
        for (long i = 0; i < count; i++) usleep(1000);
    } else {
        int *next = malloc(count * sizeof(int));
        if (!next) return 1;
        int shuffled = !strcmp(what, "shuffled");
        for (long i = 0; i < count; i++) next[i] = shuffled ? i : (i + 1) % count;
        if (shuffled) shuffle(next, count);
        printf("%ld\n", walk(next, count) + walk(next, count) + walk(next, count));
    }
    return 0;
}
"""

# The same for machines without a compiler.
PYTHON_PROGRAM = r"""
import array, mmap, random, sys, time
what, count = sys.argv[1], int(sys.argv[2])
if what == "touch":
    memory = mmap.mmap(-1, count * mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANON)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    for start in range(0, len(memory), mmap.PAGESIZE):
        memory[start] = 1
elif what == "sleep":
    for _ in range(count):
        time.sleep(0.001)
else:
    order = list(range(count))
    if what == "shuffled":
        random.Random(1).shuffle(order)
    following = array.array("l", order)
    for here, there in zip(order, order[1:] + order[:1]):
        following[here] = there
    index = total = 0
    for _ in range(3 * count):
        total, index = total + index, following[index]
    print(total)
"""


def compiler() -> str | None:
    """The C compiler of this machine, or None."""
    return next(filter(None, map(find_tool, ("cc", "gcc", "clang"))), None)


def counted_program(folder: Path | str) -> tuple[list[str], str]:
    """The start of the program's command line, and its language: compiled in `folder` where there is a compiler.

    Its arguments are what it does (touch, sleep, ordered, shuffled) and how often.
    """
    cc = compiler()
    if cc is not None:
        source, target = Path(folder) / "counted.c", Path(folder) / "counted"
        source.write_text(C_PROGRAM, encoding="utf-8")
        done = subprocess.run([cc, "-O1", "-g", "-o", target, source], capture_output=True, timeout=DEADLINE_SECONDS)
        if done.returncode == 0:
            return [str(target)], "C"
    return [sys.executable, "-S", "-c", PYTHON_PROGRAM], "Python"


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
    _perf(["stat", "-x,", "-o", str(out), "-e", ",".join(events), "--", *command], deadline_seconds)
    return perf_rows(out.read_text(encoding="utf-8"))


def perf_functions(
    command: Sequence[str], folder: Path | str, deadline_seconds: float = DEADLINE_SECONDS
) -> list[FunctionSamples]:
    """Run a command under `perf record` and return one row a function, the one with the most samples first.

    It samples by the clock, which works where the processor's own counters are not available. Raises as `perf_stat`.
    """
    out = str(Path(folder) / "perf.data")
    _perf(["record", "-q", "-e", "cpu-clock", "-F", "999", "-o", out, "--", *command], deadline_seconds)
    text = _perf(["report", "-i", out, "--stdio", "-q", "-F", "overhead,symbol", "-t,"], deadline_seconds)
    lines = [line.split(",", 1) for line in text.splitlines() if "%" in line]
    return [FunctionSamples(name.split("] ")[-1].strip(), float(share.strip(" %"))) for share, name in lines]


def _perf(arguments: Sequence[str], deadline_seconds: float) -> str:
    perf = find_tool("perf")
    if perf is None:
        raise LabError("The processor's counters cannot be read.", MISSING if sys.platform == "linux" else "perf is Linux's.")
    reports = arguments[0] == "report"
    streams = {"stdout": subprocess.PIPE if reports else subprocess.DEVNULL}
    streams["stderr"] = subprocess.DEVNULL if reports else subprocess.PIPE
    with _started([perf, *arguments], deadline_seconds, **streams) as program:
        out, message = program.communicate()
    if program.returncode != 0:
        reason = (message or b"").decode(errors="replace").strip().split("\n")[0] or f"it ended with {program.returncode}"
        raise LabError(
            f"perf could not count ({reason}).",
            "Allow it with `sudo sysctl kernel.perf_event_paranoid=1`; in Docker add `--cap-add PERFMON`.",
        )
    return (out or b"").decode(errors="replace")
