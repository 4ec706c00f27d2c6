"""`hpml-lab run` and others: everything is checked first, what is finished is kept, and one failure stops nothing else."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass

import psutil
import pytest

from hpml_lab import cli
from hpml_lab.cli.shared import INTERRUPTED
from hpml_lab.core.experiment import Result, Row, Table, catalogue, column, registry
from hpml_lab.core.experiment.registry import load_result
from hpml_lab.core.show import style
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import ROOT

RAN = []


def draw_line(result):
    """A line of the measured values."""
    figure = style.new_figure(3, 2)
    figure.subplots().plot(result.arrays["values"])
    return figure


@dataclass
class NamedNumber(Row):
    n: int = column("n")


def plain(params):
    """A plain experiment."""
    RAN.append((params.size, str(params.device)))
    result = Result([Table("Numbers", [NamedNumber(1)])], arrays={"values": [1, 2]})
    result.key_figure("speed", 2.5, "GB/s", lecture="77")
    result.claim("One is one", True)
    result.measured("It is fast here", False, "slow")
    return result


def failing(params):
    """Its exact claim fails."""
    result = Result()
    result.claim("Two is one", False)
    return result


def crashing(params):
    """It crashes."""
    raise ZeroDivisionError("on purpose")


def refusing(params):
    """It names what is wrong."""
    raise LabError("its data are not here.", "Fetch them.")


def undrawable(params):
    """Its figure cannot be drawn."""
    return Result([Table("Numbers", [NamedNumber(1)])])


def breaking(params):
    """A pipe of its own breaks."""
    raise BrokenPipeError


def interrupting(params):
    """Ctrl-C comes while it runs."""
    raise KeyboardInterrupt


@pytest.fixture(autouse=True)
def experiments(own_experiments):
    """A registry with experiments of its own instead of the workbook's."""
    for function in (plain, failing, crashing, breaking, refusing, undrawable, interrupting):
        draw = draw_line if function in (plain, undrawable) else None
        registry.experiment(function.__name__, lecture="L9", notebook="99_test", draw=draw)(function)
    RAN.clear()


@pytest.fixture
def hpml(tmp_path, capsys):
    """Run the command in this process: exit code, stdout, stderr. Results go to `tmp_path`/out."""

    def run(*arguments):
        code = cli.main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


def run(hpml, out, *arguments):
    return hpml("run", *arguments, "--out", str(out), "--device", "cpu")


def test_it_prints_table_figures_and_claims_and_saves_json_and_png(hpml, out):
    code, said, progress = run(hpml, out, "plain")
    assert code == 0, "a measured claim that does not hold is no failure"
    assert "plain: A plain experiment" in said and "quick on cpu" in said
    assert "77" in said and "2.5" in said, "the lecture's figure next to this run's"
    assert "holds: One is one" in said and "does not hold here: It is fast here [slow] (depends on the machine)" in said
    assert "[1/1] plain, quick on cpu" in progress and "1 of 1 finished" in progress
    assert sorted(path.name for path in out.iterdir()) == ["plain.json", "plain.png"]
    assert (out / "plain.png").read_bytes().startswith(b"\x89PNG")
    assert load_result(out / "plain.json").here("speed") == 2.5


def test_an_older_picture_does_not_stay_next_to_a_newer_result(hpml, out):
    out.mkdir()
    (out / "undrawable.png").write_bytes(b"of an older run")
    run(hpml, out, "undrawable")
    assert sorted(path.name for path in out.iterdir()) == ["undrawable.json"]


def test_without_a_folder_results_are_kept_where_notebooks_keep_theirs(hpml, out, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HPML_RESULTS", str(out))
    code, _, progress = hpml("run", "plain", "--device", "cpu")
    assert code == 0 and f"hpml-lab report {out}" in progress
    assert sorted(path.name for path in out.iterdir()) == ["plain.json", "plain.png"]
    monkeypatch.setenv("HPML_RESULTS", "")
    code, said, progress = hpml("run", "plain", "--device", "cpu")
    assert code == 0 and "plain: A plain experiment" in said and "not saved, because HPML_RESULTS is empty" in progress
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "and nothing is written into the current folder"


def test_a_quick_run_does_not_replace_one_at_full_size_nor_its_picture(hpml, out):
    run(hpml, out, "plain", "--size", "full")
    (out / "plain.png").write_bytes(b"at full size")
    code, said, progress = run(hpml, out, "plain", "undrawable")
    assert code == 1 and "quick on cpu" in said and "plain: " in progress and "this one was not saved" in progress
    assert load_result(out / "plain.json").size == "full" and (out / "plain.png").read_bytes() == b"at full size"
    run(hpml, out, "plain", "--size", "full")
    assert (out / "plain.png").read_bytes().startswith(b"\x89PNG")


def test_several_run_in_order_each_once_and_full_is_full(hpml, out):
    _, _, progress = run(hpml, out, "plain", "failing", "plain", "--size", "full")
    assert "[1/2] plain, full on cpu" in progress and "[2/2] failing, full on cpu" in progress
    assert RAN == [("full", "cpu")]
    assert load_result(out / "failing.json").size == "full"


def test_all_runs_every_experiment(hpml, out, monkeypatch):
    for name in ("crashing", "breaking", "refusing", "undrawable", "interrupting"):
        del registry._REGISTRY[name]
    _, _, progress = run(hpml, out, "all")
    assert "2 of 2 finished" in progress


def test_an_exact_claim_that_fails_is_an_exit_code_of_1_at_the_end(hpml, out):
    code, said, progress = run(hpml, out, "failing", "plain")
    assert code == 1
    assert "FAILS: Two is one" in said and "an exact claim FAILS in failing" in progress
    assert (out / "plain.json").is_file(), "the next experiment ran all the same"


def test_a_crash_is_reported_and_the_others_run(hpml, out):
    code, _, progress = run(hpml, out, "crashing", "breaking", "refusing", "plain")
    assert code == 1
    assert "ZeroDivisionError: on purpose" in progress and "crashing crashed" in progress and "breaking crashed" in progress
    assert "hpml-lab: refusing: its data are not here.\n  Fetch them." in progress
    assert "1 of 4 finished" in progress and "not finished: crashing, breaking, refusing" in progress
    assert sorted(path.name for path in out.iterdir()) == ["plain.json", "plain.png"]


def test_a_figure_that_cannot_be_drawn_does_not_lose_the_numbers(hpml, out):
    code, said, progress = run(hpml, out, "undrawable")
    assert code == 1 and "undrawable: Its figure" in said and "KeyError: 'values'" in progress
    assert [path.name for path in out.iterdir()] == ["undrawable.json"]


def test_ctrl_c_keeps_what_is_finished_and_says_so(hpml, out):
    code, _, progress = run(hpml, out, "plain", "interrupting", "failing")
    assert code == INTERRUPTED
    assert f"interrupted. Kept in {out}: plain.\n  Not run: interrupting, failing." in progress
    assert sorted(path.name for path in out.iterdir()) == ["plain.json", "plain.png"]
    code, _, progress = run(hpml, out, "interrupting")
    assert code == INTERRUPTED and "Nothing had finished yet" in progress


def test_a_full_disk_shows_the_table_keeps_the_old_file_and_fails(hpml, out, monkeypatch):
    run(hpml, out, "plain")
    before = (out / "plain.json").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hpml_lab.core.system.files.os.fsync", full)
    code, said, progress = run(hpml, out, "plain")
    assert code == 1 and "holds: One is one" in said
    assert "No space left on device" in progress and "Free some space" in progress
    assert (out / "plain.json").read_bytes() == before
    assert sorted(path.name for path in out.iterdir()) == ["plain.json", "plain.png"]


@pytest.mark.parametrize(
    "arguments, problem, fix",
    [
        (["plain", "plian"], "no experiment is called 'plian'.", "Did you mean plain"),
        (["all", "plian"], "no experiment is called 'plian'.", "Did you mean plain"),
        (["plain", "zzzzzz"], "no experiment is called 'zzzzzz'.", "`hpml-lab list` shows them all."),
        (["plain", "--size", "fast"], "'fast' is not a valid size.", "Use quick or full."),
        (["plain", "--device", "gpu"], "'gpu' is not a valid device.", "Use cpu, cuda, or cuda:N."),
        (["plain", "--device", "cuda:99"], "'cuda:99' was asked for", "hpml-lab doctor"),
        (["plain", "--out", "FILE/out"], "no file can be written into", "--out"),
        (["plain", "--out", "a\0b"], "no file can be written into", "--out"),
    ],
)
def test_wrong_input_is_reported_before_anything_runs(hpml, tmp_path, arguments, problem, fix):
    (tmp_path / "file").write_text("in the way")
    arguments = [argument.replace("FILE", str(tmp_path / "file")) for argument in arguments]
    if "--out" not in arguments:
        arguments += ["--out", str(tmp_path / "out")]
    code, said, progress = hpml("run", *arguments)
    assert (code, said, RAN) == (2, "", [])
    assert progress.startswith(f"hpml-lab: {problem}") and fix in progress.splitlines()[1]
    assert "Traceback" not in progress


@pytest.mark.parametrize(
    "variables", [{"RANK": "1"}, {"RANK": "abc"}, {"RANK": "-1"}, {"RANK": "2", "WORLD_SIZE": "2"}], ids=str
)
def test_a_rank_that_no_launcher_gave_is_reported_before_anything_runs(hpml, out, monkeypatch, variables):
    """As an earlier launch may leave it in the environment: nothing would be printed or saved."""
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code, said, why = run(hpml, out, "plain")
    assert code == 2 and RAN == [] and "RANK" in why and "start ranks with torchrun" in why


def test_of_several_ranks_the_first_prints_and_saves(hpml, out, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert run(hpml, out, "plain")[:2] == (0, "") and len(RAN) == 1 and not list(out.iterdir())
    monkeypatch.setenv("RANK", "0")
    assert "One is one" in run(hpml, out, "plain")[1] and (out / "plain.json").is_file()


def test_a_damaged_recorded_run_is_a_note_and_no_crash(hpml, out, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "REFERENCE", tmp_path)
    (tmp_path / "plain.json").write_text("<<<<<<< HEAD")
    code, said, _ = run(hpml, out, "plain")
    assert code == 0 and "Note: The recorded run cannot be shown: " in said and "2.5" in said
    assert (out / "plain.png").is_file()


def test_a_wrong_device_in_the_environment_is_reported_before_anything_runs(hpml, out, monkeypatch):
    monkeypatch.setenv("HPML_DEVICE", "tpu")
    code, _, progress = hpml("run", "plain", "--out", str(out))
    assert code == 2 and "'tpu' is not a valid device" in progress and RAN == []


def test_an_old_torch_is_reported_before_anything_runs(hpml, out, monkeypatch):
    monkeypatch.setattr(machine, "installed_version", {"torch": "2.10.1"}.get)
    code, _, progress = run(hpml, out, "plain")
    assert code == 2 and RAN == []
    assert progress == (
        "hpml-lab: PyTorch 2.10.1 is too old: the workbook needs 2.11 or newer.\n"
        "  pip install --upgrade 'torch>=2.11' torchvision\n"
    )


def test_a_registry_that_does_not_load_sends_to_the_doctor(hpml, monkeypatch):
    def broken(slug):
        raise ImportError("libgomp.so.1: cannot open shared object file")

    monkeypatch.setattr(registry, "find", broken)
    code, _, progress = hpml("run", "plain")
    assert code == 2 and "libgomp" in progress and "hpml-lab doctor" in progress


def test_a_topic_that_does_not_load_is_reported(hpml, monkeypatch):
    monkeypatch.setattr(registry, "import_topics", lambda part: {"loading": "ModuleNotFoundError: No module named 'fcntl'"})
    code, _, progress = hpml("run", "all", "--device", "gpu")
    assert code == 2 and "the experiments of loading do not load here (ModuleNotFoundError" in progress


def test_an_experiment_that_does_not_load_is_reported_and_no_other_is_loaded(hpml, monkeypatch):
    module = "hpml_lab.loading.experiments.num_workers"
    monkeypatch.setattr(catalogue, "catalogue", lambda: [catalogue.Listed("num-workers", "08_loading", "L0", "Title", module)])
    monkeypatch.setitem(sys.modules, module, None)
    code, _, progress = hpml("run", "num-workers")
    assert code == 2 and f"{module} does not load here (ModuleNotFoundError" in progress and "hpml-lab doctor" in progress


def test_without_a_command_it_shows_its_help(hpml):
    code, said, _ = hpml()
    assert code == 2 and "run experiments" in said


@pytest.mark.parametrize("arguments", [["run"], ["rnu", "plain"], ["report", "--page"], ["data"], ["run", "plain", "--sizes"]])
def test_an_unknown_command_is_an_exit_code_of_2(hpml, arguments):
    with pytest.raises(SystemExit) as caught:
        hpml(*arguments)
    assert caught.value.code == 2


@pytest.mark.parametrize("arguments, named", [(["rnu"], "argument COMMAND: invalid"), (["data"], "required: ACTION")])
def test_the_error_names_what_was_wrong(hpml, capsys, arguments, named):
    with pytest.raises(SystemExit):
        hpml(*arguments)
    assert named in capsys.readouterr().err


def test_doctor_passes_its_verdict_on(hpml, monkeypatch):
    from hpml_lab.start.tools import doctor

    monkeypatch.setattr(doctor, "examine", lambda: doctor.Report([doctor.Finding("python", "ok", "3")], []))
    monkeypatch.setattr(doctor, "ESSENTIAL", ("python",))
    code, said, _ = hpml("doctor", "--json")
    assert code == 0 and json.loads(said)["ready"] is True
    monkeypatch.setattr(doctor, "examine", lambda: doctor.Report([doctor.Finding("python", "missing", "2")], []))
    code, said, _ = hpml("doctor")
    assert code == 1 and "Not ready" in said
    monkeypatch.setenv("COLUMNS", "20")
    means = "Nothing works with this one, which is too old."
    monkeypatch.setattr(doctor, "examine", lambda: doctor.Report([doctor.Finding("python", "missing", "2", means)], []))
    assert "Nothing works with this one" in hpml("doctor")[1], "in a narrow terminal, too, words stay whole"


def test_data_fetch_says_where_it_lies_and_names_what_cannot_be_fetched(hpml, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr("hpml_lab.data.fetch.fetch_mnist", lambda to: asked.append(to) or tmp_path / "MNIST" / "raw")
    code, said, _ = hpml("data", "fetch", "mnist", "--to", str(tmp_path))
    assert code == 0 and asked == [tmp_path] and str(tmp_path / "MNIST" / "raw") in said
    code, _, progress = hpml("data", "fetch", "cifar")
    assert code == 2 and "'cifar'" in progress and "mnist" in progress


def test_data_fetch_without_network_is_an_error_in_two_lines(hpml, tmp_path, monkeypatch):
    from torchvision.datasets import MNIST

    monkeypatch.setattr(MNIST, "mirrors", ["http://127.0.0.1:9/"])  # the discard port: nothing listens
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    code, _, progress = hpml("data", "fetch", "mnist", "--to", str(tmp_path))
    assert code == 2 and len(progress.splitlines()) == 2
    assert "not reached" in progress and "goes on where it stopped" in progress


def test_an_interrupted_fetch_says_that_it_can_go_on(hpml, monkeypatch):
    def interrupted(to):
        raise KeyboardInterrupt

    monkeypatch.setattr("hpml_lab.data.fetch.fetch_mnist", interrupted)
    code, _, progress = hpml("data", "fetch", "mnist")
    assert code == INTERRUPTED and "Run the same command again" in progress


# ---- in a process of its own ----------------------------------------------------------------------------------------

OWN = """
import sys, time
from hpml_lab import cli
from hpml_lab.core.experiment import catalogue, registry
from hpml_lab.core.experiment.result import Result
registry.import_topics = lambda part: {}  # only the two experiments here: it starts faster
catalogue.listed = lambda slug, registered=(): None

@registry.experiment("short", lecture="L0", notebook="99_test")
def short(params):
    '''Ends at once – and has a dash.'''
    return Result([])

@registry.experiment("long", lecture="L0", notebook="99_test")
def long(params):
    '''Never ends.'''
    print('long has begun', file=sys.stderr, flush=True)
    while True:
        time.sleep(0.05)

sys.exit(cli.main())
"""


@pytest.mark.environment("an interpreter and a Ctrl-C", files=("hpml_lab/cli/run.py", "hpml_lab/cli/__init__.py"))
def test_a_real_ctrl_c_ends_a_run_by_the_signal_and_keeps_what_was_finished(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", OWN, "run", "short", "long", "--device", "cpu", "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stderr:
        if line == "long has begun\n":  # not before: a signal inside a library's start is the library's to lose
            break
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT, "a shell ends its loop"
    assert "Kept in" in said and "Not run: long" in said and "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir()] == ["short.json"]


def test_help_is_there_before_torch_is_loaded():
    code = "import sys, hpml_lab.cli as c\ntry: c.main(['--help'])\nexcept SystemExit: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.rstrip().endswith("False")


@pytest.fixture
def in_shell():
    """(shell command with LIST in it) -> the finished shell, in a terminal without UTF-8."""
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUNBUFFERED": ""}  # buffered, as in a student's shell
    environment["PYTHONPATH"] = str(ROOT)

    def run(command):
        command = command.replace("LIST", f"{sys.executable} -m hpml_lab list")
        return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=environment)

    return run


def test_a_reader_that_goes_away_and_a_terminal_without_utf8_are_no_errors(in_shell):
    done = in_shell("LIST | true; echo ${PIPESTATUS[0]}; LIST")
    assert done.stderr == ""
    assert done.stdout.splitlines()[0] == "0"
    assert done.stdout.isascii() and "zero-grad" in done.stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's device that is always full")
def test_an_output_that_is_full_is_one_line_and_one_that_is_closed_is_no_error(in_shell):
    done = in_shell("LIST > /dev/full; echo $?; LIST >&-; echo $?")
    assert done.stderr == "hpml-lab: the output could not be written (No space left on device).\n"
    assert done.stdout.split() == ["1", "0"]


def test_python_m_hpml_lab_is_the_same_command(tmp_path):
    done = subprocess.run([sys.executable, "-m", "hpml_lab", "--version"], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, f"hpml-lab {machine.version()}\n")


STARTS = """
import sys
from hpml_lab import cli
from hpml_lab.core.system.programs import started

def wait(chosen):
    with started([sys.executable, "-c", "import time; time.sleep(1000)"]) as program:
        print(program.pid, flush=True)
        program.wait()

cli.progress.add_parser = lambda commands: commands.add_parser("progress").set_defaults(command=wait)
cli.main(["progress"])
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_signal_that_ends_a_command_ends_what_it_has_started(name):
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE, text=True) as command:
        child = psutil.Process(int(command.stdout.readline()))
        command.send_signal(getattr(signal, name))
        assert command.wait() == 128 + getattr(signal, name)
    child.wait()
