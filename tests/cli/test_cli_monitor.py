"""`hpml-lab monitor`: a table and a picture of a command's run; its exit code and Ctrl-C are the command's."""

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_lab.cli import monitor as command
from hpml_lab.core.errors import LabError
from hpml_lab.core.programs import python_environment
from hpml_lab.profiling.foreground import exit_code, in_foreground
from hpml_lab.profiling.monitor import Monitor, read_csv

BUSY = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\nblock = bytes(40_000_000)\n"


def run(*words, rate=20.0):
    return command.monitor(argparse.Namespace(out=Path("run"), rate=rate, words=list(words)))


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_table_counts_the_command_and_what_it_starts(capfd):
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}]); sys.exit(7)"
    assert run("--", sys.executable, "-c", nested) == 7
    rows = read_csv("run.csv")
    assert sum(row["process.cpu [s]"] for row in rows) > 0.1 and max(row["process.rss [MiB]"] for row in rows) > 8
    assert Path("run.png").read_bytes().startswith(b"\x89PNG")
    said = capfd.readouterr().err
    assert "run.csv" in said and "run.png" in said and "cores" in said


def test_a_monitor_of_another_process_does_not_count_this_one():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        with Monitor(rate=20, process_id=process.pid) as monitor:
            sum(range(10_000_000))
        process.kill()
    assert sum(sample.process_cpu for sample in monitor.samples) < 0.2


def test_ctrl_c_is_the_command_s():
    script = "import sys, time\nprint('began', flush=True)\ntry: time.sleep(60)\nexcept KeyboardInterrupt: sys.exit(5)"
    main = "import argparse, pathlib, sys; from hpml_lab.cli.monitor import monitor\n"
    main += f"words = [sys.executable, '-c', {script!r}]\n"
    main += "sys.exit(monitor(argparse.Namespace(out=pathlib.Path('run'), rate=10.0, words=words)))"
    process = subprocess.Popen(
        [sys.executable, "-c", main], stdout=subprocess.PIPE, text=True, env=python_environment(), start_new_session=True
    )
    assert process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    assert process.returncode == 5 and Path("run.csv").exists()


def test_an_unknown_command_is_named():
    with pytest.raises(LabError, match="no-such-program cannot be started"):
        run("no-such-program")
    with pytest.raises(LabError, match="no command to run"):
        run("--")


def test_handlers_are_restored_and_an_error_leaves_no_command_behind():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(ZeroDivisionError), in_foreground(["sleep", "60"]) as process:
        assert signal.getsignal(signal.SIGINT) is not before
        1 / 0  # noqa: B018
    assert signal.getsignal(signal.SIGINT) is before and process.returncode == -signal.SIGTERM
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)
    assert exit_code(process.returncode) == 143 and exit_code(3) == 3
