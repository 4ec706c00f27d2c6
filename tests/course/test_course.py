"""Assignments are whole, and are handed out and collected with nbgrader: six students, and the page of what to teach again."""

import ast
import builtins
import csv
import importlib.util
import json
import os
import re
import subprocess
import symtable
import sys
from pathlib import Path

import nbformat
import pytest
from IPython.core.inputtransformer2 import TransformerManager
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient

from hpml_lab.core.judge.exercises import all_exercises, check, find_exercise
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.files import atomic_write
from hpml_lab.core.system.paths import NOTEBOOKS
from hpml_lab.course.assignment import _loaded_and_stored, slim, with_solution, write_assignments
from hpml_lab.course.class_page import class_page, class_rows

TOPICS = ("nets", "adaptive", "sharding")  # those whose exercises need the most of the text around them
NOTEBOOKS_WITH_EXERCISES = sorted({found.notebook for found in all_exercises()})
POINTS_AT = re.compile(
    r"\b(above|below|earlier|previous(ly)?|before(?=\W*($|[.,;:)]))"
    r"|(last|next|first|second) section|the (map|table|figures?|bars|plot))\b"
)
INSIDE = (  # what looks like a pointer, and compares two numbers or two moments, or points into the same exercise or cell
    "below one half",
    "below zero",
    "scores below 0",
    "below `smallest_normal`",
    "capacity is *above* `rate`",
    "trained the net before",
    "the row before",
    "back to the one before",
    "arrives from the layers above",
    "the table is `[[",
    "schedule as below",
    "the JSON below",
    "printed below",
    "look at the bars",
)


def in_a_kernel(topic):
    """A topic whose solved release is run at night; that of another one is on every run."""
    mark = pytest.mark.environment("a fresh kernel", files=("hpml_lab/course", "hpml_lab/core/judge"))
    return pytest.param(topic, marks=mark)


@pytest.fixture(scope="module")
def course(tmp_path_factory):
    folder = tmp_path_factory.mktemp("course")
    write_assignments(["03_nets", "05_adaptive.ipynb", "14_sharding"], folder)
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
    for topic in TOPICS:
        notebook = nbformat.read(source(course, topic), as_version=4)
        nbformat.validate(notebook)
        graded = graded_cells(notebook)
        stubs = [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("solution")]
        names = [found.name for found in all_exercises() if found.notebook.endswith(f"_{topic}")]
        assert [cell.metadata.nbgrader.grade_id for cell in stubs] == [c.metadata.nbgrader.grade_id[6:] for c in graded]
        assert sorted(cell.metadata.nbgrader.grade_id for cell in stubs) == sorted(names)
        assert source(course, topic).stat().st_size < 60_000, "without outputs and experiments"
    assert "CourseDirectory.root" in (course / "nbgrader_config.py").read_text()


def read(name):
    return nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4)


def release(name):
    """What students get: an assignment without its solutions."""
    notebook = read(name)
    slim(notebook)
    for cell in notebook.cells:
        cell.source = re.sub(r"\n *### BEGIN SOLUTION.*?### END SOLUTION", "", cell.source, flags=re.DOTALL)
    return notebook


def codes(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def graded_cells(notebook):
    return [cell for cell in notebook.cells if cell.metadata.get("nbgrader", {}).get("grade")]


def context(notebook, exercise):
    """The numbers of the cells that an exercise needs, by their tags."""
    return [n for n, cell in enumerate(notebook.cells) if f"needed-by:{exercise}" in cell.metadata.get("tags", [])]


def parts(notebook):
    """(exercise, numbers of its own cells) for each exercise of a notebook."""
    start = None
    for number, cell in enumerate(notebook.cells):
        if cell.source.startswith("### Exercise"):
            start = number
        elif found := re.match(r'check\("([\w-]+)"', cell.source):
            yield found[1], range(start, number + 1)


@pytest.mark.parametrize("name", NOTEBOOKS_WITH_EXERCISES)
def test_a_tag_names_an_exercise_further_down(name):
    notebook = read(name)
    starts = {exercise: own.start for exercise, own in parts(notebook)}
    for number, cell in enumerate(notebook.cells):
        for tag in cell.metadata.get("tags", []):
            if tag.startswith("needed-by:"):
                assert number < starts[tag.removeprefix("needed-by:")], tag


@pytest.mark.parametrize("name", NOTEBOOKS_WITH_EXERCISES)
def test_no_above_or_below_of_a_release_points_at_nothing(name):
    """Where a text points away, a cell that comes before it has the tag of the exercise."""
    notebook = read(name)
    lost = []
    for exercise, own in parts(notebook):
        needed = context(notebook, exercise)
        for number in [*needed, *own]:
            cell = notebook.cells[number]
            if cell.cell_type != "markdown" or any(earlier < number for earlier in needed):
                continue
            text = cell.source
            for phrase in INSIDE:
                text = text.replace(phrase, "")
            lost += [(exercise, number, text[max(0, m.start() - 40) : m.end() + 20]) for m in POINTS_AT.finditer(text)]
    assert lost == []


def test_a_phrase_that_is_allowed_is_used():
    text = "\n".join(cell.source for name in NOTEBOOKS_WITH_EXERCISES for cell in read(name).cells)
    assert [phrase for phrase in INSIDE if phrase not in text] == []


@pytest.mark.parametrize("name", NOTEBOOKS_WITH_EXERCISES)
def test_what_an_exercise_names_is_made_in_its_release(name):
    """A name alone, or with an attribute, between backticks: one that the notebook makes is made in the release, too."""
    notebook, made = read(name), {}
    for cell in codes(notebook):
        made |= dict.fromkeys(stored_names(cell.source))
    in_release = {stored for cell in codes(release(name)) for stored in stored_names(cell.source)}
    missing = []
    for exercise, own in parts(notebook):
        own = [notebook.cells[number] for number in own]
        known = {
            node.arg
            for cell in own
            if cell.cell_type == "code"
            for node in ast.walk(ast.parse(cell.source))
            if isinstance(node, ast.arg)
        }
        for cell in own:
            listings = "".join(re.findall(r"```python\n(.*?)```", cell.source, flags=re.DOTALL))
            spans = re.findall(r"`([A-Za-z_]\w*)(?:\.\w+)?`", cell.source) if cell.cell_type == "markdown" else []
            missing += [(exercise, span) for span in spans if span in made.keys() - in_release - known - stored_names(listings)]
    assert set(missing) <= {("complete-snapshot", "optimizer"), ("pruned-share", "prune")}  # an attribute; torch's module


def stored_names(source):
    """The names that a cell, or a listing, makes at its top level."""
    table = symtable.symtable(TransformerManager().transform_cell(source), "cell", "exec")  # a cell may hold magics
    return {symbol.get_name() for symbol in table.get_symbols() if symbol.is_assigned() or symbol.is_imported()}


def global_names(table):
    """The names that code uses, and does not make itself in a function."""
    own = {symbol.get_name() for symbol in table.get_symbols() if symbol.is_global() and symbol.is_referenced()}
    return own.union(*(global_names(child) for child in table.get_children()))


@pytest.mark.parametrize("name", NOTEBOOKS_WITH_EXERCISES)
def test_every_name_in_the_code_of_a_release_is_made_in_it(name):
    made = set(dir(builtins)) | {"display", "tl"}  # IPython provides the one, the launch of a kernel the other
    for cell in codes(release(name)):
        made |= stored_names(cell.source)
        assert global_names(symtable.symtable(cell.source, "cell", "exec")) <= made, cell.source


@pytest.mark.parametrize("name", NOTEBOOKS_WITH_EXERCISES)
def test_points_follow_difficulty_and_no_link_leads_to_another_notebook(name):
    notebook = release(name)
    headings = [cell.source for cell in notebook.cells if cell.source.startswith("### Exercise")]
    points = [cell.metadata.nbgrader.points for cell in graded_cells(notebook)]
    assert points == [heading.count("●") for heading in headings] and set(points) <= {1, 2, 3}
    assert not [
        cell.source for cell in notebook.cells if re.search(r"\]\((?!https?:)", cell.source) and cell.cell_type == "markdown"
    ]


@pytest.mark.parametrize("name", NOTEBOOKS_WITH_EXERCISES)
def test_an_untouched_release_runs_to_its_end_and_has_no_points(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])  # the shell puts its own in its place
    shell = InteractiveShell()
    for cell in codes(release(name)):
        done = shell.run_cell(cell.source)
        done.raise_error()
        assert "nbgrader" not in cell.metadata or not cell.metadata.nbgrader.grade or done.result == 0, cell.source


@pytest.mark.parametrize("topic", [in_a_kernel("nets"), "adaptive", in_a_kernel("sharding")])
def test_a_release_can_be_solved_from_what_is_in_it(course, topic, tmp_path):
    [path] = (course / "source" / topic).glob("*.ipynb")
    notebook = release(path.stem)
    for cell in notebook.cells:
        if cell.metadata.get("nbgrader", {}).get("solution"):
            cell.source = with_solution(cell.source, cell.metadata.nbgrader.grade_id)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    for cell in graded_cells(notebook):
        verdict, points = cell.outputs
        assert ": right." in verdict.data["text/plain"] and points.data["text/plain"] == str(cell.metadata.nbgrader.points)


@pytest.mark.parametrize("found", all_exercises(), ids=lambda found: found.name)
def test_every_stub_with_its_solution_compiles_and_keeps_its_head(found):
    cells = nbformat.read(NOTEBOOKS / f"{found.notebook}.ipynb", as_version=4).cells
    [stub] = [cell.source for cell in cells if cell.metadata.get("hpml", {}).get("exercise") == found.name]
    made = with_solution(stub, found.name)
    compile(made, found.name, "exec")
    assert made.startswith(stub) and made.count("### BEGIN SOLUTION") == 1


def test_the_page_reads_the_verdict_and_not_the_points(tmp_path):
    checked = nbformat.v4.new_code_cell(
        metadata={"nbgrader": {"grade_id": "check-write-adam"}},
        outputs=[
            nbformat.v4.new_output("display_data", {"text/plain": "write-adam: mistake (no-state). Keep both moments."}),
            nbformat.v4.new_output("execute_result", {"text/plain": "0"}),
        ],
    )
    folder = tmp_path / "autograded" / "ann" / "adaptive"
    folder.mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=[checked]), folder / "05_adaptive.ipynb")
    [row] = class_rows(tmp_path)["adaptive"]
    assert row.mistakes == {"no-state": 1} and row.hints == {"no-state": "Keep both moments."}


VERDICTS = {"right": "right. Well done.", "open": "not yet. Begin.", "wrong": "mistake (no-state). Keep both moments."}


def checked(exercise, verdict="right"):
    """A check cell: what it shows, or, without a verdict, as a kernel leaves it that ended before."""
    shown = [nbformat.v4.new_output("display_data", {"text/plain": f"{exercise}: {VERDICTS[verdict]}"})] if verdict else []
    return nbformat.v4.new_code_cell(
        metadata={"nbgrader": {"grade_id": f"check-{exercise}"}}, outputs=shown, execution_count=1 if verdict else None
    )


def collected(course, student, cells=(), content=None, stage="autograded"):
    """The path of a student's notebook with these cells, or this content."""
    path = course / stage / student / "adaptive" / "05_adaptive.ipynb"
    path.parent.mkdir(parents=True)
    if content is None:
        content = nbformat.writes(nbformat.v4.new_notebook(cells=list(cells)))
    if content is not False:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


WHOLE = nbformat.writes(nbformat.v4.new_notebook(cells=[checked("write-adam")]))
DAMAGED = {
    "cut off": (WHOLE[:200], "cut off"),
    "empty": ("", "empty"),
    "merge": (f"<<<<<<< HEAD\n{WHOLE}", "marks of a merge"),
    "null": ("null", "names no format"),
    "a list": ("[1, 2]", "names no format"),
    "a number": ("1e999999", "names no format"),
    "of the future": (WHOLE.replace('"nbformat": 4', '"nbformat": 5'), "names no format"),
    "no cells": ('{"nbformat": 4, "metadata": {}}', "KeyError"),
    "cells are null": ('{"nbformat": 4, "cells": null}', "TypeError"),
    "a cell is no cell": ('{"nbformat": 4, "cells": [{"metadata": 3}]}', "AttributeError"),
    "latin-1": (WHOLE.replace("Well", "Müll").encode("latin-1"), "not a whole notebook"),
    "UTF-16": (WHOLE.encode("utf-16"), "not a whole notebook"),
    "zeros": (bytes(1000), "not a whole notebook"),
    "nested": ("[" * 100_000, "RecursionError"),
    "a long number": ('{"nbformat": ' + "9" * 10_000 + "}", "ValueError"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_notebook_costs_its_students_row_alone(tmp_path, name):
    """It cost the class its page, and no file was named."""
    content, said = DAMAGED[name]
    collected(tmp_path, "ann", [checked("write-adam"), checked("first-steps", "wrong")])
    path = collected(tmp_path, "bob", content=content)
    rows = class_rows(tmp_path)["adaptive"]
    assert [(row.exercise, row.right, row.none) for row in rows] == [("write-adam", 1, ["bob"]), ("first-steps", 0, ["bob"])]
    page = class_page(tmp_path)
    assert "2 students" in page and str(path.relative_to(tmp_path)) in page and said in page


def test_what_is_no_file_is_not_opened(tmp_path, monkeypatch):
    """A pipe would be waited for, and a file of any size would be read."""
    collected(tmp_path, "ann", [checked("write-adam")])
    collected(tmp_path, "folder", content=False).mkdir()
    collected(tmp_path, "link", content=False).symlink_to("nowhere")
    collected(tmp_path, "huge")
    with (tmp_path / "autograded/huge/adaptive/05_adaptive.ipynb").open("r+b") as file:
        file.truncate(10**12)
    students = ["folder", "huge", "link"]
    if hasattr(os, "mkfifo"):
        os.mkfifo(collected(tmp_path, "pipe", content=False))
        students.append("pipe")
    assert class_rows(tmp_path)["adaptive"][0].none == students
    page = class_page(tmp_path)
    assert page.count(", not a file") == len(students) - 2 and "it has more than" in page and "cannot be read" in page


def test_a_folder_that_cannot_be_read_is_a_row_of_its_student(tmp_path, monkeypatch):
    """As nbgrader leaves them where somebody else grades; who stood in none of them was missing without a word."""
    for student in ("ann", "bob", "cid"):
        collected(tmp_path, student, [checked("write-adam")])
    closed = {tmp_path / "autograded/bob", tmp_path / "autograded/cid/adaptive"}

    def refuses(look):
        def at(path="."):
            if Path(path) in closed:
                raise PermissionError(13, "Permission denied", str(path))
            return look(path)

        return at

    for name in ("scandir", "listdir"):
        monkeypatch.setattr(os, name, refuses(getattr(os, name)))
    assert class_rows(tmp_path)["adaptive"][0].none == ["cid", "bob"]
    page = class_page(tmp_path)
    assert "3 students" in page and "autograded/bob cannot be read (Permission denied)" in page
    assert "autograded/cid/adaptive cannot be read (Permission denied)" in page
    closed.add(tmp_path / "autograded")
    with pytest.raises(LabError, match="autograded cannot be read"):
        class_page(tmp_path)


def test_a_student_whose_kernel_ended_stays_with_what_was_done(tmp_path):
    """At first the whole student was left out, who may need the next lecture most."""
    collected(tmp_path, "ann", [checked("write-adam"), checked("first-steps", "open")])
    collected(tmp_path, "bob", [checked("write-adam", "wrong"), checked("first-steps", None)])
    collected(tmp_path, "cem", [checked("write-adam")])
    (tmp_path / "autograded" / "dan" / "adaptive").mkdir(parents=True)
    collected(tmp_path, "dan", [checked("write-adam"), checked("first-steps", None)], stage="submitted")
    collected(tmp_path, "eve", [checked("write-adam", None)], stage="submitted")
    collected(tmp_path, "ann", [checked("write-adam", None)], stage="submitted")
    adam, steps = class_rows(tmp_path)["adaptive"]
    assert (adam.right, adam.mistakes, adam.none) == (3, {"no-state": 1}, ["eve"])
    assert (steps.open, steps.none) == (1, ["bob", "cem", "dan", "eve"])
    page = class_page(tmp_path)
    marked = re.findall(r"<tr><td>(\w+)</td><td>(\d) of 2</td>\s*<td>(.*?)</td>", page)
    assert [row[:2] for row in marked] == [("bob", "1"), ("cem", "1"), ("dan", "1"), ("eve", "0")] and "5 students" in page
    said = dict((student, text) for student, _, text in marked)
    assert "not run: first-steps" in said["bob"] and "no check of first-steps" in said["cem"]
    assert "has no notebook; these verdicts are those of the notebook that was handed in" in said["dan"]
    assert "a cell may have ended the kernel" in said["eve"] and "not run: write-adam" in said["eve"]


def test_a_check_counts_once_and_one_that_raised_says_so(tmp_path):
    raised = checked("first-steps", None)
    raised.outputs = [nbformat.v4.new_output("error", ename="NameError", evalue="x", traceback=[])]
    collected(tmp_path, "ann", [checked("write-adam", None), checked("write-adam"), checked("write-adam"), raised])
    adam, steps = class_rows(tmp_path)["adaptive"]
    assert (adam.right, adam.none, steps.none) == (1, [], ["ann"])
    assert "ended by NameError: first-steps" in class_page(tmp_path)


def test_metadata_of_another_kind_is_no_check(tmp_path):
    cells = [checked("write-adam") for _ in range(4)]
    for cell, about in zip(cells, (None, {"grade_id": 5}, ["x"], {}), strict=True):
        cell.metadata["nbgrader"] = about
    collected(tmp_path, "ann", [checked("first-steps"), *cells])
    assert [row.exercise for row in class_rows(tmp_path)["adaptive"]] == ["first-steps"]


def test_a_notebook_of_the_format_before_is_read(tmp_path):
    cell = {"cell_type": "code", "language": "python", "input": "", "metadata": checked("write-adam").metadata}
    cell["outputs"] = [{"output_type": "display_data", "text": ["write-adam: right. ", "Well done."], "metadata": {}}]
    before = {"nbformat": 3, "nbformat_minor": 0, "metadata": {"name": ""}, "worksheets": [{"cells": [cell], "metadata": {}}]}
    collected(tmp_path, "ann", content=json.dumps(before))
    assert class_rows(tmp_path)["adaptive"][0].right == 1


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_no_utf_8_and_half_a_character_are_shown(tmp_path):
    collected(tmp_path, os.fsdecode(b"M\xfcller"), [checked("write-adam")])
    collected(tmp_path, "ann", content=WHOLE.replace("right. Well done", "mistake (x). Half \\ud800"))
    page = class_page(tmp_path)
    atomic_write(tmp_path / "class.html", page)
    assert "2 students" in page and "\\ud800" in page
    collected(tmp_path, os.fsdecode(b"K\xf6nig"), content="")
    assert "<td>K\\xf6nig</td>" in class_page(tmp_path)


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


@pytest.mark.environment("nbgrader", files=("hpml_lab/course", "hpml_lab/core/judge"))
@pytest.mark.skipif(importlib.util.find_spec("nbgrader") is None, reason="nbgrader is not installed: pip install nbgrader")
def test_six_students_of_three_notebooks_are_graded_and_the_page_names_what_was_wrong(course):
    scores = {topic: graded(course, topic, STUDENTS) for topic in TOPICS}
    for topic, score in scores.items():
        most = sum(cell.metadata.nbgrader.points for cell in graded_cells(nbformat.read(source(course, topic), as_version=4)))
        assert score["right"] == most and score["untouched"] == 0, (topic, score)
    six = scores["adaptive"]
    assert {six[name] for name in ("wrong", "syntax", "endless", "exits")} == {six["right"] - 2}  # ●●○
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


def test_what_an_annotation_names_is_used():
    """From Python 3.14 on it is in code of its own, which looks in the class first."""
    cell = "class A:\n  x: Field\n  def f(self, y: InClass): pass\nv: Value = 3\ndef g(a: Argument = b) -> Returned: d"
    assert _loaded_and_stored(compile(cell, "cell", "exec"))[0] >= {
        "Field",
        "InClass",
        "Value",
        "Argument",
        "b",
        "Returned",
        "d",
    }


def test_slim_counts_the_exercises():
    assert slim(nbformat.read(NOTEBOOKS / "05_adaptive.ipynb", as_version=4)) == 6
