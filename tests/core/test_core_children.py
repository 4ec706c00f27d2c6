"""A child that returns, raises, dies, hangs, or starts others: what is told of it, and that nothing is left."""

import os
import signal
import subprocess
import sys
import threading
import time
from multiprocessing.util import get_temp_dir
from pathlib import Path

import psutil
import pytest

from hpml_lab.core.children import shield_children_from_sigint, run_in_child

METHODS = ("fork", "spawn", "forkserver")


def add(a, b):
    return a + b


def fail():
    raise ValueError("the planted error")


def interrupts_itself():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    sys.exit(3)


def hang():
    time.sleep(600)


def give_what_cannot_be_sent():
    return lambda: None


def start_another_and(then, note):
    """A grandchild that would outlive its parent."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with open(note, "w") as file:
        file.write(str(other.pid))
    return then()


@pytest.mark.parametrize("method", METHODS)
def test_a_value_comes_back_by_every_start_method(method):
    outcome = run_in_child(add, 2, 3, method=method)
    assert (outcome.how, outcome.value, outcome.exitcode) == ("returned", 5, 0)


def test_an_exception_is_told_with_its_traceback():
    outcome = run_in_child(fail)
    assert (outcome.how, outcome.error) == ("raised", "ValueError: the planted error")
    assert "in fail" in outcome.trace


def test_a_value_that_cannot_be_pickled_is_told_as_an_error():
    outcome = run_in_child(give_what_cannot_be_sent)
    assert outcome.how == "raised" and "pickle" in outcome.error


def test_a_signal_is_told_by_its_number():
    outcome = run_in_child(die)
    assert (outcome.how, outcome.exitcode) == ("died", -signal.SIGKILL)


def test_sys_exit_ends_the_child_alone():
    outcome = run_in_child(leave)
    assert (outcome.how, outcome.error) == ("raised", "SystemExit: 3")


@pytest.mark.parametrize("method", METHODS)
def test_a_child_that_hangs_is_killed_at_its_deadline(method):
    deadline = 1.0
    outcome = run_in_child(hang, method=method, deadline=deadline)
    assert (outcome.how, outcome.exitcode) == ("hung", -signal.SIGKILL)
    assert deadline <= outcome.seconds < deadline + 5


SEMAPHORES = """
import multiprocessing, time
from hpml_lab.core.children import run_in_child

def hold_semaphores(seconds):
    held = [multiprocessing.get_context("spawn").Semaphore() for _ in range(3)]
    time.sleep(seconds)
    return len(held)

print(run_in_child(hold_semaphores, 0, method="fork").how, run_in_child(hold_semaphores, 600, method="fork", deadline=1.0).how)
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_semaphores_of_a_killed_child_are_given_back():
    done = subprocess.run([sys.executable, "-c", SEMAPHORES], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["returned", "hung"], done
    assert "leaked semaphore" in done.stderr, "the tracker found those of the killed child, and only it can"


@pytest.mark.parametrize(("then", "how"), [(int, "returned"), (fail, "raised"), (die, "died"), (hang, "hung")])
def test_what_the_child_started_ends_with_it(tmp_path, then, how):
    outcome = run_in_child(start_another_and, then, str(tmp_path / "pid"), deadline=3.0)
    assert outcome.how == how
    other = int((tmp_path / "pid").read_text())
    ends = time.monotonic() + 10
    while time.monotonic() < ends and psutil.pid_exists(other) and psutil.Process(other).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.02)
    assert not psutil.pid_exists(other) or psutil.Process(other).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_child_has_no_temporary_folder_of_its_own_to_leave_behind(method):
    assert run_in_child(get_temp_dir, method=method).value == get_temp_dir()


CTRL_C = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # where the tests run in the background, children ignore Ctrl-C
from hpml_lab.core.children import run_in_child
from hpml_lab.processes import pool, relay

if __name__ == "__main__":
    ways = {
        "run_in_child": lambda: run_in_child(time.sleep, 60, method="spawn", deadline=60),
        "process_says": lambda: pool.process_says("spawn", time.sleep, 60, deadline=60),
        "squares": lambda: pool.squares("spawn", 2, [1, 2], seconds=60),
        "relay": lambda: relay.run([60.0], [60.0], slots=1, shape=(1,), method="spawn"),
    }
    # As a terminal does it: to the whole group. The children are importing by then.
    threading.Timer(0.2, os.killpg, (0, signal.SIGINT)).start()
    try:
        ways[sys.argv[1]]()
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("way", ["run_in_child", "process_says", "squares", "relay"])
def test_a_ctrl_c_while_children_start_is_told_by_the_parent_alone(tmp_path, way):
    (tmp_path / "own.py").write_text(CTRL_C)
    command = [sys.executable, str(tmp_path / "own.py"), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


@pytest.mark.parametrize("method", METHODS)
def test_in_its_own_group_a_child_hears_an_interrupt_again(method):
    assert run_in_child(interrupts_itself, method=method).how == "raised"


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="there are no signal masks here")
@pytest.mark.parametrize("threads", [0, 1])
def test_the_parent_hears_at_the_end_what_came_while_its_children_started(threads):
    over = threading.Event()
    others = [threading.Thread(target=over.wait) for _ in range(threads)]  # they take the signal that this one does not
    for other in others:
        other.start()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    heard = []
    kept = signal.signal(signal.SIGINT, lambda *_: heard.append("interrupt"))
    try:
        with shield_children_from_sigint():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            inside = list(heard)
    finally:
        over.set()
        signal.signal(signal.SIGINT, kept)
    assert (inside, heard) == ([], ["interrupt"]) and signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
