"""The report: one page that holds everything, next to the lecture and the reference; a damaged file is named and left out."""

import base64
import inspect
import json
import os
import re
import stat
import sys
import threading
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpml_lab import cli
from hpml_lab.core.experiment import Claim, KeyFigure, Result, Row, Table, column, registry, results_folder
from hpml_lab.core.show import style
from hpml_lab.core.system.errors import LabError
from hpml_lab.report import guesses, machines, notebook_texts, write_report

MACHINE = {"gpu": None, "cpu": "A CPU", "cores": 2, "torch": "2.15.0"}


def draw(result):
    """Values < by step & "size"."""
    figure = style.new_figure(3, 2)
    figure.subplots().plot(result.arrays["values"])
    return figure


@pytest.fixture(autouse=True)
def experiments(own_experiments, monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "REFERENCE", tmp_path / "reference")
    for slug, notebook in (("zeta", "91_first"), ("alpha", "91_first"), ("beta", "92_second")):

        def function(params):
            """Title <b>of</b> it."""

        registry.experiment(slug, lecture="L1 L2", notebook=notebook, draw=draw)(function)


@dataclass
class NamedNumber(Row):
    name: str = column("name")
    n: int = column("n")


def result(slug, holds=True, **changes):
    fields = {
        "tables": [Table("Names", [NamedNumber("<script>alert(1)</script>", 12345)])],
        "key_figures": [KeyFigure("speed", 2.5, "GB/s", "77 (P100)")],
        "claims": [Claim("a < b", holds), Claim("it is fast", False, "x < y", exact=False)],
        "notes": ["No <GPU> here."],
        "arrays": {"values": [1, 2]},
        "slug": slug,
        "size": "quick",
        "device": "cpu",
        "machine": MACHINE,
        "when": "today",
    }
    return Result(**fields | changes, experiment=registry.find(slug))


@pytest.fixture
def folder(tmp_path):
    for slug in ("alpha", "beta", "zeta"):
        result(slug).save(tmp_path / "out")
    return tmp_path / "out"


class Reader(HTMLParser):
    """Collects the images, headings, links and tags of a page, and checks that what is opened is closed."""

    VOID = {"meta", "img", "br"}

    def __init__(self, text):
        super().__init__()
        self.images, self.tags, self.headings, self._open = [], [], [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "img":
            self.images.append(dict(attributes))
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] in ("h2", "h3") and data.strip():
            self.headings.append(data.strip())

    @property
    def results(self):
        """The headings from the first notebook's results on."""
        return self.headings[next(i for i, heading in enumerate(self.headings) if heading.endswith(": results")) :]


def page_of(folder):
    path, left_out = write_report(folder)
    return path.read_text(), left_out


def test_results_are_grouped_by_notebook_in_the_workbooks_order(folder):
    text, left_out = page_of(folder)
    assert left_out == []
    found, title = Reader(text).results, "Title <b>of</b> it"
    assert found == ["91_first: results", title, title, "92_second: results", title]
    assert [text.index(f'id="{slug}"') for slug in ("zeta", "alpha", "beta")] == sorted(
        text.index(f'id="{slug}"') for slug in ("zeta", "alpha", "beta")
    )


def test_it_needs_nothing_but_itself(folder):
    page = Reader(page_of(folder)[0])
    assert len(page.images) == 3
    for image in page.images:
        kind, data = image["src"].split(",")
        assert kind == "data:image/png;base64" and base64.b64decode(data).startswith(b"\x89PNG")
        assert image["alt"] == 'Values < by step & "size".'
    for tag, attributes in page.tags:
        assert tag not in ("script", "link", "iframe")
        assert attributes.get("href", "#").startswith("#")


def test_what_a_result_holds_is_escaped(folder):
    text, _ = page_of(folder)
    assert "<script>" not in text and "&lt;script&gt;" in text
    assert "No &lt;GPU&gt; here." in text and "a &lt; b" in text and "x &lt; y" in text


def test_lecture_and_own_figures_stand_side_by_side(folder):
    text, _ = page_of(folder)
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", text)
    rows = [cells[at : at + 3] for at, cell in enumerate(cells) if cell == "speed, GB/s"]
    assert rows == [["speed, GB/s", "77 (P100)", "2.5"]] * 6, "once in each notebook's table and once in each result"
    assert "1 of 2 claims hold" in text


def test_the_reference_is_shown_and_marked_as_another_machines(folder, tmp_path):
    gpu = MACHINE | {"gpu": "NVIDIA H200"}
    result("beta", key_figures=[KeyFigure("speed", 3300.0, "GB/s")], machine=gpu, size="full", device="cuda:0").save(
        tmp_path / "reference"
    )
    text, _ = page_of(folder)
    assert "reference: NVIDIA H200 (torch 2.15.0)" in text and "3300 <sup>a</sup>" in text
    assert "<sup>a</sup> NVIDIA H200 (torch 2.15.0), full" in text, "in the notebook's table, too, with its machine"
    alternatives = [image["alt"] for image in Reader(text).images]
    assert len(alternatives) == 4
    assert sum(alt.startswith("Recorded run, full on cuda:0, NVIDIA H200") for alt in alternatives) == 1


def test_a_failing_exact_claim_stands_at_the_top(folder):
    result("beta", holds=False).save(folder)
    text, _ = page_of(folder)
    assert "An exact claim FAILS" in text.split("<nav")[0] and 'href="#beta"' in text.split("<nav")[0]
    assert "this installation or the workbook is wrong" in section(text, "not-held")


def section(text, name):
    return text.split(f'<section id="{name}">')[1].split("</section>")[0]


def test_the_card_of_the_machine_has_its_facts_and_what_was_run(folder):
    gpu = MACHINE | {
        "gpu": "NVIDIA H200",
        "gpu_memory_gb": 140.1,
        "cuda": "13.2",
        "gpus": 2,
        "driver": "580.65",
        "launch_us": 13.8,
    }
    result("beta", machine=gpu, seconds=600.0, when="2026-11-22 10:00 UTC").save(folder)
    result("zeta", seconds=30.0, when="2026-11-23 10:00 UTC").save(folder)
    result("alpha", seconds=31.0, when="2026-11-20 10:00 UTC").save(folder)
    facts = re.findall(r"<dd>(.*?)</dd>|<h3>(.*?)</h3>", section(page_of(folder)[0], "machine"))
    assert [value or name for value, name in facts] == [
        "A CPU",
        "none that torch can use",
        "A CPU, 2 cores used",
        "2.15.0",
        "2, 61 s in all",
        "2026-11-20 to 2026-11-23",
        "NVIDIA H200",
        "2 × NVIDIA H200, 140.1 GB",
        "580.65",
        "13.8 µs",
        "A CPU, 2 cores used",
        "2.15.0, CUDA 13.2",
        "1, 10 min in all",
        "2026-11-22",
    ]


def test_a_claim_that_does_not_hold_comes_with_possible_reasons(folder, tmp_path):
    slow = Claim("it is fast", False, "1.01 times as fast: within noise", exact=False)
    seeds = Claim("it wins", False, "3 of 8", exact=False, depends_on="the seeds")
    result("beta", claims=[slow, seeds]).save(folder)
    result("beta", claims=[Claim("it is fast", True, "3 times", exact=False)], size="full").save(tmp_path / "reference")
    text = section(page_of(folder)[0], "not-held")
    of_beta = [re.findall(r"<li>(.*?)</li>", claim) for claim in text.split('<div class="claim">')[1:] if "#beta" in claim]
    assert of_beta == [
        [
            "It depends on the machine.",
            "The difference is within the noise of this run: nothing can be said from it, in either direction.",
            "With 2 cores, other programs and the measured one compete for them.",
            "In the recorded run (A CPU, 2 cores (torch 2.15.0), full) it holds: 3 times.",
            "This run was quick: small sizes, few repetitions. Try <code>hpml-lab run beta --size full</code>.",
        ],
        [
            "It depends on the seeds.",
            "This run was quick: small sizes, few repetitions. Try <code>hpml-lab run beta --size full</code>.",
        ],
    ]


def test_predictions_stand_next_to_what_was_measured(folder):
    kept = [
        {"cell": 'predicted(guess, 100 * history[-1][1], "%")', "guess": 90.0, "measured": 96.5, "unit": "%"},
        {"cell": "predicted(guess, <b>1</b>, 'times')", "guess": 4.0, "measured": 2.0, "unit": "times"},
        {"cell": "of another kind", "guess": "4", "measured": None, "unit": "times"},
        {"cell": "nothing was lost", "guess": 2.0, "measured": 0.0, "unit": "GB"},
    ]
    (folder / "predictions.json").write_text(json.dumps(kept))
    text, left_out = page_of(folder)
    assert left_out == [], "the predictions are no result"
    found = section(text, "predictions")
    assert "What accuracy on the 497 test images do you expect" in found and "03 move-to-gpu" in found
    assert [re.sub(r"<.*?>", "", cell) for cell in re.findall(r"<td>([^<]*apart|very close|)</td>", found)] == [
        "6.5 percentage points apart",
        "a factor of 2 apart",
        "",
    ]
    assert "3 predictions, 0 of them very close." in found and "2 were too high" in found
    (folder / "predictions.json").write_text("{")
    assert "None yet." in section(page_of(folder)[0], "predictions")


def test_a_guess_of_0_has_its_place_and_what_is_no_guess_is_left_out(folder):
    rows = [
        (0.0, 90.0, "%"),
        (0.0, 5.0, "calls"),
        (3.0, 0.0, "calls"),
        (0.0, 0.0, "calls"),
        (0.0, 2.0, "times"),
        (-1.0, 2.0, "s"),
    ]
    kept = [{"cell": str(n), "guess": g, "measured": m, "unit": unit} for n, (g, m, unit) in enumerate(rows)]
    (folder / "predictions.json").write_text(json.dumps(kept))
    assert [guess.position for guess in guesses.read_guesses(folder)] == [5.0, 0.0, 100.0, 50.0]


def test_every_guess_of_the_notebooks_has_its_question():
    asked = notebook_texts.questions()
    assert len(asked) >= 67
    assert [cell for cell, question in asked.items() if len(question.text) < 20 or "$" in question.text] == []
    assert [
        title for title in map(notebook_texts.title, {question.notebook for question in asked.values()}) if title[2] != " "
    ] == []


@pytest.mark.parametrize(
    "markdown, words",
    [
        ("### Predict, then measure\n\nHow many\nare right?", "How many are right?"),
        ("Text. **Predict, then measure.** How long is it? And how wide? Write it down.", "How long is it? And how wide?"),
        ("Is it so?\n\nPredict: with $\\kappa = 3$, how many?\n\nGo on.", "With κ = 3, how many?"),
        ("Nothing is asked.", ""),
    ],
)
def test_a_question_is_found_in_the_text_above_a_guess(markdown, words):
    assert notebook_texts.question(markdown) == words


def test_machines_are_described_by_experiments_that_exist(monkeypatch):
    monkeypatch.undo()
    rows = {row.slug: row for row in registry.all_experiments()}
    for slug, label, _ in machines.MEASURED:
        fixed = label.rsplit(" ", 1)[0]  # the last word may be filled in, such as the name of a format
        assert fixed in inspect.getsource(sys.modules[rows[slug].function.__module__])


def test_without_a_folder_the_page_is_made_of_what_is_kept(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    result("beta").save(tmp_path / "results")
    monkeypatch.setenv("HPML_RESULTS", str(folder))
    assert cli.main(["report"]) == 0 and capsys.readouterr().out == f"{folder / 'report.html'}\n"
    monkeypatch.setattr(results_folder, "RESULTS", tmp_path / "results")
    monkeypatch.delenv("HPML_RESULTS")
    assert cli.main(["report"]) == 0 and capsys.readouterr().out == f"{tmp_path / 'results' / 'report.html'}\n"
    monkeypatch.setenv("HPML_RESULTS", "")
    assert cli.main(["report"]) == 2 and "HPML_RESULTS is empty" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[1, 2]",
        b"\xff\xfe\x00",
        b'{"format": 99}',
        b'{"format": 2, "slug": "beta", "tables": 5}',
        b'{"format": 2, "tables": [5], "claims": [], "slug": "beta", "machine": {}}',
        b'{"format": 2, "tables": [], "claims": [], "slug": "no-such-experiment"}',
    ],
    ids=[
        "empty",
        "cut",
        "a list",
        "not text",
        "another format",
        "odd tables",
        "a table that is a number",
        "unknown experiment",
    ],
)
def test_a_damaged_file_is_named_and_left_out(folder, content, capsys):
    (folder / "beta.json").write_bytes(content)
    assert cli.main(["report", str(folder)]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("hpml-lab: left out beta.json: ") and "Traceback" not in said.err
    text = (folder / "report.html").read_text()
    assert "<code>beta.json</code>" in text and 'id="beta"' not in text and 'id="alpha"' in text
    assert said.out.strip() == str(folder / "report.html")


def test_half_of_a_surrogate_pair_is_shown_as_a_question_mark(folder):
    """UTF-8 has no bytes for it, and JSON has: "\\ud800"."""
    result("beta", notes=["a \ud800 note"], machine=MACHINE | {"cpu": "A \ud800 CPU"}).save(folder)
    asked = {"cell": "\ud800", "guess": 1.0, "measured": 2.0, "unit": "\ud800"}
    (folder / "predictions.json").write_text(json.dumps([asked]))
    text, left_out = page_of(folder)
    assert left_out == [] and "a ? note" in text and "A ? CPU" in text and "1 ?" in section(text, "predictions")


@pytest.mark.parametrize("damage", ["<<<<<<< HEAD", {"format": 3}, {"machine": {}}, {"arrays": {}}], ids=str)
def test_a_damaged_recorded_run_is_a_note_next_to_the_readers_own_result(folder, tmp_path, damage):
    path = result("beta").save(tmp_path / "reference")
    path.write_text(damage if isinstance(damage, str) else json.dumps(json.loads(path.read_text()) | damage))
    text, left_out = page_of(folder)
    assert left_out == [] and 'id="beta"' in text and text.count("The recorded run cannot be shown: ") == 1
    own = result("beta")
    assert [caption for _, caption in own.pictures()] == [own.experiment.caption]
    assert "Note: The recorded run cannot be shown: " in own.text() and "speed, GB/s" in own.html()


NUMBERS = st.one_of(st.floats(), st.integers(), st.sampled_from([0, 10**400, 5e-324, 1e308, True, None, "1"]))
PREDICTION = st.fixed_dictionaries(
    {"cell": st.text(max_size=3), "guess": NUMBERS, "measured": NUMBERS, "unit": st.sampled_from(["times", "% of it", 5])}
)


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(st.lists(PREDICTION | st.none() | st.lists(NUMBERS), max_size=4))
def test_whatever_predictions_a_file_holds_those_that_are_some_can_be_shown(tmp_path_factory, kept):
    folder = tmp_path_factory.getbasetemp()
    (folder / "predictions.json").write_text(json.dumps(kept))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guesses, "questions", lambda: {})  # read from all notebooks
        found = guesses.read_guesses(folder)
    for guess in found:
        assert 0 <= guess.position <= 100 and all(guess.here) and repr(guess.prediction) and guess.prediction.unit
        assert guess.prediction.is_close == (guess.prediction.distance == "very close")
    assert guesses.summary(found).startswith(f"{len(found)} prediction")


def test_a_file_of_predictions_nested_deep_holds_none(folder):
    (folder / "predictions.json").write_text("[" * 100_000)
    text, left_out = page_of(folder)
    assert "None yet." in section(text, "predictions")
    assert [name for name, _ in left_out] == ["predictions.json"], "it is named, and the page is there"
    (folder / "predictions.json").rename(folder / "predictions.damaged.json")
    assert "its predictions cannot be read" in page_of(folder)[1][0][1]


def test_what_checks_of_exercises_found_is_no_damaged_result(folder):
    (folder / "exercises.json").write_text(json.dumps([{"exercise": "xor", "notebook": "03_nets", "state": "right"}]))
    assert page_of(folder)[1] == [], "the advice for a damaged result is to delete it"
    (folder / "exercises.json").rename(folder / "exercises.damaged.json")
    assert "its exercises cannot be read" in page_of(folder)[1][0][1]


def test_a_page_is_written_into_a_device_and_does_not_replace_it(folder, tmp_path, capsys):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    assert cli.main(["report", str(folder), "--out", str(pipe)]) == 0
    reader.join(60)
    assert read[0].startswith(b"<!doctype html>") and stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_result_whose_figure_cannot_be_drawn_is_named(folder):
    result("beta", arrays={}).save(folder)
    _, left_out = page_of(folder)
    assert [name for name, _ in left_out] == ["beta.json"] and "'values'" in left_out[0][1]


def test_a_page_elsewhere_can_be_asked_for(folder, tmp_path, capsys):
    assert cli.main(["report", str(folder), "--out", str(tmp_path / "pages" / "mine.html")]) == 0
    assert (tmp_path / "pages" / "mine.html").is_file() and not (folder / "report.html").exists()


def test_a_folder_without_results_is_reported(tmp_path, capsys):
    with pytest.raises(LabError, match="has no readable result"):
        write_report(tmp_path)
    with pytest.raises(LabError, match="is not a folder"):
        write_report(tmp_path / "absent")
    (tmp_path / "bad.json").write_text("{")
    assert cli.main(["report", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "bad.json" in said and "hpml-lab run all --out" in said
    assert not (tmp_path / "report.html").exists()
