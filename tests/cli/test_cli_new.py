"""`hpml-lab new` writes skeletons that pass the tests but for what it says, or nothing."""

import os
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
import test_notebook_texts

from hpml_lab import cli
from hpml_lab.cli import new
from hpml_lab.core.experiment import catalogue
from hpml_lab.core.system import files
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.installed import find_tool
from hpml_lab.core.system.paths import NOTEBOOKS, ROOT

TOPIC, NOTEBOOK = "nets", "03_nets"
TREE = ("hpml_lab", "tests", "notebooks", "data/reference", "conftest.py", "pyproject.toml", "README.md")
JUDGES = ["house", "notebook_texts", "exercises", "lids", "claims", "seconds", "readings"]


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources, notebooks and tests in a folder of their own, which is no clone."""
    folder = tmp_path_factory.mktemp("copy")
    for name in TREE:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    return folder


def in_copy(copy, *command):
    variables = {**os.environ, "PYTHONPATH": str(copy)}
    return subprocess.run([sys.executable, *command], cwd=copy, env=variables, capture_output=True, text=True)


def state(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts}


# ---- what is written, in this process ------------------------------------------------------------------------------


def test_an_experiment_is_a_module_a_name_a_test_and_a_section():
    planned, to_fill_in = new.planned(ROOT, "experiment", "kept-for-the-test", "3")
    module, front_door, test, notebook = planned.values()
    assert [path.relative_to(ROOT).as_posix() for path in planned] == [
        "hpml_lab/nets/experiments/kept_for_the_test.py",
        "hpml_lab/nets/__init__.py",
        "tests/nets/test_nets_kept_for_the_test.py",
        "notebooks/03_nets.ipynb",
    ]
    assert '@experiment("kept-for-the-test", ' in module and "class KeptForTheTestRow(Row):" in module
    before = (ROOT / "hpml_lab" / TOPIC / "__init__.py").read_text(encoding="utf-8").splitlines()
    added = [line for line in front_door.splitlines() if line not in before]
    assert re.fullmatch(r"    kept_for_the_test +TODO: what it shows", added[0]), "in the docstring, in its column"
    assert added[1:] == ["    from hpml_lab.nets.experiments.kept_for_the_test import kept_for_the_test as kept_for_the_test"]
    assert front_door.index(added[1]) > front_door.index("import move_to_gpu"), "behind the experiments that were there"
    assert 'ran("kept-for-the-test")' in test
    cells = nbformat.reads(notebook, as_version=4).cells
    own = [cell.id.removeprefix("kept-for-the-test-") for cell in cells if cell.id.startswith("kept-for-the-test-")]
    assert own == ["text", "predict", "guess", "run", "predicted", "text-2", "reading"]
    assert cells[[cell.id for cell in cells].index(f"kept-for-the-test-{own[-1]}") + 1].source.startswith("## Five questions")
    assert [tests for _, tests in to_fill_in] == [new.MARKED[1], [*new.NOT_RUN, new.NOT_TIMED, new.NOT_READ]]


def test_an_exercise_is_a_judge_its_answers_and_three_cells():
    planned, _ = new.planned(ROOT, "exercise", "also-for-the-test", NOTEBOOK)
    judge, answers, notebook = planned.values()
    assert [path.relative_to(ROOT).as_posix() for path in planned] == [
        "hpml_lab/nets/exercises/also_for_the_test.py",
        "tests/nets/answers/also_for_the_test.py",
        "notebooks/03_nets.ipynb",
    ]
    assert '@exercise("also-for-the-test", notebook="03_nets", takes="values", returns=float)' in judge
    assert "def solution(" in answers
    before, after = nbformat.read(NOTEBOOKS / f"{NOTEBOOK}.ipynb", as_version=4), nbformat.reads(notebook, as_version=4)
    text, stub, check = [cell for cell in after.cells if "also-for-the-test" in cell.id]
    assert text.source.startswith("### Exercise") and check.source == 'check("also-for-the-test", also_for_the_test)'
    assert stub.metadata == {"hpml": {"exercise": "also-for-the-test"}, "tags": ["exercise"]}
    assert check.metadata == {"tags": ["exercise-check"]}
    minutes = [int(re.search(r"exercises (\d+) minutes", found.cells[0].source)[1]) for found in (before, after)]
    assert minutes[1] - minutes[0] == new.EXERCISE_MINUTES


def test_no_name_of_an_experiment_can_be_taken_again():
    for row in catalogue.catalogue():
        with pytest.raises(LabError, match=f"{row.slug} is taken by"):
            new.planned(ROOT, "experiment", row.slug, row.notebook)


WITHOUT_EXPERIMENTS = "21_your_script"
TAKERS = [path for path in sorted(NOTEBOOKS.glob("[0-9]*.ipynb")) if path.stem != WITHOUT_EXPERIMENTS]


@pytest.mark.parametrize("kind", ["experiment", "exercise"])
def test_a_notebook_of_the_readers_own_script_takes_none(kind):
    with pytest.raises(LabError, match="has no experiments"):
        new.planned(ROOT, kind, "a-name-as-long-as-nobody-else-has", WITHOUT_EXPERIMENTS)


@pytest.mark.parametrize("path", TAKERS, ids=lambda path: path.stem)
def test_every_notebook_takes_one_of_each(path):
    for kind in ("experiment", "exercise"):
        planned, _ = new.planned(ROOT, kind, "a-name-as-long-as-nobody-else-has", path.stem)
        for written, text in planned.items():
            if written.suffix == ".py":
                compile(text, str(written), "exec")
                assert max(map(len, text.splitlines())) <= new.LINE, written
            elif written == path:
                notebook = nbformat.reads(text, as_version=4)
                notebook.name = path.stem
                test_notebook_texts.test_five_questions_and_their_answers_stand_before_the_key_points(notebook)


@pytest.mark.parametrize(
    "kind, name, notebook, problem",
    [
        ("experiment", "xor", "15", "is taken by hpml_lab/nets/experiments/xor.py"),
        ("exercise", "sgd-step", "15", "is taken by hpml_lab/nets/exercises/sgd_step.py"),
        ("experiment", "parameter-count", "03", "hpml_lab.nets has something else"),
        ("experiment", "lessons", "03", "hpml_lab.nets has something else"),
        ("experiment", "class", "03", "not a valid name"),
        ("exercise", "Mean_of", "03", "not a valid name"),
        ("exercise", "also-for-the-test", "77", "there is no notebook '77'. Name one of 00_start"),
    ],
)
def test_a_name_or_a_notebook_that_cannot_be_is_said(kind, name, notebook, problem):
    with pytest.raises(LabError, match=re.escape(problem)):
        new.planned(ROOT, kind, name, notebook)


def test_an_installed_package_says_where_it_works(monkeypatch, capsys):
    monkeypatch.setattr(new, "CHECKOUT", False)
    assert cli.main(["new", "exercise", "also-for-the-test", "--notebook", "03"]) == 2
    assert "Clone the project" in capsys.readouterr().err


def test_what_cannot_be_written_whole_is_not_written_at_all(tmp_path, monkeypatch):
    changed, first, last = tmp_path / "changed", tmp_path / "new", tmp_path / "no" / "more"
    changed.write_text("before")
    wrote = files.atomic_write

    def full(path, text):
        if path == last:
            raise LabError("the disk is full.", "")
        return wrote(path, text)

    monkeypatch.setattr(files, "atomic_write", full)
    with pytest.raises(LabError):
        new.write_all({changed: "after", first: "new", last: "new"})
    assert state(tmp_path) == {changed: b"before"}


# ---- what they are worth, in a copy of the tree --------------------------------------------------------------------


@pytest.mark.environment(
    "pytest in a copy of the project",
    files=(
        "hpml_lab/cli/new.py",
        "hpml_lab/cli/skeletons",
        "tests/test_house.py",
        "tests/test_notebook_texts.py",
        "tests/test_exercises.py",
    ),
)
def test_one_of_each_passes_every_test_but_those_that_it_names(copy):
    """The judges of a new experiment and a new exercise, in a process that has nothing but the copy."""
    named = set()
    for kind, name in (("experiment", "kept-for-the-test"), ("exercise", "also-for-the-test")):
        done = in_copy(copy, "-m", "hpml_lab", "new", kind, name, "--notebook", "03")
        assert done.returncode == 0, done.stderr
        named |= set(re.findall(r"\btest_\w+", done.stdout.partition("To fill in")[2]))
        before = state(copy)
        again = in_copy(copy, "-m", "hpml_lab", "new", kind, name, "--notebook", "03")
        assert again.returncode == 2 and "is taken by" in again.stderr and state(copy) == before
    if ruff := find_tool("ruff"):
        for check in (["check"], ["format", "--check"]):
            done = subprocess.run([ruff, *check, "hpml_lab", "tests"], cwd=copy, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
    tests = [*(f"tests/test_{name}.py" for name in JUDGES), f"tests/{TOPIC}/test_{TOPIC}_kept_for_the_test.py"]
    chosen = f"kept_for_the_test or kept-for-the-test or also-for-the-test or {NOTEBOOK} or [{TOPIC}] or {TOPIC}/"
    chosen += " or class_name or slugs or stored_with"
    done = in_copy(copy, "-m", "pytest", "-q", "-rA", "-p", "no:xdist", "-o", "addopts=", *tests, "-k", chosen)
    failed, passed = (set(re.findall(rf"^{how} .*::(test_\w+)", done.stdout, flags=re.M)) for how in ("FAILED", "PASSED"))
    assert failed == named, done.stdout[-6000:]
    assert {
        "test_a_topics_front_door_lists_what_it_offers_and_says_what_each_name_is",
        "test_an_experiment_is_described_and_taught",
        "test_experiments_keep_the_order_of_the_notebooks_headings",
        "test_every_row_of_a_rubric_runs_and_is_named",
        "test_the_notebook_is_green_with_everything_solved",
        "test_notebook_and_checks_name_the_same_exercises",
        "test_it_is_sound",
    } <= passed
    for marked in ("experiments/kept_for_the_test.py", "answers/also_for_the_test.py", "cell kept-for-the-test-text"):
        assert re.search(rf"{marked}.*TODO", done.stdout), f"the failure shows where to fill in: {marked}"
