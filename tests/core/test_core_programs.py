"""A program ends at its deadline, with its block or when its caller is interrupted, and so does all that it has started."""

import sys

import pytest

from hpml_lab.core.system import programs
from hpml_lab.core.system.programs import why_ended

SLEEP = "import time; time.sleep(600)"
START_ANOTHER = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {SLEEP!r}])"


def test_a_fresh_interpreter_is_ended_when_the_caller_is_interrupted(monkeypatch, nothing_left):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(programs.subprocess.Popen, "communicate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        programs.run_python(["-c", "import time; time.sleep(600)"])


def test_a_fresh_interpreter_returns_what_it_printed_and_how_it_ended():
    done = programs.run_python(["-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"])
    assert (done.stdout, done.stderr, done.exitcode) == ("out\n", "err\n", 3)


def test_what_is_no_text_is_marked_and_loses_nothing_else():
    done = programs.run_python(["-c", r"import os; os.write(2, b'before \xff after')"])
    assert (done.stderr, done.exitcode) == ("before \ufffd after", 0)


def test_a_traceback_has_no_colors_where_a_notebook_asks_for_them(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")  # Python 3.13 heeds it, as ipykernel sets it
    assert programs.run_python(["-c", "1 / 0"]).stderr.splitlines()[-1] == "ZeroDivisionError: division by zero"


IN_A_CHILD = "import time; from hpml_lab.core.system.children import run_in_child; run_in_child(time.sleep, 60)"


@pytest.mark.parametrize("code", [SLEEP, START_ANOTHER, IN_A_CHILD])
def test_a_program_is_killed_at_its_deadline_with_what_it_started(code, nothing_left):
    finished = programs.run_python(["-c", code], deadline_seconds=1.0)
    assert finished.exitcode is None and 1.0 <= finished.seconds < 20


REPORT = """[rank1]: RuntimeError: Connection closed by peer
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
Failures:
[1]:
  rank      : 1 (local_rank: 1)
  exitcode  : -15 (pid: 12)
Root Cause (first observed failure):
[0]:
  rank      : 0 (local_rank: 0)
  exitcode  : -9 (pid: 11)
  traceback : Signal 9 (SIGKILL) received by PID 11
"""


@pytest.mark.parametrize(
    "code, stderr, why",
    [
        (-9, "a warning", "killed by SIGKILL: most often the system, because memory ran out, or a scheduler"),
        (137, "", "killed by SIGKILL: most often the system, because memory ran out"),
        (-15, "", "killed by SIGTERM: somebody, or a scheduler whose time is over, asked it to end"),
        (-7, "", "killed by SIGBUS: most often a file in memory for which there was no room: /dev/shm is full"),
        (
            -6,
            "ValueError: no place",
            "killed by SIGABRT: compiled code gave up; what it wrote before says why; ValueError: no place",
        ),
        (1, "a warning\nValueError: no place", "ValueError: no place"),
        (1, REPORT, "killed by SIGKILL: most often"),
        (1, REPORT.replace("-9 ", "1 "), "RuntimeError: Connection closed by peer"),
        (200, "", ""),
    ],
)
@pytest.mark.skipif(sys.platform == "win32", reason="there a program that is killed has an exit code of its own")
def test_a_signal_is_named_with_what_it_usually_means(code, stderr, why):
    found = why_ended(code, stderr)
    assert found.startswith(why) and bool(found) == bool(why)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such signal")
def test_a_program_that_was_killed_has_that_signals_exit_code():
    done = programs.run_python(["-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"])
    assert programs.signal_name(done.exitcode) == "SIGTERM" and programs.signal_name(-1000) == "signal 1000"


def test_a_started_program_ends_with_its_block(nothing_left):
    with pytest.raises(ZeroDivisionError), programs.started([sys.executable, "-c", START_ANOTHER]):
        raise ZeroDivisionError


def test_a_started_program_ends_at_its_deadline(nothing_left):
    with programs.started([sys.executable, "-c", SLEEP], deadline_seconds=0.2) as program:
        assert program.wait(20) < 0


def test_a_module_answers_in_json(tmp_path, monkeypatch):
    (tmp_path / "echoes.py").write_text("import json, sys; print(json.dumps([json.loads(sys.argv[1]), __name__]))")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert programs.call_python_module("echoes", {"count": 3}) == [{"count": 3}, "__main__"]


def test_a_module_that_fails_shows_the_end_of_its_errors():
    with pytest.raises(RuntimeError, match="no_such_module ended with exit code 1: (?s:.*)No module named no_such_module"):
        programs.call_python_module("no_such_module", {})


def test_a_module_that_hangs_is_reported(tmp_path, monkeypatch, nothing_left):
    (tmp_path / "sleeps.py").write_text(SLEEP)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(RuntimeError, match="sleeps did not finish in time"):
        programs.call_python_module("sleeps", {}, deadline_seconds=0.5)
