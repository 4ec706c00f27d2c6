"""Experiments are found, sized, seeded and recorded; results survive a save; claims that fail are shown."""

import json
import math

import numpy as np
import pytest
import torch

from hpml_lab.core import experiment as registry
from hpml_lab.core import machine, render, style
from hpml_lab.core.errors import LabError
from hpml_lab.core.experiment import experiment, find
from hpml_lab.core.result import Claim, Result


def draw_planted(result):
    """A line through the measured values, for the tests of the core."""
    figure = style.new_figure()
    axes = figure.subplots()
    axes.plot([row["value"] for row in result.rows])
    axes.set(xlabel="run", ylabel="value, 1")
    return figure


@pytest.fixture
def planted(monkeypatch):
    """An experiment in a registry of its own."""
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))

    @experiment(
        "planted-row",
        lecture="L0",
        notebook="99_test",
        draw=draw_planted,
        quick={"n": 2},
        full={"n": 3},
        lecture_says={"speed, m/s": "3 (by the slide)"},
        uses=("cuda",),
    )
    def planted_row(size):
        """A planted experiment for the tests."""
        rows = [{"value": torch.rand(1).item(), "kind": size.name} for _ in range(size.n)]
        claims = [Claim("two and two make four", 2 + 2 == 4), Claim("water is dry", False, measured="it is wet", exact=False)]
        assert torch.get_num_threads() == 1
        return Result(rows, claims, {"speed, m/s": 2.5}, ["no wind here"], {"grid": np.eye(2), "odd": [math.nan, math.inf]})

    return planted_row


def test_a_size_brings_its_parameters(planted):
    assert len(planted("quick").rows) == 2 and len(planted("full").rows) == 3


@pytest.mark.parametrize("size", ["medium", "", "QUICK", None, 3])
def test_a_wrong_size_is_refused_before_anything_runs(planted, size):
    with pytest.raises(LabError, match="quick or full"):
        planted(size)


def test_a_wrong_device_is_refused_before_anything_runs(planted):
    with pytest.raises(LabError, match="not a device"):
        planted("quick", device="toaster")


def test_an_old_torch_is_refused_with_the_mend(planted, monkeypatch):
    monkeypatch.setattr(machine, "installed_version", lambda package: "2.4.1+cu121")
    with pytest.raises(LabError, match="2.4.1.*too old.*2.11"):
        planted("quick")
    monkeypatch.setattr(machine, "installed_version", lambda package: None)
    with pytest.raises(LabError, match="make lab"):
        planted("quick")


def test_runs_are_seeded_and_say_where_they_ran(planted):
    first, second = planted("quick"), planted("quick")
    assert first.rows == second.rows
    assert first.machine["torch"] == torch.__version__ and first.machine["cores"] >= 1
    assert first.slug == "planted-row" and first.device == "cpu" and first.seconds > 0
    assert "quick on cpu" in first.where() and "seed 0" in first.where()


def test_a_result_survives_a_save(planted, tmp_path, same_picture):
    result = planted("quick", device="cpu")
    path = result.save(tmp_path)
    json.loads(path.read_text(), parse_constant=lambda word: pytest.fail(f"{word} is not JSON"))
    loaded = Result.load(path)
    assert loaded.rows == result.rows and loaded.claims == result.claims and loaded.where() == result.where()
    assert loaded.arrays["grid"] == [[1, 0], [0, 1]]
    assert math.isnan(loaded.arrays["odd"][0]) and loaded.arrays["odd"][1] == math.inf
    assert same_picture(loaded.figure(), result.figure()), "drawn from the file as from the run"


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"format": 0}', '{"format": 1}', '{"format": 1, "rows": []}'])
def test_a_damaged_result_is_named(tmp_path, content):
    path = tmp_path / "planted-row.json"
    path.write_text(content)
    with pytest.raises(LabError, match="planted-row.json is not a readable result"):
        Result.load(path)


def test_a_failed_exact_claim_makes_a_result_false_and_a_measured_one_does_not(planted):
    result = planted("quick")
    assert result
    result.claims.append(Claim("two and two make five", 2 + 2 == 5))
    assert not result and "FAILS: two and two make five" in repr(result)


def test_stored_text_holds_exact_claims_only(planted):
    text = repr(planted("quick"))
    assert text == "planted-row\n  holds: two and two make four"


def test_a_terminal_shows_all(planted):
    text = render.text(planted("quick"))
    for part in (
        "A planted experiment",
        "value",
        "does not hold here (measured): water is dry [it is wet]",
        "3 (by the slide)",
        "2.5",
        "note: no wind here",
        "No GPU reference has been recorded",
    ):
        assert part in text


def test_html_escapes_and_marks_claims_in_words(planted):
    result = planted("quick")
    result.claims.append(Claim("<script>alert(1)</script>", True))
    result.notes.append("run `a < b` instead")
    page = render.html_of(result)
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert "run <code>a &lt; b</code> instead" in page
    assert "does not hold here" in page and "depends on the machine" in page


def test_the_reference_is_labelled_with_its_machine(planted, tmp_path, monkeypatch):
    monkeypatch.setattr("hpml_lab.core.result.REFERENCE", tmp_path)
    recorded = planted("full")
    recorded.machine |= {"gpu": "Planted GPU"}
    recorded.quantities["speed, m/s"] = 99.0
    recorded.save(tmp_path)
    result = planted("quick")
    [row] = render.beside(result)
    assert row == {
        "quantity": "speed, m/s",
        "lecture": "3 (by the slide)",
        "here": 2.5,
        f"reference: Planted GPU (torch {torch.__version__})": 99.0,
    }
    assert "The reference is another machine's: full on cpu, Planted GPU" in render.text(result)


def test_a_notebook_gets_table_figure_and_caption(planted, monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **options: shown.append((data, options)))
    planted("quick")._ipython_display_()
    (table, _), (picture, options), (caption, _) = shown
    assert table["text/plain"].startswith("planted-row") and "<table" in table["text/html"]
    assert picture["image/png"] and "A line through the measured values" in picture["text/plain"]
    assert options["metadata"]["image/png"]["alt"] == caption["text/plain"]


def test_an_unknown_slug_suggests_the_nearest(planted):
    with pytest.raises(LabError, match="Did you mean planted-row"):
        find("planted-rwo")
    with pytest.raises(LabError, match="hpml-lab list"):
        find("zzzzzz")


def test_two_experiments_cannot_bear_one_slug(planted):
    with pytest.raises(ValueError, match="planted-row"):
        experiment("planted-row", lecture="L0", notebook="99_test")(lambda size: None)
