"""A class's lab reports on one page: what is missing or cannot be, and no report costs another one anything."""

import re

import pytest

from hpml_lab.cli import main
from hpml_lab.core.experiment import Table
from hpml_lab.core.system.errors import LabError
from hpml_lab.course.lab_assignment import LABS
from hpml_lab.course.lab_reports import lab_works, reports_page
from hpml_lab.your_script import TASKS, LabReport, report_points
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
    assert bob.problems[0] == "parts, ranks: no sentence" and bob.problems[1].startswith("workers, profile, devices,")
    assert bob.problems[1].endswith(": not run") and bob.problems[2] == "ranks: Ranks: 2 ranks are 3 times as fast as one"
    assert len(eve.problems) == 1 and eve.problems[0].startswith("report.json ") and eve.done == 0


def test_the_folders_of_a_course_are_read_and_a_lab_asks_for_its_steps(tmp_path):
    target = tmp_path / "submitted" / "ada" / "lab6"
    target.mkdir(parents=True)
    report(steps=LABS[6].steps).write(target)
    [work] = lab_works(tmp_path / "submitted")
    assert work.student == "ada/lab6" and work.problems == []
    assert main(["class-page", str(tmp_path / "submitted")]) == 0
    page = (tmp_path / "submitted" / "class.html").read_text(encoding="utf-8")
    assert "5 of 5</td>" in page and "<p>1 student.</p>" in page


def test_the_page_and_the_points_have_the_same_problems(tmp_path):
    given = report(3.0, ["parts", "ranks"])
    given.step("parts").prediction = ""
    (tmp_path / "ada").mkdir()
    given.write(tmp_path / "ada")
    [work] = lab_works(tmp_path)
    points = report_points(tmp_path / "ada", list(TASKS))
    assert points.of - points.points == 2 * (len(TASKS) - 2) + 2
    assert work.problems[0] == "parts: no prediction" == points.problems[0]
    lost = {name for problem in work.problems for name in problem.partition(":")[0].split(", ")}
    assert lost == {problem.partition(":")[0] for problem in points.problems}


def test_who_handed_in_no_report_is_on_the_page(folder):
    for name in ("max", "max/lab", "zoe/lab1", "zoe/lab2", ".ipynb_checkpoints"):
        (folder / name).mkdir(parents=True)
    (folder / "max" / "lab" / "lab.html").write_text("the page without its report")
    ada, bob, eve, no_report, not_in_lab_2 = lab_works(folder)
    assert (no_report.student, not_in_lab_2.student) == ("max", "zoe/lab2")
    assert "report.json" in no_report.problems[0] and "not there" in no_report.problems[0] and no_report.done == 0
    assert f"0 of {len(LABS[2].steps)}</td>" in reports_page(folder)


def test_a_report_of_numbers_without_an_end_is_a_row_as_any(folder):
    given = report(steps=["ranks"])
    given.tables[0].rows[0].ranks = 10**400
    given.write(folder / "ada")
    assert [work.student for work in lab_works(folder)] == ["ada", "bob", "eve"]


def test_the_page_has_all_students_and_their_words(folder):
    page = reports_page(folder)
    assert "3 students" in page and "half &lt;of&gt; it" in page and "ranks was found" in page
    assert re.search(r"bob</td>.*?2 of \d+</td><td>parts, ranks: no sentence; workers, .*?: not run", page, re.DOTALL)


def test_the_command_makes_the_page(folder, capsys):
    assert main(["class-page", str(folder)]) == 0
    assert "Lab reports" in (folder / "class.html").read_text(encoding="utf-8")


def test_a_folder_without_reports_is_refused(tmp_path):
    with pytest.raises(LabError, match="has no reports"):
        lab_works(tmp_path)
