"""What is raised in another thread leaves nothing behind: on Python 3.11 the next profiler would wait for it for ever."""

import threading

import pytest

from hpml_lab.core.system import raised_elsewhere
from hpml_lab.core.system.programs import run_python
from hpml_lab.core.system.raised_elsewhere import nothing_waits, raise_in

THEN_A_PROFILER = """
import cProfile, threading, time
from hpml_lab.core.judge.time_limit import TimeLimitReached, time_limit
from hpml_lab.loading.tools.alarm import TooLateError, alarm

def in_a_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

def in_time():
    with alarm(lambda asked: 60.0, 60.0):
        pass

def too_late():
    try:
        with alarm(lambda asked: 0.0, 0.0):
            while True:
                time.sleep(0.001)
    except TooLateError:
        print("too late")

def with_a_thread_that_waits():
    try:
        with time_limit(60.0, 0.2):
            threading.Thread(target=lambda: time.sleep(60), daemon=True).start()
            time.sleep(60)
    except TimeLimitReached:
        print("too late")

{steps}
def called():
    return "ended"
print(cProfile.Profile().runcall(lambda: called()))
"""


@pytest.mark.parametrize(
    "steps, printed",
    [
        ("in_a_thread(in_time)", ["ended"]),
        ("in_a_thread(too_late)", ["too late", "ended"]),
        ("with_a_thread_that_waits()", ["too late", "ended"]),
    ],
)
def test_a_profiler_that_starts_later_runs(tmp_path, steps, printed):
    (tmp_path / "later.py").write_text(THEN_A_PROFILER.replace("{steps}", steps))
    finished = run_python([str(tmp_path / "later.py")], deadline_seconds=120)
    assert (finished.exitcode, finished.stdout.split("\n")[:-1]) == (0, printed), finished.stderr


def test_what_waits_in_this_thread_is_taken_back():
    class LateError(BaseException):
        pass

    raised = []

    def work():
        try:
            for _ in range(1000):
                nothing_waits()
            raise_in(threading.get_ident(), LateError)
            while True:
                pass
        except LateError as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(raised) == 1


def test_an_interrupt_meanwhile_comes_afterwards(monkeypatch):
    errors = iter([KeyboardInterrupt])
    monkeypatch.setattr(raised_elsewhere, "raise_in", lambda thread, error: raise_in(thread, next(errors, error)))
    with pytest.raises(KeyboardInterrupt):
        nothing_waits()
