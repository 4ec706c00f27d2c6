"""What `fully_shard` has cut is saved with a digest of each file, and what was damaged is refused on every rank."""

import os
import random
import shutil
import subprocess

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException

from hpml_lab.core.system.errors import LabError
from hpml_lab.core.system.launcher import launch
from hpml_lab.sharding.lessons.sharded_checkpoint import DIGESTS, load_sharded, save_sharded

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of a checkpoint without a group, and of its own storages


def run(seed=0):
    """A net and its optimizer after one step, cut over the ranks if there are any."""
    torch.manual_seed(seed)
    net = nn.Linear(8, 6)
    if dist.is_initialized():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        fully_shard(net, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    net(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    return net, optimizer


def numbers(net, optimizer):
    tensors = [*net.parameters(), *(state["exp_avg"] for state in optimizer.state.values())]
    whole = [tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for tensor in tensors]
    return torch.cat([tensor.detach().flatten() for tensor in whole]).tolist()


def save(folder, seed=0):
    made = run(seed)
    save_sharded(folder, *made)
    return numbers(*made)


def load(folder):
    """What a new run holds afterwards, and the error if there is one; it holds what it held before then."""
    made = run(seed=99)
    before = numbers(*made)
    try:
        load_sharded(folder, *made)
    except LabError as error:
        assert numbers(*made) == before
        return str(error)
    return numbers(*made)


def flip(path, bit):
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_one_process_loads_what_it_saved_and_refuses_each_flipped_bit(tmp_path):
    saved = save(tmp_path / "run")
    assert load(tmp_path / "run") == saved
    chance = random.Random(3)
    for name in ("__0_0.distcp", ".metadata"):
        path = tmp_path / "run" / name
        content = path.read_bytes()
        for bit in chance.sample(range(8 * len(content)), 20):
            flip(path, bit)
            assert f"{name}: its content does not match its digest" in load(tmp_path / "run")
            path.write_bytes(content)
    assert load(tmp_path / "run") == saved


@pytest.mark.parametrize("file", ["__1_0.distcp", "__0_0.distcp", DIGESTS])
def test_what_one_rank_finds_is_raised_on_every_rank(file, tmp_path):
    launch(save, tmp_path)
    path = tmp_path / file
    path.write_bytes(path.read_bytes()[:-7])
    first, second = launch(load, tmp_path)
    assert file in first and first == second


def test_another_number_of_ranks_reads_and_writes_over_what_there_is(tmp_path):
    two = launch(save, tmp_path)[0]
    assert launch(load, tmp_path, ranks=1) == [two], "one rank reads the parts of two"
    one = launch(save, tmp_path, 1, ranks=1)[0]
    assert one != two and (tmp_path / "__1_0.distcp").exists()
    assert launch(load, tmp_path) == [one, one], "two ranks read the part of one, beside which an old part lies"


def test_gradients_do_not_keep_moments_from_being_read(tmp_path):
    saved = save(tmp_path)
    net, _ = run(seed=99)
    net(torch.ones(2, 8)).sum().backward()
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)  # no step yet
    load_sharded(tmp_path, net, optimizer)
    assert numbers(net, optimizer) == saved


def test_an_optimizer_of_another_kind_of_training_is_named(tmp_path):
    nets = [nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)]) for _ in range(2)]
    half, whole = (torch.optim.Adam(net.parameters()) for net in nets)
    for net, optimizer, used in ((nets[0], half, 1), (nets[1], whole, 2)):
        sum(layer(torch.ones(1, 2)).sum() for layer in net[:used]).backward()
        optimizer.step()
    save_sharded(tmp_path / "half", nets[0], half)
    with pytest.raises(LabError, match="half does not hold all parts of this net and its optimizer .*1.weight"):
        load_sharded(tmp_path / "half", nets[1], whole)


def test_a_part_of_another_save_is_refused_and_one_that_is_gone_is_named(tmp_path):
    saved = save(tmp_path / "first")
    save(tmp_path / "second", seed=1)
    shutil.copy(tmp_path / "second" / "__0_0.distcp", tmp_path / "first")  # as a second save leaves it that is interrupted
    assert "__0_0.distcp: its content does not match" in load(tmp_path / "first")
    assert save(tmp_path / "first") == saved == load(tmp_path / "first"), "a whole save over it is whole again"
    (tmp_path / "first" / ".metadata").unlink()
    assert ".metadata is not there" in load(tmp_path / "first")


@pytest.mark.skipif(os.name != "posix", reason="a named pipe")
def test_nobody_waits_for_a_part_that_is_a_pipe(tmp_path):
    save(tmp_path)
    (tmp_path / "__0_0.distcp").unlink()
    os.mkfifo(tmp_path / "__0_0.distcp")
    assert "__0_0.distcp is a pipe" in load(tmp_path)
    (tmp_path / DIGESTS).unlink()
    assert "__0_0.distcp is a pipe" in load(tmp_path)
    with pytest.raises(LabError, match="__0_0.distcp is a pipe"):
        save(tmp_path)


def test_what_others_saved_without_digests_is_read(tmp_path):
    saved = save(tmp_path)
    (tmp_path / DIGESTS).unlink()
    assert load(tmp_path) == saved


def save_where_no_digests_can_be_written(folder):
    try:
        save(folder)
    except LabError as error:
        return str(error)


def test_a_save_without_its_digests_fails_on_every_rank(tmp_path):
    (tmp_path / DIGESTS / "a folder, which no file replaces").mkdir(parents=True)
    first, second = launch(save_where_no_digests_can_be_written, tmp_path)
    assert f"{DIGESTS} could not be written" in first and first == second


def test_a_folder_without_parts_and_another_net_are_named(tmp_path):
    assert f"{tmp_path / 'no'} does not hold all parts of this net" in load(tmp_path / "no")
    first, second = launch(load, tmp_path / "no")
    assert "rank 0" in first and first == second
    other = nn.Linear(8, 6, bias=False)
    save_sharded(tmp_path / "other", other, torch.optim.SGD(other.parameters(), lr=0.1))
    assert "does not hold all parts of this net" in load(tmp_path / "other") and "bias" in load(tmp_path / "other")


@pytest.mark.parametrize("error, raised", [(KeyboardInterrupt(), KeyboardInterrupt), (OSError("no room"), LabError)])
def test_an_interrupt_is_no_error_of_the_snapshot(error, raised, tmp_path, monkeypatch):
    def fails(*_, **__):
        raise CheckpointException("", {0: (OSError("no room"), None), 1: (error, None)})

    monkeypatch.setattr("torch.distributed.checkpoint.save", fails)
    with pytest.raises(raised):
        save(tmp_path)
    assert "were not written to the end" in load(tmp_path)


def test_a_place_where_no_part_can_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(LabError, match="run.SHA256SUMS could not be written"):
        save(tmp_path / "file" / "run")


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="no sha256sum")
def test_sha256sum_checks_the_digests_too(tmp_path):
    save(tmp_path)
    said = subprocess.run(["sha256sum", "-c", DIGESTS], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert said == "__0_0.distcp: OK\n.metadata: OK\n"
