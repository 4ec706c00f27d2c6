"""Workers that raise, hang, are killed, or find no shared memory: one clear error in time, and nothing left behind."""

import contextlib
import errno
import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from hpml_lab.core.system.children import run_in_child
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import child_pids
from hpml_lab.loading.tools.deadline import _Epoch, _Notes, with_deadline
from hpml_lab.loading.tools.known_datasets import FaultyData, KnownCost

DEADLINE = 3.0
WORKERS = {"fork": 2, "spawn": 1}  # one of spawn is enough: each imports torch, for seconds, and two are there with fork


# What a fault looks like does not depend on it; that workers which start anew have a deadline is tried on every run.
new_interpreters = pytest.mark.environment(
    "workers in new interpreters", files=("hpml_lab/loading/tools", "hpml_lab/core/system")
)


def run(fault, method, deadline):
    """In a child: load the faulty data set to its end, and say how it went and who is left."""
    torch.set_num_threads(1)
    loader = DataLoader(FaultyData(fault), 4, num_workers=WORKERS[method], multiprocessing_context=method)
    start = time.monotonic()
    try:
        with with_deadline(loader, deadline) as batches:
            for _ in batches:
                pass
    except LabError as error:
        reported = error.problem, error.fix, type(error.__cause__).__name__
    seconds = time.monotonic() - start
    left = list(child_pids())
    return reported, seconds, left, loader.timeout


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=new_interpreters)])
@pytest.mark.parametrize(
    "fault, text, fix",
    [
        ("raises", r"Worker \d raised KeyError: 'no label for sample 5' at batch 1", "traceback"),
        (
            "killed",
            r"A worker \(process \d+\) (was killed by signal Killed|ended without an error message) at batch 1\b",
            "memory",
        ),
        ("exits", r"A worker \(process \d+\) ended without an error message at batch 1\b", "num_workers=0"),
        ("hangs", r"No batch came within 3 s at batch 1", "timeout"),
    ],
)
def test_a_fault_is_reported_within_the_deadline_and_nothing_is_left(fault, text, fix, method):
    # The deadline begins when the workers have started. A fault that is not a hang has as long as a busy machine may need.
    deadline = DEADLINE if fault == "hangs" else 60.0
    outcome = run_in_child(run, fault, method, deadline, method="fork", deadline_seconds=300.0)
    assert outcome.how == "returned", outcome
    (problem, told_fix, cause), seconds, left, timeout = outcome.value
    assert re.search(text, problem), problem
    assert fix in told_fix
    assert cause in ("RuntimeError", "KeyError", "EOFError", "ConnectionResetError", "TooLateError")
    assert seconds < 240, "not the 600 s of a sample that hangs"
    assert left == [] and timeout == 0


def ended():
    """Nothing: a worker that has ended."""


@pytest.mark.parametrize("error", [EOFError(), ConnectionResetError(104, "Connection reset by peer")], ids=repr)
def test_a_worker_that_ends_while_its_batch_is_fetched_is_named(error):
    """Then the main process meets the end of a socket, and no word of a worker."""
    worker = get_context("fork").Process(target=ended)
    worker.start()
    epoch = _Epoch(DataLoader(KnownCost(8), 4, num_workers=1), 60.0)
    epoch.notes = _Notes(1)
    epoch.notes.pids[0], epoch.notes.finished[0] = worker.pid, 1
    named = epoch.explained(error, 0)
    assert named.problem == f"A worker (process {worker.pid}) ended without an error message at batch 1."
    alone = _Epoch(DataLoader(KnownCost(8), 4), 60.0).explained(EOFError("no more bytes"), 0)
    assert alone.problem == "The data set raised EOFError: no more bytes at batch 0.", "its own, without workers"


PATIENT = 8.0  # seconds, in which a worker that has started makes a batch on a machine that is busy elsewhere


class SlowToArrive(KnownCost):
    """Takes seconds until a worker has it, as a new interpreter does that imports torch."""

    def __setstate__(self, state):
        time.sleep(PATIENT + 1.0)
        self.__dict__.update(state)


def begin(worker):
    """What a worker does first. Not torch.manual_seed itself: once torch._dynamo is loaded, that cannot be pickled."""
    torch.manual_seed(worker)


def test_the_deadline_begins_when_the_workers_have_started():
    """Here they have a function of their own to begin with; all other tests have none."""
    loader = DataLoader(SlowToArrive(8), 4, num_workers=1, multiprocessing_context="spawn", worker_init_fn=begin)
    with with_deadline(loader, PATIENT) as batches:
        assert len(list(batches)) == 2
    assert loader.worker_init_fn is begin


class ManyLines(KnownCost):
    """A sample whose error has a message of several lines, as errors of schemas and of CUDA have."""

    def __getitem__(self, index):
        raise ValueError("2 fields are wrong:\n  the label\n  the name")


def test_an_error_of_several_lines_is_reported_by_its_type_and_first():
    with pytest.raises(LabError, match=r"^Worker 0 raised ValueError: 2 fields are wrong: at batch 0"):
        with with_deadline(DataLoader(ManyLines(8), 4, num_workers=1), 60) as batches:
            list(batches)


class FailsLate(FaultyData):
    """Goes wrong once the samples that the other worker has loaded ahead are there."""

    def __getitem__(self, index):
        if index == self.at:
            time.sleep(0.5)
        return super().__getitem__(index)


def mapped():
    """How many pieces of the workers' shared memory this process holds."""
    return Path("/proc/self/maps").read_text().count("/torch_")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no other system shows what a process has mapped")
@pytest.mark.parametrize("fault", ["raises", "killed", "hangs"])
def test_the_batches_that_were_loaded_ahead_of_a_fault_are_gone_with_the_error(fault):
    """A container's /dev/shm is small: what a failed trial of the tuner keeps of it, the trials after it do not find."""
    before = mapped()
    gc.disable()
    try:
        with contextlib.suppress(LabError):
            try:
                with with_deadline(DataLoader(FailsLate(fault, at=1), 1, num_workers=2), DEADLINE) as batches:
                    list(batches)
            finally:
                assert mapped() > before
        assert mapped() == before
    finally:
        gc.enable()


class FullDisk(KnownCost):
    """A sample that is to be kept on a disk without room."""

    def __getitem__(self, index):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *self.name)


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    "name, told", [((), "raised OSError: "), (("/data/cache",), "raised OSError: "), (("/dev/shm/pym-1",), "No shared memory")]
)
def test_a_full_disk_of_the_data_set_is_not_taken_for_a_full_shared_memory(workers, name, told):
    dataset = FullDisk(8)
    dataset.name = name
    with pytest.raises(LabError, match=told), with_deadline(DataLoader(dataset, 4, num_workers=workers), 60) as batches:
        list(batches)


def test_without_workers_the_error_names_the_batch_too():
    with pytest.raises(LabError, match="raised KeyError: 'no label for sample 5' at batch 1"):
        with with_deadline(DataLoader(FaultyData("raises"), 4)) as batches:
            list(batches)


def kill_ahead():
    """In a child: the worker of batch 3 dies while the loop still computes on batch 0."""
    try:
        with with_deadline(DataLoader(FaultyData("killed", at=13), 4, num_workers=2), 20.0) as batches:
            for _ in batches:
                time.sleep(0.5)
    except LabError as error:
        return error.problem


def test_a_killed_worker_is_reported_with_its_own_batch():
    outcome = run_in_child(kill_ahead, method="fork", deadline_seconds=300.0)
    assert re.search(r"at batch 3\.", outcome.value), outcome


def hang_here():
    """In a child: a data set that hangs in this very process; what is reported, after how long, and what the alarm is then."""
    start = time.monotonic()
    try:
        with with_deadline(DataLoader(FaultyData("hangs"), 4), 0.5) as batches:
            list(batches)
    except LabError as error:
        return error.problem, time.monotonic() - start, signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there is no SIGALRM here")
def test_a_data_set_that_hangs_without_workers_is_interrupted():
    problem, seconds, restored = run_in_child(hang_here, method="fork", deadline_seconds=300.0).value
    assert problem == "No batch came within 0.5 s at batch 1: the data set hangs, or is slower than that."
    assert seconds < 300 and restored, "not the 600 s of the sample"


def test_the_loaders_own_collate_and_timeout_are_back_afterwards():
    loader = DataLoader(KnownCost(8), 4, num_workers=1, collate_fn=tuple)
    with with_deadline(loader, 30.0) as batches:
        assert [len(batch) for batch in batches] == [4, 4]
    assert loader.collate_fn is tuple and loader.timeout == 0


@pytest.mark.parametrize("loader", [[1, 2], None, KnownCost(8)])
def test_what_is_no_loader_is_named(loader):
    with pytest.raises(LabError, match=f"loader is a {type(loader).__name__}, not a DataLoader"), with_deadline(loader):
        raise AssertionError("it has not started")


def test_errors_of_the_block_pass_unchanged_and_end_the_workers():
    loader = DataLoader(KnownCost(32), 4, num_workers=1)
    before = child_pids()
    with pytest.raises(ZeroDivisionError), with_deadline(loader) as batches:
        next(batches)
        raise ZeroDivisionError
    assert child_pids() <= before


def hang_together(workers, deadline):
    """In a child: all workers hang, as they do when their storage is gone; seconds until that is told."""
    start = time.monotonic()
    try:
        with with_deadline(DataLoader(KnownCost(32, wait=600.0), 4, num_workers=workers), deadline) as batches:
            next(batches)
    except LabError as error:
        return error.problem, time.monotonic() - start, len(child_pids())


def test_workers_that_all_hang_delay_the_error_no_more_than_one_does():
    outcome = run_in_child(hang_together, 8, 1.0, method="fork", deadline_seconds=300.0)
    wrong, seconds, left = outcome.value
    assert "No batch came within 1 s" in wrong and left == 0
    assert seconds < 30, "torch alone waits 5 s for each of the eight"


def test_persistent_workers_keep_each_epochs_deadline():
    outcome = run_in_child(second_epoch_hangs, method="fork", deadline_seconds=300.0)
    assert outcome.value == "No batch came within 1 s at batch 0: a worker hangs, or is slower than that.", outcome


class HangsLater(KnownCost):
    def __init__(self):
        super().__init__(16)
        self.hangs = torch.zeros(1).share_memory_()

    def __getitem__(self, index):
        time.sleep(600 * self.hangs.item())
        return super().__getitem__(index)


def second_epoch_hangs():
    """In a child: an epoch with a long deadline, then one with a short one in which the worker hangs."""
    dataset = HangsLater()
    loader = DataLoader(dataset, 4, num_workers=1, persistent_workers=True)
    with with_deadline(loader, 50.0) as batches:
        assert len(list(batches)) == 4
    dataset.hangs.fill_(1)
    try:
        with with_deadline(loader, 1.0) as batches:
            next(batches)
    except LabError as error:
        return error.problem


@pytest.mark.parametrize("first", [with_deadline, contextlib.nullcontext])
def test_a_persistent_worker_that_hangs_in_what_is_left_of_the_epoch_before_is_reported(first):
    outcome = run_in_child(leave_early, first, method="fork", deadline_seconds=300.0)
    problem, seconds, left = outcome.value
    assert problem == "No batch came within 1 s at batch 0: a worker hangs, or is slower than that.", outcome
    assert seconds < 100 and left == 0, "not the 600 s of the sample"


def leave_early(first):
    """In a child: an epoch that is left at its first batch, when the worker already hangs in the second; then another one."""
    loader = DataLoader(FaultyData("hangs"), 4, num_workers=1, persistent_workers=True)
    with first(loader) as batches:
        next(iter(batches))
    start = time.monotonic()
    try:
        with with_deadline(loader, 1.0) as batches:
            next(batches)
    except LabError as error:
        return error.problem, time.monotonic() - start, len(child_pids())


def test_all_batches_come_in_order_and_persistent_workers_stay_for_the_next_epoch():
    loader = DataLoader(KnownCost(20), 4, num_workers=2, persistent_workers=True)
    try:
        for _ in range(2):
            with with_deadline(loader) as batches:
                assert [int(batch[0, 0]) for batch in batches] == [0, 4, 8, 12, 16]
    finally:
        loader._iterator._shutdown_workers()


SMALL_SHM = """
import sys, torch
from torch.utils.data import DataLoader
from hpml_lab.core.system.errors import LabError
from hpml_lab.loading.tools.deadline import with_deadline
from hpml_lab.loading.tools.known_datasets import KnownCost
loader = DataLoader(KnownCost(32, floats=1 << 20), 4, num_workers=1)  # batches of 16 MiB
try:
    with with_deadline(loader, 20.0) as batches:
        for _ in batches: pass
except LabError as error:
    print("reported:", error)
"""


def small_shm(command, options="size=4m"):
    """The command under a /dev/shm of 4 MiB, in a mount namespace of its own; None where that is not allowed here."""
    if sys.platform != "linux" or shutil.which("unshare") is None:
        return None
    inner = f'mount -t tmpfs -o {options} tmpfs /dev/shm && exec "$@"'
    full = ["unshare", "--map-root-user", "--mount", "sh", "-c", inner, "sh", *command]
    probe = subprocess.run([*full[:7], "true"], capture_output=True)
    return full if probe.returncode == 0 else None


@pytest.mark.environment("a namespace with a full /dev/shm", files=("hpml_lab/loading/tools", "hpml_lab/core/system"))
@pytest.mark.skipif(small_shm(["true"]) is None, reason="no mount namespaces here, so /dev/shm cannot be made small")
def test_a_full_shared_memory_is_reported_with_the_fix():
    before = set(Path("/dev/shm").iterdir())
    done = subprocess.run(small_shm([sys.executable, "-c", SMALL_SHM]), capture_output=True, text=True, timeout=300)
    assert "reported: No shared memory was left in /dev/shm at batch 0. Give it more (docker run --shm-size" in done.stdout, (
        done
    )
    assert not [name for name in set(Path("/dev/shm").iterdir()) - before if name.name.startswith("torch_")]


TUNE_IN_SMALL_SHM = """
from hpml_lab.loading import KnownCost, tune
tuned = tune(KnownCost(256, floats=1 << 18, wait=0.001), 4, max_workers=4, budget_seconds=300)  # batches of 4 MiB
print("failed:", [trial.workers for trial in tuned.trials if trial.failure][:1], tuned)
"""


@pytest.mark.environment("a namespace with a full /dev/shm", files=("hpml_lab/loading/tools", "hpml_lab/core/system"))
@pytest.mark.skipif(small_shm(["true"]) is None, reason="no mount namespaces here, so /dev/shm cannot be made small")
def test_workers_for_which_there_is_no_shared_memory_are_a_row_of_the_tuner():
    command = small_shm([sys.executable, "-c", TUNE_IN_SMALL_SHM])
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert "failed: [1] num_workers=0: the default; num_workers=1 did not fit: No shared memory was left" in done.stdout, done


READ_ONLY_SHM = """
from torch.utils.data import DataLoader
from hpml_lab.core import LabError
from hpml_lab.processes.lessons.shared_memory_ring import Ring
from hpml_lab.loading import with_deadline

def epoch():
    with with_deadline(DataLoader(range(8), num_workers=1)) as batches:
        list(batches)

for make in (lambda: Ring(2, (4,)), epoch):
    try:
        make()
    except LabError as error:
        print("reported:", error)
"""


@pytest.mark.skipif(small_shm(["true"], "ro") is None, reason="no mount namespaces here, so /dev/shm cannot be made read-only")
def test_a_shared_memory_that_cannot_be_written_is_named():
    done = subprocess.run(small_shm([sys.executable, "-c", READ_ONLY_SHM], "ro"), capture_output=True, text=True, timeout=300)
    assert done.stdout.count("reported: Processes can share no memory here: /dev/shm cannot be written (Read-only file") == 2, (
        done
    )
