"""The report: one page that holds everything, next to the lecture and the reference; a damaged file is named and left out."""

import base64
import re
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest

from hpml_lab import cli
from hpml_lab.core import experiment as registry
from hpml_lab.core import style
from hpml_lab.core.errors import LabError
from hpml_lab.core.findings import Claim, KeyFigure, Table, column
from hpml_lab.core.result import Result
from hpml_lab.report import write_report

MACHINE = {"gpu": None, "cpu": "A CPU", "cores": 2, "torch": "2.15.0"}


def draw(result):
    """Values < by step & "size"."""
    figure = style.new_figure(3, 2)
    figure.subplots().plot(result.arrays["values"])
    return figure


@pytest.fixture(autouse=True)
def experiments(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "import_topics", lambda part: {})
    monkeypatch.setattr(registry, "_REGISTRY", {})
    monkeypatch.setattr(registry, "REFERENCE", tmp_path / "reference")
    for slug, notebook in (("zeta", "91_first"), ("alpha", "91_first"), ("beta", "92_second")):

        def function(params):
            """Title <b>of</b> it."""

        registry.experiment(slug, lecture="L1 L2", notebook=notebook, draw=draw)(function)


@dataclass
class Row:
    name: str = column("name")
    n: int = column("n")


def result(slug, holds=True, **changes):
    fields = {
        "tables": [Table("Names", [Row("<script>alert(1)</script>", 12345)])],
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


def page_of(folder):
    path, left_out = write_report(folder)
    return path.read_text(), left_out


def test_results_are_grouped_by_notebook_in_the_workbooks_order(folder):
    text, left_out = page_of(folder)
    assert left_out == []
    assert Reader(text).headings == ["91_first", "Title <b>of</b> it", "Title <b>of</b> it", "92_second", "Title <b>of</b> it"]
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
    at = cells.index("speed, GB/s")
    assert cells[at : at + 3] == ["speed, GB/s", "77 (P100)", "2.5"]
    assert "1 of 2 claims hold" in text


def test_the_reference_is_shown_and_marked_as_another_machines(folder, tmp_path):
    gpu = MACHINE | {"gpu": "NVIDIA H200"}
    result("beta", key_figures=[KeyFigure("speed", 3300.0, "GB/s")], machine=gpu, size="full", device="cuda:0").save(
        tmp_path / "reference"
    )
    text, _ = page_of(folder)
    assert "reference: NVIDIA H200 (torch 2.15.0)" in text and "3300" in text
    alternatives = [image["alt"] for image in Reader(text).images]
    assert len(alternatives) == 4
    assert sum(alt.startswith("Recorded run, full on cuda:0, NVIDIA H200") for alt in alternatives) == 1


def test_a_failing_exact_claim_stands_at_the_top(folder):
    result("beta", holds=False).save(folder)
    text, _ = page_of(folder)
    assert "An exact claim FAILS" in text.split("<nav")[0] and 'href="#beta"' in text.split("<nav")[0]


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
