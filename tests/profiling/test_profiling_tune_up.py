"""A script with planted habits: what the row says of each, what the script is, and where copies cannot take turns."""

import numpy as np
import pytest
import torch

from hpml_lab.core.system.errors import LabError
from hpml_lab.profiling import tune_up
from hpml_lab.profiling.experiments import tune_up as row
from hpml_lab.profiling.experiments.tune_up import HABITS, HALF, TOGETHER, ScriptChange
from hpml_lab.profiling.lessons import careless_training
from hpml_lab.referee.script_turns import Compared


def test_each_habit_has_its_class_and_the_mistake_is_refused(sound, ran):
    result = ran("tune-up")
    sound(result)
    rows = {row.change: row for row in result.rows(ScriptChange)}
    assert [name for name in rows if name not in (TOGETHER, HALF.name)] == [*tune_up.quick["changes"]]
    assert rows["debugging-off"].training == rows["gradients-to-none"].training == "bitwise"
    assert rows[HALF.name].training == "not the same" and not rows[HALF.name].kept
    for name in tune_up.quick["changes"]:
        assert not rows[name].kept or rows[name].verdict == "faster" and rows[name].training in HABITS[name][1]
    assert (TOGETHER in rows) == (sum(row.kept for row in rows.values()) > 1)
    assert all("tmp" not in line.found for line in result.tables[1].rows), "lines are those of the script, not of its copy"


def test_the_script_reads_images_and_learns(tmp_path):
    images = np.arange(3 * 64).reshape(3, 8, 8) % 17
    np.savez(tmp_path / "x.npz", images=images, labels=np.array([4, 0, 9]))
    digits = careless_training.Digits(tmp_path / "x.npz")
    pixels, label = digits[2]
    assert len(digits) == 3 and label == 9 and torch.equal(pixels, torch.tensor(images[2:3] / 16, dtype=torch.float32))
    assert careless_training.convolutional_net()(pixels[None]).shape == (1, 10)


def test_where_copies_cannot_take_turns_a_note_says_so(monkeypatch):
    def on_linux_only():
        raise LabError("copies of a script take turns on Linux only.", "Run it there.")

    monkeypatch.setattr(row, "require_turns", on_linux_only)
    result = tune_up("quick", device="cpu")
    assert result.tables == [] and result.notes == ["copies of a script take turns on Linux only. Run it there."]


def test_a_change_that_does_not_get_through_is_an_error_that_names_it():
    with pytest.raises(LabError, match="fused does not get through: out of memory"):
        row.change_row("fused", "", Compared(None, None, "out of memory"), False)
