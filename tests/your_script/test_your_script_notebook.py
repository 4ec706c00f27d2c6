"""A lab in a notebook: a cell asks, runs and shows a step, and the report is the one that the command line keeps."""

import re

import pytest

from hpml_lab.core.experiment import Table
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.paths import REFERENCE
from hpml_lab.your_script import LabNotebook, scalars
from hpml_lab.your_script.tools import lab as lab_module
from hpml_lab.your_script.tools import lab_report, lab_steps
from hpml_lab.your_script.tools.lab import run_lab
from hpml_lab.your_script.tools.lab_report import DONE, FILE, implausible, read_report
from hpml_lab.your_script.tools.lab_task import Findings, LabTask, NotDone
from hpml_lab.your_script.tools.script_runs import EpochRow
from hpml_lab.your_script.views import lab_notebook
from hpml_lab.your_script.views.lab_notebook import QUICK_STEPS


@pytest.fixture
def ran(monkeypatch):
    """Steps that write down their names instead of starting a script; `devices` cannot be done."""
    names = []

    def run(name):
        def step(lab):
            names.append(name)
            if name == "devices":
                raise NotDone("torch sees no GPU here")
            return Findings([f"{name} & <more>"], [Table(f"Rows of {name}", [EpochRow(1, 0.5, 1.5, 2.0, 0.25)])])

        return step

    for name, task in list(lab_steps.TASKS.items()):
        monkeypatch.setitem(lab_steps.TASKS, name, LabTask(name, task.title, task.question, task.notebook, run(name)))
    assert lab_module.TASKS is lab_steps.TASKS
    return names


@pytest.fixture
def lab(ran, tmp_path):
    """() -> the lab of a script in a folder, at quick."""
    script = tmp_path / "train.py"
    script.write_text("")
    return lambda **options: LabNotebook([str(script)], tmp_path / "lab", **{"size": "quick", **options})


def test_at_quick_only_the_steps_that_run_the_script_once_are_run(lab, ran):
    for name in lab_steps.TASKS:
        lab().step(name)
    assert set(ran) == set(QUICK_STEPS) and len(ran) == len(QUICK_STEPS)
    assert "<code>run=True</code>" in lab().step("workers").html()
    assert "workers &amp;" in lab().step("workers", run=True).html()


def test_at_full_all_are_and_each_once(lab, ran):
    for _ in range(2):
        for name in lab_steps.TASKS:
            lab(size="full").step(name)
    assert ran == [*lab_steps.TASKS, "devices"], "what was not possible is tried again"


def test_what_was_expected_is_kept_beside_what_was_found(lab, tmp_path):
    card = lab().step("parts", 33)
    assert "You expected: 33." in card.html() and "parts &amp; &lt;more&gt;" in card.html() and "Rows of parts" in card.html()
    again = lab().step("parts", "now I know")
    assert "You expected: 33" in again.html(), "afterwards it would be no prediction"
    lab().explain("parts", "it waits")
    step = read_report(tmp_path / "lab" / FILE).step("parts")
    assert (step.prediction, step.sentence) == ("33", "it waits")


def test_a_guess_may_change_until_the_step_has_run(lab, tmp_path):
    assert "You expected: 2." in lab().step("workers", 2).html()
    assert "You expected: 4." in lab().step("workers", 4, run=True).html()
    (tmp_path / "train.py").write_text("# another script")
    assert "You expected: 5." in lab().step("workers", 5, run=True).html()


def test_a_sentence_that_is_not_there_is_not_kept(lab, tmp_path):
    lab().step("parts")
    lab().explain("parts", "mine")
    lab().explain("parts", ...)
    assert read_report(tmp_path / "lab" / FILE).step("parts").sentence == "mine"


def test_a_step_is_shown_with_its_picture_and_a_text_that_is_the_same_everywhere(lab):
    card = lab().step("parts")
    [(figure, caption)] = card.pictures()
    assert figure.axes and len(caption) > 40 and repr(card) == "parts: Where an epoch's time goes"
    assert "Not done here: torch sees no GPU here" in lab().step("devices", run=True).html()


def test_the_recorded_lab_stands_under_each_step_with_its_machine(lab, ran, tmp_path, monkeypatch):
    """At quick it is what answers the question of a step that is not run; what was not possible there says so."""
    monkeypatch.setattr(lab_report, "REFERENCE", tmp_path / "reference")
    assert "Recorded" not in lab().step("workers").html() and lab().step("workers").pictures() == []
    run_lab(lab().script, tmp_path / "reference" / "lab")
    path = tmp_path / "reference" / "lab" / FILE
    recorded = read_report(path)
    recorded.machine, recorded.cores, recorded.commit = "a processor", 4, "1a2b3c4"
    recorded.write(path.parent)
    card = lab().step("workers")
    found = card.html()
    assert found.index("Not run at this size") < found.index("Recorded lab on the template: a processor, 4 cores, no GPU")
    assert "commit 1a2b3c4" in found and "Rows of workers" in found and repr(card) == "workers: Workers of the loader"
    [(_, caption)] = card.pictures()
    assert caption.startswith("Recorded lab on the template, a processor")
    assert "Not done here: torch sees no GPU here" in lab().step("devices").html()
    [(_, caption)] = lab().step("parts").pictures()
    assert not caption.startswith("Recorded"), "its own picture, where there is one"


@pytest.mark.parametrize("path", sorted((REFERENCE / "lab").glob("*.json")), ids=lambda path: path.stem)
def test_the_recorded_lab_is_whole(path):
    report = read_report(path)
    assert [step.name for step in report.steps if step.state] == list(lab_steps.TASKS) and report.step("parts").state == DONE
    assert re.fullmatch("[0-9a-f]{7,40}", report.commit) and report.machine and report.script.startswith("lab_training.py")
    assert implausible(report, report.tables) == []


def test_the_report_becomes_a_page_and_numbers(lab):
    made = lab()
    made.step("parts")
    assert "Rows of parts" in made.write_page().read_text(encoding="utf-8")
    assert ("Rows of parts/load, s", 0.5, 0) in scalars(made.report()) and len(scalars(made.report())) == 5


def test_without_a_script_the_template_is_copied_and_kept_as_the_reader_changes_it(ran, tmp_path, monkeypatch):
    monkeypatch.setenv("HPML_RESULTS", str(tmp_path))
    made = LabNotebook(size="quick")
    path = tmp_path / "lab" / "lab_training-quick" / "lab_training.py"
    assert made.script[0] == str(path) and "--quick" in made.script and "make_net" in path.read_text(encoding="utf-8")
    path.write_text("# mine")
    assert LabNotebook(size="quick").script == made.script and path.read_text() == "# mine"


def test_another_script_or_size_has_a_folder_of_its_own(ran, tmp_path, monkeypatch):
    """So that the next step of a reader, a larger size or another script, meets no report of the one before."""
    monkeypatch.setenv("HPML_RESULTS", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_train.py").write_text("")
    for made in (LabNotebook(size="quick"), LabNotebook(size="full"), LabNotebook("my_train.py", size="full")):
        assert "parts &amp;" in made.step("parts").html()
    assert made.script == ["my_train.py"] and made.folder.name == "my_train-full"
    assert len(list((tmp_path / "lab").iterdir())) == 3


def test_where_nothing_is_kept_the_folder_is_thrown_away(ran, monkeypatch):
    monkeypatch.setenv("HPML_RESULTS", "")
    made = LabNotebook(size="quick")
    folder = made.folder
    made.step("parts")
    assert (folder / FILE).exists()
    made._thrown_away.cleanup()
    assert not folder.exists()


def test_a_step_that_there_is_none_of_is_said(lab):
    with pytest.raises(LabError, match="there is no step 'part'"):
        lab().step("part")


def test_the_page_is_written_on_another_machine_too(lab, monkeypatch):
    lab(size="full").step("parts")
    monkeypatch.setattr(lab_report.machine, "cpu_name", lambda: "a login node")
    with pytest.raises(LabError, match="the machine was"):
        lab(size="full").step("workers")
    lab().explain("parts", "as I thought")
    assert "as I thought" in lab().write_page().read_text(encoding="utf-8")


def test_a_step_has_the_seconds_that_are_given(lab, monkeypatch):
    given = []
    monkeypatch.setattr(lab_notebook, "run_lab", lambda *words, seconds, **options: given.append(seconds))
    monkeypatch.setattr(lab_notebook, "StepCard", lambda *words: None)
    for options in ({}, {"size": "full"}, {"seconds": 300.0}):
        lab(**options).step("parts")
    assert given == [20.0, 60.0, 300.0]
