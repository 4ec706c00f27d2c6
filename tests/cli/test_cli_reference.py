"""`hpml-lab reference`: each experiment in its own interpreter, failures named and survived, resumed, written only if sound.

The experiments live in a topic of their own, which every interpreter finds through `sitecustomize`. An interpreter needs
seconds to import torch: where nothing depends on that, experiments run in forks of this process instead.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
import traceback
import types
from pathlib import Path

import pytest
import torch

from hpml_lab import cli, references
from hpml_lab.cli.reference import duration
from hpml_lab.cli.shared import INTERRUPTED
from hpml_lab.core.experiment import Result, registry
from hpml_lab.core.experiment.registry import all_experiments, find
from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import ROOT
from hpml_lab.core.system.programs import Finished
from hpml_lab.core.system.sealed import DIGEST, unsealed_record
from hpml_lab.references import MOST_TELLING, Outcome, by_value, device_and_machine, is_recorded, page, run_cuda_tests

EXPERIMENTS = '''
"""Experiments that end in every way."""
import multiprocessing, os, sys, time
from pathlib import Path
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.experiment.registry import experiment
from hpml_lab.core.experiment.result import Result
from hpml_lab.core.show import style

def draw(result):
    """A line."""
    figure = style.new_figure(3, 2)
    figure.subplots().plot(result.arrays["values"])
    return figure

def made(holds=True, count=3):
    result = Result(arrays={"values": list(range(count))})
    result.claim("One is one", holds, "seen")
    return result

@experiment("demo-one", lecture="L9", notebook="99_demo", draw=draw)
def demo_one(params):
    """The first small experiment."""
    Path(os.environ["DEMO_RUNS"]).open("a").write("one\\n")
    return made()

@experiment("demo-two", lecture="L9", notebook="99_demo", draw=draw, uses=("cuda",))
def demo_two(params):
    """The second small experiment."""
    return made()

@experiment("demo-spawn", lecture="L9", notebook="99_demo")
def demo_spawn(params):
    """It spawns a process, which should not import what runs the experiment, and with it torch."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return made(holds=not pool.apply(eval, ("'torch' in __import__('sys').modules",)))

@experiment("demo-wrong", lecture="L9", notebook="99_demo")
def demo_wrong(params):
    """Its exact claim fails."""
    return made(holds=os.environ.get("DEMO_MENDED") == "1")

@experiment("demo-crash", lecture="L9", notebook="99_demo")
def demo_crash(params):
    """It crashes."""
    raise ZeroDivisionError("on purpose")

@experiment("demo-exit", lecture="L9", notebook="99_demo")
def demo_exit(params):
    """Its interpreter dies."""
    os._exit(7)

@experiment("demo-hang", lecture="L9", notebook="99_demo")
def demo_hang(params):
    """It does not end."""
    Path(os.environ["DEMO_RUNS"]).open("a").write("hang\\n")
    time.sleep(600)

@experiment("demo-refuse", lecture="L9", notebook="99_demo")
def demo_refuse(params):
    """Its program is missing."""
    raise LabError("the program perf is not here.", "Install it.")

@experiment("demo-package", lecture="L9", notebook="99_demo")
def demo_package(params):
    """Its package is missing."""
    import a_package_that_nobody_has

@experiment("demo-undrawable", lecture="L9", notebook="99_demo", draw=draw)
def demo_undrawable(params):
    """Its figure cannot be drawn."""
    return Result()

@experiment("demo-large", lecture="L9", notebook="99_demo")
def demo_large(params):
    """Its curves are not thinned."""
    return made(count=200_000)
'''


@pytest.fixture
def demo(tmp_path, monkeypatch):
    """A topic that every new interpreter finds instead of the workbook's own, and this one, too."""
    topic = tmp_path / "topics" / "demo" / "experiments"
    topic.mkdir(parents=True)
    for package in (topic.parent, topic):
        (package / "__init__.py").write_text("")
    (topic / "all.py").write_text(EXPERIMENTS)
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib, hpml_lab\n"
        "from types import SimpleNamespace\n"
        "from hpml_lab.core.experiment import catalogue, topics\n"
        f"hpml_lab.__path__.append({str(tmp_path / 'topics')!r})\n"
        "topics.import_topics = lambda part: importlib.import_module('hpml_lab.demo.experiments.all') and {}\n"
        "catalogue.listed = lambda slug, registered=(): SimpleNamespace(module='hpml_lab.demo.experiments.all')\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), str(ROOT)]))
    monkeypatch.setenv("DEMO_RUNS", str(tmp_path / "runs.txt"))
    monkeypatch.setenv("HPML_DEVICE", "cpu")
    monkeypatch.chdir(tmp_path)
    return tmp_path


OPTIONS = ("--size", "quick", "--out", "out", "--log", "log")


@pytest.fixture
def lab(demo, own_experiments, monkeypatch, capsys):
    """Run the command in this process, its experiments in others: (arguments) -> exit code, stdout, stderr."""
    monkeypatch.setattr("hpml_lab.references.device_and_machine", lambda requested: ("cpu", machine.describe()))
    made = types.ModuleType("demo_experiments")
    monkeypatch.setitem(sys.modules, made.__name__, made)
    exec(EXPERIMENTS, vars(made))

    def run(*arguments):
        code = cli.main(["reference", *OPTIONS, *arguments])
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.fixture
def forked(tmp_path, monkeypatch):
    """Experiments run in forks of this process, which has torch; what is asked of `run_python` there is what is done here."""

    def run_forked(arguments, *, deadline_seconds):
        words = arguments[len(references.INTERPRETER) :]
        assert arguments == [*references.INTERPRETER, *words] and deadline_seconds > 0
        start, errors = time.monotonic(), tmp_path / "stderr.txt"
        if not (pid := os.fork()):
            code = 1
            try:
                with open(errors, "w") as sys.stderr:
                    try:
                        code = references.main(*words)
                    except BaseException:
                        traceback.print_exc()
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        return Finished("", errors.read_text(), code, time.monotonic() - start)

    monkeypatch.setattr(references, "run_python", run_forked)


@pytest.mark.usefixtures("forked")
def test_failures_are_named_and_survived_and_only_sound_runs_are_written(lab, demo):
    slugs = [
        "demo-crash",
        "demo-wrong",
        "demo-exit",
        "demo-refuse",
        "demo-package",
        "demo-undrawable",
        "demo-large",
        "demo-two",
    ]
    code, said, progress = lab(*slugs, "--budget", "1h")
    assert code == 1
    assert [path.name for path in (demo / "out").iterdir()] == ["demo-two.json"]
    assert sorted(path.name for path in (demo / "log").iterdir()) == ["demo-two.png", "outcomes.json", "page.md"]
    assert said == (demo / "log" / "page.md").read_text() + "\n"
    assert "1 recorded" in said and "2 skipped" in said and "5 failed" in said and "0 not tried" in said
    assert "ZeroDivisionError: on purpose" in said and "Traceback" in said
    assert "exact claim fails: One is one [seen]" in said
    assert "exit code 7" in said and "KeyError: 'values'" in said and "more than 1 MB" in said
    assert "the program perf is not here. Install it." in said and "a_package_that_nobody_has" in said
    assert "[1/8] demo-two" in progress, "what uses CUDA comes first"
    recorded = json.loads((demo / "out" / "demo-two.json").read_text())
    assert recorded["slug"] == "demo-two" and recorded["size"] == "quick" and recorded["machine"]["torch"]


@pytest.mark.usefixtures("forked")
def test_it_resumes_and_tries_what_failed_last(lab, demo, monkeypatch):
    assert lab("demo-one", "demo-wrong")[0] == 1
    monkeypatch.setenv("DEMO_MENDED", "1")
    code, said, progress = lab("demo-wrong", "demo-one", "demo-two")
    assert code == 0
    assert "1 of 3 are recorded; 2 to run on cpu" in progress
    assert progress.index("[1/2] demo-two") < progress.index("[2/2] demo-wrong"), "what failed before comes last"
    assert (demo / "runs.txt").read_text() == "one\n", "the finished one did not run again"
    assert "3 recorded" in said, "the page covers both calls"
    # a run on a GPU is not replaced by one without
    for device, gpu, kept in (("cuda:0", "Some GPU", True), ("cpu", "Some GPU", False), ("cpu", None, False)):
        record = json.loads((demo / "out" / "demo-one.json").read_text())
        record.pop(DIGEST, None)  # as one that was recorded before there were digests
        record["machine"] |= {"gpu": gpu, "cpu": "Another CPU"}
        record["device"] = device
        (demo / "out" / "demo-one.json").write_text(json.dumps(record))
        assert is_recorded(registry.find("demo-one"), "quick", machine.describe(), demo / "out") is kept
    lab("demo-one")
    (demo / "out" / "demo-two.json").write_text("{")
    assert "2 of 3 are recorded" in lab("demo-one", "demo-wrong", "demo-two")[2], "a damaged file counts as none"


@pytest.mark.usefixtures("forked")
def test_what_failed_in_another_call_is_on_the_page_and_no_failure_of_this_one(lab):
    assert lab("demo-wrong")[0] == 1
    code, said, progress = lab("demo-two")
    assert code == 0 and "| demo-wrong | failed |" in said and "failed: demo-wrong" not in progress


@pytest.mark.usefixtures("forked")
def test_what_is_recorded_can_be_recorded_again(lab, demo):
    assert lab("demo-one")[0] == 0
    assert "1 of 1 are recorded; 0 to run" in lab("demo-one")[2]
    code, _, progress = lab("--again", "demo-one")
    assert code == 0 and "1 of 1 are recorded; 1 to run" in progress
    assert (demo / "runs.txt").read_text() == "one\none\n"


@pytest.mark.usefixtures("forked")
def test_what_took_longer_than_the_time_that_is_left_waits_for_the_next_call(lab, demo):
    lab("demo-one", "demo-two")
    record = unsealed_record(json.loads((demo / "out" / "demo-one.json").read_text()))
    (demo / "out" / "demo-one.json").write_text(json.dumps(record | {"seconds": 4000.0}))
    code, said, progress = lab("--again", "demo-one", "demo-two", "--budget", "1h")
    assert code == 0 and "demo-one: 4000 s do not fit any more" in progress
    assert "Not tried yet: demo-one." in said and (demo / "runs.txt").read_text().count("one") == 1


def like(machine, **changes):
    return machine.describe() | changes


@pytest.mark.parametrize(
    "uses, device, there, here, alike",
    [
        (("cuda",), "cuda:0", {"gpu": "A"}, {"gpu": "A", "gpus": 1}, True),
        (("cuda",), "cuda:0", {"gpu": "A"}, {"gpu": "B", "gpus": 1}, False),
        (("cuda",), "cpu", {"gpu": None}, {"gpu": "A", "gpus": 1}, False),
        (("cuda",), "cpu", {"gpu": None, "cpu": "Another"}, {"gpu": None, "gpus": 0}, False),
        (("two-gpus",), "cuda:0", {"gpu": "A", "gpus": 1}, {"gpu": "A", "gpus": 2}, False),
        (("cuda",), "cuda:0", {"gpu": "A", "gpus": 1}, {"gpu": "A", "gpus": 2}, True),
        ((), "cpu", {"gpu": None}, {"gpu": "A", "gpus": 1}, True),  # the same processor: the GPU was not used
        ((), "cpu", {"gpu": "A", "cpu": "Another"}, {"gpu": "A", "gpus": 1}, False),
    ],
)
def test_a_recorded_run_counts_on_a_machine_that_is_like_its_own_in_what_it_used(monkeypatch, uses, device, there, here, alike):
    result = Result(size="full", device=device, machine=like(machine, **{"gpus": None} | there))
    monkeypatch.setattr(references, "_load", lambda experiment, folder: result)
    experiment = types.SimpleNamespace(uses=uses, slug="")
    assert is_recorded(experiment, "full", like(machine, **here), Path()) is alike
    assert not is_recorded(experiment, "quick", like(machine, **here), Path())


def test_a_scaled_run_is_not_recorded(demo, monkeypatch, tmp_path):
    """It does not show what full size shows."""
    result = Result(slug="demo", size="full, scaled to a quarter", machine=dict(machine.describe()))
    experiment = types.SimpleNamespace(slug="demo", load=lambda path: result)

    def run_python(arguments, *, deadline_seconds):
        result.save(arguments[-1])
        return Finished("", "", 0, 1.0)

    monkeypatch.setattr(references, "run_python", run_python)
    outcome = references.record(experiment, "full", "cuda", tmp_path / "out", tmp_path / "log", 10.0)
    assert outcome.state == references.SKIPPED and "scaled to a quarter" in outcome.detail and not (tmp_path / "out").exists()


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize(
    "busy, state, kept",
    [(["", ""], "recorded", True), (["others"], "machine busy", False), (["", "others"], "machine busy", False)],
    ids=["quiet", "busy before", "busy after"],
)
def test_a_full_run_on_the_cpu_is_kept_only_from_a_quiet_machine(lab, demo, monkeypatch, busy, state, kept):
    """Others had the cores: their times are nobody's reference. A quick run is a trial, and never asked."""
    found = iter(busy)
    monkeypatch.setattr(references, "disturbance", lambda: next(found))
    code, said, _ = lab("demo-one", "--size", "full")
    assert code == (0 if kept else 1) and f"| demo-one | {state} |" in said
    assert (demo / "out" / "demo-one.json").exists() is kept and next(found, None) is None
    assert ("quiet before and after" in said) is kept
    monkeypatch.setattr(references, "disturbance", lambda: pytest.fail("a quick run"))
    assert lab("demo-two")[0] == 0


def test_a_run_is_outdated_once_its_experiment_has_changed(monkeypatch):
    """Asked of git: by the commit that the run names, or, of older runs, by its time."""
    experiment, asked = find("zero-grad"), []
    result = Result(when="2026-11-23 05:38 UTC", machine=like(machine, commit="abc1234+"))

    def git(*words):
        asked.append(words)
        return "1a2b3c4 of 2026-11-24"

    monkeypatch.setattr(references, "_load", lambda experiment, folder: result)
    monkeypatch.setattr(machine, "git", git)
    monkeypatch.setattr(machine, "commit", lambda: "def456")
    assert references.outdated(experiment, Path()) == "1a2b3c4 of 2026-11-24"
    assert asked[0][3] == "abc1234..HEAD" and any(file.endswith("zero_grad.py") for file in asked[0])
    for commit in (None, "--output=/tmp/written"):  # a file's words are no options
        result.machine["commit"] = commit
        references.outdated(experiment, Path())
        assert asked[-1][3] == "--since=2026-11-23 05:38 UTC"


def test_a_hanging_experiment_is_killed_at_its_deadline(lab, demo):
    code, said, _ = lab("demo-hang", "--deadline", "1s", "--budget", "1h")
    assert code == 1 and "1 not finished" in said and "killed after 1 s" in said
    assert list((demo / "out").iterdir()) == []


def test_what_the_budget_cuts_short_is_not_called_a_failure(lab, monkeypatch):
    code, said, progress = lab("demo-hang", "demo-two", "--deadline", "1h", "--budget", "9s")
    assert code == 0 and "2 not tried" in said and "[1/2]" not in progress, "less than ten seconds: nothing is started"
    monkeypatch.setattr(references, "LEAST_SECONDS", 0.1)  # else the test waits for ten seconds
    code, said, progress = lab("demo-hang", "--deadline", "1h", "--budget", "3s")
    assert code == 0 and "no time left" in progress and "Not tried yet: demo-hang." in said


@pytest.mark.environment(
    "five interpreters and a Ctrl-C",
    files=("hpml_lab/references.py", "hpml_lab/cli/reference.py", "hpml_lab/core/system/programs.py"),
)
def test_ctrl_c_ends_the_experiment_and_keeps_the_page(demo, nothing_left):
    command = [
        sys.executable,
        "-m",
        "hpml_lab",
        "reference",
        "demo-two",
        "demo-spawn",
        "demo-refuse",
        "demo-hang",
        *OPTIONS,
        "--deadline",
        "1h",
    ]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    program = subprocess.Popen([*command, "--budget", "2h"], cwd=demo, **pipes)
    end = time.monotonic() + 500
    while not (demo / "runs.txt").exists():
        assert program.poll() is None and time.monotonic() < end
        time.sleep(0.1)
    program.send_signal(signal.SIGINT)
    said, progress = program.communicate(timeout=300)
    assert program.returncode == -signal.SIGINT and "interrupted" in progress
    assert "2 recorded, 1 skipped, 1 not tried" in said and "Not tried yet: demo-hang." in said


@pytest.mark.usefixtures("forked")
def test_an_interrupt_keeps_what_was_recorded_and_the_page(lab, monkeypatch):
    """As by a Ctrl-C while the last experiment runs."""
    run = references.run_python

    def interrupted(arguments, **options):
        if "demo-hang" in arguments:
            raise KeyboardInterrupt
        return run(arguments, **options)

    monkeypatch.setattr(references, "run_python", interrupted)
    code, said, progress = lab("demo-two", "demo-refuse", "demo-hang")
    assert code == INTERRUPTED and "interrupted" in progress
    assert "1 recorded, 1 skipped, 1 not tried" in said and "Not tried yet: demo-hang." in said


@pytest.mark.parametrize(
    "arguments, words",
    [(["demo-oen"], "no experiment is called 'demo-oen'"), (["demo-one", "--size", "fast"], "'fast' is not a valid size")],
)
def test_wrong_input_is_reported_before_anything_runs(lab, demo, arguments, words):
    code, _, progress = lab(*arguments)
    assert code == 2 and words in progress
    assert not (demo / "runs.txt").exists()


@pytest.mark.parametrize("option", ["--log", "--out"])
def test_a_folder_that_cannot_be_one_is_reported_before_anything_runs(lab, demo, option):
    (demo / "file").write_text("in the way")
    code, _, progress = lab("demo-one", option, str(demo / "file"))
    assert code == 2 and f"no file can be written into {demo / 'file'}" in progress and option in progress.splitlines()[1]
    assert not (demo / "runs.txt").exists()


def test_an_installed_package_does_not_replace_its_own_recorded_runs(monkeypatch, capsys):
    monkeypatch.setattr("hpml_lab.core.system.paths.CHECKOUT", False)
    assert cli.main(["reference", "zero-grad"]) == 2 and "--out DIR" in capsys.readouterr().err


def test_a_device_that_does_not_exist_is_wrong_input():
    with pytest.raises(LabError, match="'cuda:99' was asked for"):
        device_and_machine("cuda:99")


def test_the_machine_is_described_by_the_gpu_that_was_asked_for(monkeypatch):
    """As a run's own record is: else a run on the second of two different GPUs would never count as recorded."""
    chosen = types.SimpleNamespace(torch=torch.device("cuda:1"))
    monkeypatch.setattr(references, "choose_device", lambda requested: chosen)
    monkeypatch.setattr(machine, "describe", lambda index=0: {"gpu": f"GPU {index}"})
    assert references._describe("cuda:1")[1] == {"gpu": "GPU 1"}


def test_durations():
    assert [duration(text) for text in ("90s", "25m", "1.5h")] == [90, 1500, 5400]
    for text in ("25", "0m", "-3s", "fast"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a valid duration"):
            duration(text)


def test_the_most_telling_experiments_exist_and_come_first():
    ordered = [experiment.slug for experiment in by_value(all_experiments(), failed_before=["gemm-tensor-cores"])]
    telling = [slug for slug in MOST_TELLING if slug != "gemm-tensor-cores"]
    assert ordered[: len(telling)] == telling and ordered[-1] == "gemm-tensor-cores"
    rest = [("cuda" in find(slug).uses, "two-gpus" in find(slug).uses) for slug in ordered[len(telling) : -1]]
    assert rest == sorted(rest, reverse=True), "then all that use a GPU, those that use several, and the others"
    assert len(set(rest)) == 3


def test_the_page_is_one_table_and_the_tracebacks():
    outcomes = {
        "a": Outcome("a", "recorded", 1.0, "2 of 2 claims hold"),
        "b": Outcome("b", "failed", 2.0, "Traceback\nError: x|y"),
    }
    text = page(outcomes, ["c"], {"d": "1a2b3c4 of 2026-11-24"}, {"gpu": "Some GPU", "torch": "2.15"}, "full")
    assert "Recorded before their experiment last changed" in text and "d (1a2b3c4 of 2026-11-24)" in text
    assert "1 recorded, 1 failed, 1 not tried" in text and "| b | failed | 2.0 | Error: x/y |" in text
    assert text.count("Traceback") == 1


def test_without_a_gpu_the_cuda_tests_are_skipped_with_a_reason():
    assert run_cuda_tests("cpu", 60.0) == Outcome("tests marked cuda", "skipped", 0.0, "no CUDA GPU here")


@pytest.mark.environment("pytest without its plugins", files=("hpml_lab/references.py",))
def test_the_cuda_tests_are_collected_without_the_plugins_of_the_notebooks():
    """As on a GPU machine without Jupyter: no nbval, no xdist, none of the project's options."""
    files = [str(path) for path in sorted(Path(ROOT / "tests").rglob("test_*.py")) if "mark.cuda" in path.read_text()][:1]
    options = ["-m", "cuda", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:nbval", "-p", "no:xdist"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
