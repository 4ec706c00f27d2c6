"""`hpml-lab bottleneck`: a name for what bounds a program, with the evidence, by looking at it from outside only."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_lab.cli import main
from hpml_lab.core.system.programs import python_environment, run_python
from hpml_lab.profilers.command_verdict import CANNOT_TELL, COMMAND_BOUNDS, OTHERS, QUOTA
from hpml_lab.profilers.command_watch import diagnose_command, diagnose_process

BUSY = "import time\nend = time.process_time() + 1.0\nwhile time.process_time() < end: pass\n"
HPML_LAB = [sys.executable, "-c", "import sys; from hpml_lab.cli import main; sys.exit(main())"]
watched = pytest.mark.environment("py-spy over a program", files=("hpml_lab/profilers", "hpml_lab/cli/bottleneck.py"))


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(source, name="script.py"):
        (tmp_path / name).write_text(source)
        return name

    return write


def own(diagnosis):
    """The last finding: what bounds the program itself, whether or not other programs have the cores of this machine."""
    assert all(bound == OTHERS for bound, _ in diagnosis.findings[:-1])
    return diagnosis.findings[-1]


def test_a_busy_script_is_a_single_thread_and_its_imports_are_left_out(script):
    script("import time\nend = time.process_time() + 1.0\nwhile time.process_time() < end: pass\n", "slow.py")
    diagnosis, code = diagnose_command([sys.executable, script(f"import slow\n{BUSY}")])
    assert code == 0 and own(diagnosis)[0] == "single thread", diagnosis.text()
    assert "script.py:4" in own(diagnosis)[1]
    assert diagnosis.evidence.start_seconds > 0.3 and diagnosis.evidence.seconds > 0.3, diagnosis.text()


def test_a_program_that_its_containers_quota_stops_is_told_so(script, small_group):
    join, quota = small_group
    diagnosis, code = diagnose_command([*join, sys.executable, script("import time\nwhile time.process_time() < 0.5: pass\n")])
    seen = diagnosis.evidence
    assert code == 0 and (seen.cores, seen.quota) == (quota, quota), diagnosis.text()
    if seen.others > 0.9 * seen.mask_cores:  # this machine's other programs leave it less than its quota
        pytest.skip("other programs have the cores: the quota is not reached")
    assert [bound for bound, _ in diagnosis.findings[:-1]] == [QUOTA], diagnosis.text()
    assert 0 < seen.stopped_periods <= seen.periods, diagnosis.text()


def test_what_has_no_class_is_said_with_its_line(script):
    diagnosis, _ = diagnose_command([sys.executable, script("import time\n\ntime.sleep(1)\n")])
    assert own(diagnosis)[0] == CANNOT_TELL
    assert "it sleeps for" in own(diagnosis)[1] and "script.py:3" in own(diagnosis)[1], diagnosis.text()


@watched
@pytest.mark.parametrize("start", ["{python} script.py; exit 3", "exec {python} starter.py"])
def test_the_evidence_is_the_same_however_the_work_is_started(script, start):
    script(BUSY)
    script("import subprocess, sys\nsys.exit(subprocess.call([sys.executable, 'script.py']) or 3)", "starter.py")
    diagnosis, code = diagnose_command(["sh", "-c", start.format(python=sys.executable)])
    assert code == 3 and own(diagnosis)[0] == "single thread", diagnosis.text()
    assert "script.py:3" in own(diagnosis)[1]


@watched
@pytest.mark.parametrize("end", ["os._exit(4)", "os.execvp('sh', ['sh', '-c', 'exit 4'])"])
def test_a_program_may_end_as_it_likes(script, end):
    diagnosis, code = diagnose_command([sys.executable, script(f"import os\n{BUSY}\n{end}\n")])
    assert code == 4 and own(diagnosis)[0] == "single thread", diagnosis.text()


@watched
def test_work_in_a_thread_is_seen(script):
    threaded = f"import threading\ndef work():\n  exec({BUSY!r})\nthreading.Thread(target=work).start()\n"
    diagnosis, _ = diagnose_command([sys.executable, script(threaded)])
    assert own(diagnosis)[0] == "single thread" and "script.py:3" in own(diagnosis)[1], diagnosis.text()


def test_nothing_of_this_package_is_in_the_program(script):
    name = script("import json, os, sys\njson.dump([sys.path, sys.argv, dict(os.environ)], open('seen.json', 'w'))\n")
    seen = []
    for run in (lambda command: subprocess.run(command, check=True), diagnose_command):
        run([sys.executable, name, "-x"])
        seen.append(json.loads(Path("seen.json").read_text()))
    assert seen[0] == seen[1]


def test_threads_of_python_wait_for_the_interpreter(script):
    threads = "import threading\ndef work():\n  n = 0\n  while n < 10_000_000: n += 1\n"
    threads += "for _ in range(4): threading.Thread(target=work).start()\n"
    diagnosis, _ = diagnose_command([sys.executable, script(threads)])
    assert own(diagnosis)[0] == "GIL" and "script.py:4" in own(diagnosis)[1], diagnosis.text()


def test_threads_at_a_lock_are_named_with_its_line(script):
    threads = "import threading, time\nlock = threading.Lock()\ndef work():\n  for _ in range(10):\n    with lock:\n"
    threads += "      time.sleep(0.05)\nfor _ in range(4): threading.Thread(target=work).start()\n"
    diagnosis, _ = diagnose_command([sys.executable, script(threads)])
    assert own(diagnosis)[0] == "lock" and "script.py:5" in own(diagnosis)[1], diagnosis.text()


def test_a_process_that_runs_already_is_left_running(script):
    forever = "print('began', flush=True)\nwhile True: pass\n"
    with subprocess.Popen([sys.executable, script(forever)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "began\n"
            diagnosis = diagnose_process(process.pid, seconds=4.0)  # on a busy machine a look at its stack takes seconds
            assert process.poll() is None
        finally:
            process.kill()
    assert own(diagnosis)[0] == "single thread" and "script.py:2" in own(diagnosis)[1], diagnosis.text()


@watched
def test_after_the_seconds_to_watch_the_command_goes_on_to_its_end(script):
    diagnosis, code = diagnose_command([sys.executable, script(f"{BUSY}\nprint('done')\nraise SystemExit(7)\n")], seconds=0.3)
    assert code == 7 and diagnosis.evidence.seconds + diagnosis.evidence.start_seconds < 0.9


def test_a_signal_is_passed_on_and_then_comes_the_verdict(script):
    name = script("print('began', flush=True)\nwhile True: pass\n")
    command = [*HPML_LAB, "bottleneck", "--json", "verdict.json", "--", sys.executable, name]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=python_environment(), **pipes) as process:
        assert process.stdout.readline() == "began\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.5)
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGTERM and out == ""
    assert "single thread: one thread asks for" in error and "script.py:2" in error
    written = json.loads(Path("verdict.json").read_text())
    assert written["findings"][-1]["bound"] == "single thread" and written["evidence"]["cores"] >= 1


def test_what_was_seen_is_printed_and_the_exit_code_passed_on(script, capfd):
    assert main(["bottleneck", "--", sys.executable, script(f"{BUSY}\nprint('done')\nraise SystemExit(7)\n")]) == 7
    printed = capfd.readouterr()
    assert printed.out == "done\n" and "cores used" in printed.err
    assert any(printed.err.startswith(f"hpml-lab: {bound}: ") for bound in (*COMMAND_BOUNDS, CANNOT_TELL))


def test_wrong_arguments_are_named_before_anything_runs(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    touch = ["--", sys.executable, "-c", "open('ran', 'w')"]
    for words, message in (
        ([], "no command to run"),
        (["--json", "", *touch], "names a folder"),
        (["--json", "no/such.json", *touch], "there is no folder no"),
        (["--pid", str(os.getpid()), *touch], "Give one of them"),
        (["--pid", str(2**22 + 1)], "there is no process"),
    ):
        assert main(["bottleneck", *words]) == 2
        assert message in capfd.readouterr().err
    assert not Path("ran").exists()


def test_the_watch_loads_neither_torch_nor_matplotlib():
    code = "import sys, hpml_lab.cli, hpml_lab.profilers.command_watch\n"
    code += "print([name for name in ('torch', 'matplotlib', 'numpy') if name in sys.modules])"
    assert run_python(["-c", code]).stdout == "[]\n"


def test_without_py_spy_the_verdict_says_that_lines_are_missing(script, monkeypatch):
    monkeypatch.setattr("hpml_lab.profilers.python_stacks.find_tool", lambda name: None)
    diagnosis, code = diagnose_command([sys.executable, script(BUSY)])
    assert code == 0 and own(diagnosis)[0] == "single thread" and "script.py" not in diagnosis.text()
    assert any("py-spy is not installed" in note for note in diagnosis.notes)


def test_where_py_spy_may_not_watch_the_reason_and_the_remedy_are_said(script, tmp_path, monkeypatch):
    refuses = tmp_path / "py-spy"
    refusal = "Error: Permission Denied: Try again with elevated permissions"
    refuses.write_text(f"#!/bin/sh\necho $@ >> asked; echo '{refusal}' >&2; exit 1\n")
    refuses.chmod(0o755)
    monkeypatch.setattr("hpml_lab.profilers.python_stacks.find_tool", lambda name: str(refuses))
    diagnosis, _ = diagnose_command([sys.executable, script(BUSY)])
    assert own(diagnosis)[0] == "single thread" and diagnosis.evidence.seconds > 0.8, diagnosis.text()
    assert any("Permission Denied" in note and "ptrace_scope" in note for note in diagnosis.notes)
    assert all("--nonblocking" in asked for asked in Path("asked").read_text().splitlines()), "nobody stops the program"


def test_a_command_lets_py_spy_watch_it_where_only_parents_may(script, monkeypatch):
    monkeypatch.setattr("hpml_lab.profilers.foreground.allow_tracing", lambda: Path("allowed").write_text(str(os.getpid())))
    diagnose_command([sys.executable, script("import os; open('pid', 'w').write(str(os.getpid()))")])
    assert Path("allowed").read_text() == Path("pid").read_text()
