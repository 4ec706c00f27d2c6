"""The doctor as a whole, as a student runs it: on a sound Python, and where torch or torchvision is missing, old or broken."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from hpml_lab.core.experiment.registry import all_experiments
from hpml_lab.core.system.paths import NOTEBOOKS, ROOT
from hpml_lab.core.system.programs import started
from hpml_lab.start.tools import doctor
from hpml_lab.start.tools.doctor import PROBES
from hpml_lab.start.tools.finding import LIMITED, MISSING, OK, Finding
from hpml_lab.start.tools.optional_programs import TOOLS


def hpml_lab(*arguments, python=sys.executable, seconds=300, **environment):
    return subprocess.run(
        [str(python), "-m", "hpml_lab", *arguments],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds,
        cwd=ROOT / "tests",
        env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    )


def findings(done):
    assert "Traceback" not in done.stderr, done.stderr
    report = json.loads(done.stdout)
    return report, {entry["name"]: entry for entry in report["findings"]}


def package(folder, name, version, source=None):
    """A fake installed package: its metadata, and its code where `source` is given."""
    metadata = folder / f"{name}-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if source is not None:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(source)
    return f"{folder}{os.pathsep}{ROOT}"


@pytest.fixture(scope="module")
def bare(tmp_path_factory):
    """A Python without any package."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """The doctor's answer in this Python, with nothing on PATH but an nvidia-smi that shows a GPU."""
    folder = tmp_path_factory.mktemp("path")
    (folder / "nvidia-smi").write_text("#!/bin/sh\necho 'Tesla T4, 15360, 7.5, 535.104.05'\n")
    (folder / "nvidia-smi").chmod(0o755)
    return hpml_lab("doctor", "--json", PATH=str(folder), HPML_DATA=str(folder), CXX="no-such-compiler")


def test_on_a_sound_python_every_notebook_can_be_started_without_any_tool(sound):
    report, found = findings(sound)
    assert sound.returncode == 0 and report["ready"]
    assert all(found[name]["state"] == OK for name in ("python", "torch", "torchvision", "packages", "workbook", "device"))
    assert {"compiler", "graphviz", "nsys"} <= {name for name, entry in found.items() if entry["state"] == MISSING}
    assert {entry["name"] for entry in report["notebooks"]} >= {path.stem for path in NOTEBOOKS.glob("[0-9]*.ipynb")}
    assert all(entry["state"] != MISSING for entry in report["notebooks"])


def test_the_driver_is_seen_through_nvidia_smi_and_torch_has_its_own_say(sound):
    _, found = findings(sound)
    assert found["driver"]["value"] == "535.104.05 (1 GPU)"
    if found["cuda"]["state"] == MISSING:  # as on any machine without a real GPU
        assert "Tesla T4, 15360 MiB, compute capability 7.5" in found["cuda"]["value"]


def test_a_notebook_that_shows_less_names_the_tool_the_experiments_and_the_fix(sound):
    report, found = findings(sound)
    for entry in report["notebooks"]:
        uses = {
            (tool, e.slug)
            for e in all_experiments()
            if e.notebook == entry["name"]
            for tool in e.uses
            if found[tool]["state"] != OK and not (tool == "nsys" and found["cuda"]["state"] != OK)
        }
        assert {(tool, slug) for tool, slugs in entry["lacks"].items() for slug in slugs} == uses
        assert entry["fix"] == {tool: found[tool]["fix"] for tool in entry["lacks"]}
        assert (entry["state"] == LIMITED) == bool(uses)
    assert any(entry["lacks"] for entry in report["notebooks"])


def test_the_report_holds_no_folder_of_this_machine(sound):
    for folder in (ROOT, Path.home(), Path(sys.prefix)):
        assert str(folder) not in sound.stdout


def test_a_python_without_torch_or_anything_else_gets_a_whole_report(bare):
    done = hpml_lab("doctor", "--json", python=bare)
    report, found = findings(done)
    assert done.returncode == 1 and not report["ready"]
    assert found["torch"]["value"] == found["torchvision"]["value"] == "not installed"
    assert "bootstrap.py lab" in found["torch"]["fix"] and found["cuda"]["state"] == MISSING
    assert found["cores"]["state"] in (OK, LIMITED) and "GB" in found["memory"]["value"]
    assert all(entry["state"] == MISSING and "cannot be started" in entry["value"] for entry in report["notebooks"])
    text = hpml_lab("doctor", python=bare)
    assert "Not ready" in text.stdout and "fix: run `python bootstrap.py lab`" in text.stdout


def test_without_torch_the_other_commands_say_what_to_do(bare):
    assert "run experiments" in hpml_lab("--help", python=bare).stdout
    assert "zero-grad" in hpml_lab("list", python=bare).stdout
    assert "-      outer-sum" in hpml_lab("progress", ".", python=bare).stdout
    for command in (["run", "xor"], ["report", "."], ["data", "fetch", "mnist"], ["assignment", "05_adaptive", "--out", "."]):
        done = hpml_lab(*command, python=bare)
        assert done.returncode == 2
        assert (
            done.stderr
            == "hpml-lab: PyTorch is not installed in this Python.\n  Run `python bootstrap.py lab` in the project's folder.\n"
        )


@pytest.mark.environment("a Python with another torchvision", files=("hpml_lab/start/tools", "hpml_lab/cli/doctor.py"))
def test_a_torchvision_of_another_torch_is_found_with_the_fix_in_one_line(tmp_path):
    # What a real entry does on import; the message is torch's own.
    source = "import torch\ntorch.library.register_fake('torchvision::nms')(lambda boxes, scores, threshold: None)\n"
    done = hpml_lab("doctor", "--json", PYTHONPATH=package(tmp_path, "torchvision", "0.20.0", source))
    report, found = findings(done)
    assert done.returncode == 1 and not report["ready"]
    assert "operator torchvision::nms does not exist" in found["torchvision"]["means"]
    assert found["torchvision"]["value"].startswith("0.20.0 does not fit torch 2.")
    assert found["torchvision"]["fix"].startswith("pip install --force-reinstall 'torch==2.")
    assert found["torch"]["state"] == OK
    assert all(entry["state"] == MISSING for entry in report["notebooks"])


def test_an_old_torch_is_reported_by_the_doctor_and_by_run(tmp_path):
    path = package(tmp_path, "torch", "2.5.1")
    _, found = findings(hpml_lab("doctor", "--json", PYTHONPATH=path))
    assert "2.5.1 is too old" in found["torch"]["means"] and "torch>=2.11" in found["torch"]["fix"]
    done = hpml_lab("run", "xor", PYTHONPATH=path)
    assert done.returncode == 2 and "PyTorch 2.5.1 is too old" in done.stderr and "Traceback" not in done.stderr


def test_a_torch_that_ends_the_process_is_a_finding(tmp_path):
    done = hpml_lab("doctor", "--json", PYTHONPATH=package(tmp_path, "torch", "2.15.0", "import os; os._exit(3)"))
    report, found = findings(done)
    assert done.returncode == 1 and not report["ready"]
    assert "status 3" in found["torch"]["means"] and "status 3" in found["torchvision"]["means"]


def test_a_torch_that_does_not_load_is_a_finding_without_folders(tmp_path):
    noise = "import os\nos.write(1, b'noise on stdout \\xff\\n')\n"  # bytes that are no text in any language
    source = f"{noise}raise OSError('/home/someone/lib/libcudart.so.13: cannot open shared object file')"
    done = hpml_lab("doctor", "--json", PYTHONPATH=package(tmp_path, "torch", "2.15.0", source))
    _, found = findings(done)
    assert found["torch"]["value"] == "2.15.0 does not work"
    assert "libcudart.so.13: cannot open" in found["torch"]["means"] and "someone" not in done.stdout
    done = hpml_lab("run", "xor", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.returncode == 2 and "hpml-lab doctor" in done.stderr and "Traceback" not in done.stderr


def test_no_answer_in_time_is_a_finding(monkeypatch):
    monkeypatch.setattr(doctor.ask.__globals__["subprocess"].Popen, "communicate", hang_once(subprocess.Popen.communicate))
    answers = doctor.ask()
    assert "no answer within" in answers["torch"]["error"]


def hang_once(communicate):
    def hanging(process, *arguments, timeout=None, **others):
        if timeout is not None and "torch_probe" in " ".join(process.args):
            raise subprocess.TimeoutExpired(process.args, timeout)
        return communicate(process, *arguments, timeout=timeout, **others)

    return hanging


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with its parent")
def test_no_probe_outlives_a_doctor_that_is_killed(tmp_path):
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    source = f"import time\nalive = open({str(alive)!r}, 'w')\nprint('probe', file=alive, flush=True)\ntime.sleep(120)"
    environment = os.environ | {"PYTHONPATH": package(tmp_path, "torch", "2.15.0", source)}
    probes = os.open(alive, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with started([sys.executable, "-m", "hpml_lab", "doctor"], env=environment, stdout=subprocess.DEVNULL) as program:
            said = b""
            while said.count(b"probe") < 2:
                assert select.select([probes], [], [], 300)[0], said
                said += os.read(probes, 100) or pytest.fail("a probe ended by itself")
            os.kill(program.pid, signal.SIGKILL)
            ended, _, _ = select.select([probes], [], [], 60)  # readable once no probe holds it any longer
    finally:
        os.close(probes)
    assert ended


# ---- from findings to notebooks ---------------------------------------------------------------------------------------


def healthy(**states):
    return [Finding(name, states.get(name, OK), "", "", "" if states.get(name, OK) == OK else f"fix {name}") for name in PROBES]


def report_of(rows, **states):
    answers = {"experiments": {"all": rows, "failed": {}}}
    return doctor.Report(healthy(**states), doctor.notebooks(healthy(**states), answers))


ROWS = [
    {"slug": "a", "notebook": "90_far", "uses": ["cuda"]},
    {"slug": "b", "notebook": "90_far", "uses": ["cuda", "graphviz"]},
    {"slug": "c", "notebook": "90_far", "uses": []},
]


def far(report):
    return next(entry for entry in report.notebooks if entry.name == "90_far")


def test_an_experiment_that_misses_two_tools_counts_once():
    entry = far(report_of(ROWS, cuda=MISSING, graphviz=LIMITED))
    assert (entry.state, entry.less, entry.lacks) == (LIMITED, 2, {"cuda": ["a", "b"], "graphviz": ["b"]})
    assert entry.value == "2 of 3 experiments show less without cuda, graphviz"
    assert far(report_of(ROWS)).state == OK


def test_the_text_names_experiments_and_fix_under_the_notebook():
    text = report_of(ROWS, cuda=MISSING).as_text(60)
    assert "without cuda: a, b" in text and text.count("fix: fix cuda") == 2
    assert "Every notebook can be started." in text


def test_an_untested_python_does_not_stop_the_workbook_and_a_missing_torch_does():
    assert report_of(ROWS, python=LIMITED).ready and report_of(ROWS, python=LIMITED).compatible
    stopped = report_of(ROWS, torch=MISSING)
    assert not stopped.ready and not stopped.compatible
    assert far(stopped).value == "cannot be started before what is missing above is fixed"
    unloaded = report_of(ROWS, workbook=MISSING)
    assert unloaded.compatible and not unloaded.ready


def test_a_notebook_whose_packages_are_not_installed_cannot_be_started(tmp_path, monkeypatch):
    cells = [
        {"cell_type": "markdown", "source": ["import nothing"]},
        {"cell_type": "code", "source": ["%pylab inline\n", "import os, no_such_package.part\n", "from hpml_lab import core"]},
        {"cell_type": "code", "source": ["try:\n", "    import apex\n", "except ImportError:\n", "    pass"]},
        {"cell_type": "code", "source": ["def half("]},
    ]
    (tmp_path / "90_far.ipynb").write_text(json.dumps({"cells": cells}))
    assert doctor.imported_by(tmp_path / "90_far.ipynb") == ["hpml_lab", "no_such_package", "os"]
    monkeypatch.setattr(doctor, "NOTEBOOKS", tmp_path)
    report = report_of(ROWS)
    assert not report.ready and far(report).state == MISSING
    assert far(report).value == "cannot be started: no_such_package not installed"


@pytest.mark.parametrize("text", ["", '<<<<<<< HEAD\n{"cells": []}', "[1]", '{"cells": [{}]}'])
def test_a_damaged_notebook_is_a_finding_and_not_the_doctors_end(tmp_path, monkeypatch, text):
    (tmp_path / "90_far.ipynb").write_text(text)
    monkeypatch.setattr(doctor, "NOTEBOOKS", tmp_path)
    report = report_of(ROWS)
    assert not report.ready and far(report).state == MISSING and "damaged" in far(report).value


def test_every_tool_that_an_experiment_names_is_known_to_the_doctor():
    known = {entry.name for entry in healthy()}
    named = {tool for entry in all_experiments() for tool in entry.uses}
    assert named and named <= known


def test_every_optional_tool_and_data_set_that_the_doctor_looks_for_is_named_by_an_experiment():
    named = {tool for entry in all_experiments() for tool in entry.uses}
    other = {
        "cuda",
        "two-gpus",
        "namespaces",
        "compiler",
        "dali",
        "deepspeed",
        "torchao",
        "torch-pruning",
        "onnxruntime",
        "litserve",
        "h5py",
    }
    other |= {"mnist"}
    assert {tool.name for tool in TOOLS} | other == named
