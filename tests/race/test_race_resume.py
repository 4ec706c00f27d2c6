"""A race that was killed resumes where it was saved, bitwise identical, and never from another race's file."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch

from hpml_lab.core.system import machine
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.sealed import read_state
from hpml_lab.data import load
from hpml_lab.race.experiments.checkpoints import Checkpoint, key_of
from hpml_lab.race.experiments.mnist_three_nets.training import Inputs, Trainer, log_points, split_into_tasks, train
from hpml_lab.race.tools.program import NETS, OPTIMIZERS, Program, Setting, flat_inputs

STEPS = 600
SETTINGS = [Setting(name, lr=0.01) for name in OPTIMIZERS]

# What the killed child runs: it saves after every piece of steps, and prints its curves when it gets so far.
CHILD = """
import json, sys
import torch
from pathlib import Path
from hpml_lab.data import load
from hpml_lab.race.tools.program import NETS, OPTIMIZERS, Setting
from hpml_lab.race.experiments.mnist_three_nets.training import Inputs, Trainer, log_points, split_into_tasks
import hpml_lab.race.experiments.mnist_three_nets.training as training
torch.set_num_threads(1)
training.WORTH_KEEPING_SECONDS = 0.0
settings = [Setting(name, lr=0.01) for name in OPTIMIZERS]
tasks = split_into_tasks("net 3", NETS["net 3"].scaled(0.3), settings, (0, 1), 4)
inputs = Inputs.of(load("digits"), 100, 200, torch.device("cpu"))
steps = int(sys.argv[2])
trainer = Trainer(inputs, workers=int(sys.argv[3]), folder=Path(sys.argv[1]), every_seconds=0.0)
curves = trainer.train(tasks, log_points(steps, 8))
trainer.finished()
for found in curves:
    found.pop("seconds")
print(json.dumps(curves))
"""


def child(folder, steps, workers=1):
    command = [sys.executable, "-c", CHILD, str(folder), str(steps), str(workers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env={**os.environ})


def curves_of(process):
    out, _ = process.communicate(timeout=500)
    assert process.returncode == 0
    return json.loads(out)


def saved(folder):
    """The iterations that the files in `folder` have reached."""
    found = []
    for path in folder.glob("*.pt"):
        try:
            found.append(read_state(path)["state"]["iteration"])
        except LabError:  # it was replaced or removed meanwhile
            pass
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The curves of a race that nothing disturbed, in an interpreter like that of the race that is killed."""
    return curves_of(child(tmp_path_factory.mktemp("whole"), STEPS))


killed = pytest.mark.environment(
    "an interpreter that is killed", files=("hpml_lab/race/experiments/mnist_three_nets", "hpml_lab/race/tools")
)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=killed), 2])
def test_killed_in_the_middle_it_ends_with_the_same_numbers(tmp_path, workers, whole):
    killed = child(tmp_path, STEPS, workers)
    end = time.monotonic() + 300
    while not any(100 <= reached < STEPS for reached in saved(tmp_path)):
        assert killed.poll() is None and time.monotonic() < end, "it must be caught in the middle"
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    assert any(0 < iteration < STEPS for iteration in saved(tmp_path))
    assert curves_of(child(tmp_path, STEPS, workers)) == whole
    assert not list(tmp_path.glob("*.pt")), "a finished race leaves no file"


@pytest.fixture
def inputs():
    return Inputs.of(load("digits"), 100, 200, torch.device("cpu"))


def test_a_program_resumes_from_its_state_bitwise_identical():
    data = load("digits")
    x, _ = flat_inputs(data)

    def fresh():
        return Program(NETS["net 3"].scaled(0.1), SETTINGS, (0, 1), x, data.train_y, batch=32)

    whole, first, second = fresh(), fresh(), fresh()
    whole.run(95)
    first.run(47)  # in the middle of an epoch of 40 batches and of a gathered block
    state = first.state_dict()
    second.load_state_dict(state)
    second.run(48)
    assert torch.equal(whole.parameters, second.parameters)
    second.set_lr(0, 0.0)
    before = second.parameters.clone()
    second.run(1)
    assert torch.equal(second.parameters[0], before[0]), "set_lr still reaches the optimizer's group"
    assert not torch.equal(second.parameters[1], before[1])


def test_interrupted_it_keeps_what_is_done(inputs, tmp_path, monkeypatch):
    import threading

    import hpml_lab.race.experiments.mnist_three_nets.training as training

    monkeypatch.setattr(training, "WORTH_KEEPING_SECONDS", 0.0)
    (task,) = split_into_tasks("net 2", NETS["net 2"].scaled(0.1), SETTINGS, (0,), 10)
    points, stop, ticks = log_points(400, 6), threading.Event(), []

    def tick(steps):
        ticks.append(steps)
        if sum(ticks) >= 150:
            stop.set()

    checkpoint = Checkpoint(key_of(test="interrupted"), tmp_path, every_seconds=1e9)
    with pytest.raises(KeyboardInterrupt):
        train(task, inputs, points, checkpoint=checkpoint, stop=stop, tick=tick)
    assert 150 <= checkpoint.load()["iteration"] < 400
    again = train(task, inputs, points, checkpoint=checkpoint)
    whole = train(task, inputs, points)
    for name in ("loss", "accuracy", "final_accuracy"):
        assert again[name] == whole[name]


def test_a_checkpoint_is_never_mistaken_for_another(tmp_path):
    mine, other = Checkpoint(key_of(lr=0.1), tmp_path), Checkpoint(key_of(lr=0.2), tmp_path)
    mine.save({"iteration": 3})
    assert mine.load() == {"iteration": 3} and other.load() is None
    mine.path.rename(other.path)  # even under the other's name
    assert other.load() is None


def test_the_key_holds_the_versions_and_every_part():
    key = key_of(lr=0.1, data="digits")
    assert torch.__version__ in key and "'digits'" in key and "hpml_lab" in key


@pytest.mark.parametrize("damage", [b"", b"no file of torch's", None])
def test_a_damaged_checkpoint_counts_as_absent(tmp_path, damage):
    checkpoint = Checkpoint("key", tmp_path)
    checkpoint.save({"x": torch.arange(1000)})
    content = checkpoint.path.read_bytes()
    checkpoint.path.write_bytes(content[: len(content) // 2] if damage is None else damage)
    assert checkpoint.load() is None


def test_a_folder_that_cannot_be_written_stops_nothing(inputs, tmp_path):
    (tmp_path / "file").write_text("in the way")
    tasks = split_into_tasks("net 1", NETS["net 1"], SETTINGS, (0,), 10)
    (found,) = Trainer(inputs, folder=tmp_path / "file", every_seconds=0.0).train(tasks, [0, 60])
    assert len(found["loss"]) == 2 and "could not be written" in found["problem"]


def test_a_failure_in_a_worker_is_raised_not_swallowed(inputs, tmp_path):
    from dataclasses import replace

    tasks = split_into_tasks("net 1", NETS["net 1"], SETTINGS, (0,), 3)
    with pytest.raises(ValueError, match="needs at least"):
        Trainer(replace(inputs, x=inputs.x[:5]), workers=2, folder=tmp_path).train(tasks, [0, 60])


def test_after_a_failure_the_other_workers_stop_at_once(inputs, tmp_path, monkeypatch):
    import threading

    import hpml_lab.race.experiments.mnist_three_nets.training as training

    first, stopped = threading.Lock(), []

    def train(task, inputs, points, batch, checkpoint, stop, tick, seen):
        if not first.acquire(blocking=False):
            raise MemoryError("this worker fails")
        stopped.append(stop.wait(20))  # a training of hours

    monkeypatch.setattr(training, "train", train)
    tasks = split_into_tasks("net 1", NETS["net 1"], SETTINGS, (0,), 4)
    with pytest.raises(MemoryError):
        Trainer(inputs, workers=2, folder=tmp_path).train(tasks, [0, 60])
    assert stopped == [True]


def test_what_was_trained_stays_until_all_is_finished(inputs, tmp_path, monkeypatch):
    import hpml_lab.race.experiments.mnist_three_nets.training as training

    monkeypatch.setattr(training, "WORTH_KEEPING_SECONDS", 0.0)
    tasks = split_into_tasks("net 1", NETS["net 1"], SETTINGS, (0,), 4)
    first = Trainer(inputs, folder=tmp_path)
    curves = first.train(tasks, [0, 60])
    first.train(tasks, [0, 80])
    assert len(list(tmp_path.glob("*.pt"))) == 2 * len(tasks)
    monkeypatch.setattr(Program, "run", lambda *_: pytest.fail("it was trained already"))
    again = Trainer(inputs, folder=tmp_path)
    assert again.train(tasks, [0, 60]) == curves and again.seconds == sum(found["seconds"] for found in curves)
    first.finished()
    assert not tmp_path.exists() or not list(tmp_path.iterdir())


def test_what_another_processor_began_is_not_continued(tmp_path, monkeypatch):
    """Its roundings are others: the numbers would be those of no processor."""
    Checkpoint(key_of(lr=0.1), tmp_path).save({"iteration": 3})
    assert Checkpoint(key_of(lr=0.1), tmp_path).load()["iteration"] == 3
    monkeypatch.setattr(machine, "cpu_description", lambda: "another processor: sse2")
    assert Checkpoint(key_of(lr=0.1), tmp_path).load() is None


def test_a_single_bit_that_flipped_is_not_loaded_as_another_number(tmp_path):
    checkpoint, chance = Checkpoint("key", tmp_path), random.Random(1)
    checkpoint.save({"w": torch.full((2000,), 5.0), "step": 5})
    content = checkpoint.path.read_bytes()
    for _ in range(200):
        flipped = bytearray(content)
        flipped[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        checkpoint.path.write_bytes(flipped)
        assert checkpoint.load() is None
    checkpoint.path.write_bytes(content)
    assert checkpoint.load()["step"] == 5
