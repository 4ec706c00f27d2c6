"""A child that returns, raises, dies, hangs, or starts others: what is reported, and that nothing is left."""

import ctypes
import hashlib
import multiprocessing
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from multiprocessing.util import get_temp_dir
from pathlib import Path

import psutil
import pytest
import torch

from hpml_lab.core.system import children
from hpml_lab.core.system.children import child_process, run_in_child, run_in_children, shield_children_from_sigint
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.workers import child_pids

METHODS = ("fork", "spawn", "forkserver")
new_interpreter = pytest.mark.environment("a new interpreter", files=("hpml_lab/core/system",))
MOST_BY_NIGHT = ("fork", pytest.param("spawn", marks=new_interpreter), "forkserver")  # one test starts one on every run


def add(a, b):
    return a + b


def fail():
    raise ValueError("a bad value")


def interrupts_itself():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def leave():
    sys.exit(3)


def hang():
    time.sleep(600)


def greet(connection):
    connection.send("here")


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


def test_without_posix_no_tracker_is_asked_for(monkeypatch):
    def absent():
        raise ModuleNotFoundError("No module named '_posixsubprocess'")

    children.resource_tracker.ensure_running()  # this system's own spawn uses it, whatever is taken away below
    monkeypatch.delattr(os, "killpg")
    monkeypatch.delattr(signal, "pthread_sigmask")
    monkeypatch.setattr(children.resource_tracker, "ensure_running", absent)
    assert run_in_child(add, 2, 3, method="spawn").value == 5


def test_an_exception_is_told_with_its_traceback():
    outcome = run_in_child(fail)
    assert (outcome.how, outcome.error) == ("raised", "ValueError: a bad value")
    assert "in fail" in outcome.trace


class SaysNothing(Exception):
    def __str__(self):
        raise RuntimeError("no text")

    def __reduce__(self):
        raise self


def raise_what_says_nothing():
    raise SaysNothing("the cause")


@pytest.mark.parametrize("function", [raise_what_says_nothing, lambda: SaysNothing("the cause")], ids=["raised", "returned"])
def test_an_exception_whose_text_cannot_be_made_keeps_its_type(function):
    outcome = run_in_child(function, method="fork")
    assert (outcome.how, outcome.error) == ("raised", "SaysNothing: the cause")
    assert "SaysNothing" in outcome.trace


def test_a_value_that_cannot_be_pickled_is_told_as_an_error():
    outcome = run_in_child(give_what_cannot_be_sent)
    assert outcome.how == "raised" and "pickle" in outcome.error


@pytest.mark.parametrize("method", MOST_BY_NIGHT)
def test_tensors_come_back_by_value_as_the_child_is_gone(method):
    outcome = run_in_child(torch.ones, 3, method=method)
    assert outcome.how == "returned" and torch.equal(outcome.value, torch.ones(3))


def test_functions_without_a_name_of_their_own_reach_a_new_process():
    factor = 3
    assert run_in_child(lambda number: factor * number, 2, method="forkserver").value == 6


def test_functions_of_a_program_without_a_file_reach_a_new_process():
    """A cell's function where autograd has threads, as after a backward pass on a GPU: then a child is no fork."""
    program = """
from functools import partial
from hpml_lab.core.system import children
children.has_autograd_threads = lambda: True
factor = 3
def times(number): return factor * number
print(children.run_in_child(times, 2).value, children.run_in_child(partial(times, 4)).value)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=600)
    assert (done.stdout, done.stderr) == ("6 12\n", "")


def test_an_argument_that_cannot_be_sent_to_a_new_process_is_a_clear_error():
    with pytest.raises(LabError, match="its arguments cannot be sent to another process .*lock.* in the function"):
        run_in_child(ignore, threading.Lock(), method="forkserver")


def test_a_signal_is_told_by_its_number():
    outcome = run_in_child(die)
    assert (outcome.how, outcome.exitcode) == ("died", -signal.SIGKILL)


def test_sys_exit_ends_the_child_alone():
    outcome = run_in_child(leave)
    assert (outcome.how, outcome.error) == ("raised", "SystemExit: 3")


@pytest.mark.parametrize("method", MOST_BY_NIGHT)
def test_a_child_that_hangs_is_killed_at_its_deadline(method):
    deadline = 1.0
    outcome = run_in_child(hang, method=method, deadline_seconds=deadline)
    assert (outcome.how, outcome.exitcode) == ("hung", -signal.SIGKILL)
    assert deadline <= outcome.seconds < deadline + 5


class SlowToArrive:
    """Takes a second to be unpickled, as a function does whose module imports torch."""

    def __reduce__(self):
        return time.sleep, (1.0,)


def ignore(argument):
    return "ran"


def multiply():
    return float((torch.ones(300, 300) @ torch.ones(300, 300))[0, 0])


def multiply_in_one_thread():
    torch.set_num_threads(1)
    return multiply()


def test_a_fork_right_after_threads_that_multiplied_can_multiply():
    """Without the wait for threads that are ending, a child hung in its product in about six of ten runs of this test."""
    multiply()
    for _ in range(60):
        threads = [threading.Thread(target=multiply) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert run_in_child(multiply_in_one_thread, method="fork", deadline_seconds=60).value == 300.0


@pytest.mark.skipif(sys.platform != "linux", reason="the states of threads are Linux's")
def test_a_thread_that_computes_outside_python_is_seen():
    thread = threading.Thread(target=hashlib.pbkdf2_hmac, args=("sha256", b"", b"", 1_000_000))
    thread.start()
    seen = False
    while thread.is_alive():
        seen = seen or children._other_threads_run()
    assert seen


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the names of threads")
def test_where_autograd_has_threads_a_child_is_no_fork_of_this_process():
    """torch refuses gradients in a fork that does not inherit them."""
    named, end = threading.Event(), threading.Event()

    def autograd():
        ctypes.CDLL(None).prctl(15, b"pt_autograd_0")  # PR_SET_NAME
        named.set()
        end.wait()

    assert run_in_child(os.getppid, deadline_seconds=60).value == os.getpid() or multiprocessing.get_start_method() != "fork"
    thread = threading.Thread(target=autograd)
    thread.start()
    try:
        assert named.wait(60)
        outcome = run_in_child(os.getppid, deadline_seconds=60)
    finally:
        end.set()
        thread.join()
    assert outcome.how == "returned" and outcome.value != os.getpid()


def test_a_fork_does_not_wait_for_ever_for_threads_that_work(monkeypatch):
    monkeypatch.setattr(children, "_other_threads_run", lambda: True)
    monkeypatch.setattr(children, "REST_SECONDS", 0.2)
    before = children.CLOCK()
    with child_process(greet, method="fork") as child:
        assert child.receive(60) == "here" and child.called - before >= 0.2


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_the_deadline_starts_when_the_function_is_called(method):
    outcome = run_in_child(ignore, SlowToArrive(), method=method, deadline_seconds=0.5)
    assert (outcome.how, outcome.value) == ("returned", "ran") and outcome.seconds < 0.5


def test_a_child_that_does_not_get_to_its_function_is_killed(monkeypatch):
    monkeypatch.setattr(children, "START_SECONDS", 0.2)
    assert run_in_child(ignore, SlowToArrive(), method="spawn", deadline_seconds=300).how == "hung"


def test_several_children_run_at_once_and_all_outcomes_come_back():
    outcomes = run_in_children({"a": (add, 1, 2), "b": (add, 3, 4)})
    assert [(name, outcome.how, outcome.value, outcome.exitcode) for name, outcome in outcomes.items()] == [
        ("a", "returned", 3, 0),
        ("b", "returned", 7, 0),
    ]


@pytest.mark.parametrize(("failing", "how"), [(fail, "raised"), (die, "died")])
def test_when_one_child_fails_the_others_are_stopped(failing, how):
    start = time.monotonic()
    outcomes = run_in_children({"bad": (failing,), "good": (hang,)}, deadline_seconds=300)
    assert {name: outcome.how for name, outcome in outcomes.items()} == {"bad": how, "good": "stopped"}
    assert time.monotonic() - start < 60


def test_children_that_hang_are_both_reported():
    outcomes = run_in_children({"a": (hang,), "b": (hang,), "c": (add, 1, 1)}, deadline_seconds=0.3)
    assert [outcome.how for outcome in outcomes.values()] == ["hung", "hung", "returned"]


def answer_twice(connection, number):
    connection.send(number)
    connection.send(connection.recv())
    time.sleep(600)


@pytest.mark.parametrize("method", MOST_BY_NIGHT)
def test_a_child_process_talks_and_ends_with_its_block(method):
    before = child_pids()
    with child_process(answer_twice, 5, method=method, duplex=True) as child:
        assert child.receive(60) == 5
        child.connection.send("again")
        assert child.receive(60) == "again"
        assert child.receive(0.05, default="nothing") == "nothing"
        assert child.called <= child.started and child.exitcode is None
    assert child.exitcode == -signal.SIGKILL and child_pids() == before


def send_nothing(connection):
    pass


def test_a_child_that_ends_without_a_message_gives_the_default():
    with child_process(send_nothing) as child:
        assert child.receive(60, default="nothing") == "nothing"
        child.process.join(60)
    assert child.exitcode == 0


def ends_within_a_message(connection):
    os.write(connection.fileno(), struct.pack("!i", 100) + b"a part")  # as one that is killed while it sends


def test_a_child_that_ends_within_a_message_gives_the_default():
    with child_process(ends_within_a_message) as child:
        assert child.receive(60, default="nothing") == "nothing"


def end_when_the_connection_closes(connection):
    with pytest.raises(EOFError):
        connection.recv()


def test_a_child_may_have_time_to_end_by_itself():
    with child_process(end_when_the_connection_closes, method="spawn", duplex=True, grace_seconds=60) as child:
        pass
    assert child.exitcode == 0


def test_a_child_that_cannot_start_leaves_nothing():
    before = child_pids()
    with pytest.raises(Exception, match="pickle"), child_process(lambda connection: None, method="spawn"):
        raise AssertionError("it has not started")
    assert child_pids() == before


SEMAPHORES = """
import multiprocessing, time
from hpml_lab.core.system.children import run_in_child

def hold_semaphores(seconds):
    held = [multiprocessing.get_context("spawn").Semaphore() for _ in range(3)]
    time.sleep(seconds)
    return len(held)

print(run_in_child(hold_semaphores, 0, method="fork").how)
print(run_in_child(hold_semaphores, 600, method="fork", deadline_seconds=1.0).how)
"""


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
def test_semaphores_of_a_killed_child_are_given_back():
    done = subprocess.run([sys.executable, "-c", SEMAPHORES], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["returned", "hung"], done
    assert "leaked semaphore" in done.stderr, "the tracker found those of the killed child, and only it can"


@pytest.mark.parametrize(("then", "how"), [(int, "returned"), (fail, "raised"), (die, "died"), (hang, "hung")])
def test_what_the_child_started_ends_with_it(tmp_path, then, how):
    outcome = run_in_child(start_another_and, then, str(tmp_path / "pid"), deadline_seconds=3.0)
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
from hpml_lab.core.system.children import run_in_child
from hpml_lab.processes.experiments import pool, relay

if __name__ == "__main__":
    ways = {
        "run_in_child": lambda: run_in_child(time.sleep, 600, method="spawn", deadline_seconds=600),
        "process_prints": lambda: pool.process_prints("spawn", time.sleep, 600, deadline_seconds=600),
        "pool_squares": lambda: pool.pool_squares("spawn", 2, [1, 2], seconds=60),
        "relay": lambda: relay.run_relay([60.0], [60.0], slots=1, shape=(1,), method="spawn"),
    }
    # As a terminal does it: to the whole group. The children are importing by then.
    threading.Timer(0.2, os.killpg, (0, signal.SIGINT)).start()
    try:
        ways[sys.argv[1]]()
    except KeyboardInterrupt:
        print("interrupted")
"""


@pytest.mark.parametrize("way", ["run_in_child", "process_prints", "pool_squares", "relay"])
def test_a_ctrl_c_while_children_start_is_told_by_the_parent_alone(tmp_path, way):
    (tmp_path / "own.py").write_text(CTRL_C)
    command = [sys.executable, str(tmp_path / "own.py"), way]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, start_new_session=True)
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


@pytest.mark.parametrize("method", MOST_BY_NIGHT)
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


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="there are no signal masks here")
def test_children_are_shielded_from_any_thread_and_the_handler_stays():
    before, entered = signal.getsignal(signal.SIGINT), []

    def shielded():
        with shield_children_from_sigint():
            entered.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, []))

    thread = threading.Thread(target=shielded)
    thread.start()
    thread.join()
    assert entered == [True] and signal.getsignal(signal.SIGINT) is before
