"""Ranks share the settings, and their results are bitwise identical to those of one process."""

import json
import os
import subprocess
import sys

import pytest
import torch

from hpml_lab.core.system.launcher import launch
from hpml_lab.race.experiments.mnist_three_nets import on_ranks
from hpml_lab.race.experiments.mnist_three_nets.training import split_into_tasks
from hpml_lab.race.tools.program import NETS, OPTIMIZERS, Setting

SCRIPT = """
import json, os, sys
import torch
from pathlib import Path
from hpml_lab.data import load
from hpml_lab.race.experiments.mnist_three_nets import on_ranks
from hpml_lab.race.tools.program import NETS, OPTIMIZERS, Setting
from hpml_lab.race.experiments.mnist_three_nets.training import Inputs, Trainer, log_points, split_into_tasks
torch.set_num_threads(1)
folder = Path(sys.argv[1])
settings = [Setting(name, lr=0.01) for name in OPTIMIZERS]
nets = {name: net.scaled(0.2) for name, net in NETS.items()}
tasks = [task for name, net in nets.items() for task in split_into_tasks(name, net, settings, (0, 1), 3)]
inputs = Inputs.of(load("digits"), 100, 200, torch.device("cpu"))
for workers in map(int, sys.argv[2:]):
    trainer = Trainer(inputs, workers=workers, folder=folder / f"checkpoints{workers}")
    curves = trainer.train(tasks, log_points(120, 6))
    for found in curves:
        found.pop("seconds")
    report = json.dumps([len(on_ranks.own(tasks)), len(tasks), curves])
    (folder / f"rank{on_ranks.rank()}_workers{workers}.json").write_text(report)
on_ranks.leave()
"""


def run(folder, count, *workers):
    """The results by number of workers and rank of `count` ranks, each (own tasks, all tasks, curves)."""
    folder.mkdir()
    script = folder / "script.py"
    script.write_text(SCRIPT)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)] if count > 1 else []
    command = [sys.executable, *launch, str(script), str(folder), *map(str, workers)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=500, env=env)
    assert done.returncode == 0, done.stderr[-2000:]
    return [[json.loads((folder / f"rank{rank}_workers{n}.json").read_text()) for rank in range(count)] for n in workers]


@pytest.mark.environment("torchrun", files=("hpml_lab/race/experiments/mnist_three_nets", "hpml_lab/race/tools"))
def test_many_ranks_and_many_workers_give_bitwise_the_result_of_one_process(tmp_path):
    [[(own, everything, alone)], [(_, _, by_workers)]] = run(tmp_path / "one", 1, 1, 2)
    assert own == everything == len(alone)
    assert by_workers == alone
    [both] = run(tmp_path / "two", 2, 1)
    assert sum(count for count, _, _ in both) == everything and all(count > 0 for count, _, _ in both), "each rank took a share"
    for _, _, curves in both:
        assert curves == alone, "and has the whole result"


def test_each_item_belongs_to_one_rank(monkeypatch):
    items, owned = list(range(11)), []
    for rank in range(3):
        monkeypatch.setenv("WORLD_SIZE", "3")
        monkeypatch.setenv("RANK", str(rank))
        assert on_ranks.rank() == rank and on_ranks.size() == 3
        owned += on_ranks.own(items)
    assert sorted(owned) == items


def test_without_torchrun_there_is_one_rank(monkeypatch):
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("RANK", raising=False)
    assert (on_ranks.rank(), on_ranks.size(), on_ranks.own([1, 2]), on_ranks.gather("x")) == (0, 1, [1, 2], ["x"])
    on_ranks.leave()


def numbered():
    return on_ranks.gather((on_ranks.rank(), on_ranks.own([10, 11, 12])))


def test_each_rank_gets_what_all_of_them_have():
    assert launch(numbered) == [[(0, [10, 12]), (1, [11])]] * 2


def test_each_rank_takes_its_own_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("WORLD_SIZE", "3")
    found = []
    for rank in range(3):
        monkeypatch.setenv("LOCAL_RANK", str(rank))
        found.append(on_ranks.own_device(torch.device("cuda:0")).index)
    assert found == [0, 1, 0]
    assert on_ranks.own_device(torch.device("cpu")) == torch.device("cpu")


@pytest.mark.parametrize("at_most", [1, 3, 4, 7, 20])
def test_tasks_hold_every_setting_once_whatever_the_number_of_ranks(at_most, monkeypatch):
    settings = [Setting(name, lr=lr) for name in OPTIMIZERS for lr in (0.1, 0.01)]
    alone = split_into_tasks("net 1", NETS["net 1"], settings, (0,), at_most)
    monkeypatch.setenv("WORLD_SIZE", "5")
    assert split_into_tasks("net 1", NETS["net 1"], settings, (0,), at_most) == alone
    assert sorted(map(repr, settings)) == sorted(repr(s) for task in alone for s in task.settings)
    assert max(len(task.settings) for task in alone) <= at_most
