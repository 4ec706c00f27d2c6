"""Labs to hand out: whole assignments, whose commands exist, whose solutions earn all points, and that nbgrader grades."""

import contextlib
import csv
import importlib.util
import io
import re
import shlex
import shutil
import subprocess
import types

import nbformat
import pytest
from test_course import graded_cells, nbgrader

from hpml_lab.cli import main, make_parser
from hpml_lab.core.experiment import Table
from hpml_lab.core.experiment.registry import find
from hpml_lab.core.judge.exercises import find_exercise
from hpml_lab.core.system.errors import LabError
from hpml_lab.course.lab_assignment import LABS, job_file, lab_notebook, write_lab
from hpml_lab.your_script import TASKS, LabReport
from hpml_lab.your_script.tools.trainings import ScriptScaling, TrainedRow


@pytest.fixture(scope="module")
def labs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labs")
    words = [word for number in LABS for word in ("--lab", str(number))]
    assert main(["assignment", *words, "--out", str(folder)]) == 0
    return folder


@pytest.mark.parametrize("number", LABS)
def test_a_lab_is_whole(labs, number):
    folder, sheet = labs / "source" / f"lab{number}", LABS[number]
    names = {f"lab{number}.ipynb", "lab.sbatch", *(f"{notebook}.ipynb" for notebook in sheet.exercises)}
    assert {path.name for path in folder.iterdir()} == names
    for notebook, exercises in sheet.exercises.items():
        made = nbformat.read(folder / f"{notebook}.ipynb", as_version=4)
        nbformat.validate(made)
        assert [cell.metadata.nbgrader.grade_id for cell in graded_cells(made)] == [f"check-{name}" for name in exercises]
        assert all(find_exercise(name).notebook == notebook for name in exercises)
    assert set(sheet.steps) <= TASKS.keys()


@pytest.mark.parametrize("number", LABS)
def test_questions_are_task_cells_with_points_and_room_for_the_answer(number):
    notebook = lab_notebook(LABS[number])
    nbformat.validate(notebook)
    tasks = [at for at, cell in enumerate(notebook.cells) if cell.metadata.get("nbgrader", {}).get("task")]
    assert len(tasks) == len(LABS[number].questions) >= 4
    for at in tasks:
        cell, answer = notebook.cells[at : at + 2]
        assert cell.cell_type == answer.cell_type == "markdown" and "nbgrader" not in answer.metadata
        assert cell.metadata.nbgrader.points > 0 and not cell.metadata.nbgrader.solution
        asked, scheme = cell.source.split("=== BEGIN MARK SCHEME ===")
        assert asked.rstrip().endswith(("?", ".")) and scheme.endswith("\n=== END MARK SCHEME ===") and len(scheme) > 60


@pytest.mark.parametrize("number", LABS)
def test_the_job_file_is_shell_and_its_commands_exist(tmp_path, number):
    text = job_file(number, LABS[number])
    (tmp_path / "lab.sbatch").write_text(text, encoding="utf-8")
    subprocess.run(["bash", "-n", str(tmp_path / "lab.sbatch")], check=True)
    head, *body = text.splitlines()
    assert head == "#!/bin/bash" and f"#SBATCH --job-name=lab{number}" in body
    assert ("--gpus-per-node" in text) == (LABS[number].gpus > 0)
    lines = [line for line in body if line and not line.startswith("#")]
    [script] = [line.removeprefix("script=").strip('"') for line in lines if line.startswith("script=")] or [""]
    commands = [line.replace("$script", script) for line in lines if not line.startswith("script=")]
    assert len(commands) >= 2 and (not script or any(line.endswith(script) for line in commands))
    for command in commands:
        assert_exists(command)


def assert_exists(command):
    """That a line's options are those of the command, its steps are steps, and its experiment is one."""
    program, *words = shlex.split(command)
    assert program == "hpml-lab"
    chosen = make_parser().parse_args(words)
    assert set(filter(None, getattr(chosen, "steps", "").split(","))) <= TASKS.keys()
    for slug in getattr(chosen, "slugs", []):
        find(slug)


def test_the_commands_of_the_sheets_exist():
    found = [line for sheet in LABS.values() for line in sheet.text.splitlines() if line.startswith("hpml-lab ")]
    assert len(found) >= 6
    for line in found:
        assert_exists(line)


def test_the_solution_of_lab_1_earns_all_points():
    imports, stub, check = (cell.source for cell in lab_notebook(LABS[1]).cells if cell.cell_type == "code")
    names, printed = {}, io.StringIO()
    with contextlib.redirect_stdout(printed):
        for code in (imports, stub, check):
            exec(code, names)
    assert printed.getvalue() == "6 of 6 points\n" and names["found"].points == 6


def test_an_untouched_lab_1_ends_and_earns_nothing():
    imports, stub, check = (cell.source for cell in lab_notebook(LABS[1]).cells if cell.cell_type == "code")
    names = {}
    exec(imports, names)
    exec(re.sub(r"### BEGIN SOLUTION.*### END SOLUTION", "", stub, flags=re.DOTALL), names)
    exec(check, names)
    assert names["found"].points == 0 and names["found"].problems == [
        "gb_per_s is Ellipsis, not a number above 0 and up to 20000",
        "gflop_per_s is Ellipsis, not a number above 0 and up to 5e+06",
    ]


def test_what_an_instructor_has_changed_is_kept(tmp_path):
    notebook, *_, job = write_lab(2, tmp_path)
    write_lab(2, tmp_path)
    for path in (job, notebook):
        before = path.read_text()
        path.write_text(mine := before.replace("Lab 2", "Our lab 2").replace("--mem=32G", "--mem=64G"))
        assert mine != before
        with pytest.raises(LabError, match=f"{path.name} is there, with another content"):
            write_lab(2, tmp_path)
        assert path.read_text() == mine
        path.write_text(before)


def test_a_lab_that_is_not_here_is_said(tmp_path):
    with pytest.raises(LabError, match="lab 5 is not here"):
        write_lab(5, tmp_path)


@pytest.mark.parametrize("numbers", [["5"], ["1", "5"]])
def test_a_lab_that_is_not_here_is_said_before_anything_is_written(tmp_path, capsys, numbers):
    words = [word for number in numbers for word in ("--lab", number)]
    assert main(["assignment", *words, "--out", str(tmp_path / "course")]) == 2
    assert "lab 5 is not here" in capsys.readouterr().err and not (tmp_path / "course").exists()


def test_the_command_names_the_next_one_for_each(tmp_path, capsys):
    assert main(["assignment", "--lab", "1", "--lab", "6", "05_adaptive", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert [line.rpartition(" ")[2] for line in out.splitlines() if line.startswith("Next")] == ["adaptive", "lab1", "lab6"]
    assert "exclude_overwriting" in (tmp_path / "nbgrader_config.py").read_text()
    config = types.SimpleNamespace(CourseDirectory=types.SimpleNamespace(), ExecutePreprocessor=types.SimpleNamespace())
    config.ClearSolutions, config.Autograde = types.SimpleNamespace(), types.SimpleNamespace()
    exec((tmp_path / "nbgrader_config.py").read_text(), {"get_config": lambda: config})
    assert config.Autograde.exclude_overwriting["lab2"] == ["report.json", "lab_training.py"]


def test_nothing_named_is_said(tmp_path, capsys):
    assert main(["assignment", "--out", str(tmp_path)]) == 2 and "nothing to hand out" in capsys.readouterr().err


# Of lab 1 a kernel that cannot be, and of the others a step's row that can be and one that cannot.
TOO_FAST = 'measured["BLAS"] = (8 * 3e8, 2 * 3e8, 1e-3)  # 2,400 GB/s, and the machine has 30'
SHOWN = {
    2: ("devices", TrainedRow("cpu", 1.0, 0.5, None), TrainedRow("cuda", 1.0, 0.5, None)),
    6: ("ranks", ScriptScaling("strong", 2, 64, 1.0, 1.8), ScriptScaling("strong", 2, 64, 1.0, 3.0)),
}


def hand_in(number, source, target, cannot_be):
    """Put the solutions into a student's folder, and what they have measured."""
    for path in source.glob("*.ipynb"):
        solved = nbformat.read(path, as_version=4)
        for cell in solved.cells:
            if cannot_be and cell.get("id") == "kernels":
                cell.source += f"\n{TOO_FAST}"
        nbformat.write(solved, target / path.name)
    if number in SHOWN:
        shown, *rows = SHOWN[number]
        made = LabReport("lab_training.py", "a machine", 4)
        for name in LABS[number].steps:
            made.keep(name, "done", ["found"], [Table("Rows", [rows[cannot_be]])] if name == shown else [], 1.0)
            made.step(name).prediction, made.step(name).sentence = "this", "because"
        made.write(target)


@pytest.mark.parametrize("number", LABS)
@pytest.mark.environment("nbgrader", files=("hpml_lab/course", "hpml_lab/core/judge"))
@pytest.mark.skipif(importlib.util.find_spec("nbgrader") is None, reason="nbgrader is not installed: pip install nbgrader")
def test_three_submissions_of_a_lab_are_graded(labs, number):
    """One whole, one with a figure that cannot be, which costs a point, and one untouched."""
    name, sheet = f"lab{number}", LABS[number]
    source, release = labs / "source" / name, labs / "release" / name
    nbgrader(labs, "generate_assignment", name)
    for path in release.glob("*.ipynb"):
        assert "SOLUTION" not in path.read_text() and "MARK SCHEME" not in path.read_text()
    assert (release / "lab.sbatch").exists()
    for student in ("ada", "bob", "eve"):
        target = labs / "submitted" / student / name
        shutil.copytree(release, target)
        if student != "eve":
            hand_in(number, source, target, cannot_be=student == "bob")
    nbgrader(labs, "autograde", name, "--create")
    nbgrader(labs, "export")
    with (labs / "grades.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["assignment"] == name]
    scores = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in rows}
    checks = [cell for path in source.glob("*.ipynb") for cell in graded_cells(nbformat.read(path, as_version=4))]
    assert len(checks) == 1 + sum(map(len, sheet.exercises.values()))
    checked = sum(cell.metadata.nbgrader.points for cell in checks)
    most = checked + sum(question.points for question in sheet.questions)
    assert scores == {"ada": (checked, most), "bob": (checked - 1, most), "eve": (0, most)}
