"""The lines to write: keyword arguments in the call that the script makes there, and nothing else in its file."""

import ast
from pathlib import Path

import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.referee.changes import CallEdit, as_diff, changes, chosen, edited

KEYWORDS = {"num_workers": "2", "persistent_workers": "True"}


@pytest.mark.parametrize(
    "source, line, after",
    [
        ("x = DataLoader(d, 64)\n", 1, "x = DataLoader(d, 64, num_workers=2, persistent_workers=True)\n"),
        ("x = DataLoader(d, num_workers=0)\n", 1, "x = DataLoader(d, num_workers=2, persistent_workers=True)\n"),
        ("x = f(DataLoader(d))  # é\n", 1, "x = f(DataLoader(d, num_workers=2, persistent_workers=True))  # é\n"),
        (
            "x = DataLoader(\n    d,\n    4,\n)\n",
            2,
            "x = DataLoader(\n    d,\n    4, num_workers=2, persistent_workers=True\n)\n",
        ),
        ("x = torch.utils.data.DataLoader()\n", 1, "x = torch.utils.data.DataLoader(num_workers=2, persistent_workers=True)\n"),
        ("ü = 'é'; x = DataLoader(d)\n", 1, "ü = 'é'; x = DataLoader(d, num_workers=2, persistent_workers=True)\n"),
    ],
)
def test_keywords_are_put_into_the_call(source, line, after):
    found = edited(source, [CallEdit("", line, KEYWORDS)])
    assert found == after
    ast.parse(found)


def test_two_calls_of_a_file_are_edited_at_once_and_a_line_without_a_call_is_left():
    source = "a = DataLoader(d)\nb = 1\nc = DataLoader(e, num_workers=0)\n"
    found = edited(source, [CallEdit("", line, {"num_workers": "2"}) for line in (1, 2, 3)])
    assert found == "a = DataLoader(d, num_workers=2)\nb = 1\nc = DataLoader(e, num_workers=2)\n"


def test_the_diff_names_the_file_from_the_scripts_folder(tmp_path):
    (tmp_path / "train.py").write_text("import torch\nloader = DataLoader(d)", encoding="utf-8")
    found = as_diff([CallEdit(str(tmp_path / "train.py"), 2, {"num_workers": "2"})], tmp_path)
    assert found.splitlines()[:2] == ["--- a/train.py", "+++ b/train.py"]
    assert "-loader = DataLoader(d)\n+loader = DataLoader(d, num_workers=2)\n" in found


def test_a_file_that_is_gone_or_no_python_has_no_diff(tmp_path):
    (tmp_path / "x.py").write_text("def (", encoding="utf-8")
    assert as_diff([CallEdit(str(tmp_path / name), 1, {"a": "1"}) for name in ("x.py", "gone.py")], Path.cwd()) == ""


LOOK = {
    "loaders": [{"file": "/x.py", "line": 1, "num_workers": None}],
    "optimizers": [{"file": "/x.py", "line": 2, "class": "AdamW"}],
    "zero_grad": [{"file": "/x.py", "line": 3, "set_to_none": True}],
    "anomaly": False,
    "profiler": False,
    "roots": [{"device": "cpu", "images": False, "autocast": False, "compiled": False, "dtypes": ["torch.float32"]}],
    "threads": 2,
}


def test_what_does_not_apply_says_why():
    why = {change.name: change.why_not(LOOK) for change in changes(cores=2, threads=2)}
    applies = {name for name, reason in why.items() if not reason}
    assert applies == {"workers-1", "workers-2", "workers-4", "foreach", "fused", "autocast-bf16", "compiled", "threads-1"}
    assert why["channels-last"].startswith("no network gets images")
    gpu = LOOK | {"roots": [LOOK["roots"][0] | {"device": "cuda", "images": True}]}
    assert {"pinned-memory", "cudnn-search", "tf32", "channels-last"} <= {
        change.name for change in changes(cores=2, threads=2) if not change.why_not(gpu)
    }


def test_changes_are_chosen_by_name_or_its_beginning():
    known = changes(cores=2, threads=2)
    assert [change.name for change in chosen(known, ["workers", "fused"], ["workers-1"])] == ["workers-2", "workers-4", "fused"]
    assert chosen(known, [], []) == known
    with pytest.raises(LabError, match="no change 'turbo'") as raised:
        chosen(known, ["turbo"], [])
    assert "channels-last" in raised.value.fix
