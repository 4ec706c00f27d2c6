"""What checks in notebooks found is kept on the reader's own disk, and `hpml-lab progress` shows it."""

import json

from hpml_lab import cli
from hpml_lab.core import check
from hpml_lab.core.experiment import results_folder
from hpml_lab.core.experiment.catalogue import exercise_modules


def test_an_exercise_that_was_right_stays_so_and_the_rest_is_tried_or_open(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HPML_RESULTS", str(tmp_path))
    check("outer-sum", lambda a, b: a[:, None] + b)
    assert not list(tmp_path.iterdir()), "outside of a notebook nothing is kept"
    monkeypatch.setattr(results_folder, "_cell", lambda: "check(…)")
    assert check("outer-sum", ...).state == "not yet" and not list(tmp_path.iterdir())
    check("standardize", lambda x: x)
    for answer in (lambda a, b: a + b, lambda a, b: a[:, None] + b, lambda a, b: a + b):
        check("outer-sum", answer)
    rows = {row["exercise"]: row for row in json.loads((tmp_path / "exercises.json").read_text())}
    assert rows["outer-sum"]["state"] == "right" and rows["standardize"]["state"] == "mistake"
    assert cli.main(["progress"]) == 0
    said = capsys.readouterr().out.splitlines()
    exercises = sum(notebook == "01_tensors" for notebook, _ in exercise_modules().values())
    assert f"01_tensors         1 of {exercises} right" in said
    assert "    right  outer-sum" in said and "    tried  standardize" in said and "    -      write-adam" in said


def test_a_damaged_file_counts_as_nothing_and_is_set_aside_by_the_next_check(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HPML_RESULTS", str(tmp_path))
    monkeypatch.setattr(results_folder, "_cell", lambda: "check(…)")
    (tmp_path / "exercises.json").write_text("{cut off")
    assert results_folder.tried_exercises(tmp_path) == {}
    check("outer-sum", lambda a, b: a[:, None] + b)
    assert "it is now called" in capsys.readouterr().err and results_folder.tried_exercises(tmp_path) == {"outer-sum": True}


def test_a_file_for_the_folder_of_results_is_named(tmp_path, monkeypatch, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("HPML_RESULTS", str(tmp_path / "file"))
    for command in ("progress", "report"):
        assert cli.main([command]) == 2
        assert f"{tmp_path / 'file'} is not a folder" in capsys.readouterr().err
