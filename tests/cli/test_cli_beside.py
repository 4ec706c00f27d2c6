"""The program's exit code, signals and files are the program's, whatever fails of ours beside it or after it: three tools."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from hpml_lab.cli import main
from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.programs import python_environment
from hpml_lab.profilers import command_watch, monitor, monitor_picture, process_tree, python_stacks, script_profile
from hpml_lab.profilers.beside import Notes, cause_of, say
from hpml_lab.profilers.foreground import in_foreground
from hpml_lab.profilers.monitor import Monitor
from hpml_lab.profilers.monitor_table import read_csv

SHORT = ["sh", "-c", "echo done; sleep 0.12; exit 7"]
TOOLS = {
    "monitor": ["monitor", "--rate", "50", "--out", "out/run", "--"],
    "profile": ["profile", "--operator-seconds", "0", "--out", "out/run.html"],
    "bottleneck": ["bottleneck", "--json", "out/run.json", "--"],
}
# What of ours is called in each tool: (object or module, name). A name that is not there any more fails the test.
STEPS = {
    "monitor": [
        (monitor, "Gpus"),
        (monitor, "SampleFile"),
        (monitor.SampleFile, "add"),
        (monitor.SampleFile, "close"),
        (monitor._ProcessTree, "__init__"),
        (monitor._ProcessTree, "cpu_seconds"),
        (monitor.Monitor, "ended"),
        (monitor, "_picture"),
        (monitor.threading.Thread, "start"),
        (psutil, "cpu_times"),
        (psutil, "virtual_memory"),
        (psutil, "disk_io_counters"),
        (style, "png"),
        (style, "new_figure"),
        (monitor_picture, "monitored_run"),
        ("hpml_lab.core.system.files.os", "replace"),
    ],
    "profile": [
        (script_profile, "find_tool"),  # without py-spy, the script's own cProfile is what can be read
        (script_profile, "started"),
        (script_profile, "script_stacks"),
        (script_profile, "operator_table"),
        (script_profile, "flame_svg"),
        (script_profile.machine, "cpu_name"),
        (script_profile, "page"),
        ("jinja2", "Environment"),
        ("hpml_lab.core.system.files.os", "replace"),
    ],
    "bottleneck": [
        (command_watch, "CommandWatch"),
        (command_watch, "Gpus"),
        (process_tree, "_busy_seconds"),
        (process_tree.ProcessTree, "look"),
        (python_stacks.PythonStacks, "dump"),
        (command_watch, "decide_command"),
        (command_watch.CommandDiagnosis, "text"),
        (command_watch.CommandDiagnosis, "as_dict"),
        ("hpml_lab.core.system.files.os", "replace"),
    ],
}


AT_THE_END = ("png", "replace", "close", "script_stacks", "page", "text", "as_dict")  # after the program, in the main thread


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("out").mkdir()
    return tmp_path


def words(tool, source="import sys; print('done'); sys.exit(7)"):
    """The tool's arguments, with a script of this source."""
    Path("job.py").write_text(textwrap.dedent(source))
    return [*TOOLS[tool], *([] if tool == "profile" else [sys.executable]), "job.py"]


def fails_with(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.mark.parametrize(("tool", "step"), [(tool, step) for tool, steps in STEPS.items() for step in steps])
def test_whatever_of_ours_fails_the_exit_code_is_the_programs(tool, step, monkeypatch, capfd):
    where = ".".join(step) if isinstance(step[0], str) else ""
    errors = [OSError(28, "No space left on device"), *([KeyboardInterrupt()] if step[1] in AT_THE_END else [])]
    for error in errors:
        with monkeypatch.context() as patched:
            if tool == "profile" and step[1] not in ("started", "script_stacks"):
                patched.setattr(script_profile, "find_tool", lambda name: None)
            patched.setattr(where, fails_with(error)) if where else patched.setattr(*step, fails_with(error))
            assert main(words(tool) if tool == "profile" else [*TOOLS[tool], *SHORT]) == 7, error
        printed = capfd.readouterr()
        assert printed.out == "done\n" and "Traceback" not in printed.err
        assert all(line.startswith(("hpml-lab: ", " ")) or not line or tool == "bottleneck" for line in printed.err.splitlines())
