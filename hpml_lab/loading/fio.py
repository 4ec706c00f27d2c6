"""Runs fio, the field's disk benchmark, on our test file and reads its report: the judge of our own figures."""

import json
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

from hpml_lab.core.errors import LabError
from hpml_lab.loading.disk import DIRECT, DiskFile, Job

MODES = {"random read": "randread", "random write": "randwrite", "sequential read": "read", "sequential write": "write"}
START_SECONDS = 60.0  # fio on a busy machine takes seconds to start and to sum up
MEND = "Install fio: apt-get install fio (macOS: brew install fio)."


@dataclass(frozen=True)
class FioReport:
    """What fio reports of a job: rates, latencies in seconds, and its own counts of requests and bytes."""

    iops: float
    bytes_per_s: float
    requests: int
    bytes: int
    mean: float
    p50: float
    p95: float
    p99: float


@cache
def version() -> str | None:
    """ "fio-3.33", or None where there is no fio that starts."""
    if shutil.which("fio") is None:
        return None
    try:
        said = subprocess.run(["fio", "--version"], capture_output=True, text=True, timeout=START_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() if said.returncode == 0 else None


def command(file: DiskFile, job: Job, seconds: float, warm_up: float = 0.005) -> list[str]:
    """The command line for `job` on the test file: system calls as ours (psync), a thread for each outstanding request."""
    if job.pattern == "random":
        where = [f"--size={file.bytes}", "--norandommap"]  # places may come again, as with ours
    else:
        stretch = max(1, file.bytes // job.block // job.depth) * job.block
        where = [f"--size={stretch}", f"--offset_increment={stretch}"]
    return [
        "fio",
        "--name=judge",
        f"--filename={file.path.name}",  # fio takes a colon in a path for a separator, so it runs in the file's folder
        f"--rw={MODES[job.mode]}",
        f"--bs={job.block}",
        f"--numjobs={job.depth}",
        "--ioengine=psync",
        "--thread",
        "--group_reporting",
        f"--direct={int(file.access == DIRECT)}",
        *where,
        "--time_based",
        f"--runtime={round(seconds * 1e3)}ms",
        f"--ramp_time={round(warm_up * 1e3)}ms",
        "--percentile_list=50:95:99",
        "--allow_file_create=0",
        *(["--readonly"] if job.action == "read" else []),
        "--output-format=json",
    ]


def run(file: DiskFile, job: Job, seconds: float = 0.2) -> FioReport:
    """Run `job` by fio on the test file. Raises LabError where fio is missing, fails, or does not come to an end."""
    if version() is None:
        raise LabError("fio is not installed.", MEND)
    try:
        said = subprocess.run(
            command(file, job, seconds),
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            cwd=file.path.parent,
            timeout=seconds + START_SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        raise LabError(f"fio has not ended {START_SECONDS:.0f} s after its time.", "See whether the disk answers.") from error
    if said.returncode:
        lines = said.stderr.strip().splitlines() or ["no word"]
        raise LabError(f"fio failed: {lines[-1]}", "Run `fio` by hand on that folder, or update it.")
    return parse(said.stdout, job.action)


def parse(text: str, action: str) -> FioReport:
    """Read fio's JSON report, which lines of notes may precede. Raises LabError for a report that has not the figures."""
    try:
        said = json.loads(text[text.index("{") :])["jobs"][0][action]
        times = said["clat_ns"]
        return FioReport(
            float(said["iops"]),
            float(said["bw_bytes"]),
            int(said["total_ios"]),
            int(said["io_bytes"]),
            times["mean"] / 1e9,
            *(times["percentile"][f"{percent}.000000"] / 1e9 for percent in (50, 95, 99)),
        )
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise LabError(
            f"fio's report is not as expected ({type(error).__name__}: {error}).", "Use fio 3.1 or later."
        ) from error
