"""What waits for the night says why, and still runs on a push that changed what it is about."""

import ast
from types import SimpleNamespace

import plan
import pytest
from plan import ROOT, Plan, group_of


def marks():
    """(test file, mark) of each `pytest.mark.nightly` and `pytest.mark.environment` that is called in a test file."""
    for path in plan.python_files(ROOT / "tests"):
        for node in ast.walk(plan.parsed(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("pytest.mark.nightly", "pytest.mark.environment"):
                yield path, node


MARKS = [(path, node) for path, node in marks() if path != "tests/test_nightly.py"]


@pytest.mark.parametrize("path, mark", MARKS, ids=[f"{path}:{mark.lineno}" for path, mark in MARKS])
def test_a_mark_has_a_reason_and_files_whose_change_runs_the_test(path, mark):
    assert [type(given) for given in mark.args] == [ast.Constant] and mark.args[0].value, (
        f"{path}:{mark.lineno}: say in a few words what the test starts, or why it takes long"
    )
    if ast.unparse(mark.func) == "pytest.mark.nightly":
        assert mark.keywords == [], f"{path}:{mark.lineno}: a mark with files is called environment"
        return
    files = {given.arg: ast.literal_eval(given.value) for given in mark.keywords}.get("files", ())
    assert files and isinstance(files, tuple), f"{path}:{mark.lineno}: name the files that can break the test: files=(…, )"
    for name in files:
        assert (ROOT / name).exists(), f"{path}:{mark.lineno}: {name} is gone: name the file or the folder that took its place"
        assert name in plan.used_by_a_test(path), f"`--changed` does not read {name} of {path}: see `marked_files` of plan.py"


def test_every_mark_is_called():
    bare = [
        f"{path}:{node.lineno}"
        for path in plan.python_files(ROOT / "tests")
        for node in ast.walk(plan.parsed(path))
        if isinstance(node, ast.FunctionDef)
        for given in node.decorator_list
        if ast.unparse(given) in ("pytest.mark.nightly", "pytest.mark.environment")
    ]
    assert bare == [], "give the mark its reason"


def item(mark):
    found = {"get_closest_marker": lambda name: mark if mark.name == name else None}
    return SimpleNamespace(nodeid="tests/a.py::test_b", path=ROOT / "tests" / "a.py", **found)


def test_a_run_says_why_a_test_waits_and_ends_where_nobody_said_it(request, monkeypatch):
    why = request.config.pluginmanager.get_plugin(str(ROOT / "conftest.py")).why_at_night
    monkeypatch.setattr(plan, "CHOSEN", Plan(set(), {"docs/conf.py"}))
    assert why(item(pytest.mark.nightly("a thousand draws").mark)) == "a thousand draws: runs with `make nightly`"
    assert why(item(pytest.mark.environment("Chromium", files=("docs",)).mark)) is None
    with monkeypatch.context() as patch:
        patch.setattr(plan, "CHOSEN", Plan(set(), {"tests/a.py"}))
        assert why(item(pytest.mark.environment("Chromium", files=("docs",)).mark)) is None, "whoever edits a test sees it run"
    assert why(item(pytest.mark.environment("Chromium", files=("data",)).mark)).startswith(
        "Chromium: runs with `make nightly`, or"
    )
    assert why(item(pytest.mark.cuda.mark)) is None
    for mark in (pytest.mark.nightly, pytest.mark.environment):
        with pytest.raises(pytest.UsageError, match="tests/a.py::test_b: say why it waits"):
            why(item(mark.mark))


@pytest.mark.parametrize("prefix", plan.APART)
def test_a_long_test_is_a_group_of_its_own(prefix):
    path, _, test = prefix.partition("::")
    assert f"def {test}" in (ROOT / path).read_text(encoding="utf-8"), f"{prefix} was renamed: say so in APART of plan.py"
    assert group_of(f"{prefix}[a]") != group_of(f"{prefix}[b]") and group_of(f"{prefix}[a]") != group_of(
        f"{path}::test_other_one"
    )
