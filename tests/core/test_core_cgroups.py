"""What a container may use: files of control groups in a folder, as the kernel writes them, and a real group."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from hpml_lab.core.system import cgroups, machine
from hpml_lab.core.system.cgroups import Throttling

NO_LIMIT_1 = "9223372036854771712"  # version 1's, in bytes
V2 = ["0::{}"], ["30 23 0:26 {} /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate"]
V1 = (
    ["4:cpu,cpuacct:{}", "5:memory:{}", "1:name=systemd:/elsewhere"],
    [
        "32 31 0:29 {} /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct",
        "33 31 0:30 {} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory",
        "34 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd",
    ],
)
CPU_1, MEMORY_1 = "sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/memory"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """(version, group of this process, group that is mounted, {file: content}): a machine in which these files are."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path)

    def make(version=None, group="/", mounted="/", **files):
        membership, mounts = version or ([], [])
        for name in ("self", str(os.getpid())):
            write(f"proc/{name}/cgroup", "".join(f"{line.format(group)}\n" for line in membership))
        write("proc/self/mountinfo", "".join(f"{line.format(mounted)}\n" for line in mounts))

    def write(name, content):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)

    make.write = write
    return make


def test_without_groups_nothing_is_limited(system):
    assert (cgroups.cpu_quota(), cgroups.memory_limit(), cgroups.memory_left()) == (None, None, None)


@pytest.mark.parametrize(
    ("group", "mounted", "where"),
    [
        ("/", "/", ""),  # a container with groups of its own
        ("/docker/1a", "/docker/1a", ""),  # one that is shown the machine's names
        ("/user.slice/job", "/", "/user.slice/job"),
        ("/user.slice/job/step", "/", "/user.slice"),  # a parent's counts
        ("/user.slice/job", "/user.slice", "/job"),
        ("/a/../../b", "/", ""),  # out of what can be seen
        ("/../b", "/..", "/b"),
        ("/gone (deleted)", "/", ""),
    ],
)
def test_limits_are_found_in_the_group_and_its_parents(system, group, mounted, where):
    system(V2, group, mounted)
    system.write(f"sys/fs/cgroup{where}/cpu.max", "150000 100000\n")
    system.write(f"sys/fs/cgroup{where}/memory.max", "1073741824\n")
    system.write("sys/fs/cgroup/other/cpu.max", "1000 100000\n")
    assert (cgroups.cpu_quota(), cgroups.memory_limit()) == (1.5, 2**30)
    system(V1, group, mounted)
    system.write(f"{CPU_1}{where}/cpu.cfs_quota_us", "20000\n")
    system.write(f"{CPU_1}{where}/cpu.cfs_period_us", "50000\n")
    system.write(f"{MEMORY_1}{where}/memory.limit_in_bytes", "4096000\n")
    system.write(f"{MEMORY_1}/elsewhere/memory.limit_in_bytes", "4096\n")
    assert (cgroups.cpu_quota(), cgroups.memory_limit()) == (0.4, 4096000)


def test_the_least_of_several_limits_counts_of_both_versions(system):
    system(([*V1[0], *V2[0]], [*V1[1], *V2[1]]), "/a/b")  # a hybrid
    system.write("sys/fs/cgroup/a/cpu.max", "300000 100000\n")
    system.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n")
    system.write(f"{CPU_1}/a/b/cpu.cfs_quota_us", "400000\n")
    system.write(f"{CPU_1}/a/b/cpu.cfs_period_us", "100000\n")
    assert cgroups.cpu_quota() == 3
    system.write("sys/fs/cgroup/a/memory.max", "5000000\n")
    system.write("sys/fs/cgroup/a/b/memory.max", "max\n")
    system.write("sys/fs/cgroup/a/b/memory.high", "4000000\n")  # above it the kernel slows the group
    system.write(f"{MEMORY_1}/a/b/memory.limit_in_bytes", f"{NO_LIMIT_1}\n")
    assert cgroups.memory_limit() == 4_000_000
    system.write(f"{MEMORY_1}/memory.stat", "cache 5\nhierarchical_memory_limit 3000000\n")  # of a parent out of sight
    assert cgroups.memory_limit() == 3_000_000


def test_a_container_that_is_handed_the_machines_groups_finds_its_own_there(system):
    system(V2, "/", "/../..")  # two below what is mounted, under names that it is not told
    system.write("sys/fs/cgroup/docker/other/cpu.max", "10000 100000\n")
    system.write("sys/fs/cgroup/docker/other/cgroup.procs", "1\n")
    system.write("sys/fs/cgroup/docker/mine/cpu.max", "250000 100000\n")
    system.write("sys/fs/cgroup/docker/mine/cgroup.procs", f"1\n{os.getpid()}\n")
    assert cgroups.cpu_quota() == 2.5
    system.write("sys/fs/cgroup/docker/cpu.max", "200000 100000\n")
    assert cgroups.cpu_quota() == 2


def test_a_mount_of_anothers_group_says_nothing(system):
    system((V2[0], V2[1][0].replace("/sys/fs/cgroup", "/srv/other").split("\n")), "/mine", "/other")
    system.write("srv/other/cpu.max", "10000 100000\n")
    assert cgroups.cpu_quota() is None


def test_where_nothing_is_listed_the_usual_places_are_read(system):
    system.write("sys/fs/cgroup/cpu.max", "100000 100000\n")
    system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "77\n")
    assert (cgroups.cpu_quota(), cgroups.memory_limit()) == (1, 77)


def test_a_mount_with_a_space_in_its_name_is_found(system):
    system((V2[0], ["30 23 0:26 / /my\\040groups rw - cgroup2 none rw"]))
    system.write("my groups/cpu.max", "100000 100000\n")
    assert cgroups.cpu_quota() == 1


BROKEN = ["", "\n", "max", "max 100000", "-1", "0", "0 0", "100000 0", "-5 100000", "many 100000", "1e5 100000", "nan", "1 2 3",
          "٣ ٣", "9" * 5000, "\0", "100000"]  # fmt: skip


@pytest.mark.parametrize("text", BROKEN, ids=repr)
def test_a_file_without_a_sensible_number_limits_nothing(system, text):
    system(([*V1[0], *V2[0]], [*V1[1], *V2[1]]))
    for name in ("cpu.max", "cpu.stat", "memory.high", "memory.current", "memory.stat"):
        system.write(f"sys/fs/cgroup/{name}", text)
    for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
        system.write(f"{CPU_1}/{name}", text)
    if text != "100000":  # one number is a limit of memory, and twice the same is a quota of one core in version 1
        system.write("sys/fs/cgroup/memory.max", text)
        assert (cgroups.cpu_quota(), cgroups.memory_limit(), cgroups.memory_left()) == (None, None, None)
    assert cgroups.throttling(Path(cgroups.ROOT / "sys/fs/cgroup")) == Throttling(0, 0, 0.0)


def test_what_cannot_be_read_limits_nothing(system, tmp_path):
    system(V2)
    groups = tmp_path / "sys/fs/cgroup"
    (groups / "cpu.max").mkdir(parents=True)
    os.mkfifo(groups / "memory.max")
    (groups / "memory.high").write_bytes(b"\xff\xfe")
    (groups / "memory.stat").symlink_to(groups / "memory.stat")
    assert (cgroups.cpu_quota(), cgroups.memory_limit()) == (None, None)
    for name in ("cgroup", "mountinfo"):
        (tmp_path / "proc/self" / name).write_bytes(b"\xff:\n:::::\n - \n- cgroup2\n1 2 3 4 5 - cgroup2 a b\n0::no/slash\n\0")
    assert cgroups.cpu_quota() is None


def test_cores_are_whole_and_at_least_one(system, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: {0, 1, 2, 3}, raising=False)
    for quota, cores in (("max", 4), ("50000", 1), ("100000", 1), ("250000", 2), ("6400000", 4)):
        system.write("sys/fs/cgroup/cpu.max", f"{quota} 100000\n")
        assert machine.cores() == cores, quota


def test_memory_is_the_least_of_what_machine_and_container_have(system, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(total=8_000_000, available=3_000_000))
    assert (machine.memory_bytes(), machine.free_memory_bytes()) == (8_000_000, 3_000_000)
    system.write("sys/fs/cgroup/memory.max", "4000000\n")
    system.write("sys/fs/cgroup/memory.current", "3900000\n")
    system.write("sys/fs/cgroup/memory.stat", "anon 1\nactive_file 600000\ninactive_file 1000000\nfile 9999999\n")
    assert (machine.memory_bytes(), machine.free_memory_bytes()) == (4_000_000, 1_700_000)
    system.write("sys/fs/cgroup/memory.current", "5000000000\n")
    assert machine.free_memory_bytes() == 0, "above its limit it has none left"
    system.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n")
    system.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000\n")
    system.write("sys/fs/cgroup/memory/memory.stat", "active_file 1\ntotal_active_file 500000\ntotal_inactive_file 0\n")
    system.write("sys/fs/cgroup/memory.max", "max\n")
    assert (machine.memory_bytes(), machine.free_memory_bytes()) == (2_000_000, 500_000)
    monkeypatch.setattr(machine, "_address_space", lambda: 1)
    assert (machine.free_memory_bytes(), machine.free_memory_bytes(of_programs=True)) == (0, 500_000), "each has its own"


def test_a_limit_of_addresses_counts():
    resource = pytest.importorskip("resource")
    code = "import resource; resource.setrlimit(resource.RLIMIT_AS, (3 * 10**9, -1)); from hpml_lab.core.system import machine"
    code += "; print(machine.memory_bytes(), machine.free_memory_bytes() < 3 * 10**9)"
    assert resource.RLIM_INFINITY == -1 and machine.memory_bytes() > 3e9
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split() == ["3000000000", "True"]


def test_counters_are_seconds_in_both_versions(system, tmp_path):
    system.write("two/cpu.stat", "usage_usec 9\nnr_periods 107\nnr_throttled 104\nthrottled_usec 7900000\nnr_bursts 0\n")
    system.write("one/cpu.stat", "nr_periods 107\nnr_throttled 104\nthrottled_time 7900000000\n")
    assert cgroups.throttling(tmp_path / "two") == cgroups.throttling(tmp_path / "one") == Throttling(107, 104, 7.9)


@pytest.mark.skipif(sys.platform != "linux", reason="OpenMP binds threads on Linux")
def test_the_cores_are_those_of_the_process_where_openmp_has_bound_its_first_thread():
    code = "from hpml_lab.core.system.machine import cores; before = cores(); import torch; torch.ones(9).sum();"
    code += " print(before == cores())"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "OMP_PROC_BIND": "true"}, capture_output=True, text=True
    )
    assert done.stdout == "True\n", done.stderr


def test_a_process_in_a_group_of_its_own_may_use_what_that_allows(small_group):
    join, share = small_group
    asks = "from hpml_lab.core.system import cgroups, machine; print(cgroups.cpu_quota(), machine.cores())"
    done = subprocess.run([*join, sys.executable, "-c", asks], capture_output=True, text=True)
    assert done.stdout.split() == [str(share), "1"], done.stderr
