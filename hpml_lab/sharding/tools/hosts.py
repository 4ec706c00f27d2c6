"""Two hosts on one machine: network namespaces with a cable between them, whose rate can be chosen and which can be pulled.

    with two_hosts() as hosts:
        hosts.command(0, ["ping", "host1"])    # argv of a program that runs on host 0

Each host has a network of its own (`lo` and `eth0`), a name (host0, host1) and nothing else to itself: the files are shared,
as on a cluster with a network file system. A shell holds the namespaces. It reads from a pipe, so it ends when this process
does, however that happens; with their last process the kernel removes namespaces, interfaces and queues. Nothing has a name
outside, so nothing stale can be left. Without root a user namespace is tried, which some systems forbid.
"""

import contextlib
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import started

ADDRESSES = ("10.91.7.1", "10.91.7.2")
START_SECONDS = 60.0

_SETUP = f"""set -e
export PATH="$PATH:/usr/sbin:/sbin"
mount -t tmpfs tmpfs /run
mkdir /run/netns
ip netns add host0
ip netns add host1
ip link add eth0 netns host0 type veth peer name eth0 netns host1
for host in "0 {ADDRESSES[0]}" "1 {ADDRESSES[1]}"; do
    set -- $host
    ip -n host$1 link set lo up
    ip -n host$1 addr add $2/24 dev eth0
    ip -n host$1 link set eth0 up
    echo "$2 host$1" >> /run/hosts
done
echo "127.0.0.1 localhost" >> /run/hosts
mount --bind /run/hosts /etc/hosts
echo ready
exec cat
"""


@dataclass(frozen=True)
class TwoHosts:
    """The hosts, held by the process `holder`; `by_user` if they live in a user namespace."""

    holder: int
    by_user: bool

    def command(self, host: int, argv: Sequence[str]) -> list[str]:
        """The command line that runs `argv` on a host, in this process's folder."""
        user = ["--user", "--preserve-credentials"] if self.by_user else []
        ip = shutil.which("ip", path=_search_path()) or "ip"
        inside = [ip, "netns", "exec", f"host{host}", "unshare", "--uts", "sh", "-c", f'hostname host{host}; exec "$@"', "sh"]
        return ["nsenter", "--target", str(self.holder), *user, "--mount", f"--wdns={os.getcwd()}", *inside, *argv]


def shape(rate: str | None) -> None:
    """Limit what this host sends to a rate such as "100mbit"; None: no limit. To be called on the host.

    tbf is a token bucket: 256 kB may pass at full speed before the rate counts, so only larger messages show it.
    """
    _run("tc", "qdisc", "replace", "dev", "eth0", "root", *(_limit(rate) if rate else ["pfifo_fast"]))


def pull_the_cable() -> None:
    """Take this host's interface down, so that nothing leaves it any more, not even the news of its end."""
    _run("ip", "link", "set", "eth0", "down")


def _limit(rate: str) -> list[str]:
    return ["tbf", "rate", rate, "burst", "256kb", "latency", "400ms"]


def _run(*command: str) -> None:
    subprocess.run(command, env={**os.environ, "PATH": _search_path()}, capture_output=True, check=True)


@contextlib.contextmanager
def two_hosts() -> Iterator[TwoHosts]:
    """Two hosts that exist until the block is left. Raises LabError, which says why, where that is not possible."""
    missing = [name for name in ("unshare", "nsenter", "ip", "tc") if shutil.which(name, path=_search_path()) is None]
    if sys.platform != "linux" or missing:
        what = f"{', '.join(missing)} is not installed" if missing else "network namespaces are Linux's"
        raise LabError(f"Two hosts cannot be set up here: {what}.", "On Debian or Ubuntu: apt install iproute2 util-linux.")
    by_user = os.geteuid() != 0
    command = ["unshare", *(["--user", "--map-root-user"] if by_user else []), "--mount", "--net", "sh", "-c", _SETUP]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with started(command, **pipes) as holder:
        if "ready\n" not in holder.stdout:  # whatever mount and ip print before; at its end the shell has failed
            reason = (holder.stderr.read().strip().splitlines() or ["no reason given"])[-1]
            raise LabError(f"Two hosts cannot be set up here: {reason}.", "Run as root, in a container with --privileged.")
        yield TwoHosts(holder.pid, by_user)


@functools.cache
def why_no_hosts() -> str:
    """Why two hosts with links of chosen rates cannot be set up here; empty if they can."""
    try:
        with two_hosts() as hosts:
            command = hosts.command(0, ["tc", "qdisc", "replace", "dev", "eth0", "root", *_limit("1gbit")])
            environment = {**os.environ, "PATH": _search_path()}  # a user's has no /usr/sbin on Debian
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=START_SECONDS)
    except (LabError, OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else f"Links cannot be shaped here: {done.stderr.strip()}."


def _search_path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
