"""Two hosts on one machine: what they share, what their link lets through, and that nothing is left of them."""

import contextlib
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch

from hpml_lab.core.system.children import run_in_child
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import python_environment, run_python, started
from hpml_lab.sharding.experiments import many_machines as module
from hpml_lab.sharding.experiments.many_machines.on_ranks import train
from hpml_lab.sharding.lessons import train as train_script
from hpml_lab.sharding.tools import hosts as hosts_module
from hpml_lab.sharding.tools.hosts import two_hosts, why_no_hosts

needs_hosts = pytest.mark.skipif(bool(why_no_hosts()), reason=why_no_hosts() or "two hosts can be set up here")
needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="network namespaces are Linux's")
SLURM_SCRIPT = Path(train_script.__file__).with_name("train.slurm")
DEADLINE = 240
# Smaller than quick, at which the notebook runs it. A step between the hosts needs a second one, to be timed without the first.
SMALL = dict(sizes={"": (1, 2), "1gbit": (1, 2), "100mbit": (1, 2)}, steps=3, steps_alone=1, wait_seconds=1.0, beat_seconds=1)


def on(hosts, host, *argv):
    done = subprocess.run(hosts.command(host, argv), capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def outside():
    """What a namespace or an interface that is left would add to."""
    interfaces = {name for _, name in socket.if_nameindex()}
    names = set(os.listdir("/run/netns")) if os.path.isdir("/run/netns") else set()
    return interfaces, names, Path("/etc/hosts").read_text(), socket.gethostname()


@needs_hosts
def test_each_host_has_a_network_and_a_name_of_its_own_and_nothing_shows_outside():
    before = outside()
    with two_hosts() as hosts:
        for host in (0, 1):
            assert on(hosts, host, "hostname").strip() == f"host{host}"
            assert on(hosts, host, "pwd").strip() == os.getcwd()
            assert hosts_module.ADDRESSES[host] in on(hosts, host, "ip", "-4", "addr", "show", "eth0")
            assert hosts_module.ADDRESSES[1 - host] in on(hosts, host, "getent", "hosts", f"host{1 - host}")
        assert outside() == before
    assert outside() == before


@needs_hosts
def test_a_path_without_the_systems_programs_is_no_reason_against_hosts(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/local/bin:/usr/bin:/bin")
    assert why_no_hosts.__wrapped__() == ""


RECEIVE = """
import socket, sys
with socket.create_server(("host1", 0)) as server:
    print(server.getsockname()[1], flush=True)
    connection, address = server.accept()
    with connection:
        print(address[0], connection.recv(100).decode())
"""
SEND = """
import socket, sys
with socket.create_connection(("host1", int(sys.argv[1]))) as connection:
    connection.sendall(b"hello")
"""


@needs_hosts
def test_programs_on_the_hosts_reach_each_other_and_two_pairs_of_hosts_do_not_meet():
    with two_hosts() as hosts, two_hosts() as others:
        command = hosts.command(1, [sys.executable, "-c", RECEIVE])
        with started(command, stdout=subprocess.PIPE, text=True, deadline_seconds=DEADLINE) as receiver:
            port = receiver.stdout.readline().strip()
            there = others.command(0, [sys.executable, "-c", SEND, port])
            refused = subprocess.run(there, capture_output=True, text=True, timeout=DEADLINE)
            assert "ConnectionRefusedError" in refused.stderr, (
                "the other pair has the same names and addresses, and nobody there"
            )
            on(hosts, 0, sys.executable, "-c", SEND, port)
            assert receiver.stdout.read().split() == [hosts_module.ADDRESSES[0], "hello"]


@needs_hosts
def test_a_link_can_be_limited_freed_and_pulled():
    def call(function):
        code = f"from hpml_lab.sharding.tools.hosts import *; {function}"
        command = hosts.command(0, [sys.executable, "-c", code])
        done = subprocess.run(command, env=python_environment(), capture_output=True, text=True, timeout=DEADLINE)
        assert done.returncode == 0, done.stderr
        return on(hosts, 0, "tc", "qdisc", "show", "dev", "eth0")

    with two_hosts() as hosts:
        limited, free = call("shape('100mbit')"), call("shape(None)")
        assert "tbf" in limited and "100Mbit" in limited and "tbf" not in free
        call("pull_the_cable()")
        assert "state DOWN" in on(hosts, 0, "ip", "link", "show", "eth0")
        assert "NO-CARRIER" in on(hosts, 1, "ip", "link", "show", "eth0")


@needs_hosts
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_owner_leaves_no_host_behind(end):
    code = """
import time
from hpml_lab.sharding.tools.hosts import two_hosts
with two_hosts() as hosts:
    print(hosts.holder, flush=True)
    time.sleep(600)
"""
    before = outside()
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=python_environment())
    with started([sys.executable, "-c", code], deadline_seconds=DEADLINE, **pipes) as program:
        holder = psutil.Process(int(program.stdout.readline()))
        program.send_signal(end)
        program.wait(DEADLINE)
        _, alive = psutil.wait_procs([holder], timeout=DEADLINE)
    assert alive == [] and outside() == before


@needs_hosts
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_or_interrupted_experiment_leaves_no_agent_behind(end, tmp_path):
    def own():
        tempfile.tempdir = str(tmp_path)
        module.many_machines("quick", device="cpu")

    before, program = outside(), multiprocessing.get_context("fork").Process(target=own)  # which has torch already
    program.start()
    try:
        owner = psutil.Process(program.pid)
        while len(agents := [child for child in owner.children() if module.agent.__module__ in cmdline(child)]) < 2:
            assert program.is_alive()
            time.sleep(0.05)
        os.kill(program.pid, end)
        program.join(DEADLINE)
        _, alive = psutil.wait_procs(agents, timeout=DEADLINE)
    finally:
        program.kill()
        program.join()
    assert alive == [] and outside() == before
    assert end == signal.SIGKILL or list(tmp_path.glob("hpml-hosts-*")) == []


def cmdline(process):
    with contextlib.suppress(psutil.Error):
        return process.cmdline()
    return []


@needs_linux
@pytest.mark.parametrize("missing", ["ip", "unshare"])
def test_a_missing_program_is_named(monkeypatch, missing):
    found = hosts_module.shutil.which
    monkeypatch.setattr(
        hosts_module.shutil, "which", lambda name, path=None: None if name == missing else found(name, path=path)
    )
    with pytest.raises(LabError, match=f"{missing} is not installed here|{missing} is not installed.*apt install"), two_hosts():
        pass


def set_up_after_a_hint():
    hosts_module._SETUP = f"echo 'mount: (hint) your fstab has been modified'\n{hosts_module._SETUP}"
    with two_hosts() as hosts:
        return hosts.holder > 0


@needs_hosts
def test_what_the_systems_programs_print_is_not_taken_for_a_failure():
    outcome = run_in_child(set_up_after_a_hint, method="fork", deadline_seconds=60)
    assert (outcome.how, outcome.value) == ("returned", True), outcome


@needs_linux
def test_a_kernel_that_refuses_is_quoted(monkeypatch):
    monkeypatch.setattr(hosts_module, "_SETUP", "echo 'mount: permission denied' >&2; exit 1")
    with pytest.raises(LabError, match="mount: permission denied.*--privileged"), two_hosts():
        pass


def test_a_run_that_goes_on_alone_sees_the_same_batches():
    whole, _ = train(range(4), None)
    first, seconds = train(range(2), None)
    rest, _ = train(range(2, 4), first)
    assert torch.equal(whole, rest) and len(seconds) == 2
    assert not torch.equal(first, whole)


@pytest.mark.environment(
    "two agents of torchrun on one host", files=("hpml_lab/sharding/experiments/many_machines", "hpml_lab/sharding/tools")
)
@needs_linux
def test_without_namespaces_both_agents_run_on_one_host(monkeypatch, sound):
    monkeypatch.setattr(module, "why_no_hosts", lambda: "Two hosts cannot be set up here: a test.")
    result = replace(module.many_machines, quick=SMALL)("quick", device="cpu")
    sound(result)
    assert [row.link for row in result.rows(module.LinkRow)] == ["no limit"]
    assert "a test." in result.notes[0] and "one host" in result.notes[0]


@needs_hosts
def test_the_experiment_is_sound(sound, ran):
    result = ran("many-machines")
    sound(result)
    rows = {row.link: row for row in result.rows(module.LinkRow)}
    assert list(rows) == ["no limit", "1 Gbit/s", "100 Mbit/s"]
    assert [row.rate_mbit for row in rows.values()] == [None, 1000, 100]
    assert [claim.text for claim in result.claims if "silent" in claim.text]


SCRIPT = """
import os, socket
import torch
from torch import distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
names = [None] * dist.get_world_size()
dist.all_gather_object(names, (socket.gethostname(), os.environ["LOCAL_RANK"], os.environ["TORCHELASTIC_RUN_ID"]))
if dist.get_rank() == 0:
    print("RESULT", total.item(), sorted(names), flush=True)
dist.destroy_process_group()
"""


@needs_hosts
def test_the_slurm_script_starts_one_training_on_two_hosts(tmp_path, monkeypatch):
    """Slurm's own commands are played: srun runs its command on both hosts, scontrol knows their names."""
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)  # the hosts' programs run in this process's folder
    with two_hosts() as hosts:
        runs = [" ".join(f"'{word}'" for word in hosts.command(host, [])) for host in (0, 1)]
        commands = {
            "srun": "\n".join([*(f'{run} "$@" &' for run in runs), "wait"]),
            "scontrol": "printf 'host0\\nhost1\\n'",
            "torchrun": f'exec {sys.executable} -m torch.distributed.run "$@"',
        }
        for name, body in commands.items():
            (tmp_path / name).write_text(f"#!/bin/bash\n{body}\n")
            (tmp_path / name).chmod(0o755)
        slurm = {"SLURM_NNODES": "2", "SLURM_JOB_ID": "4711", "SLURM_JOB_NODELIST": "host[0-1]", "SLURM_CPUS_PER_TASK": "1"}
        environment = {**os.environ, **slurm, "PATH": f"{tmp_path}:{os.environ['PATH']}:/usr/sbin:/sbin"}
        environment.pop("GLOO_SOCKET_IFNAME", None)
        pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
        with started(["bash", str(SLURM_SCRIPT)], **pipes) as program:
            output, errors = program.communicate(timeout=DEADLINE)
    assert "RESULT 3.0 [('host0', '0', '4711'), ('host1', '0', '4711')]" in output, errors[-2000:]


def test_the_slurm_script_is_bash_and_asks_for_one_task_per_node():
    assert subprocess.run(["bash", "-n", str(SLURM_SCRIPT)]).returncode == 0
    text = SLURM_SCRIPT.read_text()
    assert "--ntasks-per-node=1" in text and '"$@"' in text


def test_the_front_door_opens_without_torch():
    done = run_python(["-c", "import sys, hpml_lab.sharding as s; s.two_hosts; print('torch' in sys.modules)"])
    assert done.stdout.strip() == "False", done.stderr
