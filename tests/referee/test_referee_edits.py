"""The lines to write: keyword arguments in the call that the script makes there, and nothing else in its file."""

import ast
from pathlib import Path

import pytest

from hpml_lab.core.system.errors import LabError
from hpml_lab.referee.changes import CallEdit, as_diff, changes, chosen, edited

KEYWORDS = {"num_workers": "2", "persistent_workers": "True"}


def end_of(source, call="DataLoader("):
    """Line and byte where the call ends that begins so: as Python says it while it is called."""
    parsed = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    [found] = [node for node in parsed if ast.get_source_segment(source, node.func).endswith(call[:-1])]
    return found.end_lineno, found.end_col_offset


@pytest.mark.parametrize(
    "source, after",
    [
        ("x = DataLoader(d, 64)\n", "x = DataLoader(d, 64, num_workers=2, persistent_workers=True)\n"),
        ("x = DataLoader(d, num_workers=0)\n", "x = DataLoader(d, num_workers=2, persistent_workers=True)\n"),
        ("x = DataLoader(d, 1, 1, s, b, 0)\n", "x = DataLoader(d, 1, 1, s, b, 2, persistent_workers=True)\n"),
        ("x = f(DataLoader(d))  # é\n", "x = f(DataLoader(d, num_workers=2, persistent_workers=True))  # é\n"),
        ("x = DataLoader(\n    d,\n    4,\n)\n", "x = DataLoader(\n    d,\n    4, num_workers=2, persistent_workers=True\n)\n"),
        ("x = torch.utils.data.DataLoader()\n", "x = torch.utils.data.DataLoader(num_workers=2, persistent_workers=True)\n"),
        ("ü = 'é'; x = DataLoader(d)\n", "ü = 'é'; x = DataLoader(d, num_workers=2, persistent_workers=True)\n"),
        ("x = DataLoader(d, **options)\n", 'x = DataLoader(d, **{**options, "num_workers": 2, "persistent_workers": True})\n'),
    ],
)
def test_keywords_are_put_into_the_call(source, after):
    found = edited(source, [CallEdit("", *end_of(source), KEYWORDS)])
    assert found == after
    ast.parse(found)


@pytest.mark.parametrize("before", ["False", "set_to_none=False", "set_to_none=0"])
def test_what_is_given_is_replaced_by_name_or_place(before):
    source = f"net.zero_grad({before})\n"
    after = edited(source, [CallEdit("", *end_of(source, "zero_grad("), {"set_to_none": "True"})])
    assert after == f"net.zero_grad({before.rpartition('=')[0] and 'set_to_none='}True)\n"


def test_a_call_within_another_is_not_taken_for_it():
    """A class in a variable: its name says nothing, and the call in its arguments is on the same line."""
    source = "optimizer = chosen(net.parameters(), lr=1e-3)\n"
    after = edited(source, [CallEdit("", *end_of(source, "chosen("), {"fused": "True"})])
    assert after == "optimizer = chosen(net.parameters(), lr=1e-3, fused=True)\n"


def test_two_calls_of_a_file_are_edited_at_once_and_a_line_without_a_call_is_left():
    source = "a = DataLoader(d)\nb = 1\nc = DataLoader(e, num_workers=0)\n"
    places = [(1, 17), (2, 5), (3, 32)]
    found = edited(source, [CallEdit("", *place, {"num_workers": "2"}) for place in places])
    assert found == "a = DataLoader(d, num_workers=2)\nb = 1\nc = DataLoader(e, num_workers=2)\n"


def test_the_diff_names_the_file_from_the_scripts_folder(tmp_path):
    (tmp_path / "train.py").write_text("import torch\nloader = DataLoader(d)", encoding="utf-8")
    found = as_diff([CallEdit(str(tmp_path / "train.py"), 2, 22, {"num_workers": "2"})], tmp_path)
    assert found.splitlines()[:2] == ["--- a/train.py", "+++ b/train.py"]
    assert "-loader = DataLoader(d)\n+loader = DataLoader(d, num_workers=2)\n" in found
    elsewhere = as_diff([CallEdit(str(tmp_path / "train.py"), 2, 22, {"num_workers": "2"})], tmp_path / "another")
    assert elsewhere.startswith(f"--- {tmp_path / 'train.py'}\n"), "as patch takes it, from anywhere"


def test_a_file_that_is_gone_or_no_python_has_no_diff(tmp_path):
    (tmp_path / "x.py").write_text("def (", encoding="utf-8")
    assert as_diff([CallEdit(str(tmp_path / name), 1, 1, {"a": "1"}) for name in ("x.py", "gone.py")], Path.cwd()) == ""


LOOK = {
    "loaders": [{"file": "/x.py", "line": 1, "column": 9, "num_workers": None}],
    "optimizers": [{"file": "/x.py", "line": 2, "column": 9, "class": "AdamW"}],
    "zero_grad": [{"file": "/x.py", "line": 3, "column": 9, "set_to_none": True}],
    "debugging": False,
    "roots": [
        {"device": "cpu", "images": False, "autocast": False, "compiled": False, "draws": False, "dtypes": ["torch.float32"]}
    ],
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


@pytest.mark.parametrize(
    "source, after",
    [
        ("x = DataLoader(\n    d,  # all of it\n)\n", "x = DataLoader(\n    d, num_workers=2  # all of it\n)\n"),
        (
            "x = DataLoader(\n    d  # (all)\n    # of it\n)\n",
            "x = DataLoader(\n    d, num_workers=2  # (all)\n    # of it\n)\n",
        ),
        ("x = DataLoader(  # of what?\n)\n", "x = DataLoader(num_workers=2  # of what?\n)\n"),
        ('x = DataLoader("""é\n# no comment""")\n', 'x = DataLoader("""é\n# no comment""", num_workers=2)\n'),
        ("x = DataLoader(d[f'{n}'])\n", "x = DataLoader(d[f'{n}'], num_workers=2)\n"),
    ],
)
def test_a_keyword_is_not_written_into_a_comment(source, after):
    found = edited(source, [CallEdit("", *end_of(source), {"num_workers": "2"})])
    assert found == after
    [call] = [node for node in ast.walk(ast.parse(found)) if isinstance(node, ast.Call)]
    assert [keyword.arg for keyword in call.keywords] == ["num_workers"]


def test_several_changes_of_one_call_are_one_edit():
    source = "x = DataLoader(d, 64)\n"
    edits = [CallEdit("", *end_of(source), keywords) for keywords in (KEYWORDS, {"pin_memory": "True"})]
    assert edited(source, edits) == "x = DataLoader(d, 64, num_workers=2, persistent_workers=True, pin_memory=True)\n"


def test_lines_that_end_as_on_windows_stay_so(tmp_path):
    (tmp_path / "train.py").write_bytes(b"import torch\r\nloader = DataLoader(d)\r\n")
    found = as_diff([CallEdit(str(tmp_path / "train.py"), 2, 22, {"num_workers": "2"})], tmp_path)
    assert "-loader = DataLoader(d)\r\n+loader = DataLoader(d, num_workers=2)\r\n" in found


def test_an_option_is_written_for_the_classes_that_take_it():
    rows = [
        {"file": "train.py", "line": n, "column": 9, "class": kind, "foreach": n == 3, "fused": None}
        for n, kind in enumerate(("Adam", "LBFGS", "SGD"), 1)
    ]
    [fused] = [tip for tip in changes(2, 2) if tip.name == "fused"]
    edits = {edit.line: dict(edit.keywords) for edit in fused.edits({"optimizers": rows})}
    assert edits == {1: {"fused": "True"}, 3: {"fused": "True", "foreach": "False"}}
    [foreach] = [tip for tip in changes(2, 2) if tip.name == "foreach"]
    assert foreach.why_not({"optimizers": [{"class": "Muon"}]})
