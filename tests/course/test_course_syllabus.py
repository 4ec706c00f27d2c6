"""The schedule of a term names notebooks and exercises that there are, and its minutes are those of their headers."""

import json
import re

import nbformat
import pytest

from hpml_lab.core.experiment.catalogue import catalogue, exercise_modules
from hpml_lab.core.system.paths import NOTEBOOKS, REFERENCE, ROOT

TEXT = (ROOT / "docs" / "syllabus.md").read_text(encoding="utf-8")
WEEKS = [line.strip("| ").split(" | ") for line in TEXT.splitlines() if re.match(r"\| \d+ \| \[", line)]
WEEKS_OF_A_TERM = 14
MINUTES_OFF = 15  # an exercise more or less changes nothing there
BEYOND = ("21_your_script", "22_decoding", "23_model_parallel")  # for labs, and for a course that goes on


def notebooks_of(cell):
    return re.findall(r"notebooks/(\w+)\.ipynb", cell)


def minutes_of(name):
    """Reading and exercises, as the notebook's header says them."""
    header = nbformat.read(NOTEBOOKS / f"{name}.ipynb", as_version=4).cells[0].source
    return sum(int(found) for found in re.findall(r"(?:reading|exercises) (\d+) minutes", header))


def test_every_week_has_its_notebook_and_each_notebook_its_week():
    assert [int(week) for week, *_ in WEEKS] == list(range(1, WEEKS_OF_A_TERM + 1))
    placed = [name for _, cell, *_ in WEEKS for name in notebooks_of(cell)]
    known = [path.stem for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb"))]
    assert sorted([*placed, *BEYOND]) == known


@pytest.mark.parametrize("week", WEEKS, ids=lambda week: week[0])
def test_a_week_is_as_long_as_it_says_and_hands_in_two_of_its_exercises(week):
    _, notebooks, _, minutes, exercises, question = week
    there = sum(minutes_of(name) for name in notebooks_of(notebooks))
    assert abs(int(minutes) - there) <= MINUTES_OFF, f"docs/syllabus.md says {minutes} minutes for {notebooks}: write {there}"
    named = re.findall(r"`([\w-]+)`", exercises)
    assert len(named) == 2 and {exercise_modules()[name][0] for name in named} <= set(notebooks_of(notebooks))
    assert question.endswith("?")


def test_a_mistake_that_a_question_names_is_one_that_the_checks_of_its_week_name():
    named = []
    for _, _, _, _, exercises, question in WEEKS:
        modules = [exercise_modules()[name][1].replace(".", "/") for name in re.findall(r"`([\w-]+)`", exercises)]
        judges = "".join((ROOT / f"{module}.py").read_text(encoding="utf-8") for module in modules)
        named += (mistakes := re.findall(r"`([\w-]+)`", question))
        assert [name for name in mistakes if not re.search(rf'^ +{name} ::|"{name}"', judges, flags=re.M)] == [], question
    assert len(named) >= 10


def test_a_week_names_its_notebooks_as_readme_does_and_the_lectures_of_their_examples():
    titles = set(re.findall(r"\[(\d\d [^\]]+)\]\(notebooks/(\w+)\.ipynb\)", (ROOT / "README.md").read_text(encoding="utf-8")))
    for _, notebooks, lectures, *_ in WEEKS:
        assert set(re.findall(r"\[([^\]]+)\]\(\.\./notebooks/(\w+)\.ipynb\)", notebooks)) <= titles
        named = {lecture for row in catalogue() if row.notebook in notebooks_of(notebooks) for lecture in row.lecture.split()}
        assert lectures.split(", ") == sorted(named - {"own"})


def test_the_minutes_of_a_gpu_are_those_of_the_recorded_runs():
    records = (json.loads(path.read_text(encoding="utf-8")) for path in REFERENCE.glob("*.json"))
    seconds = sum(record["seconds"] for record in records if record["device"].startswith("cuda"))
    minutes, hours = map(
        int, re.search(r"take (\d+) minutes of one GPU, those of 40 students (\d+) hours", TEXT.replace("\n", " ")).groups()
    )
    assert abs(minutes - seconds / 60) < 2 and abs(hours - 40 * seconds / 3600) < 2


def test_the_points_of_both_projects_are_twenty():
    tables = re.findall(r"\| points \| for \|\n\|---\|---\|\n((?:\| \d+ \| .*\n)+)", TEXT)
    assert [sum(map(int, re.findall(r"^\| (\d+) \|", rows, flags=re.M))) for rows in tables] == [20, 20]
