"""The closing page: ten habits that lead to sections that exist, with the reader's own and the recorded figures."""

import json
import re
from html.parser import HTMLParser

import pytest

from hpml_lab.core.experiment import KeyFigure, Result
from hpml_lab.core.experiment.registry import find
from hpml_lab.core.system.paths import NOTEBOOKS, REFERENCE
from hpml_lab.serving import take_home
from hpml_lab.serving.views.take_home_page import HABITS

MACHINE = {"gpu": None, "cpu": "A <CPU>", "cores": 2, "torch": "2.15.0"}


def saved(folder, slug, figures, machine=MACHINE, **changes):
    fields = {"key_figures": figures, "slug": slug, "size": "quick", "device": "cpu", "machine": machine} | changes
    Result(**fields, experiment=find(slug)).save(folder)


class Cells(HTMLParser):
    """The text of each cell of a table, and the addresses of its links."""

    def __init__(self, text):
        super().__init__()
        self.cells, self.links = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        if tag in ("td", "th"):
            self.cells.append("")
        self.links += [value for name, value in attributes if name == "href"]

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


def rows(shown):
    cells = Cells(shown._repr_html_().split("</table>")[0]).cells
    return [cells[start : start + 5] for start in range(5, len(cells), 5)]


@pytest.fixture
def reference(tmp_path, monkeypatch):
    monkeypatch.setattr("hpml_lab.serving.views.take_home_page.REFERENCE", tmp_path / "reference")
    return tmp_path / "reference"


@pytest.mark.parametrize("habit", HABITS, ids=lambda habit: habit.slug)
def test_a_habit_leads_to_the_section_of_its_experiment(habit):
    assert find(habit.slug).notebook == habit.notebook
    cells = json.loads((NOTEBOOKS / f"{habit.notebook}.ipynb").read_text(encoding="utf-8"))["cells"]
    [text] = ["".join(cell["source"]) for cell in cells if cell["id"] == habit.cell]
    assert re.match(rf"## .+ · `{habit.slug}`\n", text)
    assert habit.link == f"{habit.notebook}.ipynb#cell-id={habit.cell}"


def test_recorded_runs_have_the_figures():
    recorded = {habit: REFERENCE / f"{habit.slug}.json" for habit in HABITS}
    found = {habit: json.loads(path.read_text(encoding="utf-8")) for habit, path in recorded.items() if path.is_file()}
    labels = {habit: {figure["label"] for figure in record["key_figures"]} for habit, record in found.items()}
    assert labels and [habit.slug for habit in labels if not labels[habit] & set(habit.figures)] == []


def test_without_any_run_it_says_so(tmp_path, reference):
    shown = take_home(tmp_path / "absent")
    assert len(HABITS) == len({habit.slug for habit in HABITS}) == 10 and shown.missing == 10
    assert {tuple(row[3:]) for row in rows(shown)} == {("not run yet", "none recorded")}
    assert "Still to come from you: 10 of the 10 figures" in shown._repr_html_()


def test_own_and_recorded_figures_stand_side_by_side_with_their_machines(tmp_path, reference):
    saved(tmp_path, "xor", [KeyFigure("seeds right after 5000 epochs", 71.5, "%")])
    gpu = MACHINE | {"gpu": "NVIDIA H100"}
    saved(reference, "xor", [KeyFigure("seeds right after 5000 epochs", 63.9, "%")], gpu, size="full", device="cuda:0")
    shown = take_home(tmp_path)
    [row] = [row for row in rows(shown) if row[2].startswith("xor")]
    assert row[3:] == ["71.5 %A <CPU>, 2 cores (torch 2.15.0), quick", "63.9 %NVIDIA H100 (torch 2.15.0), full"]
    assert "<CPU>" not in shown._repr_html_() and shown.missing == 9


def test_the_gpus_figure_comes_first_and_one_that_was_not_measured_does_not_count(tmp_path, reference):
    both = [
        KeyFigure("simulation: naive share of loss.item()", 99.9, "%"),
        KeyFigure("GPU: naive share of loss.item()", 88.8, "%"),
    ]
    saved(tmp_path, "async-timing", both)
    saved(reference, "async-timing", both[:1])
    saved(tmp_path, "amp-training", [KeyFigure("AMP over fp32", None, "times")])
    by_slug = {row[2].split(" ")[0]: row for row in rows(take_home(tmp_path))}
    assert by_slug["async-timing"][3].startswith("88.8 %") and by_slug["async-timing"][4].startswith("99.9 %")
    assert by_slug["amp-training"][3] == "not run yet"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"format": 1}', '{"format": 2}', '{"format": 2, "key_figures": [5], "machine": 5}']
)
def test_a_damaged_result_is_as_good_as_none(tmp_path, reference, content):
    (tmp_path / "xor.json").write_text(content)
    assert take_home(tmp_path).missing == 10


def test_its_text_is_the_same_on_every_machine(tmp_path, reference):
    before = repr(take_home(tmp_path))
    saved(tmp_path, "xor", [KeyFigure("seeds right after 5000 epochs", 71.5, "%")])
    assert repr(take_home(tmp_path)) == before and before.count("\n") == 9


def test_the_folder_is_that_of_the_notebooks_unless_another_is_named(tmp_path, reference, monkeypatch):
    saved(tmp_path, "xor", [KeyFigure("seeds right after 5000 epochs", 71.5, "%")])
    assert take_home().missing == 10, "tests keep nothing"
    monkeypatch.setenv("HPML_RESULTS", str(tmp_path))
    assert take_home().missing == 9
