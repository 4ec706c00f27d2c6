"""Waits that never end early, warnings that are expected, workers that end, and the processes that are left."""

import errno
import os
import signal
import subprocess
import sys
import time
import warnings

import pytest
from torch.utils.data import DataLoader, Dataset, _utils

from hpml_lab.core.system import workers
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.shared_clock import CLOCK
from hpml_lab.core.system.workers import allow_oversubscription, child_pids, needs_shared_memory, shutdown_workers, sleep_until


def test_sleep_until_never_wakes_early():
    for seconds in (0.0, 0.0005, 0.003):
        moment = CLOCK() + seconds
        sleep_until(moment)
        assert CLOCK() >= moment


def test_only_the_two_expected_warnings_are_suppressed():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with allow_oversubscription():
            warnings.warn("This DataLoader will create 8 worker processes in total.", stacklevel=1)
            warnings.warn(
                "This process (pid=1) is multi-threaded, use of fork() may lead to deadlocks in the child.",
                DeprecationWarning,
                stacklevel=1,
            )
            warnings.warn("something else", stacklevel=1)
    assert [str(warning.message) for warning in caught] == ["something else"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_only_an_error_of_shared_memory_is_explained_by_it(number):
    with pytest.raises(LabError if number == errno.ENOSPC else OSError) as raised, needs_shared_memory():
        raise OSError(number, "a reason")
    assert ("/dev/shm" in str(raised.value)) == (number == errno.ENOSPC)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /dev/shm")
def test_a_system_without_dev_shm_is_told_to_mount_it(monkeypatch, tmp_path):
    monkeypatch.setattr(workers, "Path", lambda _: tmp_path / "absent")
    with pytest.raises(LabError, match=r"/dev/shm cannot be written \(No such file.*Mount it"), needs_shared_memory():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))


def test_the_workers_of_an_iterator_end_at_once():
    before = child_pids()
    with allow_oversubscription():
        iterator = iter(DataLoader(range(8), 2, num_workers=2))
    assert len(child_pids() - before) == 2
    shutdown_workers(iterator)
    assert child_pids() <= before


class Deaf(Dataset):
    """Its worker ignores SIGTERM or is stopped, as one is that waits for a storage which is gone."""

    def __init__(self, how):
        self.how = how

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if self.how == "ignores SIGTERM":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        (self.ready / str(os.getpid())).touch()
        if self.how == "is stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(600)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX's")
@pytest.mark.parametrize("how", ["ignores SIGTERM", "is stopped"])
def test_a_worker_that_does_not_act_on_sigterm_has_ended_as_well(how, tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "JOIN_SECONDS", 0.2)
    monkeypatch.setattr(_utils, "MP_STATUS_CHECK_INTERVAL", 0.2)
    dataset = Deaf(how)
    dataset.ready = tmp_path
    iterator = iter(DataLoader(dataset, 2, num_workers=1))
    (worker,) = iterator._workers
    try:
        end = time.monotonic() + 120
        while not list(tmp_path.iterdir()) and time.monotonic() < end:
            time.sleep(0.01)
        shutdown_workers(iterator)
        worker.join(60)  # on a busy machine 0.2 s are short even for SIGKILL
        assert worker.exitcode == -signal.SIGKILL
    finally:
        worker.kill()


def test_a_generator_is_closed_and_anything_else_is_left_alone():
    closed = []

    def batches():
        try:
            yield 1
        finally:
            closed.append(True)

    generator = batches()
    next(generator)
    shutdown_workers(generator)
    shutdown_workers(None)
    assert closed == [True]


def test_a_process_is_counted_while_it_runs():
    before = child_pids()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert process.pid in child_pids()
        process.communicate(b"\n")
    assert child_pids() <= before
