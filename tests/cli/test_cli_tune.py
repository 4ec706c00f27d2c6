"""`hpml-lab tune`: on code that is not ours, in the current folder; errors, exit codes and Ctrl-C pass through."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import hpml_lab
from hpml_lab.cli import main

SCRIPT = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset


class Waits(Dataset):
    def __init__(self, seconds):
        self.seconds = seconds

    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(self.seconds)
        return {"image": torch.ones(3), "index": index}


class Breaks(Waits):
    def __getitem__(self, index):
        raise RuntimeError("no such file on this disk")


def make_dataset():
    return Waits(0.01)


def make_loader():
    return DataLoader(Waits(0.0), 4, shuffle=True)


def make_both():
    return make_loader(), Breaks(0.0)  # to train and to test


def make_list():
    return [make_loader(), Breaks(0.0)]


def make_dictionary():
    return {"train": make_loader(), "test": Breaks(0.0)}


def broken():
    return Breaks(0.0)


def fails():
    raise ValueError("the table is empty")


def leaves():
    sys.exit(7)


def number():
    return 3


class Factory:
    dataset = staticmethod(make_dataset)
"""
# As most scripts do, at their top.
PARSED = """
import argparse, sys
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--samples", type=int, default=48)
parser.add_argument("--batch-size", type=int, default=4)
options = parser.parse_args()


def make():
    print(sys.argv)
    dataset = torch.utils.data.TensorDataset(torch.zeros(options.samples, 2))
    return torch.utils.data.DataLoader(dataset, options.batch_size)
"""
MODULES = ("train", "wrong", "parsed", "inner", "inner.parsed")
CALL = "import sys; from hpml_lab.cli import main; sys.argv.insert(1, 'tune'); sys.exit(main())"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "wrong.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "parsed.py").write_text(PARSED)
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "parsed.py").write_text(PARSED)
    return tmp_path


def command(*arguments):
    return [sys.executable, "-P", "-c", CALL, *arguments]  # -P: as for a program on PATH, this folder is not searched


def environment():
    return {**os.environ, "PYTHONPATH": str(Path(hpml_lab.__file__).parents[1])}


@pytest.fixture
def tune_here(folder, monkeypatch, capsys):
    """(arguments) -> exit code, stdout, stderr: the command in this process, which has torch already.

    As for a program on PATH, the folder is not on the module search path; what the command does to that is taken back.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    for module in MODULES:
        monkeypatch.delitem(sys.modules, module, raising=False)

    def run(*arguments):
        try:
            code = main(["tune", *arguments])
        except SystemExit as leaving:
            code = leaving.code
        for module in MODULES:
            sys.modules.pop(module, None)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


@pytest.mark.environment("the command in an interpreter of its own", files=("hpml_lab/cli/tune.py", "hpml_lab/loading/tools"))
def test_a_slow_data_set_gets_workers_and_the_table_is_printed(folder):
    arguments = ("train:make_dataset", "--batch-size", "8", "--max-workers", "2", "--step-seconds", "0.001")
    done = subprocess.run(command(*arguments), cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.strip().splitlines()
    assert first.startswith("num_workers=") and ("compared with no workers" in first or "the default" in first)
    assert "start-up, s" in done.stdout and "epoch, s" in done.stdout
    assert last.startswith("DataLoader(dataset, batch_size=8, num_workers=")


@pytest.mark.parametrize("target", ["train:make_loader", "train:make_both", "train:make_list", "train:make_dictionary"])
def test_a_loader_keeps_its_batch_size_and_of_several_the_first_is_tuned(tune_here, target):
    code, printed, errors = tune_here(target, "--max-workers", "0")
    assert code == 0, errors
    assert printed.strip().splitlines()[-1] == "DataLoader(dataset, batch_size=4, num_workers=0)"


@pytest.mark.parametrize("target", ["train:make_dataset", "train:make_loader"])
def test_a_batch_size_of_0_is_not_taken_for_none(tune_here, target):
    code, printed, errors = tune_here(target, "--batch-size", "0", "--max-workers", "0")
    assert (code, printed) == (2, "") and "'0' is not a whole number from 1" in errors


@pytest.mark.parametrize(
    "target, code, text",
    [
        ("train:fails", 1, "ValueError: the table is empty"),
        ("train:broken", 1, "RuntimeError: no such file on this disk"),
        ("wrong:make", 1, "No module named 'nothing_of_this_name'"),
        ("train:leaves", 7, ""),
        ("train:nothing", 2, "train.py) has no function 'nothing'"),
        ("json:make", 2, f"the module 'json' ({json.__file__}) has no function 'make'"),
        ("train:number", 2, "returned a int"),
        ("os:getcwd", 2, "os:getcwd returned a str"),
        ("elsewhere:make", 2, "no module is called 'elsewhere' here"),
        ("train.py:make_dataset", 2, "is a file, not a module"),
        ("train", 2, "does not name a function"),
    ],
)
def test_errors_and_exit_codes_pass_through(tune_here, target, code, text):
    found, printed, errors = tune_here(target, "--max-workers", "0")
    assert (found, text in errors) == (code, True), errors
    assert ("Traceback" in errors) == (code == 1), "a traceback for the user's code, none for a wrong command"
    assert printed == ""


@pytest.mark.parametrize("module", ["parsed", "inner.parsed"])
def test_a_script_that_parses_its_options_finds_its_own(tune_here, folder, module):
    before = sys.argv
    file = str(folder / f"{module.replace('.', '/')}.py")
    code, printed, errors = tune_here(f"{module}:make", "--max-workers", "0")
    assert code == 0 and printed.startswith(f"{[file]}\n") and "batch_size=4" in printed, errors
    words = ["--batch-size", "7", "--samples", "9"]
    code, printed, errors = tune_here(f"{module}:make", "--max-workers", "0", "--", *words)
    assert code == 0 and printed.startswith(f"{[file, *words]}\n") and "batch_size=7" in printed, errors
    assert sys.argv is before


def test_an_option_that_the_script_does_not_know_is_its_own_error(tune_here):
    code, _, errors = tune_here("--max-workers", "0", "parsed:make", "--", "--sample", "9", "--nonsense")
    assert code == 2 and "parsed.py: error: unrecognized arguments: --nonsense" in errors
    code, _, errors = tune_here("parsed:make", "more", "--max-workers", "0")
    assert code == 2 and "hpml-lab: error: unrecognized arguments: more" in errors


@pytest.mark.parametrize("module", ["train.parts", "inner.nothing"])
def test_a_module_that_is_not_there_is_named(tune_here, module):
    code, _, errors = tune_here(f"{module}:make", "--max-workers", "0")
    assert code == 2 and f"no module is called '{module}' here" in errors


def test_a_module_in_a_folder_finds_those_next_to_it_as_a_script_does(folder, tune_here):
    (folder / "src").mkdir()
    (folder / "src" / "inner.py").write_text(SCRIPT)
    (folder / "src" / "outer.py").write_text("from inner import make_dataset\n")
    code, said, errors = tune_here("src.outer:make_dataset", "--max-workers", "0")
    assert code == 0 and said, errors


def test_ctrl_c_ends_the_trials_with_the_shells_code_and_no_worker_is_left(folder):
    # Ready once an item is loaded: an interrupt during torch's imports may be swallowed there.
    slow = SCRIPT.replace("return Waits(0.01)", "return Waits(0.5)")
    (folder / "slow.py").write_text(slow.replace("time.sleep(", "print('ready', flush=True); time.sleep("))
    with subprocess.Popen(
        command("slow:make_dataset"), cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(1.0)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGINT and "interrupted" in errors, errors
