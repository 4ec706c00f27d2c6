"""Runs fio, the field's disk benchmark, on our test file and reads its report."""

import json
import subprocess
from collections.abc import Sequence
from functools import cache

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import find_tool
from hpml_lab.storage.tools.disk_benchmark import DiskJob, DiskRate
from hpml_lab.storage.tools.uncached_file import DIRECT, DiskFile

MODES = {"random read": "randread", "random write": "randwrite", "sequential read": "read", "sequential write": "write"}
START_SECONDS = 60.0  # fio on a busy machine takes seconds to start and to sum up
JOB_SECONDS = 1.0  # more for each job: its threads start and end
FIX = "Install fio: apt-get install fio (macOS: brew install fio)."


@cache
def version() -> str | None:
    """ "fio-3.33", or None where there is no fio that starts."""
    if (path := find_tool("fio")) is None:
        return None
    try:
        answer = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=START_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def command(file: DiskFile, jobs: Sequence[DiskJob], seconds: float, warm_up_seconds: float = 0.005) -> list[str]:
    """The command line for `jobs` on the test file, one after another: system calls like ours (psync), a thread for each
    outstanding request."""
    words = [
        find_tool("fio") or "fio",
        "--output-format=json",
        f"--filename={file.path.name}",  # fio takes a colon in a path for a separator, so it runs in the file's folder
        "--ioengine=psync",
        "--thread",
        "--group_reporting",
        f"--direct={int(file.access == DIRECT)}",
        "--time_based",
        f"--runtime={round(seconds * 1e3)}ms",
        f"--ramp_time={round(warm_up_seconds * 1e3)}ms",
        "--percentile_list=50:95:99",
        "--allow_file_create=0",
        "--disk_util=0",  # what the whole disk does is not read here, and fio would wait for it
        *(["--readonly"] if all(job.action == "read" for job in jobs) else []),
    ]
    for number, job in enumerate(jobs):
        words += [
            f"--name=job{number}",
            "--stonewall",
            f"--rw={MODES[job.mode]}",
            f"--bs={job.block}",
            f"--numjobs={job.depth}",
        ]
        if job.pattern == "random":
            words += [f"--size={file.bytes}", "--norandommap"]  # offsets may come again, as with ours
        else:
            stretch = max(1, file.bytes // job.block // job.depth) * job.block
            words += [f"--size={stretch}", f"--offset_increment={stretch}"]
    return words


def run(file: DiskFile, jobs: Sequence[DiskJob], seconds: float = 0.2) -> list[DiskRate]:
    """Run `jobs` with one fio on the test file, `seconds` each. Raises LabError if fio is missing, fails, or does not end.

    What fio writes are its own random bytes: afterwards the file's tags are gone.
    """
    if version() is None:
        raise LabError("fio is not installed.", FIX)
    try:
        answer = subprocess.run(
            command(file, jobs, seconds),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=file.path.parent,
            timeout=START_SECONDS + len(jobs) * (seconds + JOB_SECONDS),
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"fio has not ended {START_SECONDS:.0f} s after its time.", "See whether the disk answers.") from error
    if answer.returncode:
        lines = answer.stderr.strip().splitlines() or ["no message"]
        raise LabError(f"fio failed: {lines[-1]}", "Run `fio` by hand on that folder, or update it.")
    return parse(answer.stdout, jobs)


def parse(text: str, jobs: Sequence[DiskJob]) -> list[DiskRate]:
    """Read fio's JSON report, which lines of notes may precede. Raises LabError for a report without the figures."""
    try:
        reports = json.loads(text[text.index("{") :])["jobs"]
        return [_rate(report[job.action], job) for report, job in zip(reports, jobs, strict=True)]
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise LabError(
            f"fio's report is not as expected ({type(error).__name__}: {error}).", "Use fio 3.1 or later."
        ) from error


def _rate(report: dict, job: DiskJob) -> DiskRate:
    times = report["clat_ns"]
    if "percentile" not in times:
        raise LabError(f"fio finished no {job.mode} of {job.block} bytes within its time.", "Measure on a faster disk.")
    percentiles = (times["percentile"][f"{percent}.000000"] / 1e9 for percent in (50, 95, 99))
    counts = int(report["total_ios"]), int(report["io_bytes"])
    return DiskRate(job, float(report["iops"]), float(report["bw_bytes"]), *counts, times["mean"] / 1e9, *percentiles)
