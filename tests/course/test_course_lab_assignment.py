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
from hpml_lab.your_script.tools.trainings import ScriptScaling


@pytest.fixture(scope="module")
def labs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labs")
    for number in LABS:
        write_lab(number, folder)
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


def report(speed_up):
    """What `hpml-lab lab` leaves after the steps of lab 6."""
    made = LabReport("lab_training.py", "a machine", 4)
    for name in LABS[6].steps:
        tables = [Table("Ranks", [ScriptScaling("strong", 2, 64, 1.0, speed_up)])] if name == "ranks" else []
        made.keep(name, "done", ["found"], tables, 1.0)
        made.step(name).prediction, made.step(name).sentence = "this", "because"
    return made


@pytest.mark.environment("nbgrader", files=("hpml_lab/course", "hpml_lab/core/judge"))
@pytest.mark.skipif(importlib.util.find_spec("nbgrader") is None, reason="nbgrader is not installed: pip install nbgrader")
def test_three_submissions_of_lab_6_are_graded(labs):
    """One whole, one with a speed-up of 3 on 2 ranks, one untouched."""
    source, release = labs / "source" / "lab6", labs / "release" / "lab6"
    nbgrader(labs, "generate_assignment", "lab6")
    for path in release.glob("*.ipynb"):
        assert "SOLUTION" not in path.read_text() and "MARK SCHEME" not in path.read_text()
    assert (release / "lab.sbatch").exists()
    for student, speed_up in {"ada": 1.8, "bob": 3.0, "eve": None}.items():
        target = labs / "submitted" / student / "lab6"
        shutil.copytree(release, target)
        if speed_up is not None:
            report(speed_up).write(target)
            for path in source.glob("13*.ipynb"):  # with the solutions
                solved = nbformat.read(path, as_version=4)
                nbformat.write(solved, target / path.name)
    nbgrader(labs, "autograde", "lab6", "--create")
    nbgrader(labs, "export")
    with (labs / "grades.csv").open(newline="") as file:
        scores = {row["student_id"]: (float(row["score"]), float(row["max_score"])) for row in csv.DictReader(file)}
    exercises = sum(
        cell.metadata.nbgrader.points for cell in graded_cells(nbformat.read(source / "13_distributed.ipynb", as_version=4))
    )
    steps = 2 * len(LABS[6].steps)
    most = exercises + steps + sum(question.points for question in LABS[6].questions)
    assert scores == {"ada": (exercises + steps, most), "bob": (exercises + steps - 1, most), "eve": (0, most)}
