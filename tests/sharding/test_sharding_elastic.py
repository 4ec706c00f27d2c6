"""Snapshots that are whole or passed over, sums in one order, and runs that end bitwise identical whichever rank is killed."""

import collections
import copy
import datetime
import decimal
import errno
import hashlib
import io
import os
import pickle
import random
import re
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor

from hpml_lab.core.system.children import run_in_child
from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import launch
from hpml_lab.core.system.rank_errors import RankError
from hpml_lab.sharding.experiments import elastic
from hpml_lab.sharding.experiments.elastic import ShardedResume, under_torchrun
from hpml_lab.sharding.experiments.elastic.on_ranks import Fault, average_by_rank, train
from hpml_lab.sharding.lessons.recovery import (
    DIGITS,
    Snapshots,
    average_in_order,
    best_interval,
    fingerprint,
    launch_elastic,
    my_shards,
)
from hpml_lab.sharding.lessons.training_run import PARTS, TrainingRun

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ranks are forked on Linux only")


# ---- snapshots -----------------------------------------------------------------------------------------------------------


def state(value):
    return {"weights": torch.full((100,), float(value)), "step": value}


def test_the_newest_snapshots_are_kept_and_the_newest_is_read(tmp_path):
    snapshots = Snapshots(tmp_path / "run")
    assert snapshots.newest() is None and snapshots.files() == []
    for step in (5, 10, 999_999, 1_000_000):
        snapshots.save(step, state(step))
    found = snapshots.newest()
    assert (found.step, found.state["step"], found.damaged) == (1_000_000, 1_000_000, ())
    assert torch.equal(found.state["weights"], state(1_000_000)["weights"])
    assert [path.name[:11] for path in snapshots.files()] == ["step1000000", "step999999-"]
    assert torch.load(found.path)["step"] == 1_000_000, "torch.load reads the file as it is"


DAMAGES = {
    "cut in half": lambda content: content[: len(content) // 2],
    "empty": lambda content: b"",
    "one bit flipped": lambda content: content[:300] + bytes([content[300] ^ 1]) + content[301:],
    "zeros": lambda content: bytes(len(content)),
    "longer": lambda content: content + b"\0",
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_snapshot_is_named_and_the_one_before_is_used(damage, tmp_path):
    snapshots = Snapshots(tmp_path, keep=3)
    for step in (5, 10, 15):
        newest = snapshots.save(step, state(step))
    newest.write_bytes(DAMAGES[damage](newest.read_bytes()))
    found = snapshots.newest()
    assert (found.step, found.damaged) == (10, (newest.name,))
    again = snapshots.save(15, state(15))
    assert again == newest and snapshots.newest().step == 15, "the step is done again and its snapshot is whole"


def test_after_two_damaged_snapshots_the_run_that_begins_again_keeps_what_it_saves(tmp_path):
    snapshots = Snapshots(tmp_path)
    for step in (10, 15):
        snapshots.save(step, state(step)).write_bytes(b"no")
    for step, files in ((5, 1), (8, 2)):
        snapshots.save(step, state(step))
        assert snapshots.newest().step == step and len(snapshots.files()) == files
    assert sorted(path.name[:10] for path in tmp_path.glob("*.later")) == ["step000010", "step000015"], "nothing is lost"


def test_after_a_rollback_the_snapshot_that_was_saved_last_is_read_and_the_one_before_it_stays(tmp_path):
    snapshots = Snapshots(tmp_path, keep=3)
    for step in (10, 20, 30):
        snapshots.save(step, state(step))
    path = snapshots.save(np.int64(15), state(15))  # training went on from step 10
    assert [file.name[:10] for file in snapshots.files()] == ["step000015", "step000010"]
    assert snapshots.newest().step == 15
    assert {path.name[:10] for path in tmp_path.glob("*.later")} == {"step000020", "step000030"}, "of another run, perhaps"
    path.write_bytes(b"no")
    assert snapshots.newest().step == 10


def test_no_whole_snapshot_is_none(tmp_path):
    Snapshots(tmp_path).save(5, state(5)).write_bytes(b"no")
    assert Snapshots(tmp_path).newest() is None


def disguised(content):
    return f"step000010-{hashlib.sha256(content).hexdigest()[:DIGITS]}.pt", content


def torch_bytes(value):
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


FOREIGN = {
    "a pickle": disguised(pickle.dumps(os.getcwd)),
    "text under a right digest": disguised(b"no snapshot"),
    "nothing under a right digest": disguised(b""),
    "a pickle in a zip": disguised(torch_bytes(os.getcwd)),
    "a tensor instead of a state": disguised(torch_bytes(torch.ones(2))),
}


def newest_in(folder):
    found = Snapshots(folder).newest()
    return found.step, found.damaged


@pytest.mark.parametrize("kind", ["folder", "pipe", "dangling link", "link to itself", *FOREIGN])
def test_what_only_has_a_snapshots_name_is_passed_over_and_named(kind, tmp_path):
    snapshots = Snapshots(tmp_path)
    snapshots.save(5, state(5))
    name, content = FOREIGN.get(kind, ("step000010-0123456789ab.pt", b""))
    path = tmp_path / name
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif "link" in kind:
        path.symlink_to(name if kind == "link to itself" else "absent")
    else:
        path.write_bytes(content)
    outcome = run_in_child(newest_in, str(tmp_path), method="fork", deadline_seconds=60)
    assert outcome.how == "returned" and outcome.value == (5, (name,)), outcome


def test_a_snapshot_that_vanishes_while_the_folder_is_read_is_passed_over(tmp_path, monkeypatch):
    snapshots = Snapshots(tmp_path)
    snapshots.save(5, state(5))
    listed = [tmp_path / "step000010-0123456789ab.pt", *snapshots.files()]
    monkeypatch.setattr(Snapshots, "files", lambda self: listed)
    assert snapshots.newest().step == 5


def test_an_old_folder_with_a_snapshots_name_does_not_end_a_save(tmp_path):
    (tmp_path / "step000000-0123456789ab.pt").mkdir()
    snapshots = Snapshots(tmp_path)
    for step in (1, 2, 3):
        snapshots.save(step, state(step))
    assert snapshots.newest().step == 3 and len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("step", [-1, "3", 1.0, True, None])
def test_a_step_that_is_no_number_of_steps_is_refused(step, tmp_path):
    with pytest.raises(LabError, match=rf"step={step!r} is not a number of steps"):
        Snapshots(tmp_path).save(step, state(1))
    assert list(tmp_path.iterdir()) == []


def save_and_die(folder):
    os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
    Snapshots(folder).save(10, state(10))


def test_a_writer_that_is_killed_leaves_the_snapshot_before_and_the_next_one_tidies_up(tmp_path):
    snapshots = Snapshots(tmp_path)
    snapshots.save(5, state(5))
    outcome = run_in_child(save_and_die, str(tmp_path), method="fork", deadline_seconds=60)
    assert outcome.exitcode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 2 and snapshots.newest().step == 5
    snapshots.save(10, state(10))
    assert sorted(path.name[:10] for path in tmp_path.iterdir()) == ["step000005", "step000010"]


def test_other_files_in_the_folder_are_left_alone(tmp_path):
    for name in ("step5.pt", "best.pt", "step000005-notes.pt"):
        (tmp_path / name).write_text("mine")
    snapshots = Snapshots(tmp_path)
    for step in (1, 2, 3):
        snapshots.save(step, state(step))
    assert len(list(tmp_path.iterdir())) == 3 + 2


def test_what_a_snapshot_cannot_hold_is_refused_before_it_is_written(tmp_path):
    with pytest.raises(LabError, match=r"net is a torch.nn.modules.linear.Linear. Save its state, net.state_dict\(\)"):
        Snapshots(tmp_path).save(1, {"net": nn.Linear(1, 1)})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(LabError, match="keep=1 leaves nothing to go back to"):
        Snapshots(tmp_path, keep=1)
    with pytest.raises(LabError, match="keep='2' leaves nothing"):
        Snapshots(tmp_path, keep="2")
    with pytest.raises(LabError, match="The state is a torch.nn.modules.linear.Linear. Give a dictionary"):
        Snapshots(tmp_path).save(1, nn.Linear(1, 1))


def test_of_two_states_saved_at_one_step_the_newest_is_read_and_the_step_before_stays(tmp_path):
    snapshots = Snapshots(tmp_path)
    snapshots.save(2, state(2))
    for value in range(20):
        path = snapshots.save(3, state(value))
        assert snapshots.newest().state["step"] == value and [file.name[:10] for file in snapshots.files()] == [
            "step000003",
            "step000002",
        ]
    path.write_bytes(b"no")
    assert snapshots.newest().step == 2


def save_again_and_die(folder):
    Path.unlink = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    Snapshots(folder).save(3, state(1000))


@pytest.mark.parametrize("first", range(6))
def test_a_writer_that_is_killed_before_it_removes_the_older_of_one_step_has_saved_the_newer(first, tmp_path):
    older = Snapshots(tmp_path).save(3, state(first))
    os.utime(older, ns=(1, 1))
    outcome = run_in_child(save_again_and_die, str(tmp_path), method="fork", deadline_seconds=60)
    assert outcome.exitcode == -signal.SIGKILL and len(Snapshots(tmp_path).files()) == 2
    assert Snapshots(tmp_path).newest().state["step"] == 1000


Pair = collections.namedtuple("Pair", "a b")
RING, DEEP = [1], []
RING.append((2, RING))
for _ in range(3000):
    DEEP = [DEEP]
REFUSED = {
    "np.random.get_state()": (np.random.get_state(), r"value[1] is a numpy.ndarray. Save torch.from_numpy(value[1])."),
    "a loss": (np.float64(0.5), "value is a numpy.float64. Save float(value)."),
    "a count": (np.int64(3), "value is a numpy.int64. Save int(value)."),
    "deep inside": ({"best": [1, (2, {"x": np.float32(1)})]}, "value['best'][1][1]['x'] is a numpy.float32. Save float(value["),
    "texts": (np.array(["a"]), "value is a numpy.ndarray. Save value.tolist()."),
    "a key": ({np.int64(3): 1}, "the key np.int64(3) of value is a numpy.int64. Use int(np.int64(3)) as the key."),
    "a set": ({np.float64(1)}, "an element of value is a numpy.float64. Save float(np.float64(1.0))."),
    "a generator": (np.random.default_rng(0), "Generator. Save value.bit_generator.state."),
    "a path": ([Path("x")], "value[0] is a pathlib.PosixPath. Save str(value[0])."),
    "a named tuple": (Pair(1, 2), "Pair. Save tuple(value)."),
    "a named tuple of arrays": (Pair(1, np.zeros(1)), "value[1] is a numpy.ndarray. Save torch.from_numpy(value[1])."),
    "what holds itself": ({"best": RING}, "value['best'][1] is a tuple. It holds itself, or too many others in one another"),
    "lists in lists": (DEEP, "[0] is a list. It holds itself, or too many others in one another"),
    "a lock": (threading.Lock(), "value is a _thread.lock. Save numbers, tensors or texts"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_saved_is_named_with_its_place_and_what_to_save_instead(name, tmp_path):
    value, text = REFUSED[name]
    with pytest.raises(LabError, match=re.escape(text)):
        Snapshots(tmp_path).save(1, {"net": state(1), "value": value})
    assert list(tmp_path.iterdir()) == []


ADVISED = {
    "more digits": np.array([1, 3], np.longdouble) / 3,
    "complex, more digits": np.ones(2, np.clongdouble),
    "the other order of bytes": np.arange(3, dtype=np.dtype(float).newbyteorder()),
    "backwards": np.arange(6)[::-1],
    "backwards in a list": [np.arange(6)[::-1]],
    "one number many times": np.broadcast_to(np.arange(3.0), (2, 3)),
    "16 bits": np.arange(3, dtype=np.uint16),
    "names": np.array(["a", "b"]),
    "dates": np.array(["2020-01-01"], "datetime64[D]"),
    "fields": np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
    "records": np.rec.array([(1, 2.0)]),
    "a truth value": np.bool_(1),
    "a number with more digits": np.longdouble(1) / 3,
    "bytes": np.bytes_(b"a"),
    "an old generator": np.random.RandomState(0),
    "a bit generator": np.random.PCG64(3),
    "Mersenne's": np.random.Generator(np.random.MT19937(1)),
    "Python's generator": random.Random(1),
    "torch's generator": torch.Generator(),
    "a decimal": decimal.Decimal("1.5"),
    "an hour": datetime.datetime(2020, 1, 1, 2),
    "a duration": datetime.timedelta(hours=1),
    "a queue": collections.deque([1]),
    "a range": range(3),
    "numbers once each": frozenset([1]),
    "a default": collections.defaultdict(list, a=[1]),
    "a path": Path("x"),
}


@pytest.mark.parametrize("name", ADVISED)
def test_what_is_advised_can_be_saved(name, tmp_path):
    """Followed as a reader would, place by place: a state may hold an array."""
    state = {"value": copy.deepcopy(ADVISED[name])}
    for _ in range(3):
        try:
            Snapshots(tmp_path).save(1, state)
            break
        except LabError as error:
            place, form = re.search(r"; (value\S*) is a .*Save (.*)\.$", str(error), re.DOTALL).groups()
            state["value"] = changeable(state["value"])
            exec(f"{place} = {form}", {"torch": torch}, state)
    assert "value" in Snapshots(tmp_path).newest().state


def changeable(value):
    """The same with lists for tuples, so that a part can be put into its place."""
    if isinstance(value, dict):
        return {name: changeable(part) for name, part in value.items()}
    return [changeable(part) for part in value] if isinstance(value, list | tuple) else value


def test_the_parts_of_a_masked_array_are_advised(tmp_path):
    with pytest.raises(LabError, match=re.escape("Save torch.from_numpy(value.data) and torch.from_numpy(value.mask).")):
        Snapshots(tmp_path).save(1, {"value": np.ma.array([1.0, 2.0], mask=[0, 1])})


def test_what_is_to_be_saved_in_place_of_numpys_state_gives_it_back(tmp_path):
    kind, keys, *rest = np.random.get_state()
    Snapshots(tmp_path).save(1, {"value": (kind, torch.from_numpy(keys), *rest)})
    found = Snapshots(tmp_path).newest().state["value"]
    assert found[0] == kind and np.array_equal(found[1].numpy(), keys) and list(found[2:]) == rest


# ---- virtual shards ------------------------------------------------------------------------------------------------------

SHARDS = 6


def shard_gradients(shards):
    return {shard: torch.randn(1000, generator=torch.Generator().manual_seed(shard)) for shard in shards}


def averaged():
    mine = my_shards(SHARDS)
    gradients = shard_gradients(mine)
    zeros = {shard: -torch.zeros(4) for shard in mine}
    return mine, average_in_order(gradients, SHARDS), average_in_order(zeros, SHARDS), average_by_rank(gradients, SHARDS)


def test_the_mean_of_shards_has_the_same_bits_on_any_number_of_ranks():
    (mine, alone, zeros, _) = averaged()
    assert mine == list(range(SHARDS))
    right = sum(gradient.double() for gradient in shard_gradients(mine).values()) / SHARDS
    assert torch.allclose(alone.double(), right, atol=1e-6)
    plain = []
    for ranks in (2, 3, 4):
        found = launch(averaged, ranks=ranks)
        assert [row[0] for row in found] == [list(range(rank, SHARDS, ranks)) for rank in range(ranks)]
        for _, mean, negative_zeros, by_rank in found:
            assert torch.equal(mean.view(torch.int32), alone.view(torch.int32))
            assert torch.equal(negative_zeros.view(torch.int32), zeros.view(torch.int32)), "the sign of zero too"
            plain.append(by_rank)
    assert not all(torch.equal(by_rank, alone) for by_rank in plain), "sums by rank are rounded in another order"


def test_more_ranks_than_shards_are_refused():
    with pytest.raises(RankError, match="3 ranks have nothing to do with 2 virtual shards. Use at least one"):
        launch(my_shards, 2, ranks=3)


def test_a_fingerprint_sees_every_bit_of_parameters_and_buffers():
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(torch.bfloat16)
    before = fingerprint(net)
    assert before == fingerprint(net) and len(before) == 64
    net[1].num_batches_tracked += 1
    assert fingerprint(net) != before


# ---- runs ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    return train(str(tmp_path_factory.mktemp("whole")), steps=14)["sha"]


@pytest.mark.parametrize("step", range(0, 14, 3))
def test_whenever_a_rank_is_killed_the_run_ends_with_the_same_bits(step, undisturbed, tmp_path, nothing_left):
    found, failures = launch_elastic(train, str(tmp_path), 14, 5, [Fault(step % 2, step)], ranks=(2, 1), deadline_seconds=100)
    assert [rank["sha"] for rank in found] == [undisturbed]
    assert [(error.rank, error.how) for error in failures] == [(step % 2, "died")]
    assert found[0]["start"] == step // 5 * 5


def test_a_run_is_repeatable_and_learns(undisturbed, tmp_path):
    run = TrainingRun()
    losses = [run.step() for _ in range(36)]
    assert sum(losses[-6:]) < 0.9 * sum(losses[:6]) and run.steps == 36
    assert set(run.state()) == set(PARTS)
    assert train(str(tmp_path), steps=14)["sha"] == undisturbed
    assert train(str(tmp_path), steps=14)["start"] == 10, "a finished run is not done again from the start"


def test_when_the_attempts_are_used_up_the_last_failure_is_raised(tmp_path):
    faults = [Fault(0, 2), Fault(0, 7)]
    with pytest.raises(RankError, match="Rank 0 of 1 was killed by SIGKILL"):
        launch_elastic(train, str(tmp_path), 14, 5, faults, ranks=(2, 1))
    with pytest.raises(LabError, match="ranks is empty"):
        launch_elastic(train, str(tmp_path), ranks=())


def test_the_best_interval_is_where_both_losses_are_least():
    cost, between = 60.0, 11_000.0
    best = best_interval(cost, between)

    def lost(interval):
        return cost / interval + interval / (2 * between)

    assert lost(best) == min(lost(best * factor) for factor in (0.8, 0.9, 1.0, 1.1, 1.25))


# ---- the experiment ------------------------------------------------------------------------------------------------------


def test_the_experiment_is_sound(sound, ran):
    result = ran("elastic")
    sound(result)
    rows = {row.run: row for row in result.rows()}
    assert rows["a rank is killed"].sha == rows["fewer and fewer ranks"].sha == rows["undisturbed"].sha
    assert [attempt["ranks"] for attempt in result.arrays["attempts"]] == [4, 2, 1]
    assert all(curve[-1] > 0 for curve in result.arrays["distances"].values())
    resumed = result.rows(ShardedResume)
    assert [row.ranks for row in resumed] == [2, 4, 1] and all(row.read and row.distance < 1e-5 for row in resumed)
    assert resumed[0].same


def test_the_step_from_which_the_last_ranks_go_on_is_what_they_report(monkeypatch):
    found = [{"start": 15, "damaged": [], "sha": "0"}]
    monkeypatch.setattr(elastic, "launch_elastic", lambda *_, **options: (found, []))
    params = SimpleNamespace(steps=30, every=5, width=32)
    row, attempts, sound = elastic.run("a run", [2, 1], [Fault(0, 20)], params)
    assert (row.goes_on, row.repeated, [attempt.start for attempt in attempts], sound) == ("15", 5, [0, 15], False)


@pytest.mark.environment(
    "torchrun, which starts its ranks again", files=("hpml_lab/sharding/experiments/elastic", "hpml_lab/sharding/lessons")
)
def test_torchrun_ends_with_the_same_bits(tmp_path, nothing_left):
    found = under_torchrun(SimpleNamespace(steps=14, every=5, width=32), Fault(1, 7))
    assert (found["start"], found["restarts"]) == (5, 1), found
    assert found["sha"] == train(str(tmp_path), steps=14)["sha"]


def test_a_snapshot_that_cannot_be_read_now_is_an_error_and_no_older_one_is_taken(tmp_path, monkeypatch):
    """Of a file system over a network: this rank alone would go on from another step than the others."""
    saved = Snapshots(tmp_path, keep=2)
    for step in (1, 2):
        saved.save(step, state(step))
    read = Path.read_bytes

    def stale(path):
        if path.name.startswith("step000002"):
            raise OSError(errno.ESTALE, "Stale file handle")
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", stale)
    with pytest.raises(LabError, match=r"step000002.*cannot be read \(Stale file handle\)"):
        saved.newest()


def test_a_ranks_part_of_a_tensor_is_refused(tmp_path):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        part = distribute_tensor(torch.ones(4), mesh)
        with pytest.raises(LabError, match=r"net\['w'\] is a torch.*DTensor.*net\['w'\].full_tensor\(\)"):
            Snapshots(tmp_path).save(1, {"net": {"w": part}, "step": 1})
        Snapshots(tmp_path).save(1, {"net": {"w": part.full_tensor()}})
        assert torch.equal(Snapshots(tmp_path).newest().state["net"]["w"], torch.ones(4))
    finally:
        dist.destroy_process_group()
