"""A class's lab reports on one page: what is missing or cannot be, and no report costs another one anything."""

import re

import pytest

from hpml_lab.cli import main
from hpml_lab.core.experiment import Table
from hpml_lab.core.system.errors import LabError
from hpml_lab.course.lab_assignment import LABS
from hpml_lab.course.lab_reports import lab_works, reports_page
from hpml_lab.your_script import TASKS, LabReport
from hpml_lab.your_script.tools.trainings import ScriptScaling


def report(speed_up=1.8, steps=TASKS, sentence="as I said"):
    """A report of the given steps, of which the ranks have a table."""
    found = LabReport("train.py", "a machine", 4)
    for name in steps:
        tables = [Table("Ranks", [ScriptScaling("strong", 2, 64, 1.0, speed_up)])] if name == "ranks" else []
        found.keep(name, "done", [f"{name} was found"], tables, 1.0)
        found.step(name).prediction, found.step(name).sentence = "half <of> it", sentence
    return found


@pytest.fixture
def folder(tmp_path):
    """Three students: a complete report, one that lacks steps and sentences and has a speed-up of 3 on 2 ranks, and noise."""
    for name, given in {"ada": report(), "bob": report(3.0, ["parts", "ranks"], " ")}.items():
        (tmp_path / name).mkdir()
        given.write(tmp_path / name)
    (tmp_path / "eve").mkdir()
    (tmp_path / "eve" / "report.json").write_bytes(b"\xff\x00 no report")
    return tmp_path


def test_what_is_missing_and_what_cannot_be_is_said(folder):
    ada, bob, eve = lab_works(folder)
    assert ada.problems == [] and ada.done == len(TASKS)
    assert bob.problems[0].startswith("not run: workers, profile") and bob.problems[1] == "no sentence: parts, ranks"
    assert bob.problems[2] == "Ranks: 2 ranks are 3 times as fast as one"
    assert len(eve.problems) == 1 and eve.problems[0].startswith("report.json ") and eve.done == 0


def test_the_folders_of_a_course_are_read_and_a_lab_asks_for_its_steps(tmp_path):
    target = tmp_path / "submitted" / "ada" / "lab6"
    target.mkdir(parents=True)
    report(steps=LABS[6].steps).write(target)
    [work] = lab_works(tmp_path / "submitted")
    assert work.student == "ada/lab6" and work.problems == []
    assert main(["class-page", str(tmp_path / "submitted")]) == 0


def test_the_page_has_all_students_and_their_words(folder):
    page = reports_page(folder)
    assert "3 students" in page and "half &lt;of&gt; it" in page and "ranks was found" in page
    assert re.search(r"bob</td>.*?2 of \d+</td><td>not run", page, re.DOTALL)


def test_the_command_makes_the_page(folder, capsys):
    assert main(["class-page", str(folder)]) == 0
    assert "Lab reports" in (folder / "class.html").read_text(encoding="utf-8")


def test_a_folder_without_reports_is_refused(tmp_path):
    with pytest.raises(LabError, match="has no reports"):
        lab_works(tmp_path)
