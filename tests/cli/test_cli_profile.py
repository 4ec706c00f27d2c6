"""`hpml-lab profile`: the page says what the script did, and the script notices nothing of it."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from hpml_lab.cli import main
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.programs import python_environment
from hpml_lab.profilers import operator_recorder, script_profile
from hpml_lab.profilers.at_start import sitecustomize
from hpml_lab.profilers.flames import flame_svg
from hpml_lab.profilers.operator_recorder import EVENTS, SLICE
from hpml_lab.profilers.operator_table import operator_table
from hpml_lab.profilers.script_profile import profile_script
from hpml_lab.profilers.script_stacks import is_waiting, script_stacks
from hpml_lab.profilers.stacks import frame_shares, read_stacks

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


def run(*words):
    """The command's exit code; what it writes goes to the test's own output."""
    return main(["profile", *words])


def test_the_page_has_a_flame_graph_and_the_functions_and_needs_no_other_file(script, tmp_path, capfd):
    assert run(script(BUSY), "--flag", "1") == 0
    page, printed = (tmp_path / "profile.html").read_text(), capfd.readouterr()
    assert "the profile is in profile.html, profile.speedscope.json" in printed.err
    assert '<svg class="flame"' in page and "busy" in page and "Functions by" in page
    assert "script.py:7" in page and "while time.process_time() &lt; end:" in page, "lines, with their source"
    assert json.loads((tmp_path / "profile.speedscope.json").read_text())["shared"]["frames"]
    assert not re.search(r"""(src|href)=["']?(http|//)""", page), "nothing is loaded"
    assert "sitecustomize" not in page and "runpy" not in page, "the script's own frames only"


def test_without_py_spy_a_thread_samples_functions_and_lines(script, monkeypatch):
    monkeypatch.setattr(script_profile, "find_tool", lambda name: None)
    found = profile_script([script(BUSY)])
    assert any("pip install py-spy" in note for note in found.notes) and "thread" in found.how
    assert any("busy" in row.frame for row in frame_shares(found.stacks.work))
    assert {"script.py:7", "script.py:11"} <= {row.line for row in found.stacks.lines}
    assert "script.py:7" in script_profile.page(found) and "while time.process_time()" in script_profile.page(found)


def test_a_path_with_a_semicolon_is_sampled_too(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script_profile, "find_tool", lambda name: None)
    (tmp_path / "a;b").mkdir()
    os.rename(script("import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass\n"), "a;b/script.py")
    found = profile_script(["a;b/script.py"], operator_seconds=0.0)
    assert found.exit_code == 0 and [row.frame for row in frame_shares(found.stacks.work)] == ["<module> (a,b/script.py)"]


def test_where_py_spy_may_not_watch_a_thread_takes_over(script, monkeypatch, tmp_path):
    refused = tmp_path / "py-spy"
    refused.write_text("#!/bin/sh\necho 'Error: Permission Denied' >&2\nexit 1\n")
    refused.chmod(0o755)
    monkeypatch.setattr(script_profile, "find_tool", lambda name: str(refused))
    found = profile_script([script(BUSY)])
    assert any("Permission Denied" in note for note in found.notes) and found.stacks.work.total and found.exit_code == 0


@pytest.mark.parametrize("py_spy", [True, False])
def test_a_failing_script_fails_as_it_does_alone(script, monkeypatch, capfd, py_spy):
    if not py_spy:
        monkeypatch.setattr(script_profile, "find_tool", lambda name: None)
    name = script("def fails():\n    raise ValueError('as asked')\n\nfails()\n")
    assert run(name) == 1
    error = capfd.readouterr().err
    assert error.startswith("Traceback (most recent call last):\n  File") and "ValueError: as asked" in error
    assert "sitecustomize" not in error and "runpy" not in error
    assert os.path.exists("profile.html"), "what was seen until then is shown"


@pytest.mark.parametrize("ending, code", [("sys.exit(7)", 7), ("os._exit(9)", 9), ("os.kill(os.getpid(), 15)", -15)])
def test_exit_codes_are_passed_on(script, ending, code):
    assert run(script(f"import os, sys\n{ending}\n")) == code


@pytest.mark.parametrize("py_spy", [True, False])
def test_a_script_s_own_module_may_be_called_profile(script, tmp_path, monkeypatch, capfd, py_spy):
    if not py_spy:
        monkeypatch.setattr(script_profile, "find_tool", lambda name: None)
    (tmp_path / "profile.py").write_text("NAME = 'its own'\n")
    assert run("--operator-seconds", "0", script("import profile\nprint(profile.NAME)\n")) == 0
    assert capfd.readouterr().out == "its own\n"


@pytest.mark.parametrize("before", [[], ["--out", "page.html"], ["--rate", "50", "--"]])
def test_a_module_is_profiled_as_python_m_runs_it(script, capfd, before):
    script("import sys\nprint(__name__, sys.argv[1:])\n")
    assert run(*before, "-m", "script", "--flag", "-m", "--out") == 0
    assert capfd.readouterr().out == "__main__ ['--flag', '-m', '--out']\n"


@pytest.mark.parametrize(
    "option, value", [("--rate", "0"), ("--rate", "-5"), ("--operator-seconds", "nan"), ("--operator-seconds", "-1")]
)
def test_a_number_that_cannot_be_is_named(script, capsys, option, value):
    with pytest.raises(SystemExit) as stopped:
        run(option, value, script("print(1)"))
    assert stopped.value.code == 2 and repr(value) in capsys.readouterr().err


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
    process = subprocess.Popen(
        [sys.executable, "-m", "hpml_lab", "profile", "--operator-seconds", "0", name],
        stdout=subprocess.PIPE,
        text=True,
        env=python_environment(),
        start_new_session=True,
    )
    assert process.stdout.readline() == "began\n"
    process.send_signal(signal.SIGINT)
    printed, _ = process.communicate(timeout=300)
    assert (printed, process.returncode) == ("saved\n", 5)
    assert (tmp_path / "profile.html").exists()


def test_a_page_that_cannot_be_written_is_said_before_the_script_runs(script, tmp_path, capfd):
    assert run("--out", str(tmp_path), script("open('ran', 'w')\n")) == 2
    assert "names a folder" in capfd.readouterr().err and not (tmp_path / "ran").exists()


def test_an_unknown_script_and_no_script_are_named(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert run("nothing.py") == 2 and "no script 'nothing.py'" in capfd.readouterr().err
    assert run() == 2 and "no command to run" in capfd.readouterr().err


def test_a_child_that_outlives_a_script_that_a_thread_samples_ends_as_it_does_alone(script, tmp_path, monkeypatch):
    monkeypatch.setattr(script_profile, "find_tool", lambda name: None)
    outlives = """
        import os, time
        if os.fork() == 0:
            if (child := os.fork()) != 0:
                code = os.waitpid(child, 0)[1]
                open("code.part", "w").write(str(code))
                os.rename("code.part", "code")
                os._exit(0)
            while not os.path.exists("over"):
                time.sleep(0.01)
    """
    assert run("--operator-seconds", "0", script(outlives)) == 0
    (tmp_path / "over").touch()
    end = time.monotonic() + 60
    while not (tmp_path / "code").exists() and time.monotonic() < end:
        time.sleep(0.02)
    assert (tmp_path / "code").read_text() == "0"


EVERYDAY = """
    import contextlib, os, time
    os.register_at_fork(before=lambda: [time.sleep(0.001) for _ in range(60)])  # runs after the recorder's
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function
    torch.set_num_threads(1)
    net = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    def train(seconds=0.0):
        end = time.monotonic() + seconds
        while time.monotonic() <= end:
            net(torch.randn(64, 64)).sum().backward()
            optimizer.step()
            time.sleep(0.001)  # the bound on events is not what ends a recording here
    train(0.3)
    recording = []
    for _ in range(5):
        train(0.03)
        if (child := os.fork()) == 0:
            os._exit(torch.autograd._profiler_enabled())
        recording.append(os.waitpid(child, 0)[1])
    print("a child records:", any(recording))
    with contextlib.ExitStack() as spans:
        for number in range(300):
            spans.enter_context(record_function(f"span {number}"))
            train()
        train(0.1)
        own = profile(activities=[ProfilerActivity.CPU])
        own.start()
        torch.ones(3).mean()
    junk = [torch.randn(10) for _ in range(1_000)]
    own.stop()
    rows = {row.key: row.count for row in own.key_averages()}
    print("its own profile:", rows["aten::mean"], rows["aten::ones"], "aten::addmm" in rows)
"""


def test_a_script_that_trains_forks_keeps_spans_open_and_profiles_itself_is_as_without_us_and_recorded(script, capfd):
    """One program, since importing torch is what it costs. Open spans crashed it where a recording ended and another began."""
    found = profile_script([script(EVERYDAY)], rate=20)
    printed = "a child records: False\nits own profile: 1 1 False\n"
    assert (found.exit_code, capfd.readouterr().out) == (0, printed)
    operators = {row.operator: row for row in found.operators.rows}
    assert {"addmm", "sum"} <= set(operators) and operators["addmm"].calls > 1
    assert sum(row.percent for row in found.operators.rows) == pytest.approx(100)
    assert "addmm" in script_profile.page(found)
    frames = "".join(row.frame for row in frame_shares(found.stacks.work))
    assert "operator_recorder" not in frames, "the recorder's own thread is left out"
    if find_tool("py-spy") and "py-spy" in found.how:
        assert found.stacks.imports.total > 0 and "importlib._bootstrap" not in frames


ENDS = """
    import cProfile, faulthandler, pstats, threading, time
    from pathlib import Path
    import torch
    from hpml_lab.profilers.operator_recorder import OperatorRecorder
    faulthandler.dump_traceback_later(300, exit=True)
    torch.set_num_threads(1)
    net = torch.nn.Linear(2, 2)
    def train(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            net(torch.ones(2)).mean()
            time.sleep(0.001)
    class Within(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            train(0.5)
            return x + 1
    def within():
        train(0.2)
        Within.apply(torch.ones(3))
        torch.ones(2).cumsum(0)
    def small():
        x = net(torch.ones(2))
        for _ in range(60_000):
            x = x * 1.0001 + 0.1
    def traced():
        train(0.2)
        main_thread = threading.main_thread
        def slow():
            time.sleep(0.1)  # longer than a slice: the next call is due
            return main_thread()
        threading.main_thread = slow
        with cProfile.Profile() as own:
            train(0.3)
        threading.main_thread = main_thread
        train(0.2)
        torch.ones(2).cumsum(0)
        names = {name for _, _, name in pstats.Stats(own).stats}
        print("in its profile:", sorted(names & {"forward", "_start", "save"}), threading.active_count())
    for case in (within, small, traced):
        Path(case.__name__).mkdir()
        recorder = OperatorRecorder(Path(case.__name__), 3.0)
        recorder.begin()
        case()
        recorder._end()
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """Scripts during which a recording ends: the operators of each, and what they printed. torch is imported once."""
    folder = tmp_path_factory.mktemp("recorded")
    command = [sys.executable, "-c", textwrap.dedent(ENDS)]
    done = subprocess.run(command, cwd=folder, env=python_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {name: operator_table((folder / name).glob("*.json")) for name in ("within", "small", "traced")}, done.stdout


def test_no_recording_follows_one_that_ended_within_an_operator(recorded):
    operators = {row.operator for row in recorded[0]["within"].rows}
    assert "Within" in operators and "cumsum" not in operators


def test_small_operators_are_bounded_by_their_number(recorded):
    largest = 1.5e6 * SLICE  # so many fit into a slice
    assert 1000 < recorded[0]["small"].events < EVENTS + largest


def test_a_script_that_traces_itself_ends_and_sees_no_recording(recorded):
    """Python 3.11 never came out of a pending call during which another one was asked for, if a tracer was on."""
    tables, printed = recorded
    operators = {row.operator for row in tables["traced"].rows}
    assert printed == "in its profile: ['forward'] 1\n" and "mean" in operators and "cumsum" not in operators


@pytest.mark.environment("py-spy over two processes", files=("hpml_lab/profilers",))
@pytest.mark.skipif(not find_tool("py-spy"), reason="py-spy is not installed")
def test_subprocesses_are_watched_with_the_main_process(script):
    found = profile_script([script("""
        import multiprocessing, time
        def busy(seconds):
            end = time.process_time() + seconds
            while time.process_time() < end:
                pass
        def child():
            busy(0.4)
        def parent():
            busy(0.4)
        if __name__ == "__main__":
            process = multiprocessing.get_context("fork").Process(target=child)
            process.start()
            parent()
            process.join()
    """)], subprocesses=True)  # fmt: skip
    shares = {row.frame.split(" (")[0]: row.total for row in frame_shares(found.stacks.work)}
    assert shares["child"] > 5 and shares["parent"] > 5
    assert len([row for row in found.stacks.threads if row.work > 0.05]) == 2, "two processes, a row each"


def speedscope(*threads):
    """A recording of threads: (name, [stack, …]); a stack is frames from the outermost inwards: (function, file, line)."""
    frames = sorted({frame for _, stacks in threads for stack in stacks for frame in stack})
    return {
        "shared": {"frames": [{"name": name, "file": file, "line": line} for name, file, line in frames]},
        "profiles": [
            {"name": name, "samples": [[*map(frames.index, stack)] for stack in stacks], "weights": [0.01] * len(stacks)}
            for name, stacks in threads
        ],
    }


def test_stacks_begin_in_the_script_and_imports_and_waiting_are_no_work():
    start, recorder = [("_run_code", "<frozen runpy>", 2), ("<module>", "/x/script.py", 8)], operator_recorder.__file__
    hook = ("_Torch.find_spec.<locals>.exec_module", sitecustomize.__file__, 9)
    process = ('process 7:"python script.py"', "", 0)
    wait = ("Condition.wait", "/usr/lib/python3.11/threading.py", 320)
    found = script_stacks(
        speedscope(
            (
                'Process 7 Thread 7 ""',
                [
                    [process, ("main", "<frozen site>", 9), ("_wait", sitecustomize.__file__, 30)],
                    [process, *start, ("work", "/x/script.py", 3)],
                    [process, *start, ("_load", "<frozen importlib._bootstrap>", 1), hook, ("<module>", "/x/t.py", 1)],
                    [process, *start, ("_next_slice", recorder, 5)],
                    [process, *start, wait],
                ],
            ),
            (
                'Process 8 Thread 9 "feeder"',
                [[("run", "/usr/lib/python3.11/threading.py", 3), ("load", "/x/script.py", 5)], [wait]],
            ),
            ("Process 7 Thread 10", [[("_ask_for_slices", recorder, 9)]]),
        )
    )
    assert [(row.thread, row.work, row.waiting, row.imports) for row in found.threads] == [
        ("process 7, MainThread", 0.01, 0.01, 0.01),
        ("process 8, feeder", 0.01, 0.01, 0.0),
    ]
    stacks = {"process 7, MainThread": "<module> (/x/script.py)", "process 8, feeder": "run (threading.py)"}
    assert {name: next(iter(node.children)) for name, node in found.work.children.items()} == stacks
    assert [(row.line, row.total_percent, row.self_percent) for row in found.lines] == [
        ("/x/script.py:8", 50, 0),
        ("/x/script.py:3", 50, 50),
        ("/x/script.py:5", 50, 50),
    ]


def test_a_line_counts_by_itself_with_libraries_but_without_other_own_lines():
    main, layer, library = ("main", "/x/t.py", 9), ("layer", "/x/t.py", 2), ("relu", "/usr/lib/python3.11/nn.py", 7)
    train, backward, score = (("train", "/x/t.py", 4), ("train", "/x/t.py", 5), ("score", "/x/t.py", 7))
    stacks = [[main, train, layer, library], [main, score, layer, library], [main, backward, library], [main, backward]]
    found = script_stacks(speedscope(('Thread 7 "MainThread"', stacks)), 7)
    shares = {int(row.line.rpartition(":")[2]): (row.total_percent, row.own_percent) for row in found.lines}
    assert shares == {9: (100, 0), 5: (50, 50), 2: (50, 50), 4: (25, 0), 7: (25, 0)}


def test_a_script_that_starts_another_by_runpy_is_seen():
    stack = [("<module>", "/x/start.py", 1), ("run_path", "<frozen runpy>", 3), ("step", "/x/train.py", 2)]
    found = script_stacks(speedscope(('Thread 7 "MainThread"', [stack])), 7)
    assert [row.line for row in found.lines] == ["/x/start.py:1", "/x/train.py:2"] and found.threads[0].work == 0.01


def test_a_script_of_a_thousand_frames_has_a_flame_graph_of_its_outermost():
    deep = [("main", "/x/script.py", 1), *[("again", "/x/script.py", 2)] * 2000, ("innermost", "/x/script.py", 3)]
    found = script_stacks(speedscope(('Thread 7 "MainThread"', [deep])), 7)
    assert "again" in flame_svg(found.work) and frame_shares(found.work)
    assert "/x/script.py:3" in {row.line for row in found.lines}, "its lines are all there"


def test_a_sleep_is_waiting_and_a_function_of_that_name_is_not(tmp_path):
    (tmp_path / "nap.py").write_text("time.sleep(3)\nsleepless()\n")
    assert is_waiting(("nap", str(tmp_path / "nap.py"), 1)) and not is_waiting(("nap", str(tmp_path / "nap.py"), 2))


def test_a_recording_that_was_not_written_to_its_end_is_said_to_be_lost(tmp_path):
    (tmp_path / "stacks.json").write_text('{"shared": {"frames": [')
    found = script_profile.ScriptProfile("script.py")
    script_profile._read(tmp_path, 7, found)
    assert any("lost" in note for note in found.notes) and found.speedscope == ""


def test_operators_of_a_gpu_have_its_times_and_a_damaged_trace_is_left_out(tmp_path):
    def call(name, start, duration, number):
        return {"cat": "cpu_op", "name": name, "ts": start, "dur": duration, "tid": 1, "args": {"External id": number}}

    span = {"cat": "Trace", "name": "PyTorch Profiler (0)", "ts": 0, "dur": 2e6}
    calls = [call("aten::linear", 0, 100, 1), call("aten::addmm", 10, 60, 2), call("aten::addmm", 200, 50, 3)]
    kernel = {"cat": "kernel", "name": "gemm", "ts": 30, "dur": 4000, "args": {"External id": 2}}
    (tmp_path / "host.json").write_text(json.dumps({"traceEvents": [span, *calls]}))
    (tmp_path / "device.json").write_text(json.dumps({"traceEvents": [span, *calls, kernel]}))
    (tmp_path / "killed.json").write_text('{"traceEvents": [')
    host = operator_table([tmp_path / "host.json", tmp_path / "killed.json"])
    assert (host.seconds, host.events, host.on_device) == (2.0, 3, False)
    assert [(row.operator, row.calls, row.self_ms, row.total_ms) for row in host.rows] == [
        ("addmm", 2, 0.11, 0.11),
        ("linear", 1, 0.04, 0.1),
    ]
    device = operator_table([tmp_path / "device.json"])
    assert device.on_device and [(row.operator, row.self_ms, row.total_ms) for row in device.rows] == [
        ("addmm", 4.0, 4.0),
        ("linear", 0.0, 4.0),
    ]


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
