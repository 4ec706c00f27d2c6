"""The training script on ranks of one launch: what a rank sees, snapshots, logs, and one clear error for bad input."""

import argparse
import importlib.util
import json
import logging
import os
import random
import re
import signal
import zipfile
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.utils.data import Dataset

from hpml_lab.core.system.launcher import RankError, launch
from hpml_lab.sharding.experiments.quiet_deepspeed import silence
from hpml_lab.sharding.lessons import train

CPU = torch.device("cpu")


def options(folder, steps=12, **others):
    given = {"steps": steps, "batch": 64, "folder": Path(folder), "save_every": 4, "device": "cpu", "deepspeed_config": None}
    return argparse.Namespace(**{**given, "accumulate": 1, "bf16": False, **others})


def snapshots(folder):
    return sorted(path.name for path in folder.glob(train.SNAPSHOTS))


def run(folder, steps=12, ranks=2, **others):
    """Train in a group of forked ranks; the weights of model.pt."""
    launch(train.train, options(folder, steps, **others), CPU, ranks=ranks, deadline_seconds=300)
    return torch.load(Path(folder) / "model.pt", weights_only=True)


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def close(a, b):
    return a.keys() == b.keys() and all(torch.allclose(a[name], b[name], atol=1e-5) for name in a)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """(folder, weights) of an undisturbed run of 12 steps on two ranks."""
    train.make_optimizer(train.make_data()[0].tensors[:1])  # what this imports, forked ranks inherit
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(folder)


def parts_of_batches(first, last):
    return list(train.batches(100, 8, first, last))


def test_the_ranks_share_each_batch_and_an_epoch_shows_each_sample_once():
    parts = launch(parts_of_batches, 0, 24)
    batches = [sorted(a + b) for a, b in zip(*parts, strict=True)]
    for epoch in (batches[:12], batches[12:]):
        seen = [sample for batch in epoch for sample in batch]
        assert len(seen) == len(set(seen)) == 96, "the last 4 of 100 do not fill a batch"
    assert batches[:12] != batches[12:]
    assert launch(parts_of_batches, 7, 15) == [part[7:15] for part in parts], "a resumed run draws the same"
    assert [sorted(batch) for batch in launch(parts_of_batches, 0, 24, ranks=1)[0]] == batches, "on any number of ranks"


def parts_of_many(samples, first, last):
    with mock.patch.object(torch, "randperm", None):  # 8 bytes of each rank for each sample
        return list(train.batches(samples, 8, first, last))


@pytest.mark.parametrize("samples", [1 << 26, 10**10])
def test_the_ranks_share_a_batch_of_more_samples_than_a_list_should_hold(samples):
    parts = launch(parts_of_many, samples, 0, 4)
    batches = [{*a, *b} for a, b in zip(*parts, strict=True)]
    assert [len(batch) for batch in batches] == [8] * 4 and len(set.union(*batches)) == 32
    assert max(set.union(*batches)) >= samples // 2, "from all of them"
    assert launch(parts_of_many, samples, 2, 4) == [part[2:] for part in parts], "a resumed run draws the same"
    assert [set(batch) for batch in launch(parts_of_many, samples, 0, 4, ranks=1)[0]] == batches, "on any number of ranks"


def test_two_ranks_train_as_one_process(whole, tmp_path):
    assert close(run(tmp_path, ranks=1), whole[1])


def test_a_run_that_is_started_again_ends_with_the_same_weights(whole, tmp_path):
    run(tmp_path, steps=6)  # saves at 4, and at its end
    assert snapshots(tmp_path) == ["step-00000004", "step-00000006"]
    assert same(run(tmp_path), whole[1])
    assert "continues from" in (tmp_path / "rank1.log").read_text()


def test_each_rank_has_its_log_and_one_rank_saves(whole):
    folder, _ = whole
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["model.pt", "rank0.log", "rank1.log", "step-00000008", "step-00000012"], "two snapshots are kept"
    assert [path.name for path in (folder / "step-00000012").iterdir()] == ["state.pt"]
    losses = [(folder / f"rank{rank}.log").read_text().count("loss on this rank") for rank in range(2)]
    assert losses == [3, 3]
    assert "test accuracy" in (folder / "rank0.log").read_text() and "accuracy" not in (folder / "rank1.log").read_text()


@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "changed"])
def test_a_damaged_snapshot_is_named_and_the_one_before_is_used(whole, tmp_path, damage):
    run(tmp_path, steps=8)
    file = tmp_path / "step-00000008" / "state.pt"
    data = file.read_bytes()
    match damage:
        case "truncated":
            file.write_bytes(data[: len(data) // 2])
        case "empty":
            file.write_bytes(b"")
        case "missing":
            file.unlink()
        case "changed":  # as long as before: only the checksum tells
            middle = zipfile.ZipFile(file).getinfo("state/data/0").header_offset + 200
            file.write_bytes(data[:middle] + bytes([data[middle] ^ 255]) + data[middle + 1 :])
    assert same(run(tmp_path), whole[1])
    log = (tmp_path / "rank0.log").read_text()
    assert "step-00000008 is damaged: the one before it is used" in log
    assert log.count("continues from") == 1 and "step-00000004" in log.partition("continues from")[2]
    assert train.is_whole(tmp_path / "step-00000008"), "it was written anew"


def test_whichever_bit_of_a_snapshot_flips_it_is_passed_over_or_loads_the_same(tmp_path):
    """1 of 5 bits: the second copy of the names and places of its files, at the end of a zip archive, has no checksum."""
    torch.save({"weights": torch.arange(3.0), "name": "a"}, file := tmp_path / "state.pt")
    data, passed = bytearray(file.read_bytes()), []
    logging.disable()
    for bit in range(0, 8 * len(data), 5):
        data[bit // 8] ^= 1 << bit % 8
        file.write_bytes(data)
        data[bit // 8] ^= 1 << bit % 8
        if whole := train.is_whole(tmp_path):
            read = torch.load(file, map_location="cpu", weights_only=True)
            assert torch.equal(read["weights"], torch.arange(3.0)) and read["name"] == "a", bit
        passed.append(not whole)
    logging.disable(logging.NOTSET)
    assert True in passed and False in passed


def test_after_two_damaged_snapshots_the_run_that_begins_again_keeps_what_it_saves(tmp_path):
    run(tmp_path, steps=8, ranks=1)
    for file in tmp_path.glob("step-*/state.pt"):
        file.write_bytes(b"no")
    run(tmp_path, steps=2, ranks=1)
    assert snapshots(tmp_path) == ["step-00000002"] and train.is_whole(tmp_path / "step-00000002")


def test_of_two_whole_snapshots_neither_is_given_up_for_a_damaged_one(tmp_path):
    run(tmp_path, steps=8, ranks=1)
    (tmp_path / "step-00000008" / "state.pt").write_bytes(b"no")
    (tmp_path / "step-00000001").write_text("a file of mine")
    run(tmp_path, steps=6, ranks=1)  # goes on from step 4
    assert snapshots(tmp_path) == ["step-00000001", "step-00000004", "step-00000006"]
    assert all(map(train.is_whole, list(tmp_path.glob("step-0000000[46]"))))


def killed_while_writing(folder):
    """Rank 0 ends in the middle of its second snapshot."""

    class Dies(train.Engine):
        def save_checkpoint(self, folder, tag, save_latest):
            super().save_checkpoint(folder, tag, save_latest)
            if dist.get_rank() == 0 and tag.startswith("step-00000008"):
                Path(folder, tag, "state.pt").write_bytes(b"half")
                os._exit(9)

    train.Engine = Dies
    train.train(options(folder), CPU)


def test_a_run_that_is_killed_while_it_writes_leaves_the_snapshot_before(whole, tmp_path):
    with pytest.raises(RankError, match="ended with exit code 9"):
        launch(killed_while_writing, tmp_path, deadline_seconds=300)
    assert snapshots(tmp_path) == ["step-00000004"]
    assert (tmp_path / "step-00000008.part").exists()
    assert same(run(tmp_path), whole[1])
    assert not list(tmp_path.glob("*.part"))


def test_a_finished_run_trains_no_further(whole, tmp_path):
    first = run(tmp_path, steps=4)
    assert same(run(tmp_path, steps=4), first)
    with pytest.raises(RankError, match="is at step 4 already. Use at least as many --steps, or another --folder"):
        run(tmp_path, steps=3)
    assert snapshots(tmp_path) == ["step-00000004"]


STAGES, BF16 = (0, 2, 3), "bf16"


def quietly(runs):
    silence()
    os.environ["TORCHDYNAMO_DISABLE"] = "1"  # DeepSpeed's import would load torch's compiler
    train.prepare_deepspeed(CPU, runs[0].folder / "extensions")
    for given in runs:
        train.train(given, CPU)


@pytest.fixture(scope="module")
def by_deepspeed(tmp_path_factory):
    """{stage: folder} of runs to step 6 and on to step 12, all on the ranks of one launch, which import DeepSpeed once."""
    runs, folders = [], {stage: tmp_path_factory.mktemp(f"stage{stage}") for stage in (*STAGES, BF16)}
    for stage, folder in folders.items():
        config = json.loads(Path(train.__file__).with_name("deepspeed.json").read_text())
        config |= {BF16: {"enabled": True}} if stage == BF16 else {"zero_optimization": {"stage": stage}}
        (folder / "config.json").write_text(json.dumps(config))
        runs += [options(folder, steps, deepspeed_config=str(folder / "config.json")) for steps in (6, 12)]
    launch(quietly, runs, deadline_seconds=500)
    return folders


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
@pytest.mark.parametrize("stage", STAGES)
def test_deepspeed_trains_the_same_and_continues(whole, by_deepspeed, stage):
    folder = by_deepspeed[stage]
    assert "from step 6" in (folder / "rank0.log").read_text()
    assert close(torch.load(folder / "model.pt", weights_only=True), whole[1])


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="DeepSpeed is not installed")
def test_what_goes_in_is_converted_as_deepspeed_converts_the_weights(whole, by_deepspeed):
    weights = torch.load(by_deepspeed[BF16] / "model.pt", weights_only=True)
    assert {value.dtype for value in weights.values()} == {torch.bfloat16}
    assert all(torch.allclose(weights[name].float(), whole[1][name], atol=0.02) for name in weights)


# ---- a model and data of one's own: dropout, batch norm, augmentation, a Dataset that has no slices -----------------------


class Pictures(Dataset):
    """Like torchvision's FakeData: one item at a time; labels are ints, and each picture is augmented by three generators."""

    def __init__(self, size, first, augment):
        self.size, self.first, self.augment = size, first, augment

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        if not 0 <= index < self.size:
            raise IndexError(index)
        x = torch.rand(1, 6, 6, generator=torch.Generator().manual_seed(self.first + index))
        label = int(x.mean() > 0.5)
        if self.augment:
            x = x + 0.1 * (torch.rand(()) + random.random() + np.random.random())
        return x, label


def own_model():
    torch.manual_seed(0)
    parts = nn.Flatten(), nn.Linear(36, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2)
    return nn.Sequential(*parts)


def own_data():
    return Pictures(100, 0, augment=True), Pictures(37, 1000, augment=False)  # 37 do not divide among two ranks


def on_own(function, *arguments):
    train.make_model, train.make_data = own_model, own_data
    return function(*arguments)


def run_own(folder, steps=12, ranks=2, batch=8, **others):
    launch(on_own, train.train, options(folder, steps, batch=batch, **others), CPU, ranks=ranks, deadline_seconds=300)
    return torch.load(Path(folder) / "model.pt", weights_only=True)


def right_of_37(weights, dtype=None):
    """How many test pictures the saved model has right, one at a time, in eval mode."""
    model = own_model().eval()
    model.load_state_dict(weights)
    with torch.autocast("cpu", dtype, enabled=dtype is not None):
        return sum(model(x[None]).argmax().item() == y for x, y in (own_data()[1][i] for i in range(37)))


def logged_accuracy(folder):
    return (Path(folder) / "rank0.log").read_text().rpartition("test accuracy ")[2].split()[0]


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """{ranks: (folder, weights)} of undisturbed runs of 12 steps."""
    folders = {ranks: tmp_path_factory.mktemp(f"own{ranks}") for ranks in (1, 2)}
    return {ranks: (folder, run_own(folder, ranks=ranks)) for ranks, folder in folders.items()}


@pytest.mark.parametrize("ranks", [1, 2])
def test_with_dropout_batch_norm_and_augmentation_a_resumed_run_ends_with_the_same_weights(own, tmp_path, ranks):
    run_own(tmp_path, steps=6, ranks=ranks)
    resumed = run_own(tmp_path, ranks=ranks)
    assert "2.running_var" in resumed and same(resumed, own[ranks][1])


def test_a_run_on_two_ranks_goes_on_from_a_snapshot_of_one_process(tmp_path):
    run_own(tmp_path, steps=6, ranks=1)
    run_own(tmp_path, ranks=2)
    assert "2 ranks on cpu, from step 6" in (tmp_path / "rank0.log").read_text()


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_logged_accuracy_is_that_of_the_saved_model_in_eval_mode(own, ranks):
    folder, weights = own[ranks]
    assert logged_accuracy(folder) == f"{100 * right_of_37(weights) / 37:.1f}"


def evaluated(size):
    """(the mean of the scores 0, 1, …, size - 1, the batches that this rank saw, whether it trains afterwards)"""

    class Counts(nn.Linear):
        seen = 0

        def forward(self, x):
            type(self).seen += 1
            assert not self.training and not torch.is_grad_enabled()
            return x

    train.score_of = lambda outputs, y: y
    engine = train.Engine(Counts(1, 1), CPU)
    mean = train.evaluate(engine, [(torch.zeros(1), number) for number in range(size)], 2, CPU)
    return mean, Counts.seen, engine.training


@pytest.mark.parametrize("size, batches", [(1, 1), (2, 1), (7, 2), (8, 2), (9, 3)])
def test_each_sample_of_the_test_set_counts_once_and_the_ranks_see_as_many_batches(size, batches):
    assert launch(evaluated, size) == [((size - 1) / 2, batches, True)] * 2


def evaluated_with_other_statistics():
    """The mean score by an engine that, unlike DDP, leaves each rank its own running statistics, as DeepSpeed's does."""

    class Engine(nn.BatchNorm1d):
        module = property(lambda self: self)

    engine, train.score_of = Engine(1), lambda outputs, y: outputs[:, 0].round()
    engine.running_mean += dist.get_rank()
    return train.evaluate(engine, [(torch.zeros(1), 0)] * 4, 2, CPU)


def test_the_running_statistics_of_rank_0_are_tested_as_they_are_saved():
    assert launch(evaluated_with_other_statistics) == [0.0, 0.0]


def test_the_ranks_draw_different_dropout(own):
    drawn = launch(on_own, draws)
    assert drawn[0] != drawn[1] and launch(on_own, draws) == drawn


def draws():
    train.seed(3)
    return torch.rand(3).tolist(), random.random(), np.random.random()


def averaged(accumulate):
    """(weights after two steps, how many buckets of gradients were averaged, the steps of the schedule)"""
    train.make_optimizer = lambda parameters: torch.optim.SGD(parameters, lr=1.0)  # Adam hides a factor in the gradient
    engine, count = train.Engine(train.make_model(), CPU, accumulate), []

    def average(state, bucket):
        count.append(1)
        future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
        return future.then(lambda done: done.value()[0] / dist.get_world_size())

    engine.register_comm_hook(None, average)
    x, y = train.make_data()[0][dist.get_rank() : 64 : 2]
    for _ in range(2):
        train.train_step(engine, x, y, accumulate)
    return train.all_weights(engine), len(count), engine.schedule.last_epoch


def test_accumulated_gradients_are_those_of_the_batch_and_are_averaged_once_a_step():
    (plain, buckets, steps), (accumulated, as_many, as_far) = launch(averaged, 1)[0], launch(averaged, 4)[0]
    assert close(accumulated, plain) and (as_many, as_far) == (buckets, steps) == (buckets, 2)


def test_with_accumulation_a_resumed_run_ends_with_the_same_weights(tmp_path):
    run_own(tmp_path / "a", steps=4, accumulate=2)
    assert same(run_own(tmp_path / "a", steps=8, accumulate=2), run_own(tmp_path / "b", steps=8, accumulate=2))


def test_bf16_multiplies_in_bfloat16_and_keeps_float32_weights(own, tmp_path):
    weights = run_own(tmp_path, bf16=True)
    assert weights["1.weight"].dtype == torch.float32
    assert not same(weights, own[2][1]), "bfloat16 rounds"
    assert all(torch.allclose(weights[name].float(), own[2][1][name].float(), atol=0.1) for name in weights)
    assert logged_accuracy(tmp_path) == f"{100 * right_of_37(weights, torch.bfloat16) / 37:.1f}"


def test_a_loss_of_outputs_in_bfloat16_is_computed_in_float32():
    outputs, y = torch.tensor([[2.0, 1.0]], dtype=torch.bfloat16), torch.tensor([0])
    assert torch.equal(train.loss_of(outputs, y), train.loss_of(outputs.float(), y))


def test_a_batch_that_is_more_than_the_data_is_one_clear_error(tmp_path):
    with pytest.raises(RankError, match="A batch of 200 samples is more than the 100 of the training set"):
        run_own(tmp_path, batch=200)


def interrupted(given):
    """Rank 1 gets SIGTERM in step 6, where no snapshot is due; the exit code."""
    steps = []

    def step(*arguments):
        steps.append(1)
        if len(steps) == 6 and dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return train_step(*arguments)

    train_step, train.train_step = train.train_step, step
    return train.train(given, CPU)


def test_sigterm_on_one_rank_stops_all_after_the_same_step_with_a_snapshot(own, tmp_path):
    assert launch(on_own, interrupted, options(tmp_path, batch=8), deadline_seconds=300) == [143, 143]
    assert snapshots(tmp_path) == ["step-00000004", "step-00000006"] and not (tmp_path / "model.pt").exists()
    assert "stopped by SIGTERM after step 6" in (tmp_path / "rank0.log").read_text()
    assert same(run_own(tmp_path), own[2][1])


# ---- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "config, ranks, text",
    [
        ({"train_batch_size": 5}, 2, "A batch of 5 does not divide among 2 ranks. Use a multiple of 2."),
        ({"train_batch_size": 6, "gradient_accumulation_steps": 2}, 2, "with 2 micro-batches each. Use a multiple of 4."),
        ({}, 3, "A batch of 64 does not divide among 3 ranks"),
    ],
)
def test_a_json_whose_batch_does_not_divide_is_one_clear_error(tmp_path, config, ranks, text):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    with pytest.raises(train.UserError, match=text.replace(".", r"\.")):
        train.read_config(options(tmp_path, deepspeed_config=str(path)), ranks)


def test_ranks_that_cannot_share_a_batch_start_no_training(tmp_path):
    (tmp_path / "config.json").write_text('{"train_batch_size": 5}')
    for given in (options(tmp_path, deepspeed_config=str(tmp_path / "config.json")), options(tmp_path, batch=5)):
        with pytest.raises(RankError, match="A batch of 5 does not divide among 2 ranks. Use a multiple of 2"):
            launch(train.train, given, CPU, deadline_seconds=300)
    assert not snapshots(tmp_path)


def test_a_json_says_the_batch_in_three_ways(tmp_path):
    path = tmp_path / "config.json"
    for config, batch, parts in (
        ({"train_batch_size": 8}, 8, 1),
        ({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3}, 24, 3),
        ({"train_batch_size": 24, "train_micro_batch_size_per_gpu": 4}, 24, 3),
        ({}, 64, 1),
    ):
        path.write_text(json.dumps(config))
        found = train.read_config(options(tmp_path, deepspeed_config=str(path)), 2)
        assert (found["train_batch_size"], found["gradient_accumulation_steps"]) == (batch, parts)


@pytest.mark.parametrize("content", ["{'train_batch_size': 4}", "", None])
def test_a_file_that_is_no_json_is_named(tmp_path, content):
    path = tmp_path / "config.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(train.UserError, match="config.json is not a readable JSON"):
        train.read_config(options(tmp_path, deepspeed_config=str(path)), 2)


@pytest.mark.parametrize("launcher", ["LOCAL_WORLD_SIZE", "LOCAL_SIZE"])
def test_a_rank_takes_its_gpu_only_if_each_rank_has_one(monkeypatch, launcher):
    for name in ("LOCAL_WORLD_SIZE", "LOCAL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(launcher, "2")
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for gpus, device in ((2, "cuda:1"), (4, "cuda:1"), (1, "cpu")):
        monkeypatch.setattr(torch.cuda, "device_count", lambda gpus=gpus: gpus)
        assert train.choose_device("auto") == torch.device(device)
        assert train.choose_device("cpu") == CPU
    with pytest.raises(train.UserError, match="NCCL needs a GPU for each of 2 ranks here, and torch sees 1. Use --device cpu"):
        train.choose_device("cuda")


def test_one_rank_reports_the_error_of_all(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for rank, reported in (("0", True), ("1", False)):
        monkeypatch.setenv("RANK", rank)
        assert train.main(["--device", "cuda"]) == 2
        assert ("NCCL needs a GPU" in capsys.readouterr().err) == reported


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize(
    "words, text",
    [
        ("--steps -1", "--steps -1 makes no sense. Use at least 0."),
        ("--batch 0", "--batch 0 makes no sense. Use at least 1."),
        ("--batch -64", "--batch -64 makes no sense. Use at least 1."),
        ("--accumulate 0", "--accumulate 0 makes no sense. Use at least 1."),
        ("--save-every 0", "--save-every 0 makes no sense. Use at least 1."),
        ("--steps nan", "argument --steps: invalid int value: 'nan'"),
        ("--batch 1e3", "argument --batch: invalid int value: '1e3'"),
        ("--nosuch 3", "unrecognized arguments: --nosuch 3."),
        ("--device tpu", "argument --device: invalid choice: 'tpu'"),
    ],
)
def test_an_option_that_makes_no_sense_is_one_line_of_one_rank(monkeypatch, capsys, words, text, rank):
    monkeypatch.setenv("RANK", rank)
    assert train.main(words.split()) == 2
    said = capsys.readouterr().err
    assert (said.startswith(f"train.py: {text}") and said.count("\n") == 1) if rank == "0" else said == ""


@pytest.mark.parametrize("place", ["file", "file/run", "name" * 100])
def test_a_folder_that_cannot_be_used_is_one_clear_error(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(RankError, match="UserError: --folder .* cannot be used .*Choose another"):
        launch(train.train, options(tmp_path / place), CPU, ranks=1, deadline_seconds=300)


@pytest.mark.parametrize(
    "config, text",
    [
        ({"train_batch_size": "auto"}, '"train_batch_size": "auto". "auto" is for a trainer to fill in: give the value'),
        ({"optimizer": {"params": {"betas": ["auto", 0.9]}}}, '"betas": ["auto". "auto" is for a trainer to fill in'),
        ({"fp16": {"enabled": "auto"}}, '"enabled": "auto"'),
        ({"train_batch_size": "32"}, '"train_batch_size": "32"'),
        ({"optimizer": {"params": {"lr": "1e-3"}}}, '"lr": "1e-3"'),
        ({"train_batch_size": 32.0}, "train_batch_size 32.0. Give a whole number of at least 1"),
        ({"train_batch_size": 0}, "train_batch_size 0. Give a whole number"),
        ({"gradient_accumulation_steps": True}, "gradient_accumulation_steps true. Give a whole number"),
        ({"train_micro_batch_size_per_gpu": [4]}, "train_micro_batch_size_per_gpu [4]. Give a whole number"),
        ([1], "config.json is not a readable JSON file"),
        ("text", "config.json is not a readable JSON file"),
        (None, "config.json is not a readable JSON file"),
    ],
)
def test_a_setting_that_is_no_number_is_named(tmp_path, config, text):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(train.UserError, match=re.escape(text)):
        train.read_config(options(tmp_path, deepspeed_config=str(tmp_path / "config.json")), 2)


def test_a_setting_that_is_null_is_one_that_is_left_out_and_a_mark_of_utf8_is_none(tmp_path):
    config = {"train_batch_size": None, "gradient_accumulation_steps": None, "train_micro_batch_size_per_gpu": 8}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8-sig")
    read = train.read_config(options(tmp_path, deepspeed_config=str(tmp_path / "config.json")), 2)
    assert (read["train_batch_size"], read["gradient_accumulation_steps"]) == (16, 1)


def test_a_name_in_the_json_is_not_taken_for_a_number_in_quotes(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"tensorboard": {"enabled": True, "output_path": ".", "job_name": "-"}}))
    config = train.read_config(options(tmp_path, deepspeed_config=str(tmp_path / "config.json")), 2)
    assert config["tensorboard"]["output_path"] == "."


def load_of_the_other_kind(folder):
    logging.disable()
    (folder / "step-00000001").mkdir(parents=True)
    torch.save({}, folder / "step-00000001" / "mp_rank_00_model_states.pt")
    train.train(options(folder), CPU)


def test_a_snapshot_of_deepspeed_is_not_taken_for_a_plain_one(tmp_path):
    with pytest.raises(RankError, match="was written with DeepSpeed's JSON. Start so, or use"):
        launch(load_of_the_other_kind, tmp_path, ranks=1, deadline_seconds=300)
