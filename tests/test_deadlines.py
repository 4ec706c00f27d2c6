"""A test that hangs ends with a word: on a GPU, where what waits for a kernel cannot be interrupted, and on a CPU."""

import time

import pytest

from hpml_lab.core.system.paths import ROOT
from hpml_lab.core.system.programs import run_python

ON_A_GPU = """
import sys, threading, types, pytest
sys.modules["torch"] = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=lambda: True))  # it is not skipped

@pytest.mark.cuda(seconds=1)
def test_whose_kernel_never_returns():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()

def test_after_it():
    pass
"""
WAITS_FOR_A_PROCESS = """
import hanging, hpml_lab.core.timing.laps, subprocess, sys  # torch too, which takes long to import
hanging.TEST_SECONDS, hanging.GRACE = 5.0, 60.0

def test_that_reads_to_the_end():
    hanging.TEST_SECONDS = 120.0  # for the next
    code = "import os, time; os.fork() or os.setsid(); time.sleep(600)"  # the child's child keeps the pipe open too
    assert subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE).returncode == 0

def test_after_it():
    pass
"""
WAITS_FOR_A_LOCK = """
import hanging, hpml_lab.core.timing.laps, subprocess, threading
hanging.TEST_SECONDS, hanging.GRACE = 5.0, 10.0

def test_whose_lock_is_kept():
    subprocess.Popen(["sleep", "600"])  # it has the pipe on which the run waits for its worker
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
"""
STOPS_ITSELF = """
import hanging, os, signal, subprocess

def test_that_is_stopped():
    subprocess.Popen(["sleep", "600"])
    os.kill(os.getpid(), signal.SIGSTOP)
"""


# The process that has the workers collects no tests, which could say how long it waits.
PYTEST = """
import sys, pytest
sys.path.insert(0, "tests")
import hanging
hanging.TEST_SECONDS, hanging.GRACE = 10.0, 5.0
sys.exit(pytest.main(sys.argv[1:]))
"""


def run(tmp_path, text, *options):
    (tmp_path / "test_hanging.py").write_text(text)
    options = ["-p", "conftest", "-c", str(ROOT / "pyproject.toml"), "-o", "addopts=", "-p", "no:cacheprovider", *options]
    return run_python(["-c", PYTEST, *options, str(tmp_path)], deadline_seconds=240)


def test_a_cuda_test_that_hangs_ends_the_run_at_its_deadline_and_is_named(tmp_path):
    finished = run(tmp_path, ON_A_GPU)
    assert finished.exitcode == 1, finished.stdout + finished.stderr
    assert "Timeout" in finished.stderr and "test_hanging.py" in finished.stderr
    assert "in test_whose_kernel_never_returns" in finished.stderr


@pytest.mark.parametrize("workers", ("0", "1"))
def test_what_waits_for_a_process_fails_and_the_others_run(tmp_path, workers):
    finished = run(tmp_path, WAITS_FOR_A_PROCESS, "-n", workers)
    assert "1 failed, 1 passed" in finished.stdout, finished.stdout + finished.stderr
    assert "test_that_reads_to_the_end hangs for 5 s" in finished.stderr
    assert finished.stderr.count("ended: ") == 2 and "in test_that_reads_to_the_end" in finished.stderr


@pytest.mark.parametrize("workers", ("0", "1"))
def test_what_waits_for_nothing_that_can_be_ended_ends_the_run(tmp_path, workers):
    began = time.monotonic()
    finished = run(tmp_path, WAITS_FOR_A_LOCK, "-n", workers, "--max-worker-restart", "0")
    assert finished.exitcode == 1 and time.monotonic() - began < 200, finished.stdout + finished.stderr
    assert "in test_whose_lock_is_kept" in finished.stderr and "ended: sleep 600" in finished.stderr
    assert workers == "0" or "crashed while running 'test_hanging.py::test_whose_lock_is_kept'" in finished.stdout


def test_a_worker_that_is_stopped_or_killed_ends_the_run(tmp_path):
    finished = run(tmp_path, STOPS_ITSELF, "-n", "1", "--max-worker-restart", "0")
    assert finished.exitcode == 1, finished.stdout + finished.stderr
    assert "The run hangs for 20 s" in finished.stderr and "ended: sleep 600" in finished.stderr
    assert "crashed while running 'test_hanging.py::test_that_is_stopped'" in finished.stdout
