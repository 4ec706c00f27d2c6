"""`hpml-lab profile`: the page says what the script did, and the script notices nothing of it."""

import argparse
import os
import re
import signal
import subprocess
import sys
import textwrap

import pytest

from hpml_lab.cli import profile as command
from hpml_lab.core.errors import LabError
from hpml_lab.core.programs import python_environment
from hpml_lab.core.tools import find_tool
from hpml_lab.profiling import script_profile
from hpml_lab.profiling.flames import flame_svg
from hpml_lab.profiling.script_profile import profile_script, without_launcher
from hpml_lab.profiling.stacks import frame_shares, read_stacks, split_imports

BUSY = """
import json, os, sys, time
import helper

def busy(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass

if __name__ == "__main__":
    busy(0.5)
    print(json.dumps([sys.argv, __file__, os.environ.get("PYTHONPATH"), helper.NAME]))
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """(source) -> the name of a script in the current folder, which has a module `helper` next to it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "helper.py").write_text("NAME = 'next to the script'\n")

    def write(source):
        (tmp_path / "script.py").write_text(textwrap.dedent(source))
        return "script.py"

    return write


def run(*words, **options):
    """The command's exit code; what it writes goes to the test's own output."""
    from pathlib import Path

    chosen = {"out": Path("profile.html"), "rate": 100, "operator_seconds": 3.0, "subprocesses": False, "script": list(words)}
    return command.profile(argparse.Namespace(**{**chosen, **options}))


def test_the_page_has_a_flame_graph_and_the_functions_and_needs_no_other_file(script, tmp_path, capfd):
    assert run(script(BUSY), "--flag", "1") == 0
    page, printed = (tmp_path / "profile.html").read_text(), capfd.readouterr()
    assert "the profile is in profile.html" in printed.err
    assert '<svg class="flame"' in page and "busy" in page and "Functions by" in page
    assert not re.search(r"""(src|href)=["']?(http|//)""", page), "nothing is loaded"
    assert "launcher" not in page and "runpy" not in page, "the script's own frames only"


def test_a_script_sees_what_it_would_see_without_a_profiler(script, monkeypatch, capfd):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    run(script(BUSY), "--flag", "1", operator_seconds=0.0)
    profiled = capfd.readouterr().out
    plain = subprocess.run([sys.executable, "script.py", "--flag", "1"], capture_output=True, text=True).stdout
    assert profiled == plain.replace(os.path.abspath("script.py"), "script.py")


def test_without_py_spy_cprofile_counts_the_calls(script, monkeypatch):
    monkeypatch.setattr(script_profile, "find_tool", lambda name: None)
    found = profile_script([script(BUSY)])
    assert any("pip install py-spy" in note for note in found.notes) and "cProfile" in found.how
    assert next(row.calls for row in found.functions if row.function == "busy") == 1
    assert any("busy" in row.frame for row in frame_shares(found.work))
    assert "Functions by cProfile" in script_profile.page(found)


def test_where_py_spy_may_not_watch_cprofile_takes_over(script, monkeypatch, tmp_path):
    refused = tmp_path / "py-spy"
    refused.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2\nexit 1\n")
    refused.chmod(0o755)
    monkeypatch.setattr(script_profile, "find_tool", lambda name: str(refused))
    found = profile_script([script(BUSY)])
    assert any("Permission Denied" in note for note in found.notes) and found.functions and found.exit_code == 0


@pytest.mark.parametrize("py_spy", [True, False])
def test_a_failing_script_fails_as_it_does_alone(script, monkeypatch, capfd, py_spy):
    if not py_spy:
        monkeypatch.setattr(script_profile, "find_tool", lambda name: None)
    name = script("def fails():\n    raise ValueError('as asked')\n\nfails()\n")
    assert run(name) == 1
    error = capfd.readouterr().err
    assert error.startswith("Traceback (most recent call last):\n  File") and "ValueError: as asked" in error
    assert "launcher" not in error and "runpy" not in error
    assert os.path.exists("profile.html"), "what was seen until then is shown"


@pytest.mark.parametrize("ending, code", [("sys.exit(7)", 7), ("os._exit(9)", 9), ("os.kill(os.getpid(), 15)", 143)])
def test_exit_codes_are_passed_on(script, ending, code):
    assert run(script(f"import os, sys\n{ending}\n")) == code


def test_a_module_is_profiled_as_python_m_runs_it(script, capfd):
    script("import sys\nprint(__name__, sys.argv[1:])\n")
    assert run("-m", "script", "--flag") == 0
    assert capfd.readouterr().out == "__main__ ['--flag']\n"


def test_ctrl_c_is_the_script_s(script, tmp_path):
    name = script("""
        import sys, time
        try:
            print("began", flush=True)
            time.sleep(60)
        except KeyboardInterrupt:
            print("saved", flush=True)
            sys.exit(5)
    """)
    main = "import argparse, pathlib, sys; from hpml_lab.cli.profile import profile\n"
    main += "chosen = argparse.Namespace(out=pathlib.Path('profile.html'), rate=100, operator_seconds=0.0, subprocesses=False,"
    main += f" script=[{name!r}])\nsys.exit(profile(chosen))"
    process = subprocess.Popen(
        [sys.executable, "-c", main], stdout=subprocess.PIPE, text=True, env=python_environment(), start_new_session=True
    )
    assert process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=300)
    assert (printed, process.returncode) == ("saved\n", 5)
    assert (tmp_path / "profile.html").exists()


def test_an_unknown_script_and_no_script_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LabError, match="no script 'nothing.py'"):
        run("nothing.py")
    with pytest.raises(LabError, match="no command to run"):
        run()


def test_torch_s_operators_are_in_the_page_and_its_import_is_kept_apart(script):
    found = profile_script([script("""
        import torch
        net = torch.nn.Linear(64, 64)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(200):
            net(torch.ones(64, 64)).sum().backward()
            optimizer.step()
    """)])  # fmt: skip
    assert found.exit_code == 0
    operators = {row["operator"]: row for row in found.operators}
    assert {"addmm", "sum"} <= set(operators) and operators["addmm"]["calls"] > 1
    assert sum(row["percent"] for row in found.operators) == pytest.approx(100)
    assert "addmm" in script_profile.page(found)
    frames = "".join(row.frame for row in frame_shares(found.work))
    assert "operator_recorder" not in frames and "wait (threading" not in frames, "the recorder's own thread is left out"
    if find_tool("py-spy") and "py-spy" in found.how:
        assert found.imports.total > 0 and "importlib" not in frames


def test_a_script_that_profiles_itself_comes_first(script):
    found = profile_script([script("""
        import torch
        torch.ones(3).sum()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as own:
            torch.ones(3).mean()
        assert any(row.key == "aten::mean" for row in own.key_averages())
    """)])  # fmt: skip
    assert found.exit_code == 0


def test_stacks_begin_in_the_script_and_imports_are_told_from_work():
    launch = "_run_module_as_main (<frozen runpy>:1);<module> (hpml_lab/profiling/launcher.py:1)"
    run_script = f"{launch};main (hpml_lab/profiling/launcher.py:27);run_script (hpml_lab/profiling/launcher.py:56)"
    hook = "OperatorRecorder.find_spec.<locals>.exec_module (hpml_lab/profiling/operator_recorder.py:9)"
    module = f"{run_script};run_path (<frozen runpy>:2);<module> (script.py:1)"
    text = f"""{launch};_find_and_load (<frozen importlib._bootstrap>:1) 5
{module};work (script.py:3) 7
{module};_load (<frozen importlib._bootstrap>:1);{hook};<module> (t.py:1) 3
{module};stop (hpml_lab/profiling/operator_recorder.py:5) 2
Thread.run (threading.py:3);load (script.py:9) 4
 6
"""
    work, imports = split_imports(without_launcher(text))
    assert work.splitlines() == [
        "<module> (script.py:1);work (script.py:3) 7",
        "Thread.run (threading.py:3);load (script.py:9) 4",
    ]
    assert imports.splitlines() == ["<module> (script.py:1);_load (<frozen importlib._bootstrap>:1);<module> (t.py:1) 3"]


def test_a_flame_graph_s_boxes_are_as_wide_as_their_shares():
    svg = flame_svg(read_stacks("main;fit;hot<1> 6\nmain;fit 1\nmain;walk 3\n"))
    boxes = re.findall(r'data-left="([\d.]+)" data-width="([\d.]+)" data-name="([^"]*)"', svg)
    assert [(name, float(left), float(width)) for left, width, name in boxes] == [
        ("all", 0, 100),
        ("main", 0, 100),
        ("fit", 0, 70),
        ("hot&lt;1&gt;", 0, 60),
        ("walk", 70, 30),
    ]
    assert "6 samples (60.0 %)" in svg and svg.count("<script>") == 1
