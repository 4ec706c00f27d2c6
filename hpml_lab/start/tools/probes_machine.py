"""Probes of the machine: cores, memory, shared memory, disk, network namespaces."""

import os
import shlex
import shutil

from hpml_lab.core.system import machine
from hpml_lab.core.system.cgroups import cpu_quota
from hpml_lab.core.system.machine import memory_bytes
from hpml_lab.core.system.paths import RESULTS
from hpml_lab.start.tools.asking import run_tool
from hpml_lab.start.tools.finding import LIMITED, MISSING, OK, Answers, Finding


def gigabytes(amount: float) -> str:
    return f"{amount / 1e9:.1f} GB" if amount >= 1e9 else f"{amount / 1e6:.0f} MB"


def cores(answers: Answers) -> Finding:
    """Cores that this process may use."""
    mine, all_of_them, quota = machine.cores(), os.cpu_count() or 1, cpu_quota()
    value = f"{mine}, {machine.cpu_name()}" + (f" ({all_of_them} in the machine)" if mine < all_of_them else "")
    if quota is not None and quota < all_of_them:
        value += f", a quota of {quota:g}"
    if mine == 1:
        return Finding(
            "cores",
            LIMITED,
            value,
            "Processes and threads take turns on it: a second one brings no gain.",
            "allow this process more cores (taskset, docker run --cpus)",
        )
    return Finding("cores", OK, value)


def memory(answers: Answers) -> Finding:
    """Memory that this process may use: of the machine, or of the container if that is less."""
    total = memory_bytes()
    if total is None:
        return Finding("memory", LIMITED, "unknown", "This system does not report it without psutil.", "pip install psutil")
    if total < 4e9:
        return Finding(
            "memory",
            LIMITED,
            gigabytes(total),
            "Full sizes may not fit.",
            "close other programs, or give the container more (docker run --memory)",
        )
    return Finding("memory", OK, gigabytes(total))


def shm(answers: Answers) -> Finding:
    """Shared memory, which holds the tensors that processes pass to each other. Docker gives 64 MB."""
    try:
        usage = shutil.disk_usage("/dev/shm")
    except OSError:
        return Finding(
            "shm",
            LIMITED,
            "no /dev/shm",
            "Processes share tensors by other means here, which cannot be inspected.",
            "use Linux for the notebook on shared memory",
        )
    value = f"{gigabytes(usage.free)} free of {gigabytes(usage.total)}"
    if usage.free < 1e9:
        return Finding(
            "shm",
            LIMITED,
            value,
            "Loader workers may die with a bus error when it is full.",
            "docker run --shm-size=2g, or remove old files from /dev/shm",
        )
    return Finding("shm", OK, value)


def disk(answers: Answers) -> Finding:
    """Free space on the disk where results are kept."""
    free = shutil.disk_usage(RESULTS.parent).free
    if free < 2e9:
        return Finding("disk", LIMITED, f"{gigabytes(free)} free", "Downloads may not fit.", "free some space")
    return Finding("disk", OK, f"{gigabytes(free)} free")


def namespaces(answers: Answers) -> Finding:
    """Network namespaces with a link of chosen rate: two hosts on one machine. One is made here, and gone at once."""
    means = "Two machines are played by two groups of processes, over the loopback and without chosen links."
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in ("unshare", "nsenter", "ip", "tc") if shutil.which(name, path=path) is None]
    if missing or not hasattr(os, "geteuid"):
        fix = "on Linux; Debian, Ubuntu: sudo apt-get install iproute2 util-linux"
        return Finding("namespaces", MISSING, f"no {', '.join(missing) or 'Linux'}", means, fix)
    as_user = ["--user", "--map-root-user"] if os.geteuid() else []
    shape = f"PATH={shlex.quote(path)} tc qdisc add dev lo root tbf rate 1gbit burst 256kb latency 400ms"
    if run_tool(["unshare", *as_user, "--net", "sh", "-c", shape]) is None:
        return Finding("namespaces", MISSING, "not permitted", means, "run as root; in Docker: docker run --privileged")
    return Finding("namespaces", OK, "two hosts can be set up")
