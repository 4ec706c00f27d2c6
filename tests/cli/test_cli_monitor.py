"""`hpml-lab monitor`: a table and a picture of a command's run; its exit code and Ctrl-C are the command's."""

import argparse
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from hpml_lab.cli import main
from hpml_lab.cli import monitor as command
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import python_environment, started
from hpml_lab.profilers.foreground import in_foreground
from hpml_lab.profilers.monitor import Monitor, _ProcessTree
from hpml_lab.profilers.monitor_picture import monitored_run
from hpml_lab.profilers.monitor_table import read_csv

BUSY = "import time\nend = time.process_time() + 0.4\nwhile time.process_time() < end: pass\nblock = bytes(40_000_000)\n"


def run(*words, rate=20.0):
    return command.monitor(argparse.Namespace(out=Path("run"), rate=rate, words=list(words)))


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_package_that_does_not_load_is_one_line(monkeypatch, capfd):
    for name in ("psutil", "hpml_lab.profilers.monitor"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "psutil", None)
    assert main(["monitor", "--", "true"]) == 1
    assert "hpml-lab: a package does not load here (import of psutil halted" in capfd.readouterr().err


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


def test_what_a_process_took_before_it_was_watched_counts():
    code = f"{BUSY}print(flush=True)\ntime.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # it has computed
        with Monitor(rate=20, process_id=process.pid) as monitor:
            pass
        process.kill()
    assert sum(sample.process_cpu for sample in monitor.samples) >= 0.38


def test_processes_too_short_to_be_seen_are_counted(capfd):
    burst = "import subprocess, sys, os, time\nfor _ in range(4):\n"
    burst += "  subprocess.run([sys.executable, '-S', '-c', 'block = bytearray([1]) * 90_000_000; sum(range(4_000_000))'])\n"
    burst += "used = sum(os.times()[:4])\nseen = open('run.csv').read().count('\\n')\n"
    burst += "while open('run.csv').read().count('\\n') < seen + 2: time.sleep(0.05)\n"  # two more samples
    burst += "open('used', 'w').write(str(used))"
    assert run("--", sys.executable, "-c", burst, rate=2.0) == 0  # half a second between two samples
    used = float(Path("used").read_text())
    rows = read_csv("run.csv")
    assert sum(row["process.cpu [s]"] for row in rows) >= used - 0.02
    assert sum(row["process.cpu [s]"] for row in rows[:-1]) > used / 2, "when each of them has ended, not at the very end"
    said = capfd.readouterr().err
    assert float(re.search(r"([\d.]+) s of processor time", said)[1]) >= used - 0.02
    assert int(re.search(r"at most (\d+) MiB", said)[1]) > 85, "the largest process was one of the short ones"


def test_a_command_that_ends_before_the_first_sample_is_counted_by_the_last():
    assert run("--", sys.executable, "-c", BUSY, rate=0.01) == 0
    (row,) = read_csv("run.csv")
    assert row["process.cpu [s]"] >= 0.4


def test_a_monitor_that_is_killed_leaves_its_samples():
    words = ["--rate", "4", "--out", "run", "--", sys.executable, "-c", "import time; time.sleep(600)"]
    main = "import sys; from hpml_lab.cli import main; main(['monitor', *sys.argv[1:]])"
    with started([sys.executable, "-c", main, *words], env=python_environment()) as process:
        end = time.monotonic() + 120
        while not Path("run.csv").exists() or Path("run.csv").read_text().count("\n") < 4:
            assert time.monotonic() < end, "no sample was written while the command ran"
            time.sleep(0.05)
        assert Path("run.csv").stat().st_size < 4096, "each sample is written when it is taken, not by the buffer"
        process.kill()
    with Monitor(rate=50) as monitor:
        time.sleep(0.05)
    rows = read_csv("run.csv")
    assert len(rows) >= 3 and not Path("run.png").exists()
    assert rows[-1].keys() == monitor.rows[0].keys() and rows[-1]["process.rss [MiB]"] > 1


def test_names_that_cannot_be_written_are_said_before_the_command_runs(capfd):
    Path("folder").mkdir()
    for out, message in (
        ("", "names a folder"),
        ("..", "names a folder"),
        ("folder", "names a folder"),
        ("no/run", "no folder no"),
    ):
        assert main(["monitor", "--out", out, "--", sys.executable, "-c", "open('ran', 'w')"]) == 2
        assert message in capfd.readouterr().err
    assert not Path("ran").exists() and not list(Path().glob("*.csv"))


def test_the_picture_says_which_command_it_is_of():
    with Monitor(rate=50) as monitor:
        time.sleep(0.05)
    title = monitored_run(monitor.samples, "python train.py --cost $5 " + "x" * 300 + " --last").figure.axes[0].get_title()
    assert monitored_run(monitor.samples, "python -c 'a\nb'").figure.axes[0].get_title() == "python -c 'a b'"
    assert title.startswith("python train.py --cost $5") and title.endswith("--last") and len(title) < 100


def test_ctrl_c_is_the_command_s():
    script = "import sys, time\ntry: print('began', flush=True); time.sleep(60)\nexcept KeyboardInterrupt: sys.exit(5)"
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


def test_a_signal_that_is_ignored_is_ignored_by_the_command_too_as_under_nohup(capfd):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        code = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
        with in_foreground([sys.executable, "-c", code]) as process:
            process.wait()
        assert capfd.readouterr().out == "True\n" and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_process_that_ends_while_it_is_read_counts_once(monkeypatch):
    """The root is read, then the child ends, and only the root's next reading has its time."""

    def process(*readings):
        left = [*readings]

        def cpu_times():
            if not left:
                raise psutil.NoSuchProcess(1)
            return left.pop(0), 0.0, 0.0, 0.0

        memory = SimpleNamespace(rss=1)
        return SimpleNamespace(left=left, cpu_times=cpu_times, memory_info=lambda: memory, is_running=lambda: bool(left))

    root, child = process(1.0, 1.0, 101.0), process(100.0)
    root.children = lambda recursive: [child] if len(root.left) > 1 else []
    monkeypatch.setattr(psutil, "Process", lambda process_id: root)
    tree = _ProcessTree(7)
    assert [tree.cpu_seconds() for _ in range(3)] == [101.0] * 3


def test_an_unknown_command_is_named():
    with pytest.raises(LabError, match="'no-such-program' cannot be started"):
        run("no-such-program")
    with pytest.raises(LabError, match="no command to run"):
        run("--")


def test_handlers_are_restored_and_an_error_of_ours_leaves_the_command_alone(capfd):
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    with in_foreground(["sh", "-c", "sleep 0.3; exit 3"]) as process:
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        1 / 0  # noqa: B018
    assert [signal.getsignal(number) for number in signal.valid_signals()] == before
    assert process.returncode == 3
    assert capfd.readouterr().err.count("\n") == 1
