"""Watching a program on a machine that others use too: their GPUs, their tables, volumes over disks, threads that are bound."""

import os
import re
import subprocess
import sys
import threading
from collections import namedtuple

import pytest

from hpml_lab.cli import main
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.profilers import monitor as monitor_module
from hpml_lab.profilers import script_profile
from hpml_lab.profilers.command_watch import CommandWatch
from hpml_lab.profilers.monitor import Monitor
from hpml_lab.profilers.nvml import GpuReading, Gpus
from hpml_lab.profilers.process_tree import ProcessTree, _cores_of

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="/proc and SIGSTOP")
NOBODY = 2**22 + 1  # above the largest number of a process on Linux


def reading(utilization=97):
    return GpuReading("0000:01", utilization, None, None, None)


@linux
@pytest.mark.parametrize(
    "processes, counts",
    [
        ({os.getppid()}, False),  # another's
        ({os.getppid(), os.getpid()}, True),
        (set(), True),  # NVML names none
        ({NOBODY}, True),  # a container, whose processes it names by other numbers
    ],
)
def test_a_gpu_on_which_only_others_compute_is_not_the_programs(processes, counts):
    watch = CommandWatch(os.getpid())
    watch._note_gpu(reading(), processes)
    assert dict(watch._gpu) == ({"0000:01": 97} if counts else {})
    assert ("does not name" in str(watch._notes)) == (not processes)


@linux
def test_a_use_that_is_not_given_is_said():
    watch = CommandWatch(os.getpid())
    watch._note_gpu(reading(None), set())
    assert "The use of GPU 0000:01 is not given" in str(watch._notes)


@linux
def test_where_nothing_can_be_written_the_command_does_not_run(tmp_path, capsys):
    mark = tmp_path / "ran"
    code = f"open({str(mark)!r}, 'w')"
    for words in (["monitor", "--out", "/proc/run", "--", sys.executable], ["profile", "--out", "/proc/run.html", "--"]):
        assert main([*words, "-c", code]) == 2
        assert "no file can be written into /proc" in capsys.readouterr().err and not mark.exists()


@linux
def test_two_monitors_at_once_have_a_table_each(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    other = [sys.executable, "-m", "hpml_lab", "monitor", "--rate", "1", "--", sys.executable, "-c"]
    with subprocess.Popen([*other, "print('begun', flush=True); input()"], stdin=-1, stdout=-1, stderr=-1, text=True) as first:
        assert first.stdout.readline() == "begun\n"
        assert main(["monitor", "--", sys.executable, "-c", "pass"]) == 0
        _, said = first.communicate("\n", timeout=300)
    name = f"monitor-{os.getpid()}.csv"
    assert f"the samples are in {name}" in capfd.readouterr().err and "the samples are in monitor.csv" in said
    for path in (tmp_path / name, tmp_path / "monitor.csv"):
        assert path.read_bytes().startswith(b"timestamp") and b"\0" not in path.read_bytes()
    assert main(["monitor", "--", sys.executable, "-c", "pass"]) == 0
    assert "the samples are in monitor.csv" in capfd.readouterr().err


Disk = namedtuple("Disk", "read_bytes write_bytes")


def test_the_bytes_of_volumes_are_those_of_their_disks(monkeypatch):
    disks = {"nvme0n1": Disk(5, 7), "nvme0n1p1": Disk(5, 7), "dm-0": Disk(5, 7), "md0": Disk(4, 3), "sda": Disk(10, 20)}
    monkeypatch.setattr(monitor_module.psutil, "disk_io_counters", lambda perdisk=False: disks if perdisk else Disk(29, 44))
    monkeypatch.setattr(monitor_module, "_is_a_disk", lambda name: name in ("nvme0n1", "sda"))
    assert monitor_module._disk_bytes() == (15, 27)
    monkeypatch.setattr(monitor_module, "_is_a_disk", lambda name: False)  # another system, or a container
    assert monitor_module._disk_bytes() == (29, 44)


def test_without_disks_there_are_no_bytes(monkeypatch):
    monkeypatch.setattr(monitor_module.psutil, "disk_io_counters", lambda perdisk=False: {} if perdisk else None)
    assert monitor_module._disk_bytes() is None


def test_the_seconds_of_a_command_begin_where_its_processor_time_does(monkeypatch):
    class SlowToBegin(Gpus):
        def __init__(self):
            wait = threading.Event()
            wait.wait(0.5)
            super().__init__()

    monkeypatch.setattr(monitor_module, "Gpus", SlowToBegin)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        before = CLOCK()
        with Monitor(5.0, process_id=child.pid) as watched:
            child.communicate(b"\n")
        took = CLOCK() - before
    assert 0.5 <= watched.samples[0].at and 0.5 <= watched.seconds <= took


@linux
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core")
def test_the_cores_of_a_process_whose_first_thread_is_bound_are_those_of_all_threads():
    code = (
        "import os, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "print('bound', flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "bound\n"
        assert _cores_of(child.pid) == os.sched_getaffinity(0) != os.sched_getaffinity(child.pid)
        tree = ProcessTree(child.pid, CLOCK())
        tree.look(CLOCK() + 1)
        assert tree.cores == os.sched_getaffinity(0)
        child.communicate("")


@pytest.mark.parametrize(
    "words, script",
    [
        (["-m", "shows", "a", "--", "b"], ["-m", "shows", "a", "--", "b"]),
        (["-mshows", "a", "b"], ["-m", "shows", "a", "b"]),
        (["-m", "shows", "--out", "x"], ["-m", "shows", "--out", "x"]),
    ],
)
def test_a_module_gets_all_of_its_arguments(words, script, tmp_path, monkeypatch):
    given = []

    def noted(words, **options):
        given.append(words)
        raise LabError("Enough.", "")

    monkeypatch.setattr(script_profile, "profile_script", noted)
    monkeypatch.chdir(tmp_path)
    assert main(["profile", *words]) == 2
    assert given == [script]


COMPILED = """
import os, warnings
warnings.simplefilter("error", UserWarning)
import torch
child = os.fork()  # the hook of a profile is gone there, too
net = torch.compile(torch.nn.Linear(2, 2), backend="eager")
inner = torch.nn.Linear(2, 2)
@torch.compile(backend="eager", fullgraph=True)
def step(x):
    return inner(x).sum()
for _ in range(200):
    net(torch.ones(1, 2))
    step(torch.ones(1, 2))
if child == 0:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""


@linux
def test_compiled_nets_run_under_a_profile_as_without(tmp_path):
    """A global hook of modules would be warned of, and traced into a graph that it breaks."""
    (tmp_path / "train.py").write_text(COMPILED)
    done = subprocess.run(
        [sys.executable, "-m", "hpml_lab", "profile", "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr
    assert not re.search("Warning|Error", done.stderr), done.stderr
