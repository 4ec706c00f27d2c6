"""`hpml-lab bottleneck`: a name for what bounds a command, with the evidence; its exit code is the command's."""

import argparse
import sys

import pytest

from hpml_lab.cli import bottleneck as command
from hpml_lab.core.errors import LabError
from hpml_lab.profiling.bottleneck import BOUNDS, CANNOT_TELL
from hpml_lab.profiling.command_watch import diagnose_command, split_python

BUSY = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n"


@pytest.fixture
def script(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(source):
        (tmp_path / "script.py").write_text(source)
        return "script.py"

    return write


def test_a_busy_script_asks_for_one_core_and_its_imports_are_left_out(script):
    (slow, name) = (
        "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n",
        script(f"import slow\n{BUSY}"),
    )
    with open("slow.py", "w") as module:
        module.write(slow)
    diagnosis, code, notes = diagnose_command([sys.executable, name])
    assert code == 0 and diagnosis.bound in ("single thread", CANNOT_TELL)
    assert diagnosis.evidence.busiest > 0.6, diagnosis.text()
    assert any("imported are left out" in note for note in notes)


def test_a_sleeping_script_is_not_named(script):
    diagnosis, _, _ = diagnose_command([sys.executable, script("import time\ntime.sleep(0.5)\n")])
    assert diagnosis.bound == CANNOT_TELL and diagnosis.evidence.unknown_wait > 0.5


def test_what_was_seen_is_printed_and_the_exit_code_passed_on(script, capfd):
    name = script(f"import sys\n{BUSY}\nprint('done')\nsys.exit(7)\n")
    assert command.bottleneck(argparse.Namespace(words=["--", sys.executable, name])) == 7
    printed = capfd.readouterr()
    assert printed.out == "done\n" and "cores used" in printed.err
    assert any(printed.err.startswith(f"hpml-lab: {bound}: ") for bound in (*BOUNDS, CANNOT_TELL))


def test_a_failing_script_fails_as_it_does_alone(script, capfd):
    _, code, _ = diagnose_command([sys.executable, script("raise ValueError('as asked')")])
    error = capfd.readouterr().err
    assert code == 1 and "ValueError: as asked" in error and "launcher" not in error


def test_a_program_that_is_not_python_is_seen_from_outside(script):
    diagnosis, code, notes = diagnose_command(["sh", "-c", f"{sys.executable} -S -c '{BUSY}'; exit 3"])
    assert code == 3 and diagnosis.evidence.busiest > 0.5 and "from outside" in notes[0]


def test_a_script_that_ends_at_once_gets_no_name(script):
    diagnosis, code, _ = diagnose_command([sys.executable, script("import os\nos._exit(4)\n")])
    assert (diagnosis.bound, code) == (CANNOT_TELL, 4)


def test_python_s_own_options_stay_its_own(script):
    name = script("")
    python = sys.executable
    assert split_python([python, name, "-x"]) == ([python], [name, "-x"])
    assert split_python([python, "-u", "-W", "error", name]) == ([python, "-u", "-W", "error"], [name])
    assert split_python([python, "-m", "package", "-v"]) == ([python], ["-m", "package", "-v"])
    assert split_python([name, "3"]) == ([python], [name, "3"])
    for words in ([python], [python, "-c", "1"], [python, "-m"], ["sleep", "1"]):
        assert split_python(words) is None


def test_no_command_is_an_error():
    with pytest.raises(LabError, match="no command to run"):
        command.bottleneck(argparse.Namespace(words=[]))
