"""Exercises handed out and collected with nbgrader: six students, and the page that says what to teach again."""

import csv
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from hpml_lab.core.judge.exercises import all_exercises, check, find_exercise
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import NOTEBOOKS
from hpml_lab.course.assignment import slim, with_solution, write_assignments
from hpml_lab.course.class_page import class_page, class_rows


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    write_assignments(["04_descent", "05_adaptive.ipynb", "13_distributed"], folder)
    return folder


def nbgrader(course, *words):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # it starts alembic by its name
    environment = os.environ | {"PATH": path, "OMP_NUM_THREADS": "1", "HPML_RESULTS": "", "HOME": str(course)}
    command = [sys.executable, "-m", "nbgrader", *words]
    done = subprocess.run(command, cwd=course, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr


def source(course, topic):
    [path] = (course / "source" / topic).glob("*.ipynb")
    return path


def test_a_slim_notebook_holds_exercises_checks_and_what_they_use(course):
    for topic in ("descent", "adaptive", "distributed"):
        notebook = nbformat.read(source(course, topic), as_version=4)
        nbformat.validate(notebook)
        graded = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]
        stubs = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
        names = [found.name for found in all_exercises() if found.notebook.endswith(f"_{topic}")]
        assert [cell.metadata.nbgrader.grade_id for cell in stubs] == [c.metadata.nbgrader.grade_id[6:] for c in graded]
        assert sorted(cell.metadata.nbgrader.grade_id for cell in stubs) == sorted(names)
        assert source(course, topic).stat().st_size < 60_000, "without outputs and experiments"
    assert "CourseDirectory.root" in (course / "nbgrader_config.py").read_text()


@pytest.mark.parametrize("found", all_exercises(), ids=lambda found: found.name)
def test_every_stub_with_its_solution_compiles_and_keeps_its_head(found):
    cells = nbformat.read(NOTEBOOKS / f"{found.notebook}.ipynb", as_version=4).cells
    [stub] = [cell.source for cell in cells if cell.metadata.get("hpml", {}).get("exercise") == found.name]
    made = with_solution(stub, found.name)
    compile(made, found.name, "exec")
    assert made.splitlines()[0] == stub.splitlines()[0] and made.count("### BEGIN SOLUTION") == 1


def test_what_is_not_a_notebook_with_exercises_is_named(tmp_path):
    with pytest.raises(LabError, match="no notebook is called '99_none'"):
        write_assignments(["99_none"], tmp_path)
    with pytest.raises(LabError, match="00_start has no exercises"):
        write_assignments(["00_start"], tmp_path)
    with pytest.raises(LabError, match="no autograded notebooks"):
        class_rows(tmp_path)


def submit(course, student, topic, change):
    """A student's notebook: the release with `change(grade_id, source, solution)` in the cells to be filled in."""
    [release] = (course / "release" / topic).glob("*.ipynb")
    notebook, solved = (nbformat.read(path, as_version=4) for path in (release, source(course, topic)))
    with_answers = {cell.metadata.nbgrader.grade_id: cell.source for cell in solved.cells if "nbgrader" in cell.metadata}
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            grade_id = cell.metadata.nbgrader.grade_id
            cell.source = change(grade_id, cell.source, with_answers[grade_id])
    target = course / "submitted" / student / topic
    target.mkdir(parents=True)
    nbformat.write(notebook, target / release.name)


def wrong(name):
    """The first known wrong answer of an exercise that is a change of its solution's text."""
    return {"write-adam": (" / (1 - beta1**t)", "")}.get(name)


def instead(body):
    """A student who writes `body` into write-adam, and all else right."""
    return lambda name, stub, solution: stub.replace("...", body, 1) if name == "write-adam" else solution


STUDENTS = {
    "right": lambda name, stub, solution: solution,
    "untouched": lambda name, stub, solution: stub,
    "wrong": lambda name, stub, solution: solution.replace(*wrong(name)) if wrong(name) else solution,
    "syntax": instead("return ("),
    "endless": instead("while True:\n        pass"),
    "exits": instead("raise SystemExit(1)"),
}


def graded(course, topic, students):
    nbgrader(course, "generate_assignment", topic)
    [release] = (course / "release" / topic).glob("*.ipynb")
    assert "SOLUTION" not in release.read_text(), "no solution in what students get"
    for student in students:
        submit(course, student, topic, STUDENTS[student])
    nbgrader(course, "autograde", topic, "--create")
    nbgrader(course, "generate_feedback", topic)
    nbgrader(course, "export")
    with (course / "grades.csv").open(newline="") as file:
        return {row["student_id"]: float(row["score"]) for row in csv.DictReader(file) if row["assignment"] == topic}


@pytest.mark.nightly
@pytest.mark.skipif(importlib.util.find_spec("nbgrader") is None, reason="nbgrader is not installed: pip install nbgrader")
def test_six_students_of_three_notebooks_are_graded_and_the_page_names_what_was_wrong(course):
    scores = {topic: graded(course, topic, STUDENTS) for topic in ("descent", "adaptive", "distributed")}
    for topic, score in scores.items():
        most = len([found for found in all_exercises() if found.notebook.endswith(f"_{topic}")])
        assert score["right"] == most and score["untouched"] == 0, (topic, score)
    six = scores["adaptive"]
    assert {six[name] for name in ("wrong", "syntax", "endless", "exits")} == {six["right"] - 1}
    [row] = [row for row in class_rows(course)["adaptive"] if row.exercise == "write-adam"]
    assert row.mistakes["first-moment-not-corrected"] == 1 and row.mistakes["does-not-end"] == 1
    assert row.right == 1 and row.open == 1 and len(row.none) <= 1
    page = class_page(course)
    assert "first-moment-not-corrected" in page and "6 students" in page


def test_the_known_wrong_answer_above_is_still_named():
    stub = "def adam_step(params, grads, state, lr=0.001, beta1=0.9, beta2=0.999, eps=1e-8):\n    ..."
    cell = with_solution(stub, "write-adam")
    names = {"torch": __import__("torch")}
    exec(cell.replace(*wrong("write-adam")), names)
    assert check(find_exercise("write-adam").name, names["adam_step"]).mistake == "first-moment-not-corrected"


def test_slim_counts_the_exercises():
    assert slim(nbformat.read(NOTEBOOKS / "05_adaptive.ipynb", as_version=4)) == 6
