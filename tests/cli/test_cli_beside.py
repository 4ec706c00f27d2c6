"""The program's exit code, signals and files are the program's, whatever fails of ours beside it or after it: three tools."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
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
from hpml_lab.profilers.foreground import in_foreground, wait_with_usage
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
        (monitor, "CpuEnergy"),
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
        assert all(line.startswith("hpml-lab: ") for line in printed.err.splitlines())


@pytest.mark.parametrize(("tool", "step"), [("monitor", STEPS["monitor"][-4]), ("bottleneck", STEPS["bottleneck"][-3])])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_comes_after_the_program_ends_what_is_ours_and_not_the_exit_code(tool, step, number, monkeypatch, capfd):
    def asked_to_end(*_, **__):
        os.kill(os.getpid(), signal.SIGUSR1)  # it was for the program, which is gone
        os.kill(os.getpid(), number)
        time.sleep(60)

    monkeypatch.setattr(*step, asked_to_end)
    assert main([*TOOLS[tool], *SHORT]) == 7
    assert capfd.readouterr().err.splitlines()[-1].endswith("(interrupted).")


STATE = """
    import os, signal, sys
    print([line for line in open("/proc/self/status") if line.startswith(("SigBlk", "SigIgn"))])
    for file in sorted(os.listdir("/proc/self/fd")):
        if int(file) > 2 and os.path.exists(f"/proc/self/fd/{file}"):
            print(file, os.readlink(f"/proc/self/fd/{file}").partition(":")[0])
    print(os.umask(0), repr(signal.getsignal(signal.SIGCHLD)), os.nice(0), os.getcwd(), os.getpgrp() == os.getpid())
    print(open(sys.argv[1]).read())
    sys.exit(7)
"""


@pytest.mark.parametrize("tool", TOOLS)
def test_a_program_has_the_files_the_ignored_signals_and_the_rest_that_it_would_have_without_us(tool):
    """What a shell hands over: `<(…)`, a lock, a umask, and ignored signals, of which CHLD would hide the exit code from us."""
    ours, seen = [sys.executable, "-m", "hpml_lab", *words(tool, STATE)], []
    for command in ([sys.executable, "job.py"], ours):
        script = f"trap '' HUP USR1 CHLD; umask 027; exec 9>lock 7<job.py; exec nice -n 2 {' '.join(command)} <(echo given)"
        done = subprocess.run(["bash", "-c", script], env=python_environment(), capture_output=True, text=True, timeout=300)
        assert done.returncode == 7, done.stderr
        seen.append(done.stdout)
    assert seen[0] == seen[1] and "given" in seen[0] and "pipe" in seen[0] and "Handlers.SIG_IGN" in seen[0]


LISTENS = """
    import os, signal, sys
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals() - STOPS)
    os.write(1, b"ready\\n")
    while (number := signal.sigwait(signal.valid_signals() - STOPS)) != signal.SIGUSR2:
        os.write(1, f"{int(number)}\\n".encode())
    sys.exit(7)
"""
STOPS = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
OF_OTHERS = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGUSR2}
FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}


@pytest.mark.parametrize(("tool", "begins"), [(tool, "") for tool in TOOLS] + [("monitor", "trap '' INT QUIT HUP TERM")])
def test_every_signal_reaches_the_program_and_the_tool_ends_with_its_exit_code(tool, begins):
    """Also those that the tool ignores from its start, as in the background of a shell: a program may listen to them."""
    source = LISTENS.replace("STOPS", str({int(number) for number in STOPS}))
    command = ["sh", "-c", f'{begins}; exec "$@"' if begins else 'exec "$@"', "sh"]
    command += [sys.executable, "-m", "hpml_lab", *words(tool, source)]
    # In a group of its own, but in this session: nobody could continue one that stops in a session of its own.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=python_environment(), process_group=0) as process:
        timer = threading.Timer(120, os.killpg, (process.pid, signal.SIGKILL))
        timer.start()
        assert process.stdout.readline() == "ready\n"
        program = next(child for child in psutil.Process(process.pid).children() if "job.py" in child.cmdline())
        for number in sorted(signal.valid_signals() - OF_OTHERS - FAULTS - STOPS):
            process.send_signal(number)
            assert process.stdout.readline() == f"{int(number)}\n"
        for number in STOPS if not begins else ():
            process.send_signal(number)
            while {psutil.Process(process.pid).status(), program.status()} != {psutil.STATUS_STOPPED}:
                time.sleep(0.02)
            process.send_signal(signal.SIGCONT)
            assert process.stdout.readline() == f"{int(signal.SIGCONT)}\n"
        process.send_signal(signal.SIGUSR2)
        process.wait()
        timer.cancel()
    assert process.returncode == 7 and list(Path("out").iterdir()), "and what was seen is written"


def test_a_signal_that_another_thread_takes_is_passed_on_while_the_tool_waits(tmp_path):
    """The system chooses the thread. Python's handlers run in the main one, which a signal to another does not wake."""
    source = (
        "import pathlib, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1});"
        "pathlib.Path(sys.argv[1]).touch(); signal.sigwait({signal.SIGUSR1}); sys.exit(7)"
    )

    def take_one():
        while not (tmp_path / "ready").exists():
            time.sleep(0.02)
        time.sleep(0.2)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    with in_foreground([sys.executable, "-c", source, str(tmp_path / "ready")]) as process:
        late = threading.Timer(60, process.kill)
        for thread in (late, threading.Thread(target=take_one)):
            thread.start()
        code = wait_with_usage(process)[0]
        late.cancel()
    assert code == 7
    assert wait_with_usage(process) == (7, None), "where its end was seen before, what it used is not known"


HOSTILE = "import os, shutil, sys; shutil.rmtree(os.getcwd()); sys.exit(7)"


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize(
    ("source", "end", "variables"),
    [
        (
            "import sys; print(end='done'); sys.exit(7)",
            "$'caf\\xe9' 数据 😀 $'\\x1b' 2>said",
            {"PYTHONWARNINGS": "error", "PYTHONOPTIMIZE": "2"},
        ),
        ("import shutil, sys; shutil.rmtree('out'); open('out', 'w'); sys.exit(7)", "2>&-", {}),
        (HOSTILE, ">&- 2>/dev/full", {"MPLBACKEND": "none such", "PYTHONDEVMODE": "1"}),
        (
            "import sys; print(end='done'); sys.exit(7)",
            "2>said",
            {"HOME": "/proc/none", "MPLCONFIGDIR": "", "XDG_CONFIG_HOME": "", "XDG_CACHE_HOME": ""},
        ),
    ],
    ids=["names", "results-folder", "current-folder", "home"],
)
def test_in_a_hostile_place_the_exit_code_is_the_programs(tool, source, end, variables):
    for name in ("statistics", "psutil", "jinja2", "matplotlib"):  # modules of the user's own, which the tool is not to import
        Path(f"{name}.py").write_text("1 / 0")
    command = " ".join([sys.executable, "-m", "hpml_lab", *words(tool, source), end])
    variables = python_environment(variables)
    done = subprocess.run(["bash", "-c", command], env=variables, capture_output=True, text=True, timeout=300)
    assert done.returncode == 7
    if Path("said").exists():
        said = Path("said").read_text(errors="replace")
        assert done.stdout == "done" and "Warning" not in said and "incomplete" not in said and "no picture" not in said
        assert all(line.startswith("hpml-lab: ") for line in said.splitlines())
        assert len(list(Path("out").iterdir())) == {"monitor": 2, "profile": 2, "bottleneck": 1}[tool]


# ---- `with Monitor():` in the reader's own code ---------------------------------------------------------------------------

FIGURES = {
    "cpu_times": lambda sample: sample.cores[0],
    "virtual_memory": lambda sample: sample.memory,
    "disk_io_counters": lambda sample: sample.disk_read,
    "Process": lambda sample: sample.rss,
}


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("meanwhile", [False, True])
def test_a_figure_that_the_system_does_not_give_is_none_with_one_note(name, meanwhile, monkeypatch, tmp_path):
    if not meanwhile:
        monkeypatch.setattr(psutil, name, fails_with(ValueError("not sure how to interpret line")))
    with Monitor(rate=100, path=tmp_path / "run.csv") as watched:
        time.sleep(0.03)
        monkeypatch.setattr(psutil, name, fails_with(PermissionError(13, "Permission denied")))
        seen = len(watched.samples)
        while len(watched.samples) < seen + 3:
            time.sleep(0.01)
    last = watched.samples[-1]
    assert (FIGURES[name](last) if last.cores else None) is None
    assert sum(figure(last) is None for figure in list(FIGURES.values())[1:]) <= 1 and last.process_cpu is not None
    assert watched.note.count("is not read (") + watched.note.count("are not read (") == 1
    assert read_csv(tmp_path / "run.csv") == watched.rows
    monitor_picture.monitored_run(watched.samples)
    assert "finished" in monitor._picture(watched, monitor.FINISHED)["text/html"]


def test_a_core_that_is_switched_off_leaves_the_columns_and_what_was_missed_comes_with_the_next_reading(monkeypatch):
    cores = psutil.cpu_times(percpu=True)
    readings = [cores, cores[:-1], [core._replace(idle=core.idle, user=core.user + 1.0) for core in cores]]
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: readings.pop(0) if len(readings) > 1 else readings[0])
    watched = Monitor(rate=0.001)
    with watched:
        watched._sample()
        watched._sample()
    assert [sample.cores for sample in watched.samples[:2]] == [(None,) * len(cores), (100.0,) * len(cores)]
    assert "there were" in watched.note and "cores" in watched.note


def test_a_disk_that_is_full_for_a_while_costs_no_sample(monkeypatch, tmp_path):
    real, full = monitor.SampleFile.add, []

    def add(self, sample, first):
        if len(full) == 0:
            full.append(self._file.close())  # the next write fails
        real(self, sample, first)

    monkeypatch.setattr(monitor.SampleFile, "add", add)
    with Monitor(rate=100, path=tmp_path / "run.csv") as watched:
        time.sleep(0.05)
    assert len(watched.samples) >= 2 and read_csv(tmp_path / "run.csv") == watched.rows and watched.written


@pytest.mark.parametrize("path", ["no/such/folder/run.csv", "/dev/full", "a folder", "nul\0"])
def test_where_the_table_cannot_be_written_the_samples_are_in_memory(path):
    Path("a folder").mkdir()
    Path("no").touch()  # so that no folder of this name can be made
    with Monitor(rate=100, path=path) as watched:
        result = 7
    assert result == 7 and watched.samples and not watched.written and f"The samples are not in {path}" in watched.note


def test_a_driver_that_does_not_answer_does_not_keep_the_block_from_its_end(monkeypatch):
    answers = threading.Event()
    monkeypatch.setattr(monitor, "END_SECONDS", 0.1)
    monkeypatch.setattr(psutil, "virtual_memory", answers.wait)
    with Monitor(rate=100) as watched:
        pass
    assert "The samples end early" in watched.note and watched.samples == []
    answers.set()


@pytest.mark.parametrize(
    "arguments",
    [{"rate": "5"}, {"rate": float("inf")}, {"rate": None}, {"process_id": -1}, {"process_id": "init"}, {"path": 3}],
    ids=str,
)
def test_wrong_arguments_are_named_before_the_block(arguments):
    with pytest.raises(LabError, match="is not"):
        Monitor(**arguments)


def test_a_process_that_is_gone_or_is_another_users_has_no_figures():
    with subprocess.Popen(["true"]) as process:
        process.wait()
    with Monitor(rate=100, process_id=process.pid) as watched:
        pass
    assert watched.samples[-1].process_cpu is None and watched.samples[-1].memory > 0 and "not watched" in watched.note


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "first line"),
        (b"time, use\n1, 2\n", "first line"),
        (b"timestamp, disk.read [B]\nnow, many\n", "line 2"),
        (b"timestamp, disk.read [B]\nnow, 1 B, 2 B\nnow, 1 B\n", "line 2"),
        (b"timestamp, disk.read [B]\nnow, 1 B\nnow\nnow, 1 B\n", "line 3"),
        (b"timestamp\n\xff\xfe\n", "UTF-8|utf-8"),
        (b'timestamp, disk.read [B]\n"now, 1 B\n', "unexpected end of data"),
        (b"timestamp\n" + b"x" * 200_000 + b"\n", "field larger"),
    ],
)
def test_a_table_that_is_damaged_is_named_with_its_line(content, problem, tmp_path):
    (tmp_path / "run.csv").write_bytes(content)
    with pytest.raises(LabError, match=problem) as raised:
        read_csv(tmp_path / "run.csv")
    assert "run.csv" in raised.value.problem


def test_a_table_that_was_cut_off_has_its_whole_lines_and_a_pipe_or_no_file_is_named(tmp_path):
    (tmp_path / "run.csv").write_text("timestamp, disk.read [B], disk.written [B]\nnow, 1 B, 2 B\nthen, 3")
    assert read_csv(tmp_path / "run.csv") == [{"timestamp": "now", "disk.read [B]": 1, "disk.written [B]": 2}]
    os.mkfifo(tmp_path / "pipe")
    for name, problem in {"pipe": "is a pipe", "none": "is not there", ".": "is a folder"}.items():
        with pytest.raises(LabError, match=problem):
            read_csv(tmp_path / name)


def test_what_is_said_is_one_line_whatever_an_error_says_and_a_closed_stderr_is_no_error(monkeypatch):
    class Mute(Exception):
        def __str__(self):
            raise ValueError("no text")

    notes = Notes("first.", "")
    for error in (Mute(), ValueError("again")):
        assert notes.ask("A figure is missing", fails_with(error)) is None
    assert str(notes) == "first. A figure is missing (Mute)."
    assert cause_of(LabError("of two\nlines \udce9.", "")) == "of two lines ?"
    monkeypatch.setattr(sys, "stderr", open(os.devnull))  # not to be written
    say("nobody hears it")


def test_a_command_that_cannot_be_started_leaves_the_handlers_as_they_were():
    before = [signal.getsignal(number) for number in signal.valid_signals()]
    with pytest.raises(LabError, match="cannot be started"), in_foreground(["./no such program"]):
        pass
    assert [signal.getsignal(number) for number in signal.valid_signals()] == before


def test_a_process_that_dies_after_a_command_still_says_where_it_was():
    """faulthandler's own handler was taken away: a rank that gloo aborted had no line any more."""
    code = "import os\nfrom hpml_lab.profilers.foreground import in_foreground\nwith in_foreground(['true']): pass\nos.abort()"
    done = subprocess.run([sys.executable, "-X", "faulthandler", "-c", code], capture_output=True, text=True)
    assert done.returncode == -signal.SIGABRT and 'File "<string>", line 4 in <module>' in done.stderr


def test_a_script_without_a_first_line_for_an_interpreter_runs_as_a_shell_runs_it():
    Path("script").write_text('[ "$*" = "a b" ] && exit 7\n')
    Path("script").chmod(0o755)
    with in_foreground(["./script", "a", "b"]) as process:
        assert process.wait() == 7


def test_where_no_folder_takes_temporary_files_profile_says_so_before_it_starts(monkeypatch, capfd):
    with monkeypatch.context() as patched:
        patched.setattr("tempfile.gettempdir", fails_with(FileNotFoundError(2, "No usable temporary directory")))
        assert main(words("profile", "open('ran', 'w')")) == 2 and "TMPDIR" in capfd.readouterr().err
    assert not Path("ran").exists()
