"""The scripts to start from run as they are handed out, and say what is wrong with the files that they are given."""

import argparse
import re
import subprocess
import sys

import pytest
import torch

from hpml_lab.cli import main
from hpml_lab.cli.notebooks import TEMPLATES
from hpml_lab.your_script.lessons import lab_training, text_training
from hpml_lab.your_script.tools.from_outside import try_precision, try_workers
from hpml_lab.your_script.tools.lab_task import Lab
from hpml_lab.your_script.tools.script_runs import run_script
from hpml_lab.your_script.tools.trainings import scale_ranks

DEADLINE = 300.0  # seconds; far above what a loaded machine needs
SMALL = ("--epochs", "2", "--samples", "64", "--width", "8", "--batch", "16")


def written(name, folder):
    """The script to run, of those that `hpml-lab template` writes."""
    assert main(["template", "--of", name, str(folder)]) == 0
    return TEMPLATES[name][1][-1]


@pytest.mark.parametrize("name", ["lab", "text"])
def test_a_template_runs_where_it_was_written(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = written(name, tmp_path)
    assert "hpml_lab" not in (tmp_path / script).read_text(encoding="utf-8"), "a copy imports the copy beside it"
    run = run_script([script, *SMALL, "--optimizer", "adam"], deadline_seconds=DEADLINE)
    assert run.failed == "" and len(run.epochs) == 2
    assert all(row.load + row.train <= row.total + 0.002 and 0 <= row.accuracy <= 1 for row in run.epochs)


def test_the_net_is_resnet_18():
    """11.2 million parameters, as He et al.'s, whose first convolution and classifier are for larger pictures."""
    net = lab_training.make_net()
    convolutions = [module for module in net.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len([module for module in convolutions if module.kernel_size == (3, 3)]) == 17
    assert 11.1e6 < sum(parameter.numel() for parameter in net.parameters()) < 11.3e6
    x, y = lab_training.make_batch(2)
    assert net(x).shape == (2, 10) and y.shape == (2,)
    without = lab_training.make_net(norm="none")
    assert not any(isinstance(module, torch.nn.BatchNorm2d) for module in without.modules())


@pytest.mark.parametrize("make", [lab_training, text_training])
def test_gradients_reach_every_parameter(make):
    net = make.make_net(8)
    x, y = make.make_batch(3)
    torch.nn.functional.cross_entropy(net(x).flatten(0, -2), y.flatten()).backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


def test_the_characters_that_follow_are_asked_for():
    train, test = text_training.make_data()
    x, y = train[5]
    assert torch.equal(x[1:], y[:-1]) and torch.equal(train[6][0][:1], y[-1:])
    assert len(test) > 100


def test_quick_leaves_what_is_given():
    options = lab_training.read_options(["--quick", "--batch", "128", "--epochs", "5"])
    assert (options.batch, options.epochs, options.width) == (128, 5, lab_training.QUICK["width"])


def test_a_batch_grows_where_the_rate_would_fall():
    falling, growing = (argparse.Namespace(schedule=name, epochs=6, batch=10) for name in ("falling", "growing"))
    assert [lab_training.rate_factor(falling, epoch + 0.9) for epoch in range(6)] == pytest.approx([1, 1, 0.2, 0.2, 0.04, 0.04])
    assert [lab_training.batch_of_epoch(growing, epoch) for epoch in range(6)] == [10, 10, 50, 50, 250, 250]
    assert lab_training.rate_factor(growing, 5.5) == 1 and lab_training.batch_of_epoch(falling, 5) == 10


def test_a_cyclical_rate_is_a_triangle_in_each_epoch():
    options = argparse.Namespace(schedule="cyclical", epochs=2)
    found = [lab_training.rate_factor(options, epoch) for epoch in (0, 0.25, 0.5, 0.75, 1, 1.5)]
    assert found == pytest.approx([0.1, 0.55, 1, 0.55, 0.1, 1])


# ---- files -----------------------------------------------------------------------------------------------------------


def write_cifar(folder, records=20, label=None):
    folder.mkdir()
    for name in lab_training.CIFAR_FILES["train"] + lab_training.CIFAR_FILES["test"]:
        pixels = torch.randint(256, (records, lab_training.CIFAR_RECORD), dtype=torch.uint8)
        pixels[:, 0] = torch.arange(records) % 10 if label is None else label
        (folder / name).write_bytes(pixels.numpy().tobytes())
    return folder


def test_cifars_own_files_are_read(tmp_path):
    train, test = lab_training.make_data(write_cifar(tmp_path / "cifar"))
    assert (len(train), len(test)) == (100, 20) and [int(test[i][1]) for i in range(3)] == [0, 1, 2]
    x, _ = test[0]
    raw = torch.frombuffer(bytearray((tmp_path / "cifar" / "test_batch.bin").read_bytes()), dtype=torch.uint8)
    assert torch.equal(((x + 1) * 127.5).round().byte().flatten(), raw[1:3073])


@pytest.mark.parametrize(
    "damage, text",
    [
        (lambda folder: (folder / "data_batch_3.bin").unlink(), "data_batch_3.bin cannot be read (No such file or directory)"),
        (lambda folder: (folder / "test_batch.bin").write_bytes(b"x" * 100), "has 100 bytes, not a multiple of 3073"),
        (lambda folder: (folder / "test_batch.bin").write_bytes(b""), "has 0 bytes"),
        (lambda folder: (folder / "test_batch.bin").write_bytes(b"\xff" * 3073), "labels of 10 and more"),
    ],
)
def test_files_that_are_not_whole_end_the_script_in_one_line(tmp_path, damage, text):
    folder = write_cifar(tmp_path / "cifar")
    damage(folder)
    with pytest.raises(SystemExit, match=re.escape(text)) as raised:
        lab_training.make_data(folder)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "options, problem",
    [
        ("--epochs 0", "--epochs 0: at least 1"),
        ("--workers -1", "--workers -1: at least 0"),
        ("--dropout 2", "--dropout 2.0: from 0 to 1"),
        ("--dropout nan", "--dropout nan: from 0 to 1"),
        ("--lr nan", "--lr nan: a number of at least 0"),
        ("--lr -0.1", "--lr -0.1: a number of at least 0"),
        ("--save no/such/weights.pt", "--save no/such/weights.pt: there is no folder no/such"),
        ("--save .", "--save .: a folder"),
        ("--device cuda", "--device cuda: torch sees no GPU here"),
    ],
)
def test_options_that_cannot_be_are_one_line_before_anything_is_made(options, problem, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit) as ended:
        lab_training.main(options.split(), make_net=None, make_data=None)
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.endswith(f": {problem}\n") and said.count("\n") == 1


def test_an_optimizer_that_there_is_not_is_refused():
    command = [sys.executable, lab_training.__file__, "--optimizer", "sgdd"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert run.returncode == 2 and "Traceback" not in run.stderr


# ---- the steps that need a real training -------------------------------------------------------------------------------------


@pytest.mark.environment("launchers of ranks, copies of a script", files=("hpml_lab/your_script", "hpml_lab/referee"))
def test_the_template_takes_part_in_the_steps_with_several_copies(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = written("lab", tmp_path)
    command = [script, "--epochs", "40", "--samples", "256", "--width", "8"]
    rows = scale_ranks(Lab([script, *SMALL[:-2]], tmp_path)).tables[0].rows
    assert {(row.kind, row.ranks) for row in rows} >= {("strong", 1), ("strong", 2)}
    if sys.platform.startswith("linux"):
        rows = try_workers(Lab([*command, "--batch", "16"], tmp_path, seconds=120)).tables[0].rows
        assert [row.change for row in rows][:2] == ["0 workers", "1 worker"]
        assert all(row.training != "" for row in rows)
        rows = try_precision(Lab([*command, "--batch", "16"], tmp_path, seconds=120)).tables[0].rows
        assert "autocast-bf16" in [row.change for row in rows]
