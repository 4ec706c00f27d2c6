"""A program ends at its deadline, with its block or when its caller is interrupted, and so does all that it has started."""

import sys

import pytest

from hpml_lab.core.system import programs

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
