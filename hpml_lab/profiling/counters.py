"""What the system and the processor count while a program runs: getrusage everywhere, `perf stat` where Linux has perf."""

import contextlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hpml_lab.core.errors import LabError

PAGE = resource.getpagesize()
EVENTS = ("task-clock", "context-switches", "page-faults", "cycles", "instructions", "cache-misses")
MODIFIER = re.compile(r":[ukhIGHpPSDWe]+$")
DEADLINE = 60.0
MISSING = "perf is not here: `apt install linux-perf` (Debian), `linux-tools-common linux-tools-$(uname -r)` (Ubuntu)."

# One program, four things to count. Pages are touched without huge pages, which would take 512 of them in one fault.
C_PROGRAM = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SEEN __attribute__((noinline))               /* keeps its name for perf report */

SEEN static long walk(const int *next, long count) { /* follow the chain: each place names the one after it */
    long place = 0, sum = 0;
    for (long i = 0; i < count; i++) { sum += place; place = next[place]; }
    return sum;
}

SEEN static void shuffle(int *next, long count) {    /* Sattolo's: one cycle through all places */
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
    for place in range(0, len(memory), mmap.PAGESIZE):
        memory[place] = 1
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
    place = total = 0
    for _ in range(3 * count):
        total, place = total + place, following[place]
    print(total)
"""


def compiler() -> str | None:
    """The C compiler of this machine, or None."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def program(folder: Path | str) -> tuple[list[str], str]:
    """The start of the program's command line, and its language: compiled in `folder` where there is a compiler.

    Its arguments are what it does (touch, sleep, ordered, shuffled) and how often.
    """
    cc = compiler()
    if cc is not None:
        source, target = Path(folder) / "counted.c", Path(folder) / "counted"
        source.write_text(C_PROGRAM)
        done = subprocess.run([cc, "-O1", "-g", "-o", target, source], capture_output=True, timeout=DEADLINE)
        if done.returncode == 0:
            return [str(target)], "C"
    return [sys.executable, "-S", "-c", PYTHON_PROGRAM], "Python"


@contextlib.contextmanager
def _ended(child: subprocess.Popen, deadline: float) -> Iterator[None]:
    """Kill the child's process group after `deadline` seconds, and at the end of the block."""

    def end() -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)

    timer = threading.Timer(deadline, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        if child.returncode is None:
            end()
            child.wait()


def usage(command: Sequence[str], deadline: float = DEADLINE) -> tuple[str, dict[str, float | int]]:
    """Run a command to its end; return what it printed and what the system counted for this process alone (wait4).

    user s, system s, elapsed s, and the numbers of page faults served without (minor) and with (major) the disk, and of
    context switches because the process waited (voluntary) or because another had its turn (involuntary).
    Raises LabError for a command that fails or is still running after `deadline` seconds.
    """
    start = time.perf_counter()
    child = _start(command, subprocess.PIPE)
    with _ended(child, deadline), child.stdout:
        printed = child.stdout.read().decode(errors="replace")
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)  # the child is gone: Popen must not wait for it again
    if child.returncode != 0:
        raise LabError(f"{command[0]} ended with {child.returncode}.", f"It has {deadline:g} s and must end with 0.")
    return printed.strip(), {
        "elapsed s": time.perf_counter() - start,
        "user s": used.ru_utime,
        "system s": used.ru_stime,
        "minor faults": used.ru_minflt,
        "major faults": used.ru_majflt,
        "voluntary switches": used.ru_nvcsw,
        "involuntary switches": used.ru_nivcsw,
    }


def _start(command: Sequence[str], stdout: int = subprocess.DEVNULL) -> subprocess.Popen:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE if stdout == subprocess.DEVNULL else subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},  # other languages write a comma in a number
        start_new_session=True,  # a group of its own, so that the deadline ends all of it
    )


def perf_rows(text: str) -> list[dict[str, Any]]:
    """The rows of `perf stat -x,`: event, value (None where perf has none), unit, and a note that says why.

    A processor with two kinds of cores counts on each, such as cpu_core/cycles/ and cpu_atom/cycles/: one row, their sum.
    """
    rows: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        fields = line.split(",")
        if line.startswith("#") or len(fields) < 4:
            continue
        value, unit, event = fields[0].strip(), fields[1], fields[2]
        known = not value.startswith("<")
        note = "" if known else value.strip("<>")
        # Without its modifier, as in cycles:u; what follows the colon of a tracepoint, as in sched:sched_switch, is its name.
        event = event.split("/")[1] if "/" in event else MODIFIER.sub("", event)
        row = {"event": event, "value": float(value) if known else None, "unit": unit, "note": note}
        other = rows.get(event)
        if other is None or other["value"] is None:
            rows[event] = row
        elif known:
            other["value"] += row["value"]
    return list(rows.values())


def perf_stat(
    command: Sequence[str], folder: Path | str, events: Sequence[str] = EVENTS, deadline: float = DEADLINE
) -> list[dict[str, Any]]:
    """Run a command under `perf stat` and return its counters as rows.

    folder  where perf's file may lie
    Raises LabError where perf is absent, may not count, or the command fails.
    """
    out = Path(folder) / "perf.csv"
    _perf(["stat", "-x,", "-o", str(out), "-e", ",".join(events), "--", *command], deadline)
    return perf_rows(out.read_text())


def perf_functions(command: Sequence[str], folder: Path | str, deadline: float = DEADLINE) -> list[dict[str, Any]]:
    """Run a command under `perf record` and return one row a function, the one with the most samples first.

    It samples by the clock, which works where the processor's own counters are not to be had. Raises as `perf_stat`.
    """
    out = str(Path(folder) / "perf.data")
    _perf(["record", "-q", "-e", "cpu-clock", "-F", "999", "-o", out, "--", *command], deadline)
    text = _perf(["report", "-i", out, "--stdio", "-q", "-F", "overhead,symbol", "-t,"], deadline)
    lines = [line.split(",", 1) for line in text.splitlines() if "%" in line]
    return [{"function": name.split("] ")[-1].strip(), "share %": float(share.strip(" %"))} for share, name in lines]


def _perf(arguments: Sequence[str], deadline: float) -> str:
    perf = shutil.which("perf")
    if perf is None:
        raise LabError("There are no counters of the processor.", MISSING if sys.platform == "linux" else "perf is Linux's.")
    child = _start([perf, *arguments], subprocess.DEVNULL if arguments[0] != "report" else subprocess.PIPE)
    with _ended(child, deadline):
        out, said = child.communicate()
    if child.returncode != 0:
        reason = (said or b"").decode(errors="replace").strip().split("\n")[0] or f"it ended with {child.returncode}"
        raise LabError(
            f"perf could not count ({reason}).",
            "Allow it with `sudo sysctl kernel.perf_event_paranoid=1`; in Docker add `--cap-add PERFMON`.",
        )
    return (out or b"").decode(errors="replace")
