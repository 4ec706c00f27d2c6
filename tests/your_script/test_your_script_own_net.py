"""Steps that look into a script's net: the scales of batch norm, and the parts of a step on ranks."""

import os
import sys

import pytest
import torch

from hpml_lab.core.experiment import Table
from hpml_lab.distributed.tools.parts_of_a_step import StepRow
from hpml_lab.your_script.lessons import lab_training
from hpml_lab.your_script.tools import own_net
from hpml_lab.your_script.tools.lab_task import Lab, NotDone
from hpml_lab.your_script.tools.own_net import ScaleRow, learned_scales, own_functions, scale_rows, split_step
from hpml_lab.your_script.views.lab_page import scales_figure, split_figure

OWN = """
from torch import nn
import torch
import beside

def make_net():
    return nn.Sequential(nn.Linear(3, beside.WIDTH), nn.BatchNorm1d(beside.WIDTH), nn.Linear(beside.WIDTH, 2))

def make_batch(size):
    return torch.randn(size, 3), torch.randint(2, (size,))

if __name__ == "__main__":
    print("trains")
"""
SAVES = """
import sys, torch
from torch import nn
net = nn.Sequential(nn.BatchNorm2d(4), nn.BatchNorm2d(2, affine=False), nn.Conv2d(4, 2, 1), nn.BatchNorm1d(3))
with torch.no_grad():
    net[0].weight.copy_(torch.tensor([0.05, -2.0, 1.0, 1.0]))
    net[3].weight.fill_(0.5)
torch.save(net.state_dict(), sys.argv[sys.argv.index("--save") + 1])
print("epoch 1: load 1 s, train 2 s, total 3 s, loss 1")
"""


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """(text) -> a lab of a script in a folder with a module beside it, which is not the current one."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "beside.py").write_text("WIDTH = 8")

    def make(text):
        path = tmp_path / "folder" / "own_training.py"
        path.write_text(text)
        return Lab([str(path)], tmp_path, 60.0)

    return make


def test_the_scales_are_those_of_the_saved_weights(lab):
    found = learned_scales(lab(SAVES))
    first, second = found.tables[0].rows
    assert first == ScaleRow("0", 4, pytest.approx(0.05), 1.0, 2.0, 25.0) and second == ScaleRow("3", 3, 0.5, 0.5, 0.5, 0.0)
    assert found.says[0].startswith("The median scale is 0.50 in 3 and 1.00 in 0")
    assert found.says[1].startswith("14.3 % of all channels")
    assert scales_figure(found.tables[0]).axes[0].get_yticklabels()[0].get_text() == "0"


def test_every_batch_norm_of_the_template_has_a_row():
    net = lab_training.make_net(width=4)
    norms = [name for name, layer in net.named_modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    rows = scale_rows(net.state_dict())
    assert [row.layer for row in rows] == norms and all((row.smallest, row.largest, row.small) == (1, 1, 0) for row in rows)


@pytest.mark.parametrize(
    "text, why",
    [
        ("import argparse; argparse.ArgumentParser().parse_args()", "it does not take this: --save FILE"),
        ("raise SystemExit('Usage: train.py')", "with --save FILE: Usage: train.py"),
        (
            "import argparse; p = argparse.ArgumentParser(); p.add_argument('--save-m', action='store_true'); p.parse_args()",
            "it does not take this: --save FILE",
        ),
        ("print('epoch 1: load 1 s, train 2 s, total 3 s, loss 1')", "it takes --save and writes no file"),
        (SAVES.replace("torch.save(net.", "torch.save(nn.Linear(2, 2)."), "there are no scales of batch norm in the file"),
    ],
)
def test_a_script_whose_scales_cannot_be_read_says_why(lab, text, why):
    with pytest.raises(NotDone) as raised:
        learned_scales(lab(text))
    assert str(raised.value).startswith(why)


def test_the_functions_are_the_scripts_and_nothing_is_trained(lab, capsys):
    """A script may change folder and path, ask for its words, and have data classes with hints that are read later."""
    first = """
from __future__ import annotations
import dataclasses, os, sys
assert sys.argv[1:] == ["--width", "3"], sys.argv
os.chdir(os.path.dirname(__file__))
sys.path[:] = [path for path in sys.path if path != os.path.dirname(__file__)] + [os.path.dirname(__file__)]

@dataclasses.dataclass
class Options:
    width: int | None = None
"""
    made = lab(first + OWN)
    made.script.extend(["--width", "3"])
    before = list(sys.path), list(sys.argv), os.getcwd(), set(sys.modules)
    with own_functions(made) as (make_net, make_batch):
        assert make_net()(make_batch(5)[0]).shape == (5, 2)
    assert (list(sys.path), list(sys.argv), os.getcwd(), set(sys.modules)) == before and capsys.readouterr().out == ""


def test_what_stands_beside_the_script_is_read_anew_each_time(lab, tmp_path):
    for width in (8, 4):
        (tmp_path / "folder" / "beside.py").write_text(f"WIDTH = {width}  # {'x' * width}")
        with own_functions(lab(OWN)) as (make_net, _):
            assert make_net()[0].out_features == width


@pytest.mark.parametrize(
    "text, why",
    [
        ("def make_net(:", "it cannot be read: invalid syntax"),
        ("print(1)", "the script does not define `make_net`: () → net and `make_batch`: (size) → (x, y)"),
        (OWN.replace("def make_batch", "def batch"), "the script does not define `make_batch`"),
        ("import no_such_package\n" + OWN, "it cannot be imported: ModuleNotFoundError: No module named 'no_such_package'"),
        (OWN.replace('if __name__ == "__main__":', "if True:"), "it would train when it is imported"),
    ],
)
def test_a_script_without_such_functions_says_which(lab, monkeypatch, text, why):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(NotDone) as raised:
        split_step(lab(text))
    assert str(raised.value).startswith(why)


def test_a_module_has_no_file(tmp_path):
    with pytest.raises(NotDone, match="no file of the script is named"), own_functions(Lab(["-m", "train"], tmp_path)):
        pass


def test_a_step_of_the_scripts_own_net_is_split_on_ranks(lab, monkeypatch):
    """Its functions and the module beside it reach the ranks, which are new processes."""
    monkeypatch.setattr(own_net.machine, "cores", lambda: 2)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    [table] = split_step(lab(OWN)).tables
    assert [(row.ranks, row.batch) for row in table.rows] == [(1, 4), (1, 16), (2, 4), (2, 16)]
    weights = 4 * (3 * 8 + 8 + 8 + 8 + 8 * 2 + 2)
    assert [row.sent for row in table.rows] == [0, 0, weights, weights]
    assert [label.get_text() for label in split_figure(table).axes[0].get_yticklabels()] == [
        "1 × 4",
        "1 × 16",
        "2 × 4",
        "2 × 16",
    ]


def test_a_net_of_texts_is_split_too(lab, monkeypatch):
    """Its scores and labels have a position more, as those of the second template."""
    monkeypatch.setattr(own_net.machine, "cores", lambda: 1)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    text = (
        OWN.replace("nn.BatchNorm1d(beside.WIDTH), ", "").replace("(size, 3)", "(size, 5, 3)").replace("(size,))", "(size, 5))")
    )
    [table] = split_step(lab(text)).tables
    assert [(row.ranks, row.batch) for row in table.rows] == [(1, 4), (1, 16)]


def test_one_gpu_is_no_hindrance_where_the_script_is_told_to_leave_it(lab, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    made = lab("print(1)")
    with pytest.raises(NotDone, match="there is one GPU"):
        split_step(made)
    for words in (["--device", "cpu"], ["--device=cpu"]):
        with pytest.raises(NotDone, match="does not define"):
            split_step(Lab([*made.script, *words], made.folder))


def test_a_net_that_fails_is_said_in_one_step(lab, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(NotDone, match="no such layer"):
        split_step(lab(OWN.replace("return nn.Sequential(", "raise ValueError('no such layer')\n    return (")))


def test_a_figure_of_parts_has_no_negative_time():
    row = StepRow(2, 4, 3.0, 1.0, 1.0, -0.2, 0.5, 1.0, 1.0, 1.0, 0.1, 10, 0, 1.0)
    assert min(patch.get_width() for patch in split_figure(Table("Parts", [row])).axes[0].patches) == 0.0
