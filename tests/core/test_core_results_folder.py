"""What notebooks run is kept: results and predictions, in a folder of the reader's own, and never by a test."""

import json
import multiprocessing
import os

import pytest

from hpml_lab.core.experiment import Result, results_folder
from hpml_lab.core.experiment.registry import find
from hpml_lab.core.judge.prediction import predicted
from hpml_lab.core.system.paths import RESULTS


class Shell:
    """What `get_ipython()` returns in a notebook, as far as it is used."""

    def __init__(self, cell):
        self.user_ns = {"In": ["", cell]}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HPML_RESULTS", str(tmp_path / "results"))
    return tmp_path / "results"


@pytest.fixture
def cell(monkeypatch):
    """(code) the code of the cell that a notebook runs now; at first one that runs an experiment."""

    def run(code):
        monkeypatch.setattr("IPython.get_ipython", lambda: Shell(code))

    run("nets.xor()")
    return run


def made(size="quick", **changes):
    machine = {"cpu": "A CPU", "cores": 2, "torch": "2.15.0"}
    fields = {"slug": "xor", "size": size, "device": "cpu", "notes": ["first"], "machine": machine} | changes
    return Result(**fields, experiment=find("xor"))


def test_tests_keep_nothing_and_notebooks_keep_in_the_projects_folder(monkeypatch, cell):
    cell("predicted(guess, 1)")
    assert results_folder.results_folder() is None, "conftest.py says so"
    before = sorted(RESULTS.glob("*.json"))
    results_folder.keep(made())
    predicted(3, 2.0, "times")
    assert sorted(RESULTS.glob("*.json")) == before
    monkeypatch.delenv("HPML_RESULTS")
    assert results_folder.results_folder() == RESULTS


def test_the_newest_result_is_kept_but_quick_does_not_replace_full(folder, cell):
    def notes():
        return find("xor").load(folder / "xor.json").notes

    results_folder.keep(made())
    (folder / "xor.png").write_bytes(b"the picture of an older run")
    results_folder.keep(made(notes=["second"]))
    assert notes() == ["second"] and not (folder / "xor.png").exists()
    results_folder.keep(made("full, scaled to a half", notes=["scaled"]))
    results_folder.keep(made(notes=["quick again"]))
    assert notes() == ["scaled"]
    results_folder.keep(made("full", notes=["third"]))
    results_folder.keep(made(notes=["fourth"]))
    results_folder.keep(made("full, scaled to a half", notes=["scaled"]))
    assert notes() == ["third"]
    results_folder.keep(made("full", notes=["fifth"]))
    assert notes() == ["fifth"]


@pytest.mark.parametrize("content", ["{", "[1, 2]", "", "7"])
def test_a_damaged_file_is_replaced(folder, cell, content):
    folder.mkdir()
    (folder / "xor.json").write_text(content)
    results_folder.keep(made())
    assert find("xor").load(folder / "xor.json").notes == ["first"]


def test_a_file_nested_deep_is_replaced(folder, cell):
    folder.mkdir()
    (folder / "xor.json").write_text("[" * 200_000)
    results_folder.keep(made())
    assert find("xor").load(folder / "xor.json").notes == ["first"]


def test_a_full_run_that_cannot_be_read_is_set_aside_and_blocks_nothing(folder, cell, capsys):
    folder.mkdir()
    damaged = '{"format": 2, "size": "full", "slug": "xor"}'
    (folder / "xor.json").write_text(damaged)
    results_folder.keep(made())
    assert find("xor").load(folder / "xor.json").notes == ["first"]
    assert (folder / "xor.damaged.json").read_text() == damaged
    assert "xor.json is not a readable result" in (said := capsys.readouterr().err) and "now called xor.damaged.json" in said


def test_a_result_of_no_experiment_is_not_kept(folder, cell):
    results_folder.keep(Result())
    assert not folder.exists()


def test_a_folder_that_cannot_be_written_is_reported_and_nothing_fails(folder, cell, capsys):
    folder.write_text("a file where the folder should be")
    cell("predicted(guess, 1)")
    results_folder.keep(made())
    predicted(3, 2.0, "times")
    said = capsys.readouterr().err
    assert "This result was not kept" in said and "This prediction was not kept" in said


def test_a_prediction_is_kept_with_its_cell_and_the_last_guess_counts(folder, cell):
    results_folder.keep(made())
    cell("predicted(guess, a)\n")
    predicted(3, 2.0, "times")
    predicted(5, 2.0, "times")
    cell("predicted(guess, b)")
    predicted(40, 70.0, "%")
    assert results_folder.read_predictions(folder) == [
        {
            "cell": "predicted(guess, a)",
            "guess": 5.0,
            "measured": 2.0,
            "unit": "times",
            "slug": "xor",
            "size": "quick",
            "device": "cpu",
        },
        {
            "cell": "predicted(guess, b)",
            "guess": 40.0,
            "measured": 70.0,
            "unit": "%",
            "slug": "xor",
            "size": "quick",
            "device": "cpu",
        },
    ]


@pytest.mark.parametrize(
    "guess, measured",
    [(..., 2.0), ("3", 2.0), (-1, 2.0), (0, 2.0), (True, 2.0), (3, float("nan")), pytest.param(10**400, 2.0, id="10^400")],
)
def test_what_is_no_prediction_is_not_kept(folder, cell, guess, measured):
    cell("predicted(guess, a)")
    predicted(guess, measured, "times")
    assert not (folder / "predictions.json").exists()


def test_a_guess_of_0_is_kept(folder, cell):
    cell("predicted(guess, a)")
    predicted(0, 2.0, "%")
    assert [row["guess"] for row in results_folder.read_predictions(folder)] == [0.0]


def test_outside_of_a_notebook_no_prediction_is_kept(folder):
    predicted(3, 2.0, "times")
    assert not folder.exists()


def test_damaged_predictions_are_left_out(folder):
    folder.mkdir()
    whole = {"cell": "a", "guess": 1, "measured": 2.5, "unit": "%"}
    (folder / "predictions.json").write_text(json.dumps([whole, 5, {"cell": "b"}, whole | {"guess": "1"}]))
    assert results_folder.read_predictions(folder) == [whole]
    (folder / "predictions.json").write_text("nothing")
    assert results_folder.read_predictions(folder) == []


DAMAGED = '[\n {"cell": "a", "guess": 1, "measured": 2.5, "unit": "%"},\n]\n'  # one comma too much


def test_predictions_that_cannot_be_read_are_set_aside_and_named(folder, cell, capsys):
    cell("predicted(guess, a)")
    folder.mkdir()
    for name in ("predictions.damaged.json", "predictions.damaged-2.json"):
        (folder / "predictions.json").write_text(DAMAGED)
        predicted(3, 2.0, "times")
        assert (folder / name).read_text() == DAMAGED and len(results_folder.read_predictions(folder)) == 1
        assert f"could not be read; it is now called {name}" in capsys.readouterr().err


def test_a_prediction_written_by_another_version_is_left_in_the_file(folder, cell):
    cell("predicted(guess, a)")
    folder.mkdir()
    strange = [5, {"cell": "b"}, {"cell": "c", "guess": "much", "measured": 1.0, "unit": "%"}]
    (folder / "predictions.json").write_text(json.dumps(strange))
    predicted(3, 2.0, "times")
    assert json.loads((folder / "predictions.json").read_text())[:3] == strange


def keep_twenty(number):
    for index in range(20):
        results_folder._cell = lambda: f"cell {number}-{index}"  # noqa: B023
        results_folder.keep_prediction(1.0 + index, 2.0, "times")


def test_two_notebooks_that_keep_twenty_predictions_each_keep_forty(folder):
    context = multiprocessing.get_context("fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn")
    notebooks = [context.Process(target=keep_twenty, args=(number,)) for number in range(2)]
    for notebook in notebooks:
        notebook.start()
    for notebook in notebooks:
        notebook.join(120)
    assert [notebook.exitcode for notebook in notebooks] == [0, 0] and len(results_folder.read_predictions(folder)) == 40


@pytest.mark.skipif(os.name != "posix", reason="~user")
def test_a_folder_of_nobody_is_reported_and_nothing_fails(cell, capsys, monkeypatch):
    monkeypatch.setenv("HPML_RESULTS", "~nosuchuser/x")
    results_folder.keep(made())
    results_folder.keep_prediction(1.0, 2.0, "x")
    results_folder.keep_verdict("01_tensors", "outer-sum", "right", "")
    shown = capsys.readouterr().err.splitlines()
    assert [line.split(" was not kept: ")[0] for line in shown] == ["This result", "This prediction", "What this check found"]
    assert all("HPML_RESULTS is ~nosuchuser/x, and there is no such user" in line for line in shown)


def test_a_kept_figure_in_which_a_bit_flipped_is_left_out(folder, cell):
    cell("predicted(guess, a)")
    predicted(5, 2.0, "times")
    results_folder.keep_verdict("01_tensors", "outer-sum", "mistake", "transposed")
    for name, read in (("predictions", results_folder.read_predictions), ("exercises", results_folder.tried_exercises)):
        path = folder / f"{name}.json"
        content, expected = bytearray(path.read_bytes()), read(folder)
        assert len(expected) == 1 and b"sha256" in content
        for at in range(len(content)):
            content[at] ^= 1
            path.write_bytes(content)
            assert not (found := read(folder)) or found == expected or b"sha256" not in content, (name, at)
            content[at] ^= 1
